"""Answers given before: a search asks for the same candidate again and again."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from hybridlat.estimate.estimate_details import PackedDetails, packed_details, with_details

if TYPE_CHECKING:
    from hybridlat.api.predictor import Predictor
    from hybridlat.api.sources import Opened
    from hybridlat.schema.estimate import Estimate

MOST_BYTES = 160_000_000
_BYTES_BESIDE_DETAILS = 2500
"""What an answer takes but for its details: numbers, texts, and the question."""
Asked: TypeAlias = tuple[object, ...]


class AnswerMemory:
    """Estimates of one target, as long as nothing is written to the store and nothing measured."""

    def __init__(self) -> None:
        self._answers: OrderedDict[Asked, tuple[Estimate, PackedDetails]] = OrderedDict()
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
        self._answers.move_to_end(asked)
        return with_details(*self._answers[asked])

    def keep(self, asked: Asked | None, answer: Estimate) -> None:
        """One more answer; those that were asked for least recently are forgotten for it."""
        if asked is None or asked in self._answers:
            return
        details = packed_details(answer)
        short = replace(answer, cells=(), removed=(), to_measure=())
        self._answers[asked] = short, details
        self._bytes += _bytes_of(details)
        while self._bytes > MOST_BYTES:
            self._bytes -= _bytes_of(self._answers.popitem(last=False)[1][1])


def _bytes_of(details: PackedDetails) -> int:
    return len(details.data) + _BYTES_BESIDE_DETAILS
