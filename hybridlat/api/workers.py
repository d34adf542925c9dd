"""Workers of joblib that read, lower and predict, and what becomes of them when they die."""

from __future__ import annotations

import logging
import os
import platform
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from hybridlat.api.predictor import Predictor
from hybridlat.api.sources import Item, Query
from hybridlat.engines.resolution import ResolvedEngine
from hybridlat.errors import HybridlatError, MeasurementError, StoreError
from hybridlat.estimate.partition import Partition
from hybridlat.schema.device import Device
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.target import Target

if TYPE_CHECKING:
    Chunk: TypeAlias = Sequence[Item]

SILENT_S = 300.0
"""A worker that says nothing for so long is given up; Dask does not always tell that one died."""
DEATHS = 2
"""So many workers may die over a network by itself before it is given up."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Workplace:
    """What a worker needs to answer as the predictor that sent it would.

    ``settles`` False: it reads and lowers only, since its answers would not hold. ``may_measure``:
    only what records alone settle holds. ``has_store`` and ``node`` (the machine) tell a worker
    whether the store that it sees is the same. ``loaded`` is the same for two calls of one
    predictor between which nobody wrote to the store: what a worker has loaded still holds.
    """

    target: Target
    asked: Target | None
    store: str
    has_store: bool
    node: str
    tolerance: float
    confidence: float
    device: Device | None
    why_not: str
    may_measure: bool
    settles: bool
    loaded: tuple[bytes, object]

    @classmethod
    def of(cls, predictor: Predictor) -> Workplace:
        """The workplace for a predictor's workers."""
        store = predictor.store
        stamp = store.stamp
        return cls(
            target=predictor.target,
            asked=predictor.asked,
            store=store.url,
            has_store=store.exists,
            node=platform.node(),
            tolerance=predictor.tolerance,
            confidence=predictor.confidence,
            device=predictor._sheet,
            why_not=predictor._reason,
            may_measure=predictor._may_measure,
            settles=predictor.mode != "always" and not store.is_in_memory,
            loaded=(predictor._loaded, os.urandom(8) if stamp is None else stamp),
        )


@dataclass(frozen=True)
class Reading:
    """A network as it was read and lowered; ``model`` where it had to be exported first."""

    key: str
    partition: Partition
    model: bytes | None = None


Answer: TypeAlias = "Estimate | HybridlatError | Reading"


class _Reader(Predictor):
    """A predictor in a worker: for the target that it is told, and it never measures."""

    def __init__(self, workplace: Workplace) -> None:
        self._place = workplace
        super().__init__(
            workplace.target, store=workplace.store, tolerance=workplace.tolerance,
            confidence=workplace.confidence, device=workplace.device,
        )  # fmt: skip
        self.asked = workplace.asked
        elsewhere = platform.node() != workplace.node
        if not self.store.exists if workplace.has_store else self.store.exists and elsewhere:
            raise StoreError(
                f"a worker does not see the store {self.store.address}: give one that all workers "
                "reach under the same name, on a shared folder or a database server"
            )

    def _resolved(self, target: str | Target | None, threads: int | None) -> ResolvedEngine:
        told = target if isinstance(target, Target) else self._place.target
        return ResolvedEngine(told, why_not=self._place.why_not)

    def answer(self, item: Item, query: Query) -> Answer:
        """The estimate where it holds, else what was read; what is wrong, as the error."""
        try:
            started = time.perf_counter()
            opened = item.opened(query)  # answers are remembered by the process that asks
            if self._place.settles:
                estimate = self._estimate_of(opened, started, query.describe)
                if not self._place.may_measure or _is_settled(estimate):
                    return estimate
            partition = self._partition(opened).signed()
            if self.store.is_in_memory:  # nobody else finds the texts there
                hashes = [use.signature for use in partition.uses]
                partition = replace(partition, texts=self._data.texts(partition, hashes))
            model = opened.file.model.SerializeToString() if item.is_module else None
            return Reading(opened.key, partition, model)
        except HybridlatError as error:
            return error


