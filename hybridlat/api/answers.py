"""Answers given before: a search asks for the same candidate again and again."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeAlias

from hybridlat.estimate.estimate_details import PackedEstimate
from hybridlat.onnx_io import UNNAMED
from hybridlat.schema.estimate import Estimate

if TYPE_CHECKING:
    from hybridlat.api.predictor import Predictor
    from hybridlat.api.sources import Item, Query, Source
    from hybridlat.onnx_io import Recall

MOST_BYTES = 64_000_000
_BYTES_BESIDE = 400
"""What an answer takes beside its own bytes: the question, and its place."""
_MOST_HASHED_BYTES = 8_000_000  # reading a larger network takes little longer than hashing it
Asked: TypeAlias = tuple[object, ...]


class AnswerMemory:
    """Estimates of one target, as long as nothing is written to the store and nothing measured.

    They are held packed.
    """

    def __init__(self) -> None:
        self._answers: OrderedDict[Asked, PackedEstimate] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __contains__(self, asked: Asked) -> bool:
        return asked in self._answers

    def get(self, asked: Asked | None) -> Estimate | None:
        """The answer to the same question."""
        with self._lock:
            if asked is None or asked not in self._answers:
                return None
            self._answers.move_to_end(asked)
            packed = self._answers[asked]
        return packed.opened()

    def keep(self, asked: Asked | None, answer: Estimate) -> None:
        """One more answer; those that were asked for least recently are forgotten for it."""
        if asked is None or asked in self._answers:
            return
        packed = PackedEstimate.of(answer)
        with self._lock:
            if asked in self._answers:
                return
            self._answers[asked] = packed
            self._bytes += _bytes_of(packed)
            while self._bytes > MOST_BYTES:
                self._bytes -= _bytes_of(self._answers.popitem(last=False)[1])


def _bytes_of(packed: PackedEstimate) -> int:
    return len(packed.short) + len(packed.details.data) + _BYTES_BESIDE


def answer(
    predictor: Predictor, item: Item, query: Query, started: float, recall: Recall | None = None
) -> Estimate:
    """The estimate of a network: as it was told before, where nothing has changed since."""
    memory = predictor._answers
    asked = question(predictor, item, query)
    known = memory.get(asked)
    if known is not None:
        return renamed(known, item.name or UNNAMED, started)
    opened = item.opened(query, recall)
    if asked is None:
        asked = _question(predictor, query, lambda: opened.file.written)
        known = memory.get(asked)
        if known is not None:
            return renamed(known, opened.file.name, started)
    estimate = predictor._estimate_of(opened, started, query.describe)
    if not predictor._for(opened.file)._may_measure:
        memory.keep(asked, estimate)
    return estimate


def question(predictor: Predictor, item: Item, query: Query) -> Asked | None:
    """All that an answer hangs on but for the network's name, which a list gives by its place.

    None where the same question may be answered otherwise, and for a source that has to be opened
    to know what is in it.
    """
    if item.example is not None:
        return None
    return _question(predictor, query, lambda: _content_of(item.source))


def renamed(known: Estimate, name: str, started: float) -> Estimate:
    """An answer given before, for a network of that name; it was asked for at ``started``."""
    return replace(known, network=name, elapsed_s=time.perf_counter() - started)


def _question(
    predictor: Predictor, query: Query, content: Callable[[], bytes | None]
) -> Asked | None:
    if predictor._may_measure or query.describe:
        return None
    stamp = predictor.store.stamp
    if stamp is None:  # nobody knows whether the store has changed
        return None
    told = content()
    if told is None:
        return None
    kind = predictor.tolerance, predictor.confidence, predictor.mode
    return stamp, *kind, told, repr(query.batch), repr(query.shapes)


def _content_of(source: Source) -> bytes | None:
    """A hash of the bytes of a network, where they are at hand and not too many."""
    if not isinstance(source, bytes) or len(source) > _MOST_HASHED_BYTES:
        return None
    return blake2b(source, digest_size=16).digest()
