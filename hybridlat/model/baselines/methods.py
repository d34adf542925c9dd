"""The baselines: look-ups, hybridlat's model alone, and regressions on the kernels of a sum."""

import abc
import statistics
from typing import Any, ClassVar

import numpy as np

from hybridlat.graph.operators import KINDS
from hybridlat.model.baselines import Baseline, Problem, Sums, Unit
from hybridlat.model.cell_model import CellModel
from hybridlat.model.family.physics import CLASSES
from hybridlat.model.fit import FitConfig, check_installed, fit_model
from hybridlat.model.geometry import TILES, Array, Positions, View

_EFFICIENCIES = np.geomspace(0.02, 1.0, 18).tolist()
_ROUNDS, _WAVE_CLASSES, _DESCENTS = 6, 6, 2000  # of the wave model
_PLAIN = (
    "batch", "c_in", "h_in", "w_in", "c_out", "k_h", "stride", "groups", "has_add", "activation",
    "flop", "in_bytes", "weight_bytes", "out_bytes",
)  # fmt: skip


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


def _relative_columns(columns: Array, latencies_us: Array) -> tuple[Array, Array]:
    """Columns over the latency and their own size, so that small kernels count as large ones do."""
    scaled = columns / latencies_us[:, None]
    size = np.sqrt((scaled**2).sum(axis=0))
    size[size == 0] = 1.0
    return scaled / size, size


class Line(Baseline):
    """A line over columns of the sum, fitted to relative errors, no coefficient below 0."""

    units: ClassVar[tuple[Unit, ...]] = ("cell", "network")

    def fit(self, problem: Problem) -> None:
        from scipy.optimize import nnls

        known = problem.usable()
        scaled, size = _relative_columns(self._columns(known.sums), known.latencies_us)
        # The triangle of the decomposition has the same solution, and as few rows as columns.
        basis, triangle = np.linalg.qr(scaled)
        self._line = nnls(triangle, basis.sum(axis=0))[0] / size

    def predict(self, sums: Sums) -> Array:
        return np.asarray(self._columns(sums) @ self._line)

    @abc.abstractmethod
    def _columns(self, sums: Sums) -> Array: ...


def _stacked(sums: Sums, *columns: Array) -> Array:
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

        def error(efficiency: float) -> float:
            self._efficiency = efficiency
            Line.fit(self, known)
            return float(np.mean((self.predict(known.sums) / known.latencies_us - 1) ** 2))

        error(min((1.0,) if known.sums.whole else _EFFICIENCIES, key=error))

    def _columns(self, sums: Sums) -> Array:
        view = sums.view(self.device, self.precision)
        bound = np.maximum(view.compute_us / self._efficiency, view.memory_us)
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


class KernelForest(Baseline):
    """A random forest per kind of kernel on plain shapes, FLOP and bytes (nn-Meter, Zhang 2021).

    A sum teaches each of its kernels its part, in proportion to what the forests say so far, at
    first to the roofline. A kind that was not taught makes a cell NaN, and stays at the fitted
    roofline in a network.
    """

    name: ClassVar[str] = "kernel_forest"
    units: ClassVar[tuple[Unit, ...]] = ("cell", "network")

    def fit(self, problem: Problem) -> None:
        check_installed(f"the baseline {self.name}")
        from sklearn.ensemble import RandomForestRegressor

        shape = {"min_samples_leaf": 2, "max_features": 0.6, "n_jobs": 1}
        known = problem.usable()
        sums, truth = known.sums, known.latencies_us
        self._forests: dict[str, Any] = {}
        start, owner, kinds = self._start(sums), sums.kernels.cell, sums.kernels.met_ops()
        self._scale = float(np.exp(np.median(np.log(truth / sums.total(start)))))
        guess = start * self._scale
        beside = sums.whole | (np.bincount(owner, minlength=len(sums))[owner] > 1)
        shared = tuple(k for k in kinds if beside[sums.kernels.codes([k]) == 0].any())
        judged = kinds if self.judged_ops is None else self.judged_ops
        # To divide a sum takes fewer trees than to predict a kernel.
        least_rows, rounds = 1, [(20, shared), (20, shared), (60, judged)]
        if sums.whole:
            least_rows, rounds = 5, [(30, shared), (30, judged)]
        for turn, (trees, grown) in enumerate(rounds):
            # A kernel of another kind is alone in its sum: its part is all, whatever is guessed.
            guess = np.nan_to_num(self._kernels_us(sums), nan=1.0) if turn else guess
            part = np.log(guess / sums.total(guess)[owner] * truth[owner])
            for kind in grown:
                mine = sums.kernels.codes([kind]) == 0
                if mine.sum() >= least_rows:
                    forest = RandomForestRegressor(trees, random_state=self.seed, **shape)
                    rows = sums.kernels.columns(_PLAIN)[mine]
                    self._forests[kind] = forest.fit(rows, part[mine])

    def _start(self, sums: Sums) -> Array:
        return sums.view(self.device, self.precision).roofline_us + (4.0 if sums.whole else 1.0)

    def _kernels_us(self, sums: Sums) -> Array:
        kernels = sums.kernels
        result = self._start(sums) * (self._scale if sums.whole else np.nan)
        for kind in kernels.met_ops():
            if kind in self._forests:
                mine = kernels.codes([kind]) == 0
                result[mine] = np.exp(self._forests[kind].predict(kernels.columns(_PLAIN)[mine]))
        return result

    def predict(self, sums: Sums) -> Array:
        return sums.total(self._kernels_us(sums))


