"""Many networks by several workers: in order, in bounded memory, with the answers of one process.

Networks are read, lowered and predicted in processes of this machine, by joblib. They never
measure and see no store in memory: there the calling process answers alone.
"""

import itertools
import logging
import os
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from hybridlat.api.arguments import Item, Query
from hybridlat.api.session import Answer, Session, Sessions, answer_of
from hybridlat.engines.registry import ResolvedEngine
from hybridlat.errors import HybridlatError, MeasurementError
from hybridlat.estimate.lookup.whole_networks import MeasuredNetwork
from hybridlat.schema import workers
from hybridlat.store import Store

FIRST_WINDOW, LARGEST_WINDOW = 16, 1024
"""Networks for each worker that are taken from the sources at a time; the number doubles."""
LARGEST_WINDOW_BYTES = 100_000_000
_log = logging.getLogger(__name__)


def sessions_of(
    session: Callable[[Store], Session],
    store: str,
    user_networks: Mapping[str, MeasuredNetwork],
    surprising: Sequence[str],
) -> Sessions:
    """The sessions of a worker: what the user gave the predictor that sent it counts too."""
    first = session(Store(store))
    first.data.user_networks, first.surprising = user_networks, surprising
    return Sessions(first, lambda target: replace(first.engine, target=target))


_opened: dict[bytes, tuple[bytes, Sessions]] = {}
"""Of this worker, by token, with the last call: one is kept."""


def work(
    opening: Callable[[], Sessions], token: bytes, call: bytes, query: Query, item: Item
) -> Answer:
    """In a worker: the estimate of a network, or its error.

    ``token`` is the predictor's: a worker reuses what it loaded for it, and sees what is new in the
    store. ``call`` is that of ``predict_many``.
    """
    try:
        while _opened and token not in _opened:
            _opened.popitem()[1][1].close()
        last, sessions = _opened.get(token) or (call, opening())
    except HybridlatError as error:
        return error
    if last != call:
        sessions.twins.clear()
    _opened[token] = call, sessions
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
    opening = partial(sessions_of, session, first.store.url, *known)
    answer = partial(work, opening, token, os.urandom(8), query)
    ahead = windows(map(Item.as_bytes, items), count)

    def in_windows() -> Generator[Answer]:
        window = next(ahead, None)
        useful = min(count, max(2, len(window or ())))
        parallel = partial(workers.parallel, useful, return_as="generator")
        while window:
            sent = [item for item in window if isinstance(item, Item) and item.travels]
            answers: Iterator[Answer] = from_workers(parallel, answer, sent)
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


def _until(is_ended: threading.Event, items: Iterable[Item]) -> Iterator[Item]:
    """The items, none of them once that is set."""
    return (item for item in items if not is_ended.is_set())


def from_workers(
    parallel: Callable[[], Any], answer_to: Callable[[Item], Answer], items: Sequence[Item]
) -> Generator[Answer]:
    """The answers to all items, in order; joblib replaces workers that died.

    After a death each item is sent by itself, until the one that kills workers is known. Each time
    by a new ``parallel``: one that an error ended would send what it still held first.
    """
    import joblib

    call, left, one_by_one = joblib.delayed(answer_to), deque(items), False
    while left:
        sent, is_ended = [left[0]] if one_by_one else list(left), threading.Event()
        with workers.safe_path():
            answers = parallel()(call(item) for item in _until(is_ended, sent))
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
            is_ended.set()  # joblib's thread fails over what is sent while it ends
            with warnings.catch_warnings():  # joblib warns of answers that are not taken
                warnings.simplefilter("ignore")
                answers.close()
