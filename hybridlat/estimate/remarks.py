"""What a reader must know of an estimate besides its numbers: one sentence each."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hybridlat.engines import device_sheets, registry
from hybridlat.estimate.compose.composition import NetworkInterval
from hybridlat.estimate.estimate_details import Basis

if TYPE_CHECKING:
    from hybridlat.estimate.compose.conflict import Disagreement
    from hybridlat.estimate.lookup.target_data import TargetData
    from hybridlat.estimate.lookup.whole_networks import WholeLatency
    from hybridlat.estimate.network_estimate import Request
    from hybridlat.schema.target import Target

ENOUGH_NETWORKS = 10
"""With as many of its own a machine's interval no longer says whose it is."""


def about_cells(
    request: Request,
    bases: Sequence[Basis],
    interval: NetworkInterval,
    within: bool,
    unmeasured: Target | None,
) -> list[str]:
    """What keeps the estimate from its tolerance, and what its latency leaves out.

    ``unmeasured`` is the target where measuring cells would help, None where it would not.
    """
    missing = sum(basis.source == "unsupported" for basis in bases)
    found = []
    if unmeasured is not None:
        found.append(f"nothing was measured: {request.why_not}")
        if registry.can_measure(unmeasured):
            plan = ", or hybridlat plan here" if unmeasured.precision in registry.PLANNED else ""
            found.append(f"to measure what is needed: --measure auto on that machine{plan}")
    everything = all(basis.source == "measured" for basis in bases)
    if not within and request.measure is not None and not missing:
        found.append(
            f"the interval stays at ±{100 * interval.half_width_share:.1f} % "
            f"{'with every cell measured' if everything else 'whatever else is measured'}, wider "
            f"than the tolerance of {100 * request.tolerance:.1f} %"
        )
    if missing:
        have = "cell has" if missing == 1 else "cells have"
        rest = "" if missing == len(bases) else ": the latency given is that of the others"
        found.append(f"{missing} {have} no latency{rest}")
    return found


def about_evidence(whole: WholeLatency | None) -> list[str]:
    """That the network was measured whole, though not as this target is now."""
    if whole is None:
        return []
    return [f"the network was measured whole {whole.basis}: that is evidence, and not the answer"]


def about_disagreement(found: Disagreement | None, request: Request, target: Target) -> list[str]:
    """That the network measured whole and its cells are too far apart, and what to do about it."""
    if found is None:
        return []
    size = f"{100 * abs(found.excess_share):.0f} % {'more' if found.excess_share > 0 else 'less'}"
    if not found.is_measured:
        return [f"the whole network took {size} than is predicted of its cells"]
    again = "measure it again with --measure always"
    if request.measure is None:
        again += f" on {target.device}"
    elif request.remeasure:
        again = "measure it again when the machine has nothing else to do"
    advice = f": {again}" if registry.can_measure(target) else ""
    return [
        f"the whole network took {size} than its cells, so one of the two was disturbed{advice}; "
        "the interval holds both, the rows are of the cells, and their shares of the cells' sum"
    ]


def about_device(device: str, bases: Sequence[Basis]) -> list[str]:
    """That nobody described the device, where that leaves cells without a latency."""
    if all(basis.source != "unsupported" for basis in bases):
        return []
    known = device_sheets.names()
    if device in known:
        return []
    near = difflib.get_close_matches(device, known, n=2, cutoff=0.6)
    question = f": did you mean {' or '.join(near)}? If it is right, describe it" if near else (
        ": describe it"
    )  # fmt: skip
    return [f"{device} has no data sheet{question} with --device FILE.toml, or measure on it"]


def about_interval(data: TargetData) -> list[str]:
    """Where the interval comes from, unless it is from whole networks of this target."""
    if data.trained.has_composition:
        return []
    own = data.composition.networks
    if own >= ENOUGH_NETWORKS:
        return []
    borrowed = data.trained.borrowed
    lender = "" if borrowed is None else f" that of {borrowed[0]}, widened,"
    if own:
        networks = "network says" if own == 1 else "networks say"
        return [
            f"the interval is{lender or ' a first guess,'} and what {own} whole {networks} that "
            f"{'was' if own == 1 else 'were'} measured on {data.target}"
        ]
    if lender:
        return [f"the interval is{lender} as whole networks were not measured on {data.target} yet"]
    return ["the interval is not calibrated on whole networks of this target yet"]


def about_origins(bases: Sequence[Basis]) -> list[str]:
    """What predictions rest on that are not the target's own model's, and how many they are."""
    others = Counter(b.reason for b in bases if b.source == "predicted" and b.trusted and b.reason)
    return [
        f"{count} {'cell is' if count == 1 else 'cells are'} {reason}"
        for reason, count in others.items()
    ]


def about_wandering(data: TargetData) -> list[str]:
    """Where the machine's pace wanders much: by how much, and which pace the latency is for."""
    return [data.wandering.sentence()] if data.wandering.is_large else []
