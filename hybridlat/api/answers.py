"""Answers given before: a search asks for the same candidate again and again."""

from __future__ import annotations

import zlib
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from hybridlat.estimate.estimate_details import PackedDetails, packed_details, with_details
from hybridlat.schema.estimate import Estimate

if TYPE_CHECKING:
    from hybridlat.api.predictor import Predictor
    from hybridlat.api.sources import Opened

MOST_BYTES = 64_000_000
_BYTES_BESIDE = 400
"""What an answer takes beside its own bytes: the question, and its place."""
Asked: TypeAlias = tuple[object, ...]


class AnswerMemory:
    """Estimates of one target, as long as nothing is written to the store and nothing measured.

    They are held packed, in a tenth of the room: a process that answers a search for hours must
    not be taken for one that leaks memory, for which joblib's workers are ended.
    """

    def __init__(self) -> None:
        self._answers: OrderedDict[Asked, bytes] = OrderedDict()
        self._bytes = 0

    def key(self, predictor: Predictor, opened: Opened) -> Asked | None:
        """All that an answer hangs on; None where the same question may be answered otherwise."""
        if predictor._may_measure:
            return None
        stamp = predictor.store.stamp
        if stamp is None:  # nobody knows whether the store has changed
            return None
        file, shapes = opened.file, tuple((opened.shapes or {}).items())
        kind = predictor.tolerance, predictor.confidence, predictor.mode
        return stamp, *kind, file.name, file.written, opened.batch, shapes

    def get(self, asked: Asked | None) -> Estimate | None:
        """The answer to the same question."""
        if asked is None or asked not in self._answers:
            return None
        from msgspec import msgpack

        self._answers.move_to_end(asked)
        packed = zlib.decompress(self._answers[asked])
        short, details = msgpack.decode(packed, type=tuple[Estimate, bytes])
        return with_details(short, PackedDetails(details))

    def keep(self, asked: Asked | None, answer: Estimate) -> None:
        """One more answer; those that were asked for least recently are forgotten for it."""
        if asked is None or asked in self._answers:
            return
        from msgspec import msgpack

        short = replace(answer, cells=(), removed=(), to_measure=())
        packed = zlib.compress(msgpack.encode((short, packed_details(answer).data)), 1)
        self._answers[asked] = packed
        self._bytes += len(packed) + _BYTES_BESIDE
        while self._bytes > MOST_BYTES:
            self._bytes -= len(self._answers.popitem(last=False)[1]) + _BYTES_BESIDE
