"""The table of experiment 01, from a store or from the shipped pack; measures nothing."""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hybridlat.estimate.compose.composition import SummedNetwork, machine_composition
from hybridlat.evaluation.metrics import Prediction, score
from hybridlat.graph.builder import null_network
from hybridlat.graph.cells import kernels
from hybridlat.graph.network import Lowered
from hybridlat.graph.signature import read, sign
from hybridlat.schema.measurement import Breakdown, Measurement
from hybridlat.schema.target import Target
from hybridlat.store import Store, packs

ROOT = Path(__file__).resolve().parent.parent
METHODS = ("layers, unfused", "engine kernels", "cells", "cells, composed")


@dataclass(frozen=True)
class Row:
    """One network: measured whole (twice: ``first``, ``again``) and as sums of parts, in µs."""

    network: str
    family: str
    latency_us: float
    first_us: float
    again_us: float | None
    sums_us: dict[str, float]


def rows(store: object, target: Target) -> list[Row]:
    """Every network of which the whole and all cells are known."""
    cell, layer = _lookup(store, target, "cell"), _lookup(store, target, "layer")
    entry = cell([sign(null_network(1)).hash]).get(sign(null_network(1)).hash, 0.0)
    first, again = _repeats(store.measurements(target, "network"))  # type: ignore[attr-defined]
    true = _lookup(store, target, "network")(first)  # the median of all times
    breakdowns: list[Breakdown] = list(store.breakdowns(target))  # type: ignore[attr-defined]
    breakdowns = [b for b in breakdowns if b.layers]
    hashes = {h for b in breakdowns for h, _ in b.cells}
    texts = store.signature_texts(hashes)  # type: ignore[attr-defined]
    result = []
    for item in sorted(breakdowns, key=lambda b: b.network):
        if item.signature not in first:
            continue
        known = all(h in texts for h, _ in item.cells)
        kernel_counts = _kernels(item.cells, texts) if known else []
        sums = {
            "layers, unfused": _sum(item.layers, layer),
            "engine kernels": _sum(kernel_counts, cell) if kernel_counts else None,
            "cells": _sum(item.cells, cell),
        }
        result.append(
            Row(
                item.network,
                item.labels.get("set", "nets"),
                true[item.signature],
                first[item.signature],
                again.get(item.signature),
                {name: value + entry for name, value in sums.items() if value is not None},
            )
        )
    return [row for row in result if "cells" in row.sums_us]


def _lookup(
    store: object, target: Target, kind: str
) -> Callable[[Iterable[str]], dict[str, float]]:
    def look(hashes: Iterable[str]) -> dict[str, float]:
        result = store.latencies(target, list(hashes), kind)  # type: ignore[attr-defined]
        return {h: k.latency_us for h, k in result.items() if k.latency_us is not None}

    return look


def _sum(
    parts: Iterable[tuple[str, int]], look: Callable[[Iterable[str]], dict[str, float]]
) -> float | None:
    counts = dict(parts)
    result = look(counts)
    return sum(result[h] * n for h, n in counts.items()) if len(result) == len(counts) else None


def _kernels(cells: Iterable[tuple[str, int]], texts: dict[str, str]) -> list[tuple[str, int]]:
    counts: Counter[str] = Counter()
    for hash_, count in cells:
        network = read(texts[hash_])
        parts = kernels(Lowered(network, ((),) * len(network.nodes), (), ""))
        for part in parts:
            counts[sign(part.network).hash] += count
    return list(counts.items())


def _repeats(records: Iterable[Measurement]) -> tuple[dict[str, float], dict[str, float]]:
    """What each network took, and what it took when measured again."""
    first: dict[str, float] = {}
    again: dict[str, float] = {}
    for record in records:
        if record.latency_us is not None:
            repeat = record.labels.get("repeat", "0")
            if repeat in ("0", "1"):
                (first, again)[int(repeat)][record.signature] = record.latency_us
    return first, again


def composed(measured: Sequence[Row]) -> list[float]:
    """Cells with the composition fitted on all other networks."""
    known = [SummedNetwork(row.latency_us, row.sums_us["cells"]) for row in measured]
    others = [known[:place] + known[place + 1 :] for place in range(len(known))]
    each = zip(others, known, strict=True)
    return [machine_composition(rest, 0.0).latency_us(own.sum_us) for rest, own in each]


def groups(measured: Sequence[Row]) -> dict[str, list[Row]]:
    """Real networks, their two halves by name (the first chose the protocol), NAS."""
    real = [r for r in measured if r.family == "nets"]
    names = sorted(path.stem for path in (ROOT / "data" / "nets").glob("*.onnx"))
    chose = set(names[0::2])
    halves = {
        "data/nets": real,
        "half that chose the protocol": [r for r in real if r.network in chose],
        "the other half": [r for r in real if r.network not in chose],
        "NAS-Bench-201": [r for r in measured if r.family == "nasbench201"],
    }
    return {name: chosen for name, chosen in halves.items() if len(chosen) > 2}


def print_report(url: str | None) -> None:
    """Print the table for every target that the store (or the shipped packs) has networks of."""
    sources: list[tuple[object, Target]]
    if url is not None:
        opened = Store(url)
        sources = [(opened, result) for result in opened.targets()]
    else:
        sources = [(pack, pack.target) for pack in packs.shipped_packs()]
    for source, result in sources:
        if result.engine == "onnxruntime":
            _print_target(source, result)


def _print_target(source: object, target: Target) -> None:
    measured = rows(source, target)
    print(f"{target}: {len(measured)} networks")
    print("| networks | sum of | n | RMSPE % | MAPE % | bias % | worst % | (network) | Spearman |")
    print("|" + "---|" * 9)
    for name, group in groups(measured).items():
        for method in METHODS:
            values = composed(group) if method == "cells, composed" else [
                r.sums_us.get(method, math.nan) for r in group
            ]  # fmt: skip
            pairs = zip(group, values, strict=True)
            _print_line(name, method, [Prediction(r.network, r.latency_us, us) for r, us in pairs])
        twice = [(r.network, r.first_us, r.again_us or math.nan) for r in group]
        _print_line(name, "noise floor (measured again)", [Prediction(*one) for one in twice])


def _print_line(name: str, method: str, predictions: Sequence[Prediction]) -> None:
    given = [one for one in predictions if math.isfinite(one.predicted_us)]
    if len(given) < 3:
        return
    result, worst = score(given), max(given, key=lambda one: abs(one.error_share))
    bias = statistics.fmean(one.error_share for one in given)
    # Networks that tie stand in the order of the page, unlike in score's rank correlation.
    both = ([one.predicted_us for one in given], [one.true_us for one in given])
    spearman = np.corrcoef([np.argsort(np.argsort(us)) for us in both])[0, 1]
    print(
        f"| {name} | {method} | {len(given)} | {result.rmspe:.1f} | {result.mape:.1f} "
        f"| {100 * bias:+.1f} | {100 * worst.error_share:+.1f} | {worst.name} "
        f"| {spearman:.4f} |"
    )
