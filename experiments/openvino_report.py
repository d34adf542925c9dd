"""The figures and the page of ``06_openvino.py``: sums of parts against whole networks."""

from __future__ import annotations

import datetime
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

DIFFERENTIAL = "cells, differential"
METHODS = ("layers, unfused", "kernels alone", "cells alone", DIFFERENTIAL)
AGAIN = "noise floor (measured again)"

ABOUT = """\
Every part is timed among the other parts of its own network; nothing is fitted. What entering the
engine costs is added once to every sum. Layers, kernels and cells *alone* are built and timed each
by itself, between plain layouts, in one round. *Differential* is T(previous ++ cell) − T(previous),
both ending in a tap that reads one pixel a channel, in {rounds} rounds and up to two more while the
machine is not calm. A sum is given where all of its parts were visited. The noise floor is the same
whole networks measured again minutes later.

The tap, and how much memory is held in turn, were chosen on networks of the half that is named;
one early trial also saw SqueezeNet and MobileNetV2 of the other half."""


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


def page(
    told: Mapping[str, Result], every: Sequence[str], engine: str, command: str, rounds: int
) -> str:
    """The published page."""
    rows = []
    for name, result in sorted(told.items()):
        errors = [result.error(method) for method in (AGAIN, *METHODS)]
        shown = ["–" if error is None else f"{100 * error:+.1f}" for error in errors]
        rows.append(f"| {name} | {result.whole_us / 1e3:.2f} | {' | '.join(shown)} |")
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    return "\n".join([
        "# Whole networks on OpenVINO from their parts",
        "",
        f"Made by `{command}` on {day}. Machine: two-core AMD EPYC VM, no GPU. {engine}, "
        "one thread, FP32, batch 1.",
        "",
        ABOUT.format(rounds=rounds),
        "",
        *table(told, every),
        "",
        "Each network: its own latency (ms), and what the second measuring and the sums differ "
        "from it, in per cent.",
        "",
        f"| network | ms | again | {' | '.join(METHODS)} |",
        "|---|---|---|" + "---|" * len(METHODS),
        *rows,
        "",
    ])  # fmt: skip
