"""The values between the steps of an estimate: what is wanted, and what is believed by now.

A busy minute, or a record of another machine, makes a network's latency and the sum of its cells
differ by more than either is unsure of. Such a pair tells neither how cells sum up on the machine
nor anything of cells. What other networks say does not excuse it: a busy hour disturbs all alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hybridlat.estimate.compose.composition import CALIBRATED_AT, Composition, NetworkInterval
from hybridlat.estimate.compose.machine import MOST_EXCESS_SHARE, SURE
from hybridlat.estimate.compose.posterior import ErrorPosterior
from hybridlat.estimate.lookup.target_data import TargetData
from hybridlat.estimate.lookup.whole_networks import WholeLatency
from hybridlat.estimate.partition import Partition
from hybridlat.estimate.predict.chain import CellPriors
from hybridlat.estimate.predict.source import NetworkCells, copied_bytes
from hybridlat.graph.network import Network
from hybridlat.model.conformal import normal_quantile

if TYPE_CHECKING:
    from hybridlat.onnx_io import OnnxFile

MeasureNow = Callable[[Sequence[str], bool], None]
"""Measures these cells of the network, and whether the network as a whole as well."""
SWITCHED_OFF = "measuring is switched off"
_MOSTLY = 0.5  # of the time measured: predictions are not to blame
_FULLY = 0.99  # of the time measured: the sum is a measurement


@dataclass(frozen=True)
class Request:
    """One network to be estimated, and what the estimate has to be like.

    ``measure`` None means that nothing may be measured, and ``why_not`` says why in the warnings;
    ``remeasure`` measures every cell, known or not. ``started`` is the ``time.perf_counter()`` at
    which the call began; ``network`` reads the file's network, where more than its cells is needed.
    ``describe`` adds what the cells are made of; ``tolerance_given``: the user chose the tolerance.
    ``sizes`` are the options of a command that bind the file's sizes as this call did, ``runtime``
    is the target's as the user wrote it.
    """

    file: OnnxFile
    partition: Partition
    network: Callable[[], Network]
    tolerance: float
    confidence: float
    measure: MeasureNow | None = None
    remeasure: bool = False
    why_not: str = ""
    started: float = 0.0
    describe: bool = False
    tolerance_given: bool = False
    sizes: str = ""
    runtime: str = ""

    @property
    def signatures(self) -> tuple[str, ...]:
        """The signatures of the network's distinct cells."""
        return tuple([use.signature for use in self.partition.uses])


def disagreement(
    whole: WholeLatency | None, composition: Composition, cells: ErrorPosterior
) -> float | None:
    """What a network took above what its cells make, as a share of that: 0.89, or -0.3.

    None where they differ by no more than both are unsure, or where most of the cells' time is
    predicted: else one of the two was disturbed. ``cells`` must not know of the whole network.
    Where all of them were measured, a difference of ``MOST_EXCESS_SHARE`` is too much even if the
    composition allows more.
    """
    if whole is None or not cells.complete or cells.measured_share < _MOSTLY:
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
    return whole.latency_us / expected_us - 1


def cells_of(
    data: TargetData, partition: Partition, confidence: float, network: Callable[[], Network]
) -> NetworkCells:
    """A network as its cells, which sources of latencies answer for."""
    signatures = tuple([use.signature for use in partition.uses])
    return NetworkCells(
        signatures,
        tuple([use.count for use in partition.uses]),
        confidence,
        lambda: data.texts(partition, signatures),
        lambda: copied_bytes(network()),
        lambda: partition.whole,
    )


@dataclass(frozen=True)
class Belief:
    """What is believed of a network and its cells.

    ``whole`` is what the records say of the network itself, ``disagreement`` what that is above
    its cells where it may not be. ``failures`` are reasons, by position, of cells that cannot be
    measured; ``measured_now`` the cells that were measured for this estimate, and ``network_runs``
    how often the network was.
    """

    priors: CellPriors
    composition: Composition
    posterior: ErrorPosterior
    failures: Mapping[int, str]
    whole: WholeLatency | None = None
    disagreement: float | None = None
    measured_now: frozenset[str] = frozenset()
    network_runs: int = 0

    @property
    def exact(self) -> WholeLatency | None:
        """The network's own latency, where it is known."""
        return self.whole if self.whole is not None and self.whole.is_exact else None

    @property
    def contradicted(self) -> bool:
        """Whether the network and its cells, both measured, cannot both be right."""
        return self.exact is not None and self.disagreement is not None

    @property
    def interval(self) -> NetworkInterval:
        """The network's own latency where it is known, else that which its cells make.

        Where the two contradict each other either may be right: the interval covers both.
        """
        exact, composition = self.exact, self.composition
        if exact is None:
            return composition.interval(self.posterior)
        half = composition.measured_half_width_share(exact.noise_share)
        own = composition.around(exact.latency_us, half)
        return own.covering(composition.interval(self.posterior)) if self.contradicted else own

    @property
    def reaches(self) -> tuple[tuple[float, float], ...]:
        """Half widths of the interval at the confidences that it is calibrated at, and its own."""
        own, shares = self.composition, dict[float, float]()
        for level in sorted({*CALIBRATED_AT, own.confidence}):
            shares[level] = replace(self, composition=own.at(level)).interval.half_width_share
        return tuple(shares.items())

    def given_whole(self, whole: WholeLatency | None) -> Belief:
        """The belief after the network was measured whole: evidence on the sum of its cells.

        It is none where the two contradict each other. The posterior is of the cells alone.
        """
        posterior = self.posterior
        conflict = disagreement(whole, self.composition, posterior)
        if whole is not None and conflict is None:
            total = self.composition.total(whole.latency_us, whole.noise_share)
            if total is not None:
                posterior = posterior.observe_total(*total)
        return replace(self, whole=whole, disagreement=conflict, posterior=posterior)
