"""Does the differential protocol give the latency of whole networks on OpenVINO?

    python experiments/06_openvino.py measure --store FILE [--budget 200] [--nets a,b]
    python experiments/06_openvino.py report  --store FILE

``measure`` visits every network of ``data/nets`` whole, by its cells with the differential
protocol, and by its cells, fused kernels and unfused layers timed alone; and whole once more when
all that is done, for the noise floor. What is in the store is not measured again: a run that its
budget (seconds) or anything else cut off goes on where it was. It takes about two hours in all on a
quiet core.

``report`` prints RMSPE = 100·sqrt(mean(((p−m)/m)²)) of each sum against the whole network, over
all networks, the half (every second by name) that the protocol was chosen on, and the other half:
the table of ``experiments/openvino.md``.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hybridlat.engines.base import Backend
from hybridlat.engines.registry import open_backend
from hybridlat.graph.builder import null_network
from hybridlat.graph.cells import cut, file_part, kernels
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.signature import sign
from hybridlat.measuring.pairs import pairs_of, working_bytes
from hybridlat.measuring.replicas import measure
from hybridlat.measuring.schedule import Job, MeasurementConfig
from hybridlat.onnx_io import read_network
from hybridlat.store import Store

NETS = ROOT / "data" / "nets"
DIFFERENTIAL = "cells, differential"
METHODS = ("layers, unfused", "kernels alone", "cells alone", DIFFERENTIAL)
AGAIN = "noise floor (measured again)"
SUMS = MeasurementConfig()
# The sums of parts timed alone are tens of per cent off: one round shows that.
ALONE = MeasurementConfig(rounds=1, processes=1, max_processes=1)


@dataclass
class Result:
    """What was found for a network; sums by method, all in microseconds."""

    whole_us: float
    again_us: float | None
    sums_us: Mapping[str, float]

    def error(self, method: str) -> float | None:
        """How far a sum, or the second measuring, is from the network (relative)."""
        us = self.again_us if method == AGAIN else self.sums_us.get(method)
        return None if us is None else us / self.whole_us - 1


def chosen_on(names: Sequence[str]) -> frozenset[str]:
    """The half that the protocol was chosen on: every second network by name."""
    return frozenset(sorted(names)[::2])


def rmspe(errors: Sequence[float]) -> float:
    """Root mean square of relative errors, in per cent."""
    return 100 * math.sqrt(statistics.fmean(error**2 for error in errors))


def table(told: Mapping[str, Result], every: Sequence[str]) -> list[str]:
    """The figures of each method for all networks and for each half, as Markdown."""
    half = chosen_on(every)
    lines = [
        "| networks | sum of | n | RMSPE % | MAPE % | bias % | worst % | (network) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for label, names in (
        ("data/nets", sorted(every)),
        ("half that chose the protocol", sorted(half)),
        ("the other half", sorted(set(every) - half)),
    ):
        for method in (*METHODS, AGAIN):
            result = {name: told[name].error(method) for name in names if name in told}
            errors = {name: error for name, error in result.items() if error is not None}
            if errors:
                worst = max(errors, key=lambda name: abs(errors[name]))
                shares = list(errors.values())
                lines.append(
                    f"| {label} | {method} | {len(errors)} | {rmspe(shares):.1f} "
                    f"| {100 * statistics.fmean(map(abs, shares)):.1f} "
                    f"| {100 * statistics.fmean(shares):+.1f} "
                    f"| {100 * errors[worst]:+.1f} | {worst} |"
                )
    return lines


@dataclass
class Plan:
    """A network, and by each method what is measured and how often each part (by hash) counts."""

    name: str
    network: Network
    jobs: dict[str, list[Job]]
    counts: dict[str, Counter[str]]

    @property
    def whole(self) -> Job:
        """The network itself."""
        return Job(sign(self.network), self.network, "network", {"network": self.name})


def plan_of(name: str, backend: Backend) -> Plan:
    """Read a network of data/nets, lower it, and cut it."""
    network = read_network(NETS / f"{name}.onnx", name=name)
    lowered = backend.lower(network)
    file = Lowered(network, tuple((i,) for i in range(len(network.nodes))), (), "file")
    cells = Counter(sign(cell.network).hash for cell in cut(lowered, network) if cell.origins)
    jobs, counts = {DIFFERENTIAL: pairs_of(name, network, lowered)}, {DIFFERENTIAL: cells}
    for method, (graph, by) in zip(
        METHODS, ((file, kernels), (lowered, kernels), (lowered, cut)), strict=False
    ):
        alone = [file_part(network, graph, c.origins) for c in by(graph, network) if c.origins]
        labels, room_bytes = {"network": name}, working_bytes(network)
        of_method = [Job(sign(part), part, "layer", labels, None, room_bytes) for part in alone]
        counts[method] = Counter(job.signature.hash for job in of_method)
        jobs[method] = list({job.signature.hash: job for job in of_method}.values())
    return Plan(name, network, jobs, counts)


def measure_all(
    plans: Sequence[Plan], backend: Backend, store: Store, budget_s: float,
    settings: MeasurementConfig = SUMS, alone: MeasurementConfig = ALONE,
) -> None:  # fmt: skip
    """Measure what the store lacks, network by network, until the budget is spent."""
    end = time.monotonic() + budget_s

    def run(jobs: Sequence[Job], how: MeasurementConfig) -> None:
        known = {key: store.latencies(backend.target, [j.signature.hash for j in jobs], key)
                 for key in ("cell", "layer", "network")}  # fmt: skip
        repeated = 2 if jobs[0].labels.get("repeat") else 1
        missing = [
            job for job in jobs
            if job.signature.hash not in known[job.kind]
            or known[job.kind][job.signature.hash].records < repeated
        ]  # fmt: skip
        left_s = end - time.monotonic()
        if missing and left_s > 0:
            options = backend.options_for(backend.target, None)
            measure(backend, options, missing, store, replace(how, budget_s=left_s))

    for plan in plans:
        run([plan.whole, *plan.jobs[DIFFERENTIAL]], settings)
    for plan in plans:
        run([job for method in METHODS[:3] for job in plan.jobs[method]], alone)
    repeat = {"repeat": "1"}
    run([replace(p.whole, labels={**p.whole.labels, **repeat}) for p in plans], settings)


def results(plans: Sequence[Plan], backend: Backend, store: Store) -> dict[str, Result]:
    """Sums of parts, entering the engine counted once, beside the whole network."""
    target, entry = backend.target, sign(null_network(1)).hash
    known = store.latencies(target, [entry])
    overhead_us = known[entry].latency_us or 0.0 if known else 0.0
    told: dict[str, Result] = {}
    for plan in plans:
        wholes = [r.latency_us for r in store.measurements(target, "network",
                                                           plan.whole.signature.hash)]  # fmt: skip
        if not wholes or wholes[0] is None:
            continue
        sums: dict[str, float] = {}
        for method, counts in plan.counts.items():
            kind = "cell" if method == DIFFERENTIAL else "layer"
            stats = store.latencies(target, list(counts), kind)
            us = [stats[h].latency_us for h in counts if h in stats]
            if len(us) == len(counts) and None not in us:
                parts = zip(us, counts.values(), strict=True)
                sums[method] = overhead_us + math.fsum((u or 0.0) * n for u, n in parts)
        told[plan.name] = Result(wholes[0], wholes[1] if len(wholes) > 1 else None, sums)
    return told


def main() -> None:
    """Measure or report; see the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("command", choices=("measure", "report"))
    parser.add_argument("--store", type=Path, required=True, help="the records made so far")
    parser.add_argument("--nets", help="names of networks, comma-separated; else all")
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds of measuring")
    arguments = parser.parse_args()
    backend = open_backend("openvino")
    names = sorted(path.stem for path in NETS.glob("*.onnx"))
    plans = [plan_of(name, backend) for name in (arguments.nets or ",".join(names)).split(",")]
    with Store(arguments.store) as store:
        if arguments.command == "measure":
            measure_all(plans, backend, store, arguments.budget)
        else:
            print("\n".join(table(results(plans, backend, store), names)))


if __name__ == "__main__":
    main()