def _is_settled(estimate: Estimate) -> bool:
    """Nothing for a gate to do, and nothing to tell of it."""
    measured = all(cell.source == "measured" for cell in estimate.cells)
    return estimate.within_tolerance and measured


_readers: list[_Reader] = []  # of this worker: it keeps what it has loaded


def answer_chunk(workplace: Workplace, query: Query, chunk: Chunk) -> tuple[float, list[Answer]]:
    """In a worker: the seconds that a chunk took, and its answers."""
    started = time.perf_counter()
    try:
        reader = _reader_of(workplace)
    except HybridlatError as error:
        return 0.0, [error] * len(chunk)
    answers = [reader.answer(item, query) for item in chunk]
    return time.perf_counter() - started, answers


def _reader_of(workplace: Workplace) -> _Reader:
    for reader in _readers:
        if reader._place == workplace:
            return reader
    while _readers:
        _readers.pop().close()
    _readers.append(_Reader(workplace))
    return _readers[0]


# ---- the workers as the calling process sees them ----------------------------------------------


def crew(jobs: int | None) -> Crew:
    """Workers by joblib's backend that is in force now; None: as many as it is told there."""
    import joblib

    count = max(1, joblib.effective_n_jobs(jobs))
    parallel = joblib.Parallel(
        n_jobs=jobs,
        return_as="generator",
        batch_size=1,
        timeout=None if count == 1 else SILENT_S,  # nobody waits for oneself, and joblib warns
        pre_dispatch="2*n_jobs",
    )
    return Crew(parallel, count)


@dataclass
class Crew:
    """``count`` workers, replaced when they die."""

    parallel: Any
    count: int

    def answers(
        self, workplace: Workplace, query: Query, chunks: Sequence[Chunk]
    ) -> Iterator[tuple[float, list[Answer]]]:
        """The answers to each chunk, in order. A chunk over which workers die is taken apart."""
        done = 0
        while done < len(chunks):
            try:
                for answers in self._run(workplace, query, chunks[done:]):
                    yield answers
                    done += 1
            except Exception as error:
                if not _is_death(error):
                    raise
                _log.warning("a worker died, and is replaced: %s", _first_line(error))
                # One of those that were under way did it: each by itself, then together again.
                for chunk in chunks[done : done + 2 * self.count]:
                    yield self._carefully(workplace, query, chunk)
                    done += 1

    def _run(
        self, workplace: Workplace, query: Query, chunks: Sequence[Chunk]
    ) -> Iterator[tuple[float, list[Answer]]]:
        import joblib

        call = joblib.delayed(answer_chunk)
        results = self.parallel(call(workplace, query, chunk) for chunk in chunks)
        try:
            for result in results:  # noqa: UP028 - yield from would close it with a warning
                yield result
        finally:
            with warnings.catch_warnings():  # what was asked for in advance is not wanted any more
                warnings.simplefilter("ignore")
                results.close()

    def _carefully(
        self, workplace: Workplace, query: Query, chunk: Chunk
    ) -> tuple[float, list[Answer]]:
        """One chunk by itself; if its worker dies again, each of its networks by itself."""
        try:
            [result] = self._run(workplace, query, [chunk])
        except Exception as error:
            if not _is_death(error):
                raise
            if len(chunk) > 1:
                parts = [self._carefully(workplace, query, [item]) for item in chunk]
                return sum(part[0] for part in parts), [part[1][0] for part in parts]
            name = chunk[0].label
            return 0.0, [
                MeasurementError(
                    f"{name} brings down the process that reads it ({_first_line(error)}): "
                    "export it anew, or predict it by itself to see why"
                )
            ]
        return result


def _is_death(error: Exception) -> bool:
    """Whether a worker is gone, rather than at fault."""
    names = {kind.__name__ for kind in type(error).__mro__}
    gone = isinstance(error, BrokenExecutor | TimeoutError)
    return gone or bool(names & {"KilledWorker", "WorkerCrashedError", "RayActorError"})


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__
