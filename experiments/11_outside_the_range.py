"""Does the model know a shape that its training never came near? AUROC of its novelty.

    python experiments/11_outside_the_range.py [--data ../shared/data/v100_tensorrt_conv]

Known ground is more than a box. Each case takes a region out of the training rows; the model is
fitted to half of what is left, and its novelty must rank the rows of the region above the other
half, which is as ordinary as the rows it has seen. Of a `box` case the region lies beyond the
range of a single size. Of a `corner` or `hole` case every single size stays in the training range,
and most pairs of sizes too: only their combination was never met. The regions were written down
before the figures were seen, and all of them are printed.

AUROC is the chance that a row of the region is ranked above an ordinary one; `flagged` says how
many of the region the model does not trust (novelty above 1), `false alarms` how many ordinary
rows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from experiments.public_data.convolutions import v100_tensorrt_conv
from hybridlat.engines import device_sheets
from hybridlat.model.fit import fit_model
from hybridlat.model.geometry import COLUMN, Geometry, geometry
from hybridlat.model.training_problem import FitConfig
from hybridlat.schema.target import Target

DATA = ROOT.parent / "shared" / "data" / "v100_tensorrt_conv"
LEAST = 60
Array = np.ndarray[Any, np.dtype[Any]]
Column = Callable[[str], Array]


@dataclass(frozen=True)
class Case:
    """A region that training is kept out of."""

    kind: str
    words: str
    inside: Callable[[Column], Array]


CASES = (
    Case("box", "c_in of 1,024 and more", lambda c: c("c_in") >= 1024),
    Case("box", "size of 112 and more", lambda c: c("h_in") >= 112),
    Case("box", "7x7 kernels", lambda c: c("k_h") >= 7),
    Case("corner", "c_in of 256 and more at sizes of 56 and more",
         lambda c: (c("c_in") >= 256) & (c("h_in") >= 56)),
    Case("corner", "c_out of 512 and more at sizes of 28 and more",
         lambda c: (c("c_out") >= 512) & (c("h_in") >= 28)),
    Case("corner", "c_in up to 64 at sizes up to 14",
         lambda c: (c("c_in") <= 64) & (c("h_in") <= 14)),
    Case("corner", "5x5 and 7x7 kernels with stride 2",
         lambda c: (c("k_h") >= 5) & (c("stride") == 2)),
    Case("corner", "1x1 kernels at sizes of 56 and more",
         lambda c: (c("k_h") == 1) & (c("h_in") >= 56)),
    Case("corner", "narrowing by two and more", lambda c: c("c_in") >= 2 * c("c_out")),
    Case("hole", "c_in of 128 to 256 at sizes of 14 to 28",
         lambda c: (c("c_in") >= 128) & (c("c_in") <= 256)
         & (c("h_in") >= 14) & (c("h_in") <= 28)),
    Case("hole", "c_in and c_out both of 192 to 400",
         lambda c: (c("c_in") >= 192) & (c("c_in") <= 400)
         & (c("c_out") >= 192) & (c("c_out") <= 400)),
)  # fmt: skip


def auroc(strange: Array, ordinary: Array) -> float:
    """Chance that one of the first is larger than one of the second; ties count half."""
    ordered = np.sort(ordinary)
    below = np.searchsorted(ordered, strange, "left")
    upto = np.searchsorted(ordered, strange, "right")
    return float((below + upto).mean() / (2 * len(ordered)))


def rows_of(data: Path, target: Target) -> tuple[list[str], Array]:
    """Signature texts and latencies of regular convolutions of batch 1 without the fused sum."""
    imported = v100_tensorrt_conv(data)
    records = [m for m in imported.measurements if m.target == target]
    texts = [imported.signatures[m.signature] for m in records]
    values = geometry(texts).values
    kept = np.flatnonzero(
        (values[:, COLUMN["batch"]] == 1) & (values[:, COLUMN["groups"]] == 1)
        & (values[:, COLUMN["has_add"]] == 0)
    )  # fmt: skip
    latencies = np.array([m.latency_us for m in records], float)[kept]
    return [texts[i] for i in kept.tolist()], latencies


def judged(
    case: Case, cells: Geometry, texts: list[str], latencies: Array, target: Target, seed: int
) -> tuple[float, float, float, int]:
    """AUROC, share of the region flagged, share of false alarms, rows of the region."""
    inside = case.inside(cells.column)
    region, rest = np.flatnonzero(inside), np.flatnonzero(~inside)
    order = np.random.default_rng(seed).permutation(rest)
    train, ordinary = order[: len(order) // 2], order[len(order) // 2 :]
    known = [texts[i] for i in train.tolist()]
    config = FitConfig(device_sheets.load(target.device), target.precision, seed)
    model = fit_model(known, latencies[train], known, config)
    strange, usual = (
        model.predict_geometry(geometry([texts[i] for i in rows.tolist()])).novelty
        for rows in (region, ordinary)
    )
    share = (float(np.mean(strange > 1)), float(np.mean(usual > 1)))
    return auroc(strange, usual), *share, len(region)


def main() -> int:
    """Print the table; 1 where a mean is below 0.95."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--target", default="v100/tensorrt/fp16")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        print(f"skipped: {arguments.data} is not there")
        return 0
    target = Target.parse(arguments.target)
    texts, latencies = rows_of(arguments.data, target)
    cells = geometry(texts)
    print(f"{target}: {len(texts)} convolutions, mean of {arguments.seeds} seeds\n")
    print("| kind | region kept out of training | rows | AUROC | flagged | false alarms |")
    print("|---|---|---:|---:|---:|---:|")
    means: dict[str, list[float]] = {}
    for case in CASES:
        if case.inside(cells.column).sum() < LEAST:
            print(f"| {case.kind} | {case.words} | fewer than {LEAST} | – | – | – |")
            continue
        trials = [
            judged(case, cells, texts, latencies, target, s) for s in range(arguments.seeds)
        ]  # fmt: skip
        area, flagged, alarms, count = (float(np.mean(v)) for v in zip(*trials, strict=True))
        means.setdefault("box" if case.kind == "box" else "inside the box", []).append(area)
        print(
            f"| {case.kind} | {case.words} | {count:.0f} | {area:.3f} | {100 * flagged:.0f} % | "
            f"{100 * alarms:.0f} % |",
            flush=True,
        )
    print()
    for kind, values in means.items():
        print(f"mean AUROC, {kind}: {np.mean(values):.3f} (worst {min(values):.3f})")
    return int(any(np.mean(values) < 0.95 for values in means.values()))


if __name__ == "__main__":
    sys.exit(main())
