"""Many networks by several workers: in order, in bounded memory, with the estimates of one.

Networks are read, lowered and predicted in workers of joblib: processes of this machine, or
whatever backend is in force (Dask, Ray). Workers never measure. Where measuring is allowed, they
only read and lower, and the calling process estimates in order.
"""

from __future__ import annotations

import itertools
import logging
import os
import platform
import time
import warnings
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from hybridlat.api.session import Options, Session, Sessions, estimate
from hybridlat.api.sources import Item, Query
from hybridlat.engines.registry import ResolvedEngine
from hybridlat.errors import HybridlatError, MeasurementError, StoreError
from hybridlat.estimate.partition import Partition
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.target import Target
from hybridlat.store import Store

FIRST_WINDOW, LARGEST_WINDOW = 16, 1024
"""Networks for each worker that are taken from the sources at a time; the number doubles."""
LARGEST_WINDOW_BYTES = 100_000_000
SILENT_S = 300.0
"""A worker without an answer for so long counts as dead: Dask does not always report a death."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Spec:
    """What a worker needs to estimate as the predictor that sent it.

    ``predicts`` False: it only reads and lowers, since measuring may change its estimates. By
    ``store_exists`` and ``node`` (the machine) a worker checks that it sees the same store.
    ``revision`` is that of the predictor and its store: a worker reuses what it loaded for it.
    """

    engine: ResolvedEngine
    requested: Target | None
    options: Options
    store: str
    store_exists: bool
    node: str
    predicts: bool
    revision: tuple[bytes, object]

    @classmethod
    def of(cls, session: Session, token: bytes) -> Spec:
        """The spec of a session; ``token`` names its predictor."""
        store, options, stamp = session.store, session.options, session.store.stamp
        return cls(
            engine=ResolvedEngine(session.target, why_not=session.why_not),
            requested=session.requested,
            options=replace(options, measure="auto", settings=None, progress=None),
            store=store.url,
            store_exists=store.place.exists,
            node=platform.node(),
            predicts=not (session.may_measure or store.place.is_in_memory),
            revision=(token, os.urandom(8) if stamp is None else stamp),
        )

    def open(self) -> Sessions:
        """The sessions of a worker; StoreError where it does not see the predictor's store."""
        store = Store(self.store)
        elsewhere = platform.node() != self.node
        if not store.place.exists if self.store_exists else store.place.exists and elsewhere:
            raise StoreError(
                f"a worker does not see the store {store.place.address}: give one that all workers "
                "reach under the same name, on a shared folder or a database server"
            )
        first = Session.open(self.engine, self.requested, self.options, store)
        return Sessions(first, lambda target: replace(self.engine, target=target))


@dataclass(frozen=True)
class Reading:
    """A network as it was read and lowered; ``model`` where it had to be exported first."""

    key: str
    partition: Partition
    model: bytes | None = None


Answer: TypeAlias = "Estimate | HybridlatError | Reading"
_opened: list[tuple[Spec, Sessions]] = []  # of this worker: it keeps what it has loaded


def work(spec: Spec, query: Query, item: Item) -> Answer:
    """In a worker: the estimate where it holds, else the reading; an error as itself."""
    started = time.perf_counter()
    try:
        if not _opened or _opened[0][0] != spec:
            while _opened:
                _opened.pop()[1].close()
            _opened.append((spec, spec.open()))
        sessions = _opened[0][1]
        opened = item.opened(query)
        session = sessions.of(opened.file)
        if spec.predicts:
            return estimate(session, opened, started, query.describe)
        partition = session.partition(opened).signed()
        if session.store.place.is_in_memory:  # the calling process has not the texts
            hashes = [use.signature for use in partition.uses]
            partition = replace(partition, texts=session.data.texts(partition, hashes))
        model = opened.file.model.SerializeToString() if item.is_module else None
        return Reading(opened.key, partition, model)
    except HybridlatError as error:
        return error


