"""The values between the steps of an estimate: the request, and what is believed at each step.

A busy minute, or a record of another machine, makes a network's latency and the sum of its cells
differ by more than either is unsure of. Such a pair tells nothing of cells.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from hybridlat.errors import HybridlatError
from hybridlat.estimate.compose import target_composition
from hybridlat.estimate.compose.composition import (
    CALIBRATED_AT,
    MOST_EXCESS_SHARE,
    Composition,
    NetworkInterval,
)
from hybridlat.estimate.compose.posterior import ErrorPosterior
from hybridlat.estimate.lookup.target_data import TargetData
from hybridlat.estimate.lookup.whole_networks import MeasuredNetwork, WholeLatency
from hybridlat.estimate.partition import Partition
from hybridlat.estimate.predict.chain import CellPriors, cell_priors
from hybridlat.estimate.predict.source import NetworkCells
from hybridlat.graph.network import Network
from hybridlat.graph.operators import contracts
from hybridlat.model.conformal import USUAL, normal_quantile
from hybridlat.onnx_io import OnnxFile, Shapes
from hybridlat.schema.shown import latency_text
from hybridlat.schema.target import Target
from hybridlat.store import Store
from hybridlat.store.importers import ImportedRecords

MeasureNow = Callable[[Sequence[str], bool], None]
"""Measures these cells of the network, and whether the network as a whole as well."""
SWITCHED_OFF = "measuring is switched off"
SURE = 0.99
"""Confidence of the interval that two figures of one network must both lie in."""
MOST_RATIO = 10.0
"""Estimates farther than this from the roofline, either way, are warned of."""
_FAR = 2.0  # times beyond an end of the interval
_UNITS = 100.0  # units are a thousand apart, and estimates ten at most
_MOSTLY = 0.5  # of the time measured: predictions are not to blame
_FULLY = 0.99  # of the time measured: the sum is a measurement


@dataclass(frozen=True)
class Request:
    """One network to be estimated, and what the estimate has to be like.

    Without ``measure`` nothing may be measured, and ``why_not`` says why; ``remeasure`` measures
    every cell. ``network`` reads the file's network; the call ``started`` at that
    ``time.perf_counter()``. ``describe`` adds the structure of cells. ``bound`` are the shapes of
    inputs whose sizes the caller bound, ``runtime`` is the target's as the user wrote it.
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
    bound: Shapes = field(default_factory=dict)
    runtime: str = ""

    @property
    def signatures(self) -> tuple[str, ...]:
        return tuple(self.partition.counts)

    @property
    def cells(self) -> NetworkCells:
        return cells_of(self.partition, self.network)

    @cached_property
    def left_out(self) -> int:
        """How many convolutions and products are left out, since the data decide their sizes."""
        facts, gone = self.file.facts, self.partition.removed
        dropped = [facts.op_types[i] for i in gone if i not in facts.constant_nodes]
        if not any(map(contracts, dropped)):
            return 0
        return sum(contracts(op) for _, op in (self.partition.network or self.network)().left_out)


