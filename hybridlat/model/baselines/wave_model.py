"""A baseline of GPUs' tiles: what a fitted staircase of waves explains."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hybridlat.graph.operators import KINDS
from hybridlat.model.baselines import Array, Baseline, Problem, Sums
from hybridlat.model.baselines.methods import relative_columns
from hybridlat.model.geometry import TILES, View

_ROUNDS = 6
_CLASSES = 6
_TERMS = 4
_DESCENTS = 2000


class WaveModel(Baseline):
    """Staircase of waves of tiles plus steps of alignment: four coefficients per class of kernel.

        latency = launch + min over tiles of (waves · (per_wave·K·Tm·Tn + per_step)) + moved bytes

    Classes: contractions by alignment of the channels (to 32, to 8, neither), 1x1 apart from larger
    windows; depthwise convolutions; everything else. A class with fewer than five rows takes the
    coefficients of all rows. The tile of each kernel is the one that the fit of the round before
    finds fastest, as an autotuner would.
    """

    name: ClassVar[str] = "wave_model"

    def fit(self, problem: Problem) -> None:
        known = problem.usable()
        sums, truth = known.sums, known.latencies_us
        view = sums.view(self.device, self.precision)
        classes, of_tiles = _wave_classes(view), _wave_terms(view)
        guess = view.roofline_us + 1.0
        self._lines = np.zeros((_CLASSES, _TERMS))
        tile = of_tiles[:, :, 1].argmin(axis=0)
        for _ in range(_ROUNDS):
            kernel_us = guess * (truth / sums.total(guess))[sums.kernels.cell]
            terms = of_tiles[tile, np.arange(len(tile))]
            everything = _descended_line(terms, kernel_us)
            for number in range(_CLASSES):
                mine = classes == number
                self._lines[number] = (
                    _descended_line(terms[mine], kernel_us[mine]) if mine.sum() >= 5 else everything
                )
            guess, tile = self._best(of_tiles, classes)
            guess = np.maximum(guess, 1e-3)

    def _best(self, of_tiles: Array, classes: Array) -> tuple[Array, NDArray[np.intp]]:
        """Latency of every kernel with its fastest tile, and that tile."""
        every = (of_tiles * self._lines[classes.astype(int)]).sum(axis=2)
        best = every.argmin(axis=0)
        return every[best, np.arange(len(best))], best

    def predict(self, sums: Sums) -> Array:
        view = sums.view(self.device, self.precision)
        return sums.total(self._best(_wave_terms(view), _wave_classes(view))[0])


def _wave_classes(view: View) -> Array:
    contracts = view.contracts & (view.groups == 1)
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
    """As ``relative_line``, by coordinate descent from zero.

    Terms of a class are nearly multiples of each other: descent lets them share the latency, an
    exact solver takes one of them, and the tiles chosen by it err half as much again.
    """
    scaled, size = relative_columns(columns, latencies_us)
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
