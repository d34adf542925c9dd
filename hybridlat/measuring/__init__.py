"""From networks to records: what is timed, by which protocol, where, and what visits add up to.

In come requests (networks and cells) and a backend, a board behind ssh or a table of others'
latencies; out go records with their raw samples, and a report.

    measurer       requests by the protocol of their engine, on this machine
    replicas, differential, plans
                   the three protocols, each visit made by ``visiting`` or on a board
    statistics     the one analysis, from samples to a latency and its spread
    process, worker
                   the measuring process, from both of its sides
    plan_runs, plan_results, ssh
                   plans measured here or on boards, and read back
    fleet          several devices at once
    tables         whole networks that others measured
"""
