"""hybridlat's own model with nothing looked up and nothing measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from hybridlat.model.baselines import _table
from hybridlat.model.baselines.base import Baseline, TrainingRow
from hybridlat.model.cell_model import CellModel
from hybridlat.model.geometry import geometry


class ModelOnly(Baseline):
    """The CellModel of ``fit.fit_model``; NaN for an operator it has never seen."""

    name: ClassVar[str] = "model_only"
    model: CellModel

    @classmethod
    def of(cls, model: CellModel) -> ModelOnly:
        """A model that was fitted before."""
        found = cls(model.device, model.precision)
        found.model = model
        return found

    def fit(self, rows: Sequence[TrainingRow]) -> None:
        from hybridlat.model.fit import fit_model
        from hybridlat.model.training_problem import FitConfig

        kept = [row for row in rows if row.latency_us > 0]
        groups = [row.group for row in kept]
        texts, truth = _table.usable(kept)
        config = FitConfig(self.device, self.precision, self.seed)
        self.model = fit_model(texts, truth, groups, config)

    def predict(self, texts: Sequence[str]) -> _table.Array:
        return self.model.predict_geometry(geometry(texts)).latency_us
