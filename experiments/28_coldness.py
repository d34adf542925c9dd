"""How cold is a cell inside a network on this machine, and how much depends on knowing it?

    python experiments/28_coldness.py measure --to FILE [--factors 0.25 0.5 1 2] [NETWORK ...]
    python experiments/28_coldness.py show FILE [--draws 300]

``measure`` visits networks of ``data/nets`` whole, and their cells with several multiples of the
usual number of replicas, all shuffled together in every round, each round in a process of its own:
what differs is the coldness alone. ``show`` prints, for each multiple, by how much the sums of
cells are off; and what a calibration by so many networks, drawn at random, would have made of the
others (``hybridlat/measuring/coldness.py``; errors are interpolated between multiples).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hybridlat import onnx_io
from hybridlat.engines import registry
from hybridlat.estimate.partition import partition_network
from hybridlat.graph.signature_reading import read
from hybridlat.measuring.coldness import FACTORS, best_factor
from hybridlat.measuring.messages import VisitTask
from hybridlat.measuring.process import MeasuringProcess
from hybridlat.measuring.schedule import probe_key, probe_tasks, replicas_for
from hybridlat.measuring.statistics import level_us, usual_us
from hybridlat.measuring.target_constants import PROBE_LENGTHS, fit_dispatch_overhead_us

NETWORKS = """\
squeezenet mobilenetv3_small_100 shufflenet_v2 mnasnet_100 efficientnet_lite0 lcnet_100 regnetx_008
ghostnet_100 mobilenetv2_100 hgnetv2_b0 resnest14d fbnetc_100 repvgg_a0 starnet_s1 rexnet_100
mobilenetv3_large_100 fasternet_t0 mobilenetv4_conv_small efficientnet_b0 convnext_atto regnety_008
ese_vovnet19b_dw mobileone_s1 resnet18 inception_v1 shufflenet resnet34 dpn68 darknet53 densenet121
"""
VISIT_MS, NETWORK_VISIT_MS, NETWORK_VISITS, PROBE_VISITS = 10.0, 100.0, 4, 8
Reports = dict[str, list[tuple[float, float]]]


def measure(names: list[str], factors: list[float], rounds: int, file: Path) -> None:
    """Visit everything ``rounds`` times; FILE holds levels and references in µs."""
    kind = registry.load_backend("onnxruntime")
    options = kind.options_for(None, None)
    backend = kind(**options)
    tasks: dict[tuple[str, int], VisitTask] = {}
    uses: dict[str, list[tuple[str, int]]] = {}
    for name in names:
        network = onnx_io.read_network(ROOT / "data" / "nets" / f"{name}.onnx", name=name)
        passed = (*network.folded, *(left for left, _ in network.left_out))
        every = (*(node.name for node in network.nodes), *passed)
        parts = partition_network(network, backend.lower(network), every)
        uses[name] = [(use.signature, use.count) for use in parts.uses]
        for turn in range(NETWORK_VISITS):
            task = VisitTask(f"network/{name}", network, False, NETWORK_VISIT_MS, 1, turn)
            tasks[task.key, turn] = task
        for use in parts.uses:
            cell = read(parts.texts[use.signature], use.signature)
            for factor in factors:
                key, count = f"{factor:g}/{use.signature}", replicas_for(cell, factor)
                tasks[key, 0] = VisitTask(key, cell, True, VISIT_MS, count, 0)
    everything = list(tasks.values())
    for turn in range(PROBE_VISITS):
        everything += probe_tasks(turn)
    reports: Reports = {}
    began = time.monotonic()
    for round_ in range(rounds):
        order = list(everything)
        random.Random(round_).shuffle(order)
        with MeasuringProcess(registry.place_of(backend), options) as worker:
            for place, task in enumerate(order):
                seeded = VisitTask(task.key, task.network, task.lowered, task.visit_ms,
                                   task.replicas, 1 + 100 * round_ + task.seed)  # fmt: skip
                found = worker.ask(seeded)
                if found is None:
                    sys.exit(f"{task.network.name}: {worker.last_words()}")
                if found.samples_us:
                    level = level_us(found.samples_us)
                    reports.setdefault(task.key, []).append((level, found.reference_us))
                if place % 100 == 0:
                    done = round_ + place / len(order)
                    said = f"{100 * done / rounds:.0f} %, {time.monotonic() - began:.0f} s"
                    print(said, file=sys.stderr)
    body = {"factors": factors, "networks": uses, "reports": reports}
    file.write_text(json.dumps(body) + "\n")


def errors_of(body: dict[str, object]) -> tuple[list[str], np.ndarray, dict[str, float]]:
    """Names, sum / whole - 1 for each network and factor, and the networks' latencies in µs."""
    reports: Reports = body["reports"]  # type: ignore[assignment]
    networks: dict[str, list[tuple[str, int]]] = body["networks"]  # type: ignore[assignment]
    factors: list[float] = body["factors"]  # type: ignore[assignment]
    usual = usual_us([reference for found in reports.values() for _, reference in found])
    levels = {k: [us * usual / ref for us, ref in found] for k, found in reports.items()}
    overhead_us = fit_dispatch_overhead_us({n: levels[probe_key(n)] for n in PROBE_LENGTHS})
    median = {key: statistics.median(found) for key, found in levels.items()}
    wholes = {name: median[f"network/{name}"] for name in networks}
    rows = []
    for name, cells in networks.items():
        sums = [
            overhead_us
            + sum(n * max(median[f"{factor:g}/{h}"] - overhead_us, 0.05) for h, n in cells)
            for factor in factors
        ]
        rows.append([total / wholes[name] - 1 for total in sums])
    return list(networks), np.array(rows), wholes


