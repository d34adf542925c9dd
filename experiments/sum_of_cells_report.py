"""The table of experiment 01, from a store or from the shipped pack; measures nothing."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hybridlat.estimate.compose.fitting import leave_one_out
from hybridlat.graph.builder import null_network
from hybridlat.graph.cells import kernels
from hybridlat.graph.network import Lowered
from hybridlat.graph.signature import sign
from hybridlat.graph.signature_reading import read
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


@dataclass(frozen=True)
class Score:
    """Errors over a set of networks, in percent."""

    networks: int
    rmspe: float
    mape: float
    bias: float
    worst: float
    worst_network: str
    spearman: float


def score(names: Sequence[str], predicted: Sequence[float], true: Sequence[float]) -> Score:
    """RMSPE, MAPE, mean error, worst error (signed) and rank correlation."""
    errors = [100 * (p / t - 1) for p, t in zip(predicted, true, strict=True)]
    worst = max(range(len(errors)), key=lambda i: abs(errors[i]))
    ranks = [np.argsort(np.argsort(np.array(v))) for v in (predicted, true)]
    return Score(
        len(errors),
        math.sqrt(statistics.fmean(e * e for e in errors)),
        statistics.fmean(map(abs, errors)),
        statistics.fmean(errors),
        errors[worst],
        names[worst],
        float(np.corrcoef(ranks[0], ranks[1])[0, 1]) if len(errors) > 2 else math.nan,
    )


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
    sums = np.array([row.sums_us["cells"] for row in measured])
    true = np.array([row.latency_us for row in measured])
    return [a + b * s for (a, b), s in zip(leave_one_out(sums, true), sums, strict=True)]


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
            keep = [i for i, v in enumerate(values) if not math.isnan(v)]
            if len(keep) > 2:
                result = score(
                    [group[i].network for i in keep],
                    [values[i] for i in keep],
                    [group[i].latency_us for i in keep],
                )
                print(_line(name, method, result))
        both = [r for r in group if r.again_us is not None]
        if len(both) > 2:
            floor = score(
                [r.network for r in both],
                [r.again_us or 0.0 for r in both],
                [r.first_us for r in both],
            )
            print(_line(name, "noise floor (measured again)", floor))


def _line(name: str, method: str, result: Score) -> str:
    return (
        f"| {name} | {method} | {result.networks} | {result.rmspe:.1f} | {result.mape:.1f} "
        f"| {result.bias:+.1f} | {result.worst:+.1f} | {result.worst_network} "
        f"| {result.spearman:.4f} |"
    )
