"""Many networks by several workers: in order, in bounded memory, each on its own.

Networks are read, lowered and predicted for in workers of joblib: processes of this machine, or
whatever backend is in force there (Dask, Ray). Nothing is measured in a worker. Where measuring is
allowed, the calling process answers itself, in order, for every network that records alone do not
settle, and the workers have spared it the reading and lowering. So one process measures, and the
answers are those that it would have given alone.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from hybridlat.api import workers
from hybridlat.api.sources import Item, Query, items_of
from hybridlat.api.workers import Answer, Reading, Workplace
from hybridlat.errors import HybridlatError, InputError
from hybridlat.schema.estimate import Estimate

if TYPE_CHECKING:
    from hybridlat.api.predictor import Predictor
    from hybridlat.api.sources import ManySource

Errors = Literal["raise", "return"]
CHUNK_S = 0.1  # handing a chunk over takes a fiftieth of it
LARGEST_CHUNK = 64
CHUNKS_A_WORKER = 16
"""Chunks of a window for each worker. Two windows are held in memory at a time."""
SHORTEST_CHUNK = 8
"""The last chunks of a window have no less than this part of the others' networks."""


def predict_many(
    predictor: Predictor,
    sources: Iterable[ManySource],
    query: Query,
    jobs: int | None,
    errors: Errors,
) -> Iterator[Estimate | HybridlatError]:
    """See Predictor.predict_many."""
    if errors not in ("raise", "return"):
        raise InputError(f"errors={errors!r}: choose raise or return")
    if jobs == 0 or isinstance(jobs, bool):
        raise InputError(f"jobs={jobs!r}: give a number of workers, or -1 for one a core")
    if isinstance(sources, str | bytes | bytearray | os.PathLike) or not isinstance(
        sources, Iterable
    ):
        raise InputError("predict_many takes a list of networks: for a single one there is predict")
    items = items_of(sources)
    answers: Iterator[Estimate | HybridlatError]
    if jobs == 1:
        answers = (_alone(predictor, item, query) for item in items)
    else:
        # The backend that is in force now, not when the first answer is asked for.
        answers = _by_workers(predictor, items, query, workers.crew(jobs))
    return _told(answers, errors)


def _told(
    answers: Iterator[Estimate | HybridlatError], errors: Errors
) -> Iterator[Estimate | HybridlatError]:
    for told in answers:
        if errors == "raise" and isinstance(told, HybridlatError):
            raise told
        yield told


def _alone(predictor: Predictor, item: Item, query: Query) -> Estimate | HybridlatError:
    started = time.perf_counter()
    try:
        return predictor._estimate_of(item.opened(query), started, query.describe)
    except HybridlatError as error:
        return error


def _by_workers(
    predictor: Predictor, items: Iterator[Item], query: Query, crew: workers.Crew
) -> Iterator[Estimate | HybridlatError]:
    workplace = Workplace.of(predictor)
    desk = _Desk(predictor, query)
    ahead = _Ahead(map(Item.as_bytes, items))
    length = 1
    window = ahead.taken(crew.count * CHUNKS_A_WORKER * length)
    while window:
        new = [item for item in window if item.travels]
        seconds: list[float] = []
        chunks = _chunks(new, length, crew.count)
        answers = _from_workers(crew, workplace, query, chunks, seconds)
        # The first one sets the workers going: meanwhile the next window is made ready for them.
        answers = itertools.chain(list(itertools.islice(answers, 1)), answers)
        following = ahead.taken(crew.count * CHUNKS_A_WORKER * length)
        for item in window:
            yield desk.settled(item, next(answers)) if item.travels else desk.here(item, query)
        next(answers, None)  # joblib warns of answers that are left before their end
        if new:
            each_s = sum(seconds) / len(new)
            length = min(LARGEST_CHUNK, max(1, round(CHUNK_S / max(each_s, 1e-6))))
        window = following
    if ahead.error is not None:
        raise ahead.error


def _chunks(items: Sequence[Item], length: int, count: int) -> list[workers.Chunk]:
    """A window cut up; its last chunks are short, so that all ``count`` workers end together."""
    chunks: list[workers.Chunk] = []
    at = 0
    while at < len(items):
        left = (len(items) - at) // (2 * count)
        size = min(length, max(left, length // SHORTEST_CHUNK, 1))
        chunks.append(items[at : at + size])
        at += size
    return chunks


class _Ahead:
    """Networks taken before they are needed; what their source raises waits for its turn."""

    def __init__(self, items: Iterator[Item]) -> None:
        self._items = items
        self.error: Exception | None = None

    def taken(self, count: int) -> list[Item]:
        """The next networks, fewer where the source ends."""
        found: list[Item] = []
        try:
            while self.error is None and len(found) < count:
                found.append(next(self._items))
        except StopIteration:
            pass
        except Exception as error:  # noqa: BLE001 - whatever the caller's own iterator raises
            self.error = error
        return found


def _from_workers(
    crew: workers.Crew,
    workplace: Workplace,
    query: Query,
    chunks: Sequence[workers.Chunk],
    seconds: list[float],
) -> Iterator[Answer]:
    """The answers to all chunks in order; ``seconds`` takes what each took."""
    for took_s, answers in crew.answers(workplace, query, chunks) if chunks else ():
        seconds.append(took_s)
        yield from answers


@dataclass
class _Desk:
    """Where the calling process makes answers of what the workers say.

    A worker's estimate holds while nothing that it rests on has changed: with every cell on record
    and the interval narrow enough the gate has nothing to ask, unless it wants whole networks to
    calibrate the machine. What is measured meanwhile teaches about cells, constants and the
    machine's pace, so from then on the calling process answers by itself.
    """

    predictor: Predictor
    query: Query
    has_measured: bool = False

    def settled(self, item: Item, answer: Answer) -> Estimate | HybridlatError:
        """The answer that one process alone would give."""
        if isinstance(answer, Estimate) and not self._may_differ:
            return answer
        if isinstance(answer, HybridlatError):
            return answer
        if isinstance(answer, Reading):
            self.predictor._remember(answer.key, answer.partition)
            if answer.model is not None:
                exported = replace(item, source=answer.model, example=None)
                return self.here(exported, Query(describe=self.query.describe))
        return self.here(item, self.query)

    @property
    def _may_differ(self) -> bool:
        if not self.predictor._may_measure:
            return False
        return self.has_measured or self.predictor._is_calibrating

    def here(self, item: Item, query: Query) -> Estimate | HybridlatError:
        answer = _alone(self.predictor, item, query)
        if isinstance(answer, Estimate):
            self.has_measured |= answer.measured_now > 0 or answer.network_measured_now
        return answer
