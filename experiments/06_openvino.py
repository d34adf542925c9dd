"""Does the differential protocol give the latency of whole networks on OpenVINO?

    python experiments/06_openvino.py measure --journal FILE [--budget 200] [--nets a,b]
    python experiments/06_openvino.py report  --journal FILE

``measure`` visits every network of ``data/nets`` whole, by its cells with the differential
protocol, and by its cells, fused kernels and unfused layers timed alone; and whole once more when
all that is done, for the noise floor. Every visit is kept in the journal (JSON lines) as soon as it
is made: a run that its budget (seconds) or anything else cut off goes on where it was. It takes
about twenty minutes in all on a quiet core.

``report`` prints RMSPE = 100·sqrt(mean(((p−m)/m)²)) of each sum against the whole network, over
all networks, the half (every second by name) that the protocol was chosen on, and the other half:
the table of ``experiments/openvino.md``.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hybridlat.engines.base import Backend
from hybridlat.engines.fusion.groups import Groups, lowered_of
from hybridlat.engines.registry import open_backend
from hybridlat.graph.cells import cut, file_part, kernels
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.signature import sign
from hybridlat.measuring.differential import Differential, DifferentialConfig
from hybridlat.measuring.pairs import Part, parts_of, whole, working_bytes
from hybridlat.onnx_io import read_network

NETS = ROOT / "data" / "nets"
DIFFERENTIAL = "cells, differential"
METHODS = ("layers, unfused", "kernels alone", "cells alone", DIFFERENTIAL)
AGAIN = "noise floor (measured again)"
Parts = list[tuple[Part, int]]


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


class JournalFile(MutableMapping[str, Any]):
    """A mapping kept in a file of JSON lines, the newest line of a key counting."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self._held: dict[str, Any] = {}
        for line in lines:
            try:
                self._held.update(json.loads(line))
            except ValueError:
                continue  # cut off while it was written: that visit is made again

    def __getitem__(self, key: str) -> Any:
        return self._held[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._held[key] = value
        with self._path.open("a") as out:
            out.write(json.dumps({key: value}, separators=(",", ":")) + "\n")

    def __delitem__(self, key: str) -> None:
        del self._held[key]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._held))

    def __len__(self) -> int:
        return len(self._held)


@dataclass
class Plan:
    """A network, what it falls into by each method, and how often each part counts."""

    name: str
    network: Network
    lowered: Lowered
    whole: Part
    parts: dict[str, Parts]


def plan_of(name: str, backend: Backend, journal: JournalFile) -> Plan:
    """Read a network of data/nets, lower it, and cut it; the engine is asked once a journal."""
    network = read_network(NETS / f"{name}.onnx", name=name)
    if f"lowered/{name}" not in journal:
        asked = backend.lower(network)
        journal[f"lowered/{name}"] = [asked.origins, asked.removed, asked.by]
    kernels, removed, by = journal[f"lowered/{name}"]
    lowered = lowered_of(network, Groups(tuple(map(tuple, kernels)), tuple(removed)), by)
    file = Lowered(network, tuple((i,) for i in range(len(network.nodes))), (), "file")
    parts = {
        METHODS[0]: _renamed(isolated_parts(name, network, file, by="kernels"), "layers"),
        METHODS[1]: isolated_parts(name, network, lowered, by="kernels"),
        METHODS[2]: isolated_parts(name, network, lowered, by="cells"),
        DIFFERENTIAL: parts_of(name, network, lowered),
    }
    return Plan(name, network, lowered, whole(name, network), parts)


def isolated_parts(
    name: str, network: Network, lowered: Lowered, *, by: str
) -> list[tuple[Part, int]]:
    """The cells (``by="cells"``) or kernels of a lowered network, each timed alone.

    With the file itself for ``lowered``, kernels are its unfused layers.
    """
    counts: dict[str, tuple[Part, int]] = {}
    room_bytes = working_bytes(network)
    for cell in (cut if by == "cells" else kernels)(lowered, network):
        if cell.origins:
            alone = file_part(network, lowered, cell.origins)
            signature = sign(alone)
            part = Part(signature, "layer", alone, None, {"network": name, "by": by}, room_bytes)
            counts[signature.hash] = (part, counts.get(signature.hash, (part, 0))[1] + 1)
    return list(counts.values())