def disagreement(
    whole: WholeLatency | None, composition: Composition, cells: ErrorPosterior
) -> float | None:
    """What a network took above what its cells make, as a share of that: 0.89, or -0.3.

    None where they differ by no more than both are unsure, or where most of the cells' time is
    predicted: else one of the two was disturbed. ``cells`` must not know of the whole network.
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


def cells_of(partition: Partition, network: Callable[[], Network]) -> NetworkCells:
    """A network as its cells, which sources of latencies answer for."""
    texts, counts = partition.texts, partition.counts
    return NetworkCells(
        tuple(counts),
        tuple([texts[signature] for signature in counts]),
        tuple(counts.values()),
        lambda: network().copied_bytes,
        lambda: partition.whole,
    )


@dataclass(frozen=True)
class Belief:
    """What is believed of a network and its cells.

    ``failures`` are reasons, by position, of cells that cannot be measured. ``whole`` is the
    network as recorded; for ``disagreement`` see the function. ``measured_now`` are cells that were
    measured for this estimate, ``network_runs`` runs of the network.
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
        return self.whole if self.whole is not None and self.whole.is_exact else None

    @property
    def contradicted(self) -> bool:
        """Whether measurements of the network contradict its cells, or each other."""
        exact = self.exact
        return exact is not None and (self.disagreement is not None or exact.is_contradictory)

    @cached_property
    def interval(self) -> NetworkInterval:
        """The network's own latency where it is known, else its cells'; both if they disagree."""
        return self._interval_by(self.composition)

    def _interval_by(self, composition: Composition) -> NetworkInterval:
        if (exact := self.exact) is None:
            return composition.interval(self.posterior)
        half = composition.measured_half_width_share(exact.noise_share)
        own = composition.around(exact.latency_us, half)
        return own.covering(composition.interval(self.posterior)) if self.contradicted else own

    @property
    def reaches(self) -> tuple[tuple[float, float], ...]:
        """Half widths of the interval at its own and all calibrated confidences."""
        own = self.composition
        levels = sorted({*CALIBRATED_AT, own.confidence})
        return tuple([(x, self._interval_by(own.at(x)).half_width_share) for x in levels])

    def after_whole(self, whole: WholeLatency | None) -> "Belief":
        """The belief after the network was measured whole: evidence on the sum of its cells.

        It is no evidence where the two contradict each other.
        """
        posterior = self.posterior
        conflict = disagreement(whole, self.composition, posterior)
        if whole is not None and conflict is None:
            latency_us, noise = whole.latency_us, whole.noise_share
            posterior = self.composition.after_whole(posterior, latency_us, noise)
        return replace(self, whole=whole, disagreement=conflict, posterior=posterior)


def prior_belief(
    data: TargetData,
    cells: NetworkCells,
    confidence: float = USUAL,
    can_measure: bool = False,
    whole: WholeLatency | None = None,
) -> Belief:
    """What is believed of cells before more is measured; ``whole``: the network, measured here."""
    priors = cell_priors(data, cells, can_measure, whole)
    composition = composition_for(data, priors, confidence)
    posterior = composition.start(priors.cells, priors.block)
    return Belief(priors, composition.for_cells(posterior), posterior, priors.failures)


def composition_for(data: TargetData, priors: CellPriors, confidence: float) -> Composition:
    """The target's own constants and width, else those of the source that answered for it.

    For networks of any cells: see ``Composition.for_cells``.
    """
    if priors.composition is None or target_composition.own_composition(data) is not None:
        composition = target_composition.composition_of(data)
    else:
        composition = target_composition.on_this_machine(data, priors.composition)
    return composition.at(confidence)


def surprise(data: TargetData, one: MeasuredNetwork, batch: int = 1) -> str:
    """``553 ms where 1.05 ms are expected; wrong unit?``, or nothing for a latency that is near.

    ``data`` must not know of the latency yet.
    """
    copied_bytes, hash_ = (lambda: one.copied_bytes), (lambda: one.signature)
    cells = NetworkCells(one.cells, one.texts, one.counts, copied_bytes, hash_)
    belief = prior_belief(data, cells)
    if not belief.posterior.complete or not 0 < belief.posterior.sum_us < math.inf:
        return ""
    interval = belief.interval
    (low_us, high_us), ratio = interval.interval_us, one.latency_us / interval.latency_us
    if low_us / _FAR < one.latency_us < high_us * _FAR:
        return ""
    off, hint = max(ratio, 1 / ratio), ""
    if batch >= MOST_RATIO / _FAR and 1 / _FAR < off / batch < _FAR:
        hint = f"; of one image, or of all {batch}?"
    elif off > _UNITS:
        hint = "; wrong unit?"
    expected = latency_text(interval.latency_us)
    return f"{latency_text(one.latency_us)} where {expected} are expected{hint}"


def surprises(store: Store, new: ImportedRecords) -> Iterator[str]:
    """A sentence, or nothing, for each record of a network that ``store`` does not hold yet."""
    known: dict[Target, TargetData] = {}
    parts = {(item.target, item.signature): item for item in new.breakdowns}
    for record in new.measurements:
        item, text = parts.get((record.target, record.signature)), ""
        if item is not None and record.latency_us is not None and not record.suspect:
            data = known.setdefault(record.target, TargetData(record.target, store))
            batch = item.labels.get("batch", "")
            with suppress(HybridlatError, KeyError, ValueError):  # of what cannot be estimated
                one = MeasuredNetwork.of(item, new.signatures, record.latency_us)
                text = surprise(data, one, int(batch) if batch.isdigit() else 1)
        yield text and f"{item.network if item else ''} on {record.target}: {text}"
