"""The first thing that is learned of a machine: how cold its cells are inside networks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from hybridlat.engines.base import Method
from hybridlat.errors import UnavailableError
from hybridlat.graph.signature_reading import read
from hybridlat.measuring.coldness import FACTORS, LEAST_NETWORKS, Coldness, Sample, find_coldness
from hybridlat.measuring.measurer import ReplicaMeasurer
from hybridlat.measuring.target_constants import PROBE_LENGTHS
from hybridlat.schema.progress import OnProgress
from hybridlat.store.packs import packs_for

if TYPE_CHECKING:
    from hybridlat.measuring.measurer import Measurer
    from hybridlat.store import Store
    from hybridlat.training.lessons import Lessons, NetworkLesson

COLDNESS_SHARE = 0.15
"""Part of the measuring time that may go to it."""
LEAST_MEASURING_S = 300.0
"""With less time than this everything goes to what the model learns from."""
_MOST_NETWORKS = 8
_CONSTANTS = 2  # records of the reference and of the dispatch overhead
_NETWORK_S = 1.5  # a network's own visits, as a first guess
_SLACK = 1.3  # guesses of what visits take are guesses


def wants_coldness(measurer: Measurer, store: Store, measuring_s: float) -> bool:
    """Whether there is time for it, and no cell of the target was measured before.

    Cells of one target are all measured alike: what has begun goes on as it began.
    """
    if not isinstance(measurer, ReplicaMeasurer) or measuring_s < LEAST_MEASURING_S:
        return False
    target = measurer.backend.target
    known = store.count(target, "cell") > _CONSTANTS or store.count(target, "network")
    return measurer.backend.method is Method.REPLICAS and not known and not packs_for(target)


def learn_coldness(
    measurer: Measurer,
    lessons: Lessons,
    costs_s: Mapping[str, float],
    measuring_s: float,
    progress: OnProgress | None = None,
) -> Coldness:
    """From networks in the order drawn, as many as there is time for; 1 where they are too few.

    ``costs_s`` is what one visit of each cell is thought to take.
    """
    if not isinstance(measurer, ReplicaMeasurer):
        raise TypeError("only replicas have a coldness")
    budget_s = COLDNESS_SHARE * measuring_s
    chosen = [_sample(lesson) for lesson in _affordable(lessons, costs_s, budget_s)]
    if len(chosen) < LEAST_NETWORKS:
        return Coldness(1.0)
    try:
        return find_coldness(
            measurer.backend, measurer.options, chosen, budget_s, progress, lessons.seed
        )
    except UnavailableError:
        return Coldness(1.0)  # what measures next says why


def _affordable(
    lessons: Lessons, costs_s: Mapping[str, float], budget_s: float
) -> Iterator[NetworkLesson]:
    """Networks in the order drawn; each takes at most its share, so that they are of many kinds."""
    left_s = budget_s - len(PROBE_LENGTHS)
    count = 0
    for lesson in lessons.networks.values():
        visits_s = sum(costs_s.get(h, 0.1) for h in lesson.cells)
        took_s = _SLACK * (len(FACTORS) * visits_s + _NETWORK_S)
        if took_s > 2 * budget_s / _MOST_NETWORKS or took_s > left_s:
            continue
        yield lesson
        left_s -= took_s
        count += 1
        if count == _MOST_NETWORKS:
            return


def _sample(lesson: NetworkLesson) -> Sample:
    partition = lesson.partition
    cells = tuple(
        (read(partition.texts[use.signature], " ".join(use.ops)[:60]), use.count)
        for use in partition.uses
    )
    return Sample(lesson.name, lesson.network, cells)
