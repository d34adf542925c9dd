"""Answers given before: a search asks for the same candidate again and again."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from hybridlat.api.predictor import Predictor
    from hybridlat.api.sources import Opened
    from hybridlat.schema.estimate import Estimate

MOST_REMEMBERED = 4096
Asked: TypeAlias = tuple[object, ...]


class AnswerMemory:
    """Estimates of one target, as long as nothing is written to the store and nothing measured."""

    def __init__(self) -> None:
        self._answers: OrderedDict[Asked, Estimate] = OrderedDict()

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
        return self._answers[asked]

    def keep(self, asked: Asked | None, answer: Estimate) -> None:
        """One more answer; the one that was asked for least recently is forgotten for it."""
        if asked is not None:
            self._answers[asked] = answer
            if len(self._answers) > MOST_REMEMBERED:
                self._answers.popitem(last=False)
