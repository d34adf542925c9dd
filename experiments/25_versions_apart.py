"""How far apart versions and precisions of one engine are on one device.

    python experiments/25_versions_apart.py [--data DIR]

``--data`` (``../shared/data``) holds ``whole_networks`` and ``v100_tensorrt_conv``.
For each pair of targets that differ in version or precision alone: the median ratio of their
latencies over the same networks (convolutions), the standard deviation of its logarithm, and the
root mean square of that logarithm about what is expected: 0 between versions, roofline and launch
between precisions of a convolution. ``hybridlat/estimate/near_targets.py`` holds what they say.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from whole_networks_data import FAMILIES, read_rows

from experiments.public_data.convolutions import v100_tensorrt_conv
from hybridlat.engines import device_sheets
from hybridlat.model.geometry import View, geometry
from hybridlat.schema.target import Target

Array = NDArray[np.float64]
LEAST = 8  # rows that two targets have in common


def networks(folder: Path) -> dict[tuple[Target, str], dict[tuple[str, int], float]]:
    """Latencies in us by target and layout (or copies), then by network and batch."""
    found: dict[tuple[Target, str], dict[tuple[str, int], float]] = defaultdict(dict)
    for row in read_rows(folder, itertools.chain.from_iterable(FAMILIES.values())):
        if not row.suspect:
            alike = " ".join(filter(None, (row.layout, "with copies" if row.copies else "")))
            found[row.target, alike][row.onnx, row.batch] = row.latency_us
    return found


def line(what: str, ratios: Array, expected: Array) -> str:
    """One row of the table."""
    off = np.log(ratios) - expected
    return (
        f"| {what} | {len(off)} | {np.median(ratios):.2f} | {np.std(np.log(ratios)):.2f} | "
        f"{np.sqrt(np.mean(off**2)):.2f} |"
    )


def of_networks(folder: Path) -> list[str]:
    """Pairs of targets in the table of whole networks."""
    known = networks(folder)
    lines = []
    for left, right in itertools.combinations(sorted(known), 2):
        (a, layout), (b, other) = left, right
        one = a.version != b.version, a.precision != b.precision
        if (a.device, a.engine, layout) != (b.device, b.engine, other) or sum(one) != 1:
            continue
        both = sorted(known[left].keys() & known[right].keys())
        if len(both) >= LEAST:
            ratios = np.array([known[right][k] / known[left][k] for k in both])
            name = f"{b} / {a} {layout}".strip()
            lines.append(line(name, ratios, np.zeros(len(both))))
    return lines


def of_convolutions(folder: Path) -> list[str]:
    """FP16 against FP32 of single convolutions on the V100."""
    found = v100_tensorrt_conv(folder)
    by_precision: dict[str, dict[str, float]] = defaultdict(dict)
    for record in found.measurements:
        by_precision[record.target.precision][record.signature] = record.latency_us or 0.0
    both = sorted(by_precision["fp32"].keys() & by_precision["fp16"].keys())
    cells = geometry([found.signatures[h] for h in both])
    device = device_sheets.load("v100")
    half, full = (
        np.bincount(cells.cell, View(cells, device, p).roofline_us + (device.launch_us or 0.0))
        for p in ("fp16", "fp32")
    )
    ratios = np.array([by_precision["fp16"][h] / by_precision["fp32"][h] for h in both])
    return [line("v100/tensorrt/fp16 / fp32, convolutions", ratios, np.log(half / full))]


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data")
    given = parser.parse_args()
    print("| pair | rows | median ratio | sd of log | rms of log about expected |")
    print("|---|---|---|---|---|")
    for text in of_networks(given.data / "whole_networks"):
        print(text)
    for text in of_convolutions(given.data / "v100_tensorrt_conv"):
        print(text)


if __name__ == "__main__":
    main()
