"""Sessions of other processes: the workers of ``predict_many``, and the server of a model.

Workers read, lower and predict many networks: in order, in bounded memory, with the answers of one
process, by joblib on this machine. They never measure and see no store in memory: there the
calling process answers alone.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybridlat.api.arguments import Item, Options, Query
from hybridlat.api.session import Answer, Session, Sessions, answer_of, estimate
from hybridlat.engines.registry import ResolvedEngine, resolve
from hybridlat.errors import HybridlatError, InputError, MeasurementError
from hybridlat.estimate.lookup.models import read_model, read_target
from hybridlat.estimate.lookup.whole_networks import MeasuredNetwork
from hybridlat.schema import workers
from hybridlat.store import Store

if TYPE_CHECKING:
    import pandas

FIRST_WINDOW, LARGEST_WINDOW = 16, 1024
"""Networks for each worker that are taken from the sources at a time; the number doubles."""
LARGEST_WINDOW_BYTES = 100_000_000
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Spec:
    """What a worker needs to estimate as the predictor that sent it.

    ``session`` makes one of a store, with what is ``known``. ``token`` is the predictor's: a worker
    reuses what it loaded for it, and sees what is new in the store. ``call`` is ``predict_many``'s.
    """

    session: Callable[[Store], Session]
    store: str
    known: tuple[Mapping[str, MeasuredNetwork], Sequence[str]]
    token: bytes
    call: bytes

    def open(self) -> Sessions:
        """The sessions of a worker."""
        first = self.session(Store(self.store))
        first.data.user_networks, first.surprising = self.known
        return Sessions(first, lambda target: replace(first.engine, target=target))


_opened: dict[bytes, tuple[bytes, Sessions]] = {}
"""Of this worker, by token, with the last call: one is kept."""


def work(spec: Spec, query: Query, item: Item) -> Answer:
    """In a worker: the estimate of a network, or its error."""
    try:
        while _opened and spec.token not in _opened:
            _opened.popitem()[1][1].close()
        call, sessions = _opened.get(spec.token) or (spec.call, spec.open())
    except HybridlatError as error:
        return error
    if call != spec.call:
        sessions.twins.clear()
    _opened[spec.token] = spec.call, sessions
    return answer_of(sessions, item, query)


def answers_by_workers(
    sessions: Sessions, items: Iterable[Item], query: Query, jobs: int | None, token: bytes
) -> Generator[Answer]:
    """The answers to many networks, in order, by ``jobs`` processes; see ``predict_many``."""
    first, count = sessions.first, workers.count_of(jobs)
    engine = ResolvedEngine(first.target, why_not=first.why_not)
    options = replace(first.options, measure="auto", settings=None, progress=None)
    session = partial(Session, engine, first.requested, options)
    known = first.data.user_networks, first.surprising
    spec = Spec(session, first.store.url, known, token, call=os.urandom(8))
    ahead = windows(map(Item.as_bytes, items), count)

    def in_windows() -> Generator[Answer]:
        window = next(ahead, None)
        useful = min(count, max(2, len(window or ())))
        parallel = partial(workers.parallel, useful, return_as="generator")
        while window:
            sent = [item for item in window if isinstance(item, Item) and item.travels]
            answers: Iterator[Answer] = from_workers(parallel, spec, query, sent)
            answers = itertools.chain(list(itertools.islice(answers, 1)), answers)
            following = next(ahead, None)  # while the workers are busy with this window
            for item in window:
                if isinstance(item, Exception):
                    raise item
                yield next(answers) if item.travels else answer_of(sessions, item, query)
            next(answers, None)  # joblib warns of answers that are left before their end
            window = following

    return in_windows()


def windows(items: Iterable[Item], workers: int) -> Iterator[list[Item | Exception]]:
    """The networks, some at a time, fewer where they are large; an error of their iterator last."""
    window: list[Item | Exception] = []
    most, size_bytes = FIRST_WINDOW * workers, 0
    try:
        for item in items:
            window.append(item)
            size_bytes += len(item.source) if isinstance(item.source, bytes | bytearray) else 0
            if len(window) >= most or size_bytes >= LARGEST_WINDOW_BYTES:
                yield window
                window, most, size_bytes = [], min(2 * most, LARGEST_WINDOW * workers), 0
    except Exception as error:  # noqa: BLE001 - of the caller's own iterator
        window.append(error)
    if window:
        yield window


def from_workers(
    parallel: Callable[[], Any], spec: Spec, query: Query, items: Sequence[Item]
) -> Generator[Answer]:
    """The answers to all items, in order; joblib replaces workers that died.

    After a death each item is sent by itself, until the one that kills workers is known. Each time
    by a new ``parallel``: one that an error ended would send what it still held first.
    """
    import joblib

    call, left, one_by_one = joblib.delayed(work), deque(items), False
    while left:
        sent = [left[0]] if one_by_one else list(left)
        with workers.safe_path():
            answers = parallel()(call(spec, query, item) for item in sent)
        try:
            for answer in answers:
                left.popleft()
                yield answer
        except BrokenExecutor as error:
            why = (str(error).strip() or type(error).__name__).splitlines()[0].strip()
            _log.warning("a worker died, and is replaced: %s", why)
            if one_by_one:
                killer = left.popleft()
                yield MeasurementError(
                    f"{killer.name or str(killer.source)} brings down the process that reads it "
                    f"({why}): export it anew, or predict it by itself to see why"
                )
            one_by_one = not one_by_one
        finally:
            with warnings.catch_warnings():  # joblib warns of answers that are not taken
                warnings.simplefilter("ignore")
                answers.close()


class ServedModel:
    """A model of MLflow's registry as MLflow loads it: the pyfunc of the files in ``folder``.

    It answers from that folder alone: what this machine has measured or installed does not count.
    StoreError where the files are damaged or of another format.
    """

    def __init__(self, folder: Path) -> None:
        self.model, self.target = read_model(folder), read_target(folder)
        # The device is the one trained for, whatever is known of it here.
        options = Options(measure="never", device=self.model.device, models=(folder,))
        first = Session(resolve(self.target), self.target, options, Store("sqlite://"))
        self.sessions = Sessions(first, resolve)

    def predict(self, rows: pandas.DataFrame, params: object = None) -> pandas.DataFrame:
        """Latency and interval in µs of each row.

        ``path`` names an ONNX file or a shipped network, at ``batch`` where there is one; else
        ``cell`` is the text of a cell's signature. InputError for a network of another target.
        """
        if "path" in rows:
            batches = rows["batch"] if "batch" in rows else [None] * len(rows)
            rows_us = [self._network(*row) for row in zip(rows["path"], batches, strict=True)]
        elif "cell" in rows:
            cells = self.model.predict(list(rows["cell"]))
            rows_us = [(one.latency_us, *(one.interval_us or (None, None))) for one in cells]
        else:
            raise InputError(f"the columns are {list(rows)}: one must be path, or cell")
        return type(rows)(rows_us, rows.index, ["latency_us", "low_us", "high_us"], float)

    def _network(self, path: str, batch: Any) -> tuple[float | None, ...]:
        if isinstance(batch, float):  # as pandas has whole numbers beside a missing one
            batch = None if math.isnan(batch) else int(batch) if batch.is_integer() else batch
        opened, started = Item(path).opened(Query(batch)), time.perf_counter()
        session = self.sessions.of(opened.file)
        if session is not self.sessions.first:
            raise InputError(f"{path} is of {session.target}, the model of {self.target}")
        answer = estimate(session, opened, started)
        return answer.latency_us, answer.low_us, answer.high_us
