"""The warnings of an estimate: what a reader must know besides its numbers, a sentence each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from hybridlat.engines import device_sheets, registry
from hybridlat.estimate.belief import Belief, Request
from hybridlat.estimate.compose.machine import LARGE_SHARE
from hybridlat.estimate.compose.target_composition import (
    composition_of,
    lent_composition,
    own_composition,
    pace_drift,
)
from hybridlat.estimate.lookup.target_data import TargetData
from hybridlat.schema.estimate import CellEstimate, Estimate, EstimateWarning, WarningCode
from hybridlat.schema.measurement import MachineLoad
from hybridlat.schema.target import Target

MOST_RATIO = 10.0
"""Estimates farther than this from the roofline, either way, are warned of."""
ENOUGH_NETWORKS = 10
"""With as many of its own a machine's interval no longer says whose it is."""


def warnings_of(
    request: Request,
    data: TargetData,
    belief: Belief,
    estimate: Estimate,
    load: MachineLoad | None,
    measuring_helps: bool,
) -> tuple[EstimateWarning, ...]:
    """All warnings of an estimate, the models' and the partition's first.

    ``load`` is how busy the machine was while it was measured, None if it was quiet.
    """
    warnings = [
        *sentences("model-unreadable", data.model_warnings),
        *sentences("file", request.partition.warnings),
    ]
    if load is not None:
        warnings += sentences("busy", [load.sentence])
    if belief.exact is None:
        if measuring_helps:
            warnings += sentences("not-measured", _of_measuring(request, data.target))
        warnings += sentences("as-narrow-as-can-be", _of_tolerance(request, estimate))
        warnings += sentences("missing-cells", _of_missing_cells(estimate.cells))
        if belief.whole is not None:
            how = f"whole {belief.whole.basis}: this is evidence, not the answer"
            warnings += sentences("network-hint", [f"the network was measured {how}"])
        warnings += sentences("beyond-physics", _of_physics(belief, estimate.latency_us))
    else:
        warnings += sentences("contradicted", _of_disagreement(belief, request, data.target))
    warnings += sentences("no-data-sheet", _of_device(data.target.device, estimate.cells))
    warnings += sentences("other-device", _of_origins(estimate.cells))
    # The family, or another target that answered, is named as the cells' origin.
    is_own = belief.priors.composition is None or own_composition(data) is not None
    if belief.exact is None and is_own:
        warnings += sentences("uncalibrated", _of_interval(data))
    drift = pace_drift(data)
    if drift.share > LARGE_SHARE:
        moves = (
            f"this machine's pace varies by ±{100 * drift.share:.0f} % from run to run "
            f"({drift.processes} measuring processes), and the interval includes that; the latency "
            "is for its usual pace"
        )
        warnings += sentences("pace", [moves])
    return tuple(warnings)


def sentences(code: WarningCode, texts: Iterable[str]) -> list[EstimateWarning]:
    """A warning for each text, which becomes a sentence."""
    return [EstimateWarning(code, f"{text[:1].upper()}{text[1:].rstrip('.')}.") for text in texts]


def _of_measuring(request: Request, target: Target) -> list[str]:
    """Why nothing was measured, and where it can be."""
    warnings = [f"nothing was measured: {request.why_not}"]
    if registry.can_measure(target):
        plan = ", or hybridlat plan here" if target.precision in registry.PLANNED else ""
        warnings.append(f"to measure what is needed: --measure auto on that machine{plan}")
    return warnings


def _of_tolerance(request: Request, estimate: Estimate) -> list[str]:
    """That measuring more cells cannot bring the interval within its tolerance."""
    sources = {cell.source for cell in estimate.cells}
    if estimate.within_tolerance or request.measure is None or "unsupported" in sources:
        return []
    high_us = estimate.interval_us[1] if estimate.interval_us else math.nan
    width = f"±{100 * (high_us / (estimate.latency_us or math.nan) - 1):.1f} %"
    tolerance = f"the tolerance is {100 * request.tolerance:.1f} %"
    return [f"no further cell measurement can narrow the interval below {width}, {tolerance}"]


def _of_missing_cells(cells: Sequence[CellEstimate]) -> list[str]:
    missing = sum(cell.source == "unsupported" for cell in cells)
    if not missing:
        return []
    have = "cell has" if missing == 1 else "cells have"
    rest = "" if missing == len(cells) else ": the latency is that of the others"
    return [f"{missing} {have} no latency{rest}"]


def _of_physics(belief: Belief, latency_us: float | None) -> list[str]:
    """That the estimate is far from what the device's data sheet allows."""
    best_us = belief.priors.best_us
    if not best_us or latency_us is None or not math.isfinite(latency_us):
        return []
    ratio = latency_us / best_us
    if 1 / MOST_RATIO <= ratio <= MOST_RATIO:
        return []
    times = f"{ratio:.0f} times" if ratio > 1 else f"only {100 * ratio:.2g} % of"
    return [
        f"the estimate is {times} the {best_us / 1e3:.3g} ms that the device needs by its peak, "
        "bandwidth and launch time: do not rely on it without a measurement"
    ]


def _of_disagreement(belief: Belief, request: Request, target: Target) -> list[str]:
    """That the network measured whole and its cells are too far apart, and what to do about it."""
    conflict = belief.disagreement
    if conflict is None:
        return []
    more = "more" if conflict.excess_share > 0 else "less"
    size = f"{100 * abs(conflict.excess_share):.0f} % {more}"
    if not conflict.is_measured:
        return [f"the whole network took {size} than is predicted of its cells"]
    again = "measure it again with --measure always"
    if request.measure is None:
        again += f" on {target.device}"
    elif request.remeasure:
        again = "measure it again when the machine has nothing else to do"
    advice = f": {again}" if registry.can_measure(target) else ""
    return [
        f"the whole network took {size} than its cells, so one of the two was disturbed{advice}; "
        "the interval covers both, rows and shares are of the cells"
    ]


def _of_device(device: str, cells: Sequence[CellEstimate]) -> list[str]:
    """That the device has no data sheet, where that leaves cells without a latency."""
    if device in device_sheets.names() or all(cell.source != "unsupported" for cell in cells):
        return []
    return [
        f"{device} has no data sheet: describe it with --device-sheet FILE.toml, or measure on it"
    ]


def _of_interval(data: TargetData) -> list[str]:
    """Where the interval comes from, unless it is from whole networks of this target."""
    own = composition_of(data).networks
    if own_composition(data) is not None or own >= ENOUGH_NETWORKS:
        return []
    lender = lent_composition(data)
    lent = "" if lender is None else f"the interval of {lender[0]}, widened"
    if own:
        networks = "1 whole network" if own == 1 else f"{own} whole networks"
        beside = lent or "a first guess"
        return [f"the interval rests on {networks} measured on {data.target}, and on {beside}"]
    if lent:
        return [f"the interval rests on {lent}: no whole network was measured on {data.target} yet"]
    return ["the interval is not calibrated on whole networks of this target yet"]


def _of_origins(cells: Sequence[CellEstimate]) -> list[str]:
    """What predictions rest on that are not the target's own model's, and how many they are."""
    others = Counter(
        cell.reason for cell in cells if cell.source == "predicted" and cell.trusted and cell.reason
    )
    return [
        f"{count} {'cell is' if count == 1 else 'cells are'} {reason}"
        for reason, count in others.items()
    ]