class Workers:
    """Workers of the joblib backend that is in force now, replaced when they die."""

    def __init__(self, jobs: int | None) -> None:
        import joblib

        self.count = max(1, joblib.effective_n_jobs(jobs))
        self._parallel: Any = joblib.Parallel(
            n_jobs=jobs,
            return_as="generator",
            timeout=None if self.count == 1 else SILENT_S,  # joblib warns of one with one worker
        )
        self._call: Any = joblib.delayed(work)

    def answers(self, spec: Spec, query: Query, items: Sequence[Item]) -> Iterator[Answer]:
        """The answers to all items, in order.

        After a death each item is sent by itself, until the one that kills workers is known.
        """
        left, one_by_one = deque(items), False
        while left:
            try:
                for answer in self._run(spec, query, [left[0]] if one_by_one else list(left)):
                    left.popleft()
                    yield answer
            except Exception as error:
                if not _is_death(error):
                    raise
                why = (str(error).strip() or type(error).__name__).splitlines()[0].strip()
                _log.warning("a worker died, and is replaced: %s", why)
                if one_by_one:
                    yield MeasurementError(
                        f"{left.popleft().label} brings down the process that reads it "
                        f"({why}): export it anew, or predict it by itself to see "
                        "why"
                    )
                one_by_one = not one_by_one

    def _run(self, spec: Spec, query: Query, items: Sequence[Item]) -> Iterator[Answer]:
        answers = self._parallel(self._call(spec, query, item) for item in items)
        try:
            for answer in answers:  # noqa: UP028 - yield from would close it with a warning
                yield answer
        finally:
            with warnings.catch_warnings():  # joblib warns of answers that are not taken
                warnings.simplefilter("ignore")
                answers.close()


def _is_death(error: Exception) -> bool:
    """Whether the worker died; else the error is its own."""
    names = {kind.__name__ for kind in type(error).__mro__}
    gone = isinstance(error, BrokenExecutor | TimeoutError)
    return gone or bool(names & {"KilledWorker", "WorkerCrashedError", "RayActorError"})


def estimate_alone(sessions: Sessions, item: Item, query: Query) -> Estimate | HybridlatError:
    """The estimate of a network by this process, or its error."""
    started = time.perf_counter()
    try:
        opened = item.opened(query)
        return estimate(sessions.of(opened.file), opened, started, query.describe)
    except HybridlatError as error:
        return error


def estimates_by_workers(
    sessions: Sessions, items: Iterable[Item], query: Query, workers: Workers, token: bytes
) -> Generator[Estimate | HybridlatError]:
    """The same for many networks, in order, with the help of workers."""
    first = sessions.first
    spec, source = Spec.of(first, token), _Source(map(Item.as_bytes, items))
    size = FIRST_WINDOW * workers.count
    window = source.take(size)
    while window:
        answers = workers.answers(spec, query, [item for item in window if item.travels])
        answers = itertools.chain(list(itertools.islice(answers, 1)), answers)
        size = min(2 * size, LARGEST_WINDOW * workers.count)
        following = source.take(size)  # while the workers are busy with this window
        if first.may_measure:  # workers at work would disturb what is timed here
            answers = itertools.chain(list(answers))
        for item in window:
            answer = next(answers) if item.travels else None
            if isinstance(answer, Estimate | HybridlatError):
                yield answer
                continue
            read_query = query
            if answer is not None:  # what the worker has read is not read again
                first.partitioner.remember(answer.key, answer.partition)
                if answer.model is not None:
                    item = replace(item, source=answer.model, example=None)
                    read_query = Query(describe=query.describe)
            yield estimate_alone(sessions, item, read_query)
        next(answers, None)  # joblib warns of answers that are left before their end
        window = following
    if source.error is not None:
        raise source.error


class _Source:
    """Networks taken ahead; an error of their iterator is raised behind the networks before it."""

    def __init__(self, items: Iterator[Item]) -> None:
        self._items = items
        self.error: Exception | None = None

    def take(self, count: int) -> list[Item]:
        """The next networks: fewer where they are large, or where the iterator ends."""
        items: list[Item] = []
        size_bytes = 0
        try:
            while self.error is None and len(items) < count and size_bytes < LARGEST_WINDOW_BYTES:
                items.append(next(self._items))
                source = items[-1].source
                size_bytes += len(source) if isinstance(source, bytes | bytearray) else 0
        except StopIteration:
            pass
        except Exception as error:  # noqa: BLE001 - of the caller's own iterator
            self.error = error
        return items
