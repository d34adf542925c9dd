"""The learned model of one target: latency of a cell from its signature, with an interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from hybridlat.core.estimate import CellPrediction


class CellModel:
    """Predicts cells it has not seen: ``load`` it, ``predict`` signature texts.

    Light to load: neither training packages nor pickles. ``card`` says what it was trained on.
    """

    card: dict[str, object]

    @classmethod
    def load(cls, folder: Path | str) -> CellModel:
        """Read a model folder; StoreError when it is missing, damaged or of a later format."""
        raise NotImplementedError

    def save(self, folder: Path | str, card: Mapping[str, object] | None = None) -> None:
        """Write the model (arrays and JSON, no pickle); ``card`` adds metrics, date and versions."""
        raise NotImplementedError

    def predict(self, texts: Sequence[str]) -> list[CellPrediction]:
        """One prediction per signature text, in order; never raises for a strange cell."""
        raise NotImplementedError
