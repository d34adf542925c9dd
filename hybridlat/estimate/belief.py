"""The values between the steps of an estimate: what is wanted, and what is believed by now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hybridlat.estimate.compose.composition import Composition
from hybridlat.estimate.compose.conflict import Disagreement, disagreement
from hybridlat.estimate.compose.posterior import ErrorPosterior
from hybridlat.estimate.lookup.whole_networks import WholeLatency
from hybridlat.estimate.partition.partition import Partition
from hybridlat.estimate.predict.chain import CellPriors
from hybridlat.graph.network import Network

if TYPE_CHECKING:
    from hybridlat.onnx_io import OnnxFile

MeasureNow = Callable[["OnnxFile", Partition, Sequence[str], bool], None]
"""Measures these cells of a network, and whether the network as a whole as well."""


@dataclass(frozen=True)
class Request:
    """One network to be estimated, and what the estimate has to be like.

    ``measure`` None means that nothing may be measured, and ``why_not`` says why in the warnings;
    ``remeasure`` measures every cell, known or not. ``started`` is the ``time.perf_counter()`` at
    which the call began; ``network`` reads the file's network, where more than its cells is needed.
    ``describe`` adds what the cells are made of.
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

    @property
    def signatures(self) -> tuple[str, ...]:
        """The signatures of the network's distinct cells."""
        return tuple([use.signature for use in self.partition.uses])


@dataclass(frozen=True)
class Belief:
    """What is believed of a network and its cells.

    ``whole`` is what the records say of the network itself, ``disagreement`` how that differs from
    its cells where it may not. ``failures`` are reasons, by position, of cells that cannot be
    measured; ``measured_now`` the cells that were measured for this estimate, and ``network_runs``
    how often the network was.
    """

    priors: CellPriors
    composition: Composition
    posterior: ErrorPosterior
    failures: Mapping[int, str]
    whole: WholeLatency | None = None
    disagreement: Disagreement | None = None
    measured_now: frozenset[str] = frozenset()
    network_runs: int = 0

    @property
    def exact(self) -> WholeLatency | None:
        """The network's own latency, where it is known."""
        return self.whole if self.whole is not None and self.whole.is_exact else None

    @property
    def contradicted(self) -> bool:
        """Whether the network and its cells, both measured, cannot both be right."""
        conflict = self.disagreement
        return self.exact is not None and conflict is not None and conflict.is_measured

    def given_whole(self, whole: WholeLatency | None) -> Belief:
        """The belief after the network was measured whole: evidence on the sum of its cells.

        It is none where the two contradict each other.
        """
        posterior = self.posterior
        if posterior.total is not None:
            posterior = replace(posterior, total=None).observe({})
        conflict = disagreement(whole, self.composition, posterior)
        if whole is not None and not (conflict is not None and conflict.is_measured):
            total = self.composition.total(whole.latency_us, whole.noise_share)
            if total is not None:
                posterior = posterior.observe_total(*total)
        return replace(self, whole=whole, disagreement=conflict, posterior=posterior)