class LayerwiseLearned(KernelForest):
    """Forests per operator of the *file*, from unfused layers: what layer-wise methods add up."""

    name: ClassVar[str] = "layerwise_learned"
    units: ClassVar[tuple[Unit, ...]] = ("layer", "layered network")


class WaveModel(Baseline):
    """Staircase of waves of tiles plus steps of alignment: four coefficients per class of kernel.

        latency = launch + min over tiles of (waves · (per_wave·K·Tm·Tn + per_step)) + moved bytes

    Classes: contractions by alignment of the channels (to 32, to 8, neither), 1x1 apart from larger
    windows; depthwise convolutions; everything else. One with fewer than five rows takes the
    coefficients of all. A kernel's tile is what the round before finds fastest.
    """

    name: ClassVar[str] = "wave_model"

    def fit(self, problem: Problem) -> None:
        known = problem.usable()
        sums, truth = known.sums, known.latencies_us
        view = sums.view(self.device, self.precision)
        classes, of_tiles = _wave_classes(view), _wave_terms(view)
        guess = view.roofline_us + 1.0
        self._lines = np.zeros((_WAVE_CLASSES, of_tiles.shape[2]))
        tile = of_tiles[:, :, 1].argmin(axis=0)
        for _ in range(_ROUNDS):
            kernel_us = guess * (truth / sums.total(guess))[sums.kernels.cell]
            terms = of_tiles[tile, np.arange(len(tile))]
            for number in range(_WAVE_CLASSES):
                mine = classes == number
                taken = mine if mine.sum() >= 5 else np.ones_like(mine)
                self._lines[number] = _descended_line(terms[taken], kernel_us[taken])
            guess, tile = self._best(of_tiles, classes)
            guess = np.maximum(guess, 1e-3)

    def _best(self, of_tiles: Array, classes: Array) -> tuple[Array, Positions]:
        every = (of_tiles * self._lines[classes.astype(int)]).sum(axis=2)
        best = every.argmin(axis=0)
        return every[best, np.arange(len(best))], best

    def predict(self, sums: Sums) -> Array:
        view = sums.view(self.device, self.precision)
        return sums.total(self._best(_wave_terms(view), _wave_classes(view))[0])


def _wave_classes(view: View) -> Array:
    contracts = (view.kind <= KINDS["matmul"]) & (view.groups == 1)
    channels = np.where((view.c_in % 32 == 0) & (view.c_out % 32 == 0), 0, 2)
    channels = np.where((view.c_in % 8 != 0) | (view.c_out % 8 != 0), 3, channels)
    window = (view.k_h * view.k_w > 1) & (channels == 0)
    other = np.where(view.kind == KINDS["conv"], 4, 5)
    return np.where(contracts, np.where(window, 1, channels), other)


def _wave_terms(view: View) -> Array:
    """Launch, arithmetic of the waves, steps of the waves along K, bytes moved: by tile, kernel."""
    launch, moved = np.ones(len(view.m)), view.memory_us
    terms = [(launch, view.wave_us(tile), view.waves(tile) * view.k, moved) for tile in TILES]
    return np.stack([np.stack(of_tile, axis=1) for of_tile in terms])


def _descended_line(columns: Array, latencies_us: Array) -> Array:
    """As ``Line`` fits, by coordinate descent from zero. Of terms that are nearly multiples of
    each other an exact solver takes one, and the tiles chosen by it err half as much again."""
    scaled, size = _relative_columns(columns, latencies_us)
    gram, right = scaled.T @ scaled, scaled.sum(axis=0)
    result = np.zeros(columns.shape[1])
    for _ in range(_DESCENTS):
        before = result.copy()
        for i in range(len(result)):
            if gram[i, i] > 0:
                step = (right[i] - gram[i] @ result) / gram[i, i]
                result[i] = max(result[i] + step, 0.0)
        if np.abs(result - before).max() <= 1e-9 * max(np.abs(result).max(), 1e-30):
            break
    return np.asarray(result / size)
