"""What the errors on a device left out are made of: a constant, the rest, which networks.

A device-wide constant is what a better data sheet could mend. What varies between two versions of
an engine on one card could be told by no law that has seen neither: a floor under its errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whole_networks_data import Row

Array = NDArray[np.float64]
LEAST = 8


def explained(
    rows: list[Row], labels: list[str], errors: Mapping[str, tuple[NDArray[np.intp], Array]]
) -> str:
    """A table: of each device left out (places of its rows, their log-errors) what they are."""
    lines = [
        "| target | median % | constant % | median about it % | another version of the card | "
        "median of their ratio % | about its constant % | farthest networks (batch) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for places, off in errors.values():
        for label in sorted({labels[i] for i in places}):
            mine = [k for k, i in enumerate(places) if labels[i] == label]
            if len(mine) < LEAST:
                continue
            told = -off[mine]
            middle = float(np.median(told))
            other, apart, about = _nearest_version(rows, labels, label)
            order = np.argsort(-np.abs(told))[:4]
            worst = [(rows[places[mine[k]]], _percent(float(told[k]))) for k in order]
            far = ", ".join(f"{row.onnx} ({row.batch}) {off_by:+.0f}" for row, off_by in worst)
            versions = f"{other} | {apart:.0f} | {about:.0f}" if other else " |  | "
            lines.append(
                f"| {label} | {_median(told):.1f} | {_percent(middle):+.1f} | "
                f"{_median(told - middle):.1f} | {versions} | {far} |"
            )
    return "\n".join(lines) + "\n"


def _percent(logarithm: float) -> float:
    return 100 * float(np.expm1(logarithm))


def _median(logarithms: Array) -> float:
    return 100 * float(np.median(np.abs(np.expm1(logarithms))))


def _nearest_version(rows: list[Row], labels: list[str], label: str) -> tuple[str, float, float]:
    """The table of the same card and precision that is nearest, and how near, with its constant
    and without."""

    def table(name: str) -> dict[tuple[str, int, bool], float]:
        return {
            (row.onnx, row.batch, row.copies): row.latency_us
            for row, one in zip(rows, labels, strict=True)
            if one == name and not row.suspect
        }

    first = rows[labels.index(label)]
    own = table(label)
    found = [("", np.inf, np.inf)]
    for other in sorted(set(labels) - {label}):
        theirs = rows[labels.index(other)]
        same = (theirs.target.device, theirs.target.precision, theirs.layout)
        if same != (first.target.device, first.target.precision, first.layout):
            continue
        known = table(other)
        both = sorted(own.keys() & known.keys())
        if len(both) >= LEAST:
            logs = np.log([known[key] / own[key] for key in both])
            name = other.removeprefix(f"{first.target.device}/")
            found.append((name, _median(logs), _median(logs - np.median(logs))))
    return min(found, key=lambda one: one[1])
