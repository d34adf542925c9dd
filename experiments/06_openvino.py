"""Does the differential protocol give the latency of whole networks on OpenVINO?

    python experiments/06_openvino.py measure --out records.json [--nets a,b] [--batch 6]
    python experiments/06_openvino.py report  --out records.json

Every network of ``data/nets`` is measured whole, by its cells with the differential protocol, and
by its cells, its fused kernels and its unfused layers timed alone; and whole once more at the end
of its batch, for the noise floor. ``measure`` takes batches of networks, keeps each in ``--out``
when it is done, and goes on where it was cut off; about one minute a network on a quiet core.
``report`` prints RMSPE = 100·sqrt(mean(((p−m)/m)²)) of each sum against the whole network. Every
batch's parts, networks among them, are shuffled together between runs of a reference network, which
divide the machine's drift out.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hybridlat.backends import open_backend  # noqa: E402
from hybridlat.backends.base import Backend  # noqa: E402
from hybridlat.core.measurement import Measurement  # noqa: E402
from hybridlat.core.network import Lowered, Network  # noqa: E402
from hybridlat.measure_differential import (  # noqa: E402
    Effort,
    Part,
    isolated_parts,
    measure_differential,
    parts_of,
    whole,
)
from hybridlat.onnx_io import read_network  # noqa: E402

NETS = ROOT / "data" / "nets"
METHODS = ("layers, unfused", "kernels", "cells", "cells, differential")
Parts = list[tuple[Part, int]]


def parts_by_method(name: str, network: Network, lowered: Lowered) -> dict[str, Parts]:
    """What is summed, and how often, for each method."""
    file = Lowered(network, tuple((i,) for i in range(len(network.nodes))), (), "file")
    return {
        "layers, unfused": isolated_parts(name, network, file, by="kernels"),
        "kernels": isolated_parts(name, network, lowered, by="kernels"),
        "cells": isolated_parts(name, network, lowered, by="cells"),
        "cells, differential": parts_of(name, network, lowered),
    }


def measure_batch(backend: Backend, names: list[str], effort: Effort) -> dict[str, object]:
    """Measure a few networks together; the sums of each, and its own latency, twice."""
    networks = {name: read_network(NETS / f"{name}.onnx") for name in names}
    plans = {n: parts_by_method(n, net, backend.lower(net)) for n, net in networks.items()}
    distinct: dict[tuple[str, str], Part] = {}
    for plan in plans.values():
        for method, parts in plan.items():
            for part, _ in parts:
                differential = method == METHODS[-1]
                distinct.setdefault(
                    (part.signature, "difference" if differential else "alone"), part
                )
    keys = list(distinct)
    parts = [whole(name, network) for name, network in networks.items()]
    records = measure_differential(backend, [*parts, *distinct.values()], effort, _progress)
    again = measure_differential(backend, parts, effort)
    found = dict(zip(keys, records[len(parts) :], strict=True))
    results: dict[str, object] = {}
    for place, name in enumerate(names):
        sums = {
            method: _sum(
                [
                    (found[part.signature, "difference" if method == METHODS[-1] else "alone"], n)
                    for part, n in plans[name][method]
                ]
            )
            for method in METHODS
        }
        results[name] = {
            "whole_us": records[place].latency_us,
            "again_us": again[place].latency_us,
            "failure": records[place].failure,
            "sums_us": sums,
        }
    return results


def _sum(parts: list[tuple[Measurement, int]]) -> float | None:
    if any(record.latency_us is None for record, _ in parts):
        return None
    return math.fsum((record.latency_us or 0.0) * count for record, count in parts)


def _progress(done: int, total: int) -> None:
    if done % 50 == 0 or done == total:
        print(f"  {done} of {total} visits", file=sys.stderr, flush=True)


def rmspe(pairs: list[tuple[float, float]]) -> float:
    """Root mean square percentage error of (predicted, measured)."""
    return 100 * math.sqrt(statistics.fmean(((p - m) / m) ** 2 for p, m in pairs))


def report(results: dict[str, dict[str, object]]) -> None:
    """Print each network's errors, then the RMSPE of every method beside the noise floor."""
    errors: dict[str, list[tuple[float, float]]] = {method: [] for method in METHODS}
    floor: list[tuple[float, float]] = []
    print(f"{'network':26} {'whole us':>10} {'again %':>8}  sums against it, %")
    for name, result in sorted(results.items()):
        measured, again = result["whole_us"], result["again_us"]
        if not isinstance(measured, float) or not isinstance(again, float):
            print(f"{name:26} failed: {result['failure']}")
            continue
        floor.append((again, measured))
        sums = result["sums_us"]
        assert isinstance(sums, dict)
        shown = []
        for method in METHODS:
            if sums[method] is not None:
                errors[method].append((sums[method], measured))
                shown.append(f"{method} {100 * (sums[method] / measured - 1):+.1f}")
        print(
            f"{name:26} {measured:10.1f} {100 * (again / measured - 1):+8.1f}  {', '.join(shown)}"
        )
    print(f"\nRMSPE over {len(floor)} networks")
    for method, pairs in errors.items():
        if pairs:
            bias = statistics.fmean(100 * (p / m - 1) for p, m in pairs)
            print(f"{method:24} {rmspe(pairs):6.1f} %   bias {bias:+.1f} %   {len(pairs)} networks")
    if floor:
        print(f"{'measured again':24} {rmspe(floor):6.1f} %   (noise floor)")


def main() -> None:
    """Measure or report; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("measure", "report"))
    parser.add_argument("--out", type=Path, required=True, help="JSON file with the results so far")
    parser.add_argument("--nets", help="names of networks, comma-separated; else all")
    parser.add_argument("--batch", type=int, default=6, help="networks measured together")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=float, help="start no further batch after so many seconds")
    arguments = parser.parse_args()
    results = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    if arguments.command == "measure":
        names = sorted(path.stem for path in NETS.glob("*.onnx"))
        chosen = arguments.nets.split(",") if arguments.nets else names
        todo = [name for name in chosen if name not in results]
        backend = open_backend("openvino")
        started = time.monotonic()
        for at in range(0, len(todo), arguments.batch):
            if arguments.budget and time.monotonic() - started > arguments.budget:
                print(f"{len(todo) - at} networks are left: run it again", file=sys.stderr)
                break
            batch = todo[at : at + arguments.batch]
            print(f"{time.monotonic() - started:6.0f} s: {', '.join(batch)}", file=sys.stderr)
            results |= measure_batch(backend, batch, Effort(rounds=arguments.rounds))
            arguments.out.write_text(json.dumps(results, indent=1))
    report(results)


if __name__ == "__main__":
    main()
