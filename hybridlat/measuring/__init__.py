"""From networks to records: what is timed, by which protocol, where, and what visits add up to.

In come requests and a backend, a remote host or a table; out go records with their raw samples.

    measurer            requests by the protocol of their engine, and what that adds
    replicas, schedule  one run in measuring processes: copies of cells, or cells with predecessors
    statistics          the one analysis, from samples to a latency and its spread
    machine             what belongs to no network: overhead, reference latency, steadiness
    process             the measuring process, from both of its sides
    plans, plan_*, ssh  the same pairs by a plan, measured here or on boards, and read back
    tables              whole networks that others measured
"""
