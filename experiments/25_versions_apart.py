"""How far apart versions and precisions of one engine are on one device.

    python experiments/25_versions_apart.py [--data DIR]

``--data`` (``../shared/data``) holds ``whole_networks``. For each pair of targets that differ in
version or precision alone: the median ratio of their latencies over the same networks, the standard
deviation of its logarithm, and its root mean square.
``hybridlat/estimate/predict/other_targets.py`` holds what they say of versions.
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


def line(what: str, ratios: Array) -> str:
    """One row of the table."""
    logs = np.log(ratios)
    return (
        f"| {what} | {len(logs)} | {np.median(ratios):.2f} | {np.std(logs):.2f} | "
        f"{np.sqrt(np.mean(logs**2)):.2f} |"
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
            lines.append(line(name, ratios))
    return lines


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data")
    given = parser.parse_args()
    print("| pair | rows | median ratio | sd of log | rms of log |")
    print("|---|---|---|---|---|")
    for text in of_networks(given.data / "whole_networks"):
        print(text)


if __name__ == "__main__":
    main()
