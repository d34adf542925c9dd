"""What a reader must know of an estimate besides its numbers: one sentence each."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hybridlat.engines import device_sheets, registry
from hybridlat.estimate.composition import NetworkInterval
from hybridlat.schema.estimate import CellEstimate

if TYPE_CHECKING:
    from hybridlat.estimate.network_estimate import Request
    from hybridlat.estimate.target_data import TargetData

ENOUGH_NETWORKS = 10
"""With as many of its own a machine's interval no longer says whose it is."""


def about_cells(
    request: Request,
    rows: Sequence[CellEstimate],
    interval: NetworkInterval,
    within: bool,
    engine: str,
) -> list[str]:
    """What keeps the estimate from its tolerance, and what its latency leaves out.

    ``engine`` would have to measure cells; empty where none would help.
    """
    missing = sum(row.source == "unsupported" for row in rows)
    found = []
    if engine:
        found.append(f"nothing was measured: {request.why_not}")
        if engine in registry.backends():
            found.append(
                "to measure what is needed: --measure auto on that machine, or hybridlat plan here"
            )
    everything = all(row.source == "measured" for row in rows)
    if not within and request.measure is not None and not missing:
        found.append(
            f"the interval stays at ±{100 * interval.half_width_share:.1f} % "
            f"{'with every cell measured' if everything else 'whatever else is measured'}, wider "
            f"than the tolerance of {100 * request.tolerance:.1f} %"
        )
    if missing:
        have = "cell has" if missing == 1 else "cells have"
        rest = "" if missing == len(rows) else ": the latency given is that of the others"
        found.append(f"{missing} {have} no latency{rest}")
    return found


def about_device(device: str, rows: Sequence[CellEstimate]) -> list[str]:
    """That nobody described the device, where that leaves cells without a latency."""
    known = device_sheets.names()
    if device in known or all(row.source != "unsupported" for row in rows):
        return []
    near = difflib.get_close_matches(device, known, n=2, cutoff=0.6)
    question = f": did you mean {' or '.join(near)}? If it is right, describe it" if near else (
        ": describe it"
    )  # fmt: skip
    return [f"{device} has no data sheet{question} with --device FILE.toml, or measure on it"]


def about_interval(data: TargetData) -> list[str]:
    """Where the interval comes from, unless it is from whole networks of this target."""
    if data.has_composition:
        return []
    own = data.composition.networks
    if own >= ENOUGH_NETWORKS:
        return []
    lender = "" if data.borrowed is None else f" that of {data.borrowed[0]}, widened,"
    if own:
        networks = "network says" if own == 1 else "networks say"
        return [
            f"the interval is{lender or ' a first guess,'} and what {own} whole {networks} that "
            f"{'was' if own == 1 else 'were'} measured on {data.target}"
        ]
    if lender:
        return [f"the interval is{lender} as whole networks were not measured on {data.target} yet"]
    return ["the interval is not calibrated on whole networks of this target yet"]


def about_origins(rows: Sequence[CellEstimate]) -> list[str]:
    """What predictions rest on that are not the target's own model's, and how many they are."""
    others = Counter(r.reason for r in rows if r.source == "predicted" and r.trusted and r.reason)
    return [
        f"{count} {'cell is' if count == 1 else 'cells are'} {reason}"
        for reason, count in others.items()
    ]


def about_wandering(data: TargetData) -> list[str]:
    """Where the machine's pace wanders much: by how much, and which pace the latency is for."""
    return [data.wandering.sentence()] if data.wandering.is_large else []
