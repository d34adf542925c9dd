"""The baselines: look-ups, hybridlat's model alone, and regressions on the kernels of a sum."""

from __future__ import annotations

import abc
import statistics
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hybridlat.model.baselines import Array, Baseline, Problem, Sums, Unit
from hybridlat.model.cell_model import CellModel
from hybridlat.model.family.physics import CLASSES
from hybridlat.model.fit import FitConfig, check_installed, fit_model
from hybridlat.model.geometry import COLUMN

_EFFICIENCIES = np.geomspace(0.02, 1.0, 18)
_PLAIN = [
    COLUMN[name]
    for name in (
        "batch", "c_in", "h_in", "w_in", "c_out", "k_h", "stride", "groups", "has_add",
        "activation", "flop", "in_bytes", "weight_bytes", "out_bytes",
    )
]  # fmt: skip


class LookupOnly(Baseline):
    """The median of a cell's measurements; NaN for a cell without one."""

    name: ClassVar[str] = "lookup_only"

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

    def fit(self, problem: Problem) -> None:
        known = problem.usable()
        config = FitConfig(self.device, self.precision, self.seed)
        self.model = fit_model(known.sums.texts, known.latencies_us, known.groups, config)

    def predict(self, sums: Sums) -> Array:
        return self.model.predict_geometry(sums.kernels).latency_us


def relative_columns(columns: Array, latencies_us: Array) -> tuple[Array, Array]:
    """Columns over the latency and their own size, so that small kernels count as large ones do."""
    scaled = columns / latencies_us[:, None]
    size = np.sqrt((scaled**2).sum(axis=0))
    size[size == 0] = 1.0
    return scaled / size, size


def relative_line(columns: Array, latencies_us: Array) -> Array:
    """Coefficients c ≥ 0 that make columns·c close to the latencies in relative terms."""
    from scipy.optimize import nnls

    scaled, size = relative_columns(columns, latencies_us)
    # The triangle of the decomposition has the same solution, and as few rows as columns.
    basis, triangle = np.linalg.qr(scaled)
    factors, _ = nnls(triangle, basis.sum(axis=0))
    return np.asarray(factors / size)


class Line(Baseline):
    """A line over columns of the sum, fitted to relative errors, no coefficient below 0."""

    units: ClassVar[tuple[Unit, ...]] = ("cell", "network")

    def fit(self, problem: Problem) -> None:
        known = problem.usable()
        self._line = relative_line(self._columns(known.sums), known.latencies_us)

    def predict(self, sums: Sums) -> Array:
        return np.asarray(self._columns(sums) @ self._line)

    @abc.abstractmethod
    def _columns(self, sums: Sums) -> Array: ...


def _stacked(sums: Sums, *columns: Array) -> Array:
    """Kernels and other columns; of networks, a constant each too."""
    constant = [np.ones(len(sums))] if sums.whole else []
    return np.stack([*constant, sums.total(np.ones(len(sums.counts))), *columns], axis=1)


class FlopsLinear(Line):
    """latency = a·kernels + b·FLOP (+ c for a network): the oldest proxy there is."""

    name: ClassVar[str] = "flops_linear"

    def _columns(self, sums: Sums) -> Array:
        return _stacked(sums, sums.total(sums.view(self.device, self.precision).flop))


class Roofline(Line):
    """latency = a·kernels + b·Σ max(FLOP/(e·peak), bytes/bandwidth) (+ c), all of them fitted.

    Whole networks have e = 1: their few figures cannot separate it from b.
    """

    name: ClassVar[str] = "roofline"

    def fit(self, problem: Problem) -> None:
        known = problem.usable()
        best = np.inf
        for efficiency in (1.0,) if known.sums.whole else _EFFICIENCIES:
            columns = self._at(known.sums, efficiency)
            line = relative_line(columns, known.latencies_us)
            error = float(np.mean((columns @ line / known.latencies_us - 1) ** 2))
            if error < best:
                best, self._efficiency, self._line = error, float(efficiency), line

    def _columns(self, sums: Sums) -> Array:
        return self._at(sums, self._efficiency)

    def _at(self, sums: Sums, efficiency: float) -> Array:
        view = sums.view(self.device, self.precision)
        bound = np.maximum(view.compute_us / efficiency, view.memory_us)
        return _stacked(sums, sums.total(bound))


