"""Whether a network that was measured whole agrees with its cells, and with its machine's others.

A busy minute, or a record of another machine, makes a network's latency and the sum of its cells
differ by more than either is unsure of. Such a pair tells neither how cells sum up on the machine
nor anything of cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hybridlat.estimate.composition import Composition, normal_quantile
from hybridlat.estimate.machine import SummedNetwork, machine_composition

if TYPE_CHECKING:
    from hybridlat.estimate.posterior import ErrorPosterior
    from hybridlat.estimate.whole_networks import WholeLatency

SURE = 0.99
"""Confidence of the interval that two figures of one network must both lie in."""
_MOSTLY = 0.5  # of the time measured: predictions are not to blame


@dataclass(frozen=True, slots=True)
class Disagreement:
    """``excess_share`` is what the network took above what its cells make: 0.89, or -0.3.

    ``is_measured``: most of the cells' time was measured too, so one of the two was disturbed.
    """

    excess_share: float
    is_measured: bool


def disagreement(
    whole: WholeLatency | None, composition: Composition, cells: ErrorPosterior
) -> Disagreement | None:
    """How a network measured whole differs from its cells, where it is more than both are unsure.

    ``cells`` must not know of the whole network. None where they agree, or cells have no latency.
    """
    if whole is None or not cells.complete or cells.sum_us <= 0:
        return None
    expected_us = composition.latency_us(cells.sum_us)
    reach = composition.at(SURE).half_width_share(cells.variance_share, cells.sum_us)
    noise = normal_quantile(SURE) * whole.noise_share
    if abs(math.log(whole.latency_us / expected_us)) <= math.hypot(math.log1p(reach), noise):
        return None
    return Disagreement(whole.latency_us / expected_us - 1, cells.measured_share >= _MOSTLY)


def undisturbed(
    networks: Sequence[SummedNetwork], dispatch_overhead_us: float, lent: Composition | None = None
) -> list[SummedNetwork]:
    """The networks that may say how cells sum up on their machine.

    Left out is one that the composition of all others, and that of none, puts beyond their
    intervals at ``SURE``. A machine on which all sums miss alike keeps them all.
    """
    before = machine_composition((), dispatch_overhead_us, lent)
    found = []
    for position, network in enumerate(networks):
        if _is_beyond(network, before):
            others = [*networks[:position], *networks[position + 1 :]]
            if _is_beyond(network, machine_composition(others, dispatch_overhead_us, lent)):
                continue
        found.append(network)
    return found


def _is_beyond(network: SummedNetwork, composition: Composition) -> bool:
    reach = composition.at(SURE).half_width_share(0.0, network.sum_us)
    miss = math.log(network.latency_us / composition.latency_us(network.sum_us))
    return abs(miss) > math.log1p(reach)