def _renamed(parts: Parts, by: str) -> Parts:
    return [(replace(part, labels={**part.labels, "by": by}), count) for part, count in parts]


def runs(
    backend: Backend, plans: list[Plan], journal: JournalFile, rounds: int
) -> dict[str, Differential]:
    """The four runs, in the order in which they are made.

    The sums of parts timed alone are tens of per cent off: one round shows that.
    """
    efforts = {
        "cells": DifferentialConfig(rounds, rounds + 2),
        "again": DifferentialConfig(rounds, rounds + 2, seed=1),
        "layers": DifferentialConfig(1, 1, session_ms=5.0),
        "alone": DifferentialConfig(1, 1, session_ms=5.0),
    }
    cells = [p for plan in plans for p in (plan.whole, *(q for q, _ in plan.parts[DIFFERENTIAL]))]
    layers = [q for plan in plans for q, _ in plan.parts[METHODS[0]]]
    alone = [q for plan in plans for method in METHODS[1:3] for q, _ in plan.parts[method]]
    again = [plan.whole for plan in plans]
    parts = {"cells": cells, "again": again, "layers": layers, "alone": alone}
    return {key: Differential(backend, parts[key], efforts[key], journal) for key in parts}


def measure(made: dict[str, Differential], budget_s: float) -> None:
    """Go on with the runs until all visits are made, or for so long."""
    began = time.monotonic()

    def progress(done: int, total: int) -> None:
        if done % 100 == 0:
            print(f"  {done} of {total} visits", file=sys.stderr, flush=True)
        if time.monotonic() - began > budget_s:
            raise TimeoutError

    try:
        for run in made.values():
            run.visit(progress)
    except TimeoutError:
        print("the budget ended it: run it again", file=sys.stderr)


def results(made: dict[str, Differential], plans: list[Plan]) -> dict[str, Result]:
    """Sums of parts, entering the engine counted once, beside the whole network."""
    result: dict[tuple[str, str, str, str], float] = {}
    for key, run in made.items():
        for record in run.records():
            if record.latency_us is not None:
                result[key, record.labels["network"], record.labels.get("by", record.kind),
                      record.signature] = record.latency_us  # fmt: skip
    kinds = dict(zip(METHODS, ("layers", "kernels", "cells", "cell"), strict=True))
    told: dict[str, Result] = {}
    for plan in plans:
        ends = [result.get((k, plan.name, "network", plan.whole.signature.hash))
                for k in ("cells", "again")]  # fmt: skip
        if ends[0] is None:
            continue
        sums: dict[str, float] = {}
        for method, kind in kinds.items():
            run = {DIFFERENTIAL: "cells", METHODS[0]: "layers"}.get(method, "alone")
            parts = [(result.get((run, plan.name, kind, p.signature.hash)), n)
                     for p, n in plan.parts[method]]  # fmt: skip
            if all(us is not None for us, _ in parts):
                total = math.fsum((us or 0.0) * n for us, n in parts)
                sums[method] = made[run].overhead_us + total
        told[plan.name] = Result(ends[0], ends[1], sums)
    return told


def main() -> None:
    """Measure, report or keep; see the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("command", choices=("measure", "report"))
    parser.add_argument("--journal", type=Path, required=True, help="the visits made so far")
    parser.add_argument("--nets", help="names of networks, comma-separated; else all")
    parser.add_argument("--rounds", type=int, default=3, help="calm visits of every part")
    parser.add_argument("--budget", type=float, help="start no visit after so many seconds")
    arguments = parser.parse_args()
    began = time.monotonic()
    backend = open_backend("openvino")
    names = sorted(path.stem for path in NETS.glob("*.onnx"))
    chosen = arguments.nets.split(",") if arguments.nets else names
    journal = JournalFile(arguments.journal)
    plans = [plan_of(name, backend, journal) for name in chosen]
    made = runs(backend, plans, journal, arguments.rounds)
    if arguments.command == "measure":
        measure(made, (arguments.budget or math.inf) - (time.monotonic() - began))
        return
    print("\n".join(table(results(made, plans), names)))


if __name__ == "__main__":
    main()