class PerKindLinear(Line):
    """A constant, a factor on compute and one on memory time for each class of kernel."""

    name: ClassVar[str] = "per_kind_linear"
    units: ClassVar[tuple[Unit, ...]] = ("network",)

    def _columns(self, sums: Sums) -> Array:
        view = sums.view(self.device, self.precision)
        columns = [np.ones(len(sums)), sums.copied_bytes]
        for kind in sums.kernels.codes(CLASSES) == np.arange(len(CLASSES))[:, None]:
            mine = kind.astype(np.float64)
            parts = (mine, mine * view.compute_us, mine * view.memory_us)
            columns += [sums.total(part) for part in parts]
        return np.stack(columns, axis=1)


class _Forests(NamedTuple):
    """How forests are grown: a kernel's part of a sum begins at the roofline + ``start_us``."""

    trees: int
    rounds: int
    start_us: float
    least_rows: int


_OF_CELLS = _Forests(60, 3, 1.0, 1)
_OF_NETWORKS = _Forests(30, 2, 4.0, 5)


class KernelForest(Baseline):
    """A random forest per kind of kernel on plain shapes, FLOP and bytes (nn-Meter, Zhang 2021).

    A sum teaches each of its kernels its part, in proportion to what the forests say so far (at
    first, to the roofline). A kind that was not taught makes a cell NaN; in a network, which is
    hardly ever without one, it stays at the fitted roofline.
    """

    name: ClassVar[str] = "kernel_forest"
    units: ClassVar[tuple[Unit, ...]] = ("cell", "network")

    def fit(self, problem: Problem) -> None:
        known = problem.usable()
        sums, truth = known.sums, known.latencies_us
        self._way = _OF_NETWORKS if sums.whole else _OF_CELLS
        self._forests: dict[str, Any] = {}
        start = self._start(sums)
        self._scale = float(np.exp(np.median(np.log(truth / sums.total(start)))))
        guess = start * self._scale if sums.whole else start
        owner, kinds = sums.kernels.cell, sums.kernels.met_ops()
        # A kernel alone in its sum has the same part in every round, and so has such a kind.
        beside = sums.whole | (np.bincount(owner, minlength=len(sums))[owner] > 1)
        shared = {kind for kind in kinds if beside[sums.kernels.codes([kind]) == 0].any()}
        for turn in range(self._way.rounds if shared else 1):
            guess = self._kernels_us(sums) if turn else guess
            part = np.log(guess / sums.total(guess)[owner] * truth[owner])
            self._forests |= self._grown(sums, part, sorted(shared) if turn else kinds)

    def _start(self, sums: Sums) -> Array:
        return sums.view(self.device, self.precision).roofline_us + self._way.start_us

    def _grown(self, sums: Sums, log_us: Array, kinds: Sequence[str]) -> dict[str, Any]:
        check_installed(f"the baseline {self.name}")
        from sklearn.ensemble import RandomForestRegressor

        forests = {}
        for kind in kinds:
            mine = sums.kernels.codes([kind]) == 0
            if mine.sum() >= self._way.least_rows:
                forest = RandomForestRegressor(
                    self._way.trees,
                    min_samples_leaf=2,
                    max_features=0.6,
                    random_state=self.seed,
                    n_jobs=1,
                )
                forests[kind] = forest.fit(sums.kernels.values[mine][:, _PLAIN], log_us[mine])
        return forests

    def _kernels_us(self, sums: Sums) -> Array:
        kernels = sums.kernels
        result = np.full(len(kernels.values), np.nan)
        if sums.whole:
            result = self._start(sums) * self._scale
        for kind in kernels.met_ops():
            if kind in self._forests:
                mine = kernels.codes([kind]) == 0
                result[mine] = np.exp(self._forests[kind].predict(kernels.values[mine][:, _PLAIN]))
        return result

    def predict(self, sums: Sums) -> Array:
        return sums.total(self._kernels_us(sums))


class LayerwiseLearned(KernelForest):
    """Forests per operator of the *file*, from unfused layers: what layer-wise methods add up."""

    name: ClassVar[str] = "layerwise_learned"
    units: ClassVar[tuple[Unit, ...]] = ("layer", "layered network")
