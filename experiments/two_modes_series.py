"""Series of measured convolutions, and what explains their latency: outputs, waves, alignment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.public_data.convolutions import v100_tensorrt_conv
from hybridlat.engines import device_sheets
from hybridlat.graph.operators import KINDS
from hybridlat.model.geometry import COLUMN, TILES, Geometry, View, geometry
from hybridlat.schema.target import Target

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Rows:
    """Measured single-kernel convolutions of one target."""

    target: Target
    texts: list[str]
    latencies_us: Array

    @property
    def cells(self) -> Geometry:
        return geometry(self.texts)

    def view(self) -> View:
        device = device_sheets.of_target(self.target)
        return View(self.cells, device, self.target.precision)


def from_data(data: Path) -> list[Rows]:
    """Regular convolutions of batch 1 without the fused sum, one set per precision."""
    imported = v100_tensorrt_conv(data)
    return [
        rows
        for rows in _by_target((m, imported.signatures[m.signature]) for m in imported.measurements)
        for rows in [_chosen(rows, batch=1)]
    ]


def _by_target(records: Iterator[tuple[Any, str]]) -> Iterator[Rows]:
    grouped: dict[Target, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record, text in records:
        grouped[record.target][text].append(record.latency_us)
    for target in sorted(grouped):
        texts = list(grouped[target])
        yield Rows(target, texts, np.array([np.median(grouped[target][t]) for t in texts]))


def _chosen(rows: Rows, batch: int | None = None) -> Rows:
    """Cells of one regular convolution each, nothing added."""
    cells = rows.cells
    alone = np.bincount(cells.cell, minlength=cells.cells) == 1
    kept = []
    for place, row in enumerate(cells.cell.tolist()):
        value = dict(zip(COLUMN, cells.values[place], strict=True))
        if (
            alone[row] and value["kind"] == KINDS["conv"] and value["groups"] == 1
            and not value["has_add"] and batch in (None, value["batch"])
        ):  # fmt: skip
            kept.append(row)
    return Rows(rows.target, [rows.texts[i] for i in kept], rows.latencies_us[kept])


def series(rows: Rows, swept: Sequence[str], least: int = 8) -> list[Array]:
    """Positions of rows that agree in all but ``swept``, in the order of the first swept column."""
    cells = rows.cells
    names = ("op", "batch", "c_in", "c_out", "h_in", "k_h", "stride")
    fixed = [COLUMN[name] for name in names if name not in swept]
    groups: dict[tuple[float, ...], list[int]] = defaultdict(list)
    for i, row in enumerate(cells.values):
        groups[tuple(row[fixed])].append(i)
    along = cells.column(swept[0])
    long = [np.array(g) for g in groups.values() if len(g) >= least]
    return [g[np.argsort(along[g], kind="stable")] for g in long]


def explained(latency: Array, driver: Array) -> float:
    """Root mean square relative residual of latency = a + b·driver, neither negative."""
    return float(np.sqrt(np.mean((fitted(latency, driver) / latency - 1) ** 2)))


def fitted(latency: Array, driver: Array) -> Array:
    """The latencies that this line makes."""
    from hybridlat.model.baselines.methods import relative_line

    columns = np.stack([np.ones(len(driver)), driver], axis=1)
    return np.asarray(columns @ relative_line(columns, latency))


def staircase(rows: Rows, swept: Sequence[str], jump: float = 0.05) -> dict[str, float]:
    """How often waves explain a series better than outputs, and how often latency falls."""
    view = rows.view()
    outputs = view.m * view.n
    waves = np.stack([view.waves(tile) for tile in TILES])
    result = series(rows, swept)
    smooth, steps, falls, pairs = [], [], 0, 0
    for members in result:
        latency = rows.latencies_us[members]
        smooth.append(explained(latency, outputs[members]))
        steps.append(min(explained(latency, wave[members]) for wave in waves))
        falls += int((latency[1:] < (1 - jump) * latency[:-1]).sum())
        pairs += len(members) - 1
    if not result:
        return {"series": 0}
    return {
        "series": len(result),
        "waves_win_share": float(np.mean(np.array(steps) < np.array(smooth))),
        "median_residual_outputs_%": 100 * float(np.median(smooth)),
        "median_residual_waves_%": 100 * float(np.median(steps)),
        "falls_though_work_grows_share": falls / max(pairs, 1),
    }


def jumps(rows: Rows) -> list[tuple[str, int, float]]:
    """Median share of the peak by alignment of the channels, among cells bound by arithmetic."""
    view = rows.view()
    share = view.compute_us / rows.latencies_us
    bound = view.compute_us > np.quantile(view.compute_us, 0.5)
    result = []
    for name, inside in (
        ("c_in and c_out multiples of 64", (view.c_in % 64 == 0) & (view.c_out % 64 == 0)),
        ("multiples of 32, not both of 64", (view.c_in % 32 == 0) & (view.c_out % 32 == 0)
         & ((view.c_in % 64 != 0) | (view.c_out % 64 != 0))),
        ("multiples of 8, not both of 32", (view.c_in % 8 == 0) & (view.c_out % 8 == 0)
         & ((view.c_in % 32 != 0) | (view.c_out % 32 != 0))),
        ("c_in not a multiple of 8", view.c_in % 8 != 0),
    ):  # fmt: skip
        taken = inside & bound
        if taken.sum() >= 10:
            result.append((name, int(taken.sum()), float(np.median(share[taken]))))
    return result
