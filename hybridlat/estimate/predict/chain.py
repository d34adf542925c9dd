"""The chain of sources of cells' latencies: the first that has an answer for a cell gives it.

==================  ==================================  ==========================================
source              answers for                         standard error of ln(latency)
==================  ==================================  ==========================================
records             what was measured on the target     that of the measurement
own model           what resembles its training         as the model states it
other version       records and model of the same       that of the ratio (see ratios.py), and
                    device, engine and precision        the source's own
family              GPUs of an engine with a family     calibrated on held-out networks
other CPU           CPUs without a model of their own   the same: 0.7, less once cells are measured
own model           what is far from its training       as the model states it
other version       the same, by the model there        as above, and the model's own
roofline            devices with a data sheet           0.7
==================  ==================================  ==========================================

Another version answers only where it is surer than the family. An own model goes before the family
where whole networks taught how its cells sum up (experiments/tried_in_vain.md says why); a cell far
from training goes to the family even then. A model of files of another precision answers, far from
its training, behind another CPU. Where cells can be measured, records, the own model and other
versions, whatever the distance, and a family are the whole chain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hybridlat.engines.registry import float_precision
from hybridlat.estimate.compose.composition import Composition
from hybridlat.estimate.compose.posterior import Block, CellPrior
from hybridlat.estimate.compose.target_composition import own_composition
from hybridlat.estimate.lookup.models import known_device
from hybridlat.estimate.lookup.target_data import TargetData, per_state, relatives_of
from hybridlat.estimate.lookup.whole_networks import WholeLatency
from hybridlat.estimate.predict import source as parts
from hybridlat.estimate.predict.other_targets import of_record, other_cpu, versions_of
from hybridlat.estimate.predict.source import Answers, CellLatency, CellSource, NetworkCells, Origin
from hybridlat.model.cell_model import CellModel
from hybridlat.model.family.physics import least_us
from hybridlat.model.geometry import View, geometry
from hybridlat.schema.target import Device

if TYPE_CHECKING:
    from hybridlat.estimate.predict.family import Family

_LEAST_LEFT = 0.01  # of a measured network, for cells without any other answer


@dataclass(frozen=True)
class CellPriors:
    """What is stated of each cell of a network before anything more is measured.

    ``failures`` are reasons, by position, of cells that could not be measured. Where another target
    or the data sheet answered for a cell, ``composition`` is that source's, ``best_us`` what the
    sheet and the engine's host allow for the network, and ``origins``, by position, where answers
    come from. Of cells that were predicted, no device of the sheet is quicker than ``least_us``,
    and ``unknown_work`` names operators whose work shapes do not tell. ``block`` is the covariance
    of some errors, ``whole`` the network as measured, as far as none of this knows of it.
    ``learns``: once a cell is measured here, more is to be stated of the others.
    """

    cells: tuple[CellPrior, ...]
    failures: Mapping[int, str]
    composition: Composition | None = None
    best_us: float | None = None
    least_us: float = 0.0
    unknown_work: tuple[str, ...] = ()
    origins: Mapping[int, Origin] = field(default_factory=dict)
    block: Block | None = None
    whole: WholeLatency | None = None
    learns: bool = False


@dataclass(frozen=True, eq=False)
class Records(CellSource):
    """The source that knows what was measured on the target."""

    data: TargetData

    def predict(self, cells: NetworkCells, positions: Sequence[int]) -> list[CellLatency | None]:
        signatures = [cells.signatures[i] for i in positions]
        known = {h: of_record(stats) for h, stats in self.data.known(signatures).items()}
        return [known.get(signature) for signature in signatures]


@dataclass(frozen=True, eq=False)
class OwnModel(CellSource):
    """The target's own model."""

    model: CellModel

    def predict(self, cells: NetworkCells, positions: Sequence[int]) -> list[CellLatency | None]:
        each = self.model.predict([cells.texts[i] for i in positions])
        confidence = self.model.confidence
        return [None if p.latency_us is None else parts.stated(p, confidence) for p in each]


def sources_of(data: TargetData, can_measure: bool) -> Iterator[tuple[CellSource, bool]]:
    """The sources for a target in order, and whether each answers far from its training too."""
    yield Records(data), True
    model, device = data.model, _device(data)
    sums_up = can_measure or own_composition(data) is not None
    shared = None if sums_up else family_law(data)
    if model is not None and shared is None:
        yield OwnModel(model), can_measure and not data.model_is_related
    versions, shared = versions_of(data, can_measure), shared or family_law(data)
    if shared is not None:
        yield from ((replace(each, rival=shared), False) for each in versions)
        yield shared, True  # it answers for every cell
        return
    yield from ((each, False) for each in versions)
    if can_measure:
        yield from ((each, True) for each in versions)
        return
    own = [] if model is None else [OwnModel(model)]
    if not data.model_is_related:
        yield from ((each, True) for each in own)
    is_cpu = (model is None or data.model_is_related) and (device is None or device.kind == "cpu")
    nearest = other_cpu(data) if is_cpu else None
    others = versions if nearest is None else [*versions, nearest]
    yield from ((each, True) for each in (*others, *own))
    models = (each.there.model for each in others)
    device = device or next((there.device for there in models if there is not None), None)
    if device is not None:
        yield parts.Roofline(device, float_precision(data.target)), True


