"""A machine's own composition, from the whole networks that were measured on it in use.

A target that nobody trained composes its cells by what another machine lends: the plain sum and the
cost of entering the engine, with the width of the same engine's interval elsewhere, widened by what
borrowing costs. Every network measured whole with its cells then tells constants and width of this
machine, and after a handful they are its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hybridlat.estimate.composition import (
    Composition,
    fit_constants,
    leave_one_out,
    student_quantile,
)

CALIBRATING = 5
"""So many whole networks are measured beside their cells even where they are not asked for."""
BORROWING_SHARE = 0.05
"""What borrowing costs: sums of measured cells missed 26 networks of another CPU (two cores of a
shared Xeon) by 5.5 % where they miss the lender's own by 2.0 %, so by √(5.5² − 2.0²) more. Two
machines say this, no more; experiments/16_new_machine.py plays one of them."""
LENT_NETWORKS = 4
"""As many networks as what was lent is worth against the machine's own."""
_LONE_RESIDUAL_SHARE = 0.05  # where no machine lends
_CAP = 3.0


@dataclass(frozen=True, slots=True)
class SummedNetwork:
    """A network measured whole with all of its cells: its latency, and their raw sum."""

    latency_us: float
    sum_us: float


def machine_composition(
    networks: Sequence[SummedNetwork], entry_cost_us: float, lent: Composition | None = None
) -> Composition:
    """Constants and width of a machine from its own networks and from what another lends.

    The residual variance is that of networks left out of the fit, pooled with the lender's (and the
    cost of borrowing) as four networks' worth; the interval reaches as far as Student's
    distribution with as many degrees of freedom says (the conjugate analysis of a normal variance).
    A network that missed by more than three times the usual counts as three times.
    """
    confidence = lent.confidence if lent is not None else 0.9
    lent_share = lent.residual_share if lent is not None else _LONE_RESIDUAL_SHARE
    prior = math.hypot(lent_share, BORROWING_SHARE)
    count = len(networks)
    degrees = float(count + LENT_NETWORKS)
    reach = student_quantile(confidence, degrees)
    base = Composition(
        overhead_us=entry_cost_us,
        confidence=confidence,
        residual_share=prior,
        networks=count,
        quantiles=((0.0, reach), (1.0, reach)),
    )
    if not networks:
        return base
    above = np.array([max(n.latency_us - entry_cost_us, 0.5 * n.latency_us) for n in networks])
    sums = np.array([n.sum_us for n in networks])
    overhead, scale = fit_constants(sums, above)
    misses = np.array(
        [
            math.log(us / (o + s * x))
            for us, x, (o, s) in zip(above, sums, leave_one_out(sums, above), strict=True)
        ]
    )
    usual = max(1.4826 * float(np.median(np.abs(misses))), 1e-3)
    squares = float((np.minimum(np.abs(misses), _CAP * max(usual, prior)) ** 2).sum())
    residual = math.sqrt((squares + LENT_NETWORKS * prior**2) / degrees)
    return replace(base, overhead_us=entry_cost_us + overhead, scale=scale, residual_share=residual)
