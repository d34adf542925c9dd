"""Whether a network that was measured whole agrees with its cells, and with its machine's others.

A busy minute, or a record of another machine, makes a network's latency and the sum of its cells
differ by more than either is unsure of. Such a pair tells neither how cells sum up on the machine
nor anything of cells. What other networks say does not excuse it: a busy hour disturbs all alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hybridlat.estimate.compose.composition import Composition, normal_quantile
from hybridlat.estimate.compose.machine import MOST_EXCESS_SHARE, SURE
from hybridlat.estimate.compose.posterior import ErrorPosterior
from hybridlat.estimate.lookup.whole_networks import WholeLatency
from hybridlat.schema.measurement import BUSY_SPREAD_SHARE, MachineLoad, busiest
from hybridlat.schema.target import Target
from hybridlat.store import Store

_MOSTLY = 0.5  # of the time measured: predictions are not to blame
_FULLY = 0.99  # of the time measured: the sum is a measurement


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

    ``cells`` must not know of the whole network. Where all of them were measured, a difference of
    ``MOST_EXCESS_SHARE`` is too much even if the composition allows more. None where they agree,
    or cells have no latency.
    """
    if whole is None or not cells.complete or cells.sum_us <= 0:
        return None
    expected_us = composition.latency_us(cells.sum_us)
    reach = composition.at(SURE).half_width_share(cells.variance_share, cells.sum_us)
    allowed = math.log1p(reach)
    if cells.measured_share >= _FULLY:
        of_cells = normal_quantile(SURE) * math.sqrt(cells.variance_share)
        allowed = min(allowed, math.hypot(math.log1p(MOST_EXCESS_SHARE), of_cells))
    noise = normal_quantile(SURE) * whole.noise_share
    if abs(math.log(whole.latency_us / expected_us)) <= math.hypot(allowed, noise):
        return None
    return Disagreement(whole.latency_us / expected_us - 1, cells.measured_share >= _MOSTLY)


class Recorded(Protocol):
    """The records of a target, and of the targets that share its cells."""

    @property
    def target(self) -> Target: ...

    @property
    def related(self) -> Sequence[Target]: ...

    @property
    def store(self) -> Store: ...


def load_while_measured(
    data: Recorded, signatures: Sequence[str], cells: ErrorPosterior, whole: WholeLatency | None
) -> MachineLoad | None:
    """How busy the machine was while what an answer rests on was measured; None if it was quiet.

    An answer rests on the network itself, else on its cells: ``signatures``, in the order of the
    posterior. Few cells that a busy machine measured are in their own intervals.
    """
    if whole is not None and (whole.is_exact or whole.load is not None):
        return whole.load
    unsure = {
        i
        for i, prior in enumerate(cells.priors)
        if cells.is_measured(i)
        and cells.measured.get(i, (0.0, prior.spread_share))[1] >= BUSY_SPREAD_SHARE
    }
    if sum(cells.uses_us[i] for i in unsure) <= MOST_EXCESS_SHARE * cells.sum_us:
        return None
    largest = max(unsure, key=lambda i: float(cells.uses_us[i]))
    records = (
        record
        for target in (data.target, *data.related)
        for record in data.store.measurements(target, "cell", signatures[largest])
    )
    return busiest(record.environment for record in records)
