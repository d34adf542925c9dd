"""A machine's own composition, from the whole networks that were measured on it in use.

A target without training composes its cells by what another machine lends: the plain sum and the
cost of entering the engine, with the width of the same engine's interval elsewhere, widened by what
borrowing costs. Every network measured whole with its cells then tells constants and width of this
machine, and after a handful they are its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hybridlat.estimate.compose.composition import Composition, student_quantile

CALIBRATING = 5
"""So many whole networks are measured beside their cells, whatever the tolerance."""
BORROWING_SHARE = 0.05
"""What borrowing costs: sums of measured cells missed 26 networks of another CPU (two cores of a
shared Xeon) by 5.5 % where they miss the lender's own by 2.0 %, so by √(5.5² − 2.0²) more. Two
machines say this, no more; experiments/16_new_machine.py plays one of them and tries others."""
MOST_NOISE_SHARE = 0.1
"""A network that was measured worse than this, as on a busy machine, tells no constants."""
MACHINES = 2.0
"""Degrees of freedom of what was lent: as many machines as say how machines differ."""
SURE = 0.99
"""Confidence of the interval that two figures of one network must both lie in."""
MOST_EXCESS_SHARE = 0.15
"""Networks on quiet machines lie within 8 % of the sums of their measured cells (120 networks of
the shipped CPU pack); another CPU's missed by 5.5 % (root mean square)."""
_LONE_SHARE = 0.05  # scatter of networks where no machine lends
_LEAST_DEGREES = 4.0  # of Student's quantile, below which its series is no good
_HUBER = 1.5
_FAR_OUT = 3.0
_ROUNDS = 50


@dataclass(frozen=True, slots=True)
class SummedNetwork:
    """A network measured whole with all of its cells: its latency, and their raw sum."""

    latency_us: float
    sum_us: float


def machine_composition(
    networks: Sequence[SummedNetwork], dispatch_overhead_us: float, lent: Composition | None = None
) -> Composition:
    """Scale and width of a machine from its own networks and from what another lends.

    With r = ln((latency − dispatch overhead) / sum) of each network, r scatters normally around the
    machine's own constant. The constant is around 0 give or take the cost of borrowing; the
    variance of the scatter is the lender's and the cost of borrowing with two degrees of freedom
    (the conjugate analysis of a normal variance), and the interval reaches as far as Student's
    distribution says. Networks far from the others count less in the constant (Huber's weights),
    and as three times the usual distance in the scatter. The overhead is
    the dispatch overhead, which was measured by itself: a few large networks would tell
    it badly, and small ones would bear that.
    """
    confidence = lent.confidence if lent is not None else 0.9
    prior = math.hypot(lent.residual_share, BORROWING_SHARE) if lent is not None else _LONE_SHARE
    ratios = np.array(
        [
            math.log(max(n.latency_us - dispatch_overhead_us, 0.5 * n.latency_us) / n.sum_us)
            for n in networks
        ]
    )
    constant, scatter = 0.0, prior
    weights = np.ones(len(ratios))
    for _ in range(_ROUNDS):
        pull = (scatter / BORROWING_SHARE) ** 2
        center = float((weights * ratios).sum() / (weights.sum() + pull))
        misses = ratios - center
        weights = np.minimum(1.0, _HUBER * scatter / np.maximum(np.abs(misses), 1e-12))
        # The constant was fitted to the same networks: that costs up to one degree of freedom.
        fitted = float(weights.sum() / (weights.sum() + pull))
        degrees = max(len(ratios) - fitted, 0.0) + MACHINES
        sizes = np.abs(misses)
        usual = 1.4826 * float(np.median(sizes)) if len(sizes) else 0.0
        squares = float((np.minimum(sizes, _FAR_OUT * max(usual, prior)) ** 2).sum())
        before, scatter = scatter, math.sqrt((squares + MACHINES * prior**2) / degrees)
        if abs(center - constant) + abs(scatter - before) < 1e-9:
            break
        constant = center
    unsure = scatter / math.sqrt(weights.sum() + (scatter / BORROWING_SHARE) ** 2)
    reach = student_quantile(confidence, max(degrees, _LEAST_DEGREES))
    return Composition(
        overhead_us=dispatch_overhead_us,
        scale=math.exp(constant),
        confidence=confidence,
        residual_share=math.hypot(scatter, unsure),
        networks=len(networks),
        quantiles=((0.0, reach), (1.0, reach)),
    )


def undisturbed(
    networks: Sequence[SummedNetwork], dispatch_overhead_us: float, lent: Composition | None = None
) -> list[SummedNetwork]:
    """The networks that may say how cells sum up on their machine.

    Left out is one that the composition of all others, and that of none, puts beyond their
    intervals at ``SURE``, and one that is ``MOST_EXCESS_SHARE`` from its cells whatever the others
    are.
    """
    before = machine_composition((), dispatch_overhead_us, lent)
    quiet = []
    for position, network in enumerate(networks):
        if abs(_miss(network, before)) > math.log1p(MOST_EXCESS_SHARE):
            continue
        if _is_beyond(network, before):
            others = [*networks[:position], *networks[position + 1 :]]
            if _is_beyond(network, machine_composition(others, dispatch_overhead_us, lent)):
                continue
        quiet.append(network)
    return quiet


def _is_beyond(network: SummedNetwork, composition: Composition) -> bool:
    reach = composition.at(SURE).half_width_share(0.0, network.sum_us)
    return abs(_miss(network, composition)) > math.log1p(reach)


def _miss(network: SummedNetwork, composition: Composition) -> float:
    """The logarithm of what the network took in what its cells make."""
    return math.log(network.latency_us / composition.latency_us(network.sum_us))
