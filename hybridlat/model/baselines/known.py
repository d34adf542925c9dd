"""Baselines that are a part of hybridlat alone: the records without a model, and the reverse."""

from __future__ import annotations

import statistics
from typing import ClassVar

import numpy as np

from hybridlat.model.baselines.base import Array, Baseline, Problem, Sums, Unit
from hybridlat.model.cell_model import CellModel
from hybridlat.model.fit import fit_model
from hybridlat.model.training_problem import FitConfig


class LookupOnly(Baseline):
    """The median of a cell's measurements; NaN for a cell without one."""

    name: ClassVar[str] = "lookup_only"
    learns: ClassVar[bool] = False

    def fit(self, problem: Problem) -> None:
        known = problem.usable()
        times_us: dict[str, list[float]] = {}
        for text, latency in zip(known.sums.texts, known.latencies_us.tolist(), strict=True):
            times_us.setdefault(text, []).append(latency)
        self._known = {text: statistics.median(values) for text, values in times_us.items()}

    def predict(self, sums: Sums) -> Array:
        return np.array([self._known.get(text, np.nan) for text in sums.texts], float)


class LayerwiseMeasured(LookupOnly):
    """Every operator of the file measured alone and unfused, and added up."""

    name: ClassVar[str] = "layerwise_measured"
    units: ClassVar[tuple[Unit, ...]] = ("layer",)


class ModelOnly(Baseline):
    """hybridlat's own model, nothing looked up and nothing measured; NaN for a new operator."""

    name: ClassVar[str] = "model_only"
    model: CellModel

    @classmethod
    def of(cls, model: CellModel) -> ModelOnly:
        """A model that was fitted before."""
        baseline = cls(model.device, model.precision)
        baseline.model = model
        return baseline

    def fit(self, problem: Problem) -> None:
        known = problem.usable()
        config = FitConfig(self.device, self.precision, self.seed)
        self.model = fit_model(known.sums.texts, known.latencies_us, known.groups, config)

    def predict(self, sums: Sums) -> Array:
        return self.model.predict_geometry(sums.kernels).latency_us