def family_law(data: TargetData) -> Family | None:
    """The law of the target's family after all networks known of it; None without a family."""
    from hybridlat.estimate.predict import family  # a known network starts without it

    device = _device(data)
    read = partial(family.model_of, data.target, device, data.model_warnings)
    model = data.at_this_state("family model", read)
    if device is None or model is None:
        return None
    law = partial(family.family_of, model, data, device, relatives_of(data))
    return data.at_this_state(("family", data.is_replayed, *data.user_networks.values()), law)


def _answers(
    data: TargetData, cells: NetworkCells, can_measure: bool
) -> tuple[dict[int, CellLatency], dict[int, CellSource]]:
    """Each cell's answer and its source: each is asked for what those before it left open."""
    answers: dict[int, CellLatency] = {}
    sources: dict[int, CellSource] = {}
    missing: Sequence[int] = range(len(cells.signatures))
    for source, any_distance in sources_of(data, can_measure):
        for i, answer in zip(missing, source.predict(cells, missing), strict=True):
            if answer is not None and (answer.trusted or any_distance):
                answers[i], sources[i] = answer, source
        missing = [i for i in missing if i not in answers]
        if not missing:
            break
    return answers, sources


def cell_priors(
    data: TargetData, cells: NetworkCells, can_measure: bool, whole: WholeLatency | None = None
) -> CellPriors:
    """What the sources state of a network's cells.

    ``whole`` is the network as it was measured on this target: where it is exact, cells without any
    answer get what the others leave of it.
    """
    answers, sources = _answers(data, cells, can_measure)
    each = {source: source.origin for source in dict.fromkeys(sources.values())}
    origins = {i: origin for i, source in sources.items() if (origin := each[source])}
    laws = {source: source.law(cells) for source, origin in each.items() if origin}
    law = next(filter(None, laws.values()), None)
    places = range(len(cells.signatures))
    is_known = all(i in answers and answers[i].source != "predicted" for i in places)
    failures = {i: a.reason for i, a in answers.items() if a.source == "unsupported"}
    if whole is not None and whole.is_exact and not is_known:
        answers |= _left_over(cells, answers, whole.latency_us)
    if whole is None:
        versions = ((each, there) for each in versions_of(data) if (there := each.whole(cells)))
        version, whole = next(versions, (None, None))
        if is_known and version is not None:  # it tells what the network takes beside them
            law = version.law(cells)
        if law is not None and law.knows_whole:
            whole = None
    block = None
    if law is not None and law.covariance is not None:
        of_law = [i for i in origins if laws[sources[i]] is law]
        block = of_law, law.covariance[np.ix_(of_law, of_law)]
    dispatch_us = None if not origins else 0.0 if law is None else law.dispatch_us
    best_us, fastest_us, unknown = _by_sheet(data, cells, answers, dispatch_us)
    elsewhere = {i: answers[i] for i in origins}
    return CellPriors(
        tuple(parts.priors_of(cells, answers)),
        failures,
        None if law is None else law.composition(cells, elsewhere),
        best_us,
        fastest_us,
        unknown,
        origins,
        block,
        whole,
        any(source.learns for source in laws),
    )


def _by_sheet(
    data: TargetData, cells: NetworkCells, answers: Answers, dispatch_us: float | None
) -> tuple[float | None, float, tuple[str, ...]]:
    """See ``CellPriors``; the host needs ``dispatch_us``, None where no other target answered."""
    predicted = [i for i, answer in answers.items() if answer.source == "predicted"]
    if not predicted:
        return None, 0.0, ()
    device, precision = _device(data), float_precision(data.target)
    kernels = geometry([cells.texts[i] for i in predicted])
    strange = np.flatnonzero(kernels.column("known") < 1)
    unknown = tuple(sorted({kernels.op(int(row)) for row in strange}))
    if device is None:
        return None, 0.0, unknown
    counts = np.array([cells.counts[i] for i in predicted])
    fastest_us = float(counts[kernels.cell] @ least_us(View(kernels.values, device, precision)))
    best_us = None
    if dispatch_us is not None:
        each_us, _ = parts.roofline_us(cells.texts, device, precision)
        best_us = max(math.fsum(each_us * cells.counts), dispatch_us)
    return best_us, fastest_us, unknown


def _left_over(cells: NetworkCells, answers: Answers, network_us: float) -> Answers:
    """Cells without a latency get what a measured network leaves for them, by their work."""
    known = {i: us for i, answer in answers.items() if (us := answer.latency_us) is not None}
    rest = [i for i in range(len(cells.signatures)) if i not in known]
    known_us = math.fsum(us * cells.counts[i] for i, us in known.items())
    left_us = max(network_us - known_us, _LEAST_LEFT * network_us)
    works = {i: math.fsum(parts.work_bytes(geometry([cells.texts[i]]))) for i in rest}
    total = math.fsum(work * cells.counts[i] for i, work in works.items())
    spread, reason = parts.UNKNOWN_SPREAD, "apportioned from the measurement of the whole network"
    return {i: CellLatency(left_us * work / total, spread, reason) for i, work in works.items()}


@per_state
def device_of(data: TargetData) -> Device | None:
    """The device of a target; None where nothing describes it."""
    return known_device(data.target, data.store)


@per_state
def _device(data: TargetData) -> Device | None:
    return device_of(data) or (data.model.device if data.model is not None else None)