def show(file: Path, draws: int) -> None:
    """The tables."""
    body = json.loads(file.read_text())
    factors = body["factors"]
    names, errors, wholes = errors_of(body)
    head = [f"{factor:g} times" for factor in factors]
    print("| network | whole, ms | " + " | ".join(head) + " |")
    print("|---|--:|" + "--:|" * len(factors))
    for name, row in sorted(zip(names, errors, strict=True), key=lambda item: wholes[item[0]]):
        cells = " | ".join(f"{100 * e:+.1f}" for e in row)
        print(f"| `{name}` | {wholes[name] / 1e3:.1f} | {cells} |")
    rmspe = 100 * np.sqrt(np.mean(errors**2, axis=0))
    for label, values in (
        ("RMSPE %", rmspe), ("bias %", 100 * errors.mean(axis=0)),
        ("scatter around the bias %", 100 * errors.std(axis=0)),
    ):  # fmt: skip
        print(f"| **{label}** | | " + " | ".join(f"{v:.1f}" for v in values) + " |")
    if any(factor not in factors for factor in FACTORS):
        return
    tried = errors[:, [factors.index(factor) for factor in FACTORS]]
    octaves = np.log2(factors)
    print("\n| networks that calibrate | factor | RMSPE of the others % | as usual % |")
    print("|--:|---|--:|--:|")
    for count in (5, 6, 8, 10):
        if count >= len(names):
            break
        found, with_it, without = [], [], []
        for draw in range(draws):
            order = np.random.default_rng(draw).permutation(len(names))
            own, others = order[:count], order[count:]
            factor = best_factor(tried[own])
            found.append(factor)
            made = [np.interp(math.log2(factor), octaves, errors[i]) for i in others]
            with_it.append(math.sqrt(np.mean(np.square(made))))
            without.append(math.sqrt(np.mean(np.square(tried[others, FACTORS.index(1.0)]))))
        low, high = np.quantile(found, (0.1, 0.9))
        print(f"| {count} | {np.median(found):.2f} ({low:.2f} to {high:.2f}) "
              f"| {100 * np.mean(with_it):.2f} | {100 * np.mean(without):.2f} |")  # fmt: skip


def main() -> None:
    """Measure, or show what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    steps = parser.add_subparsers(dest="step", required=True)
    one = steps.add_parser("measure")
    one.add_argument("--to", type=Path, required=True)
    one.add_argument("--factors", type=float, nargs="+", default=[0.25, 0.5, 1.0, 2.0])
    one.add_argument("--rounds", type=int, default=2)
    one.add_argument("networks", nargs="*", default=NETWORKS.split())
    two = steps.add_parser("show")
    two.add_argument("file", type=Path)
    two.add_argument("--draws", type=int, default=300)
    given = parser.parse_args()
    if given.step == "measure":
        measure(given.networks, given.factors, given.rounds, given.to)
    else:
        show(given.file, given.draws)


if __name__ == "__main__":
    main()
