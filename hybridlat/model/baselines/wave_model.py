"""The two non-linear modes of a convolution's latency, as a formula that few records can fit.

The staircase: a kernel computes its output in tiles, ``units`` tiles at a time, so latency follows
the number of waves, not of outputs. The jumps: another tile shape or another kernel is chosen when
channels are (not) multiples of what the hardware likes. For each alignment class

    latency = launch + min over tiles of (waves · (per_wave·K·Tm·Tn + per_step)) + moved bytes

with coefficients fitted by non-negative least squares on relative errors; the tile of each kernel
is the one that the fit of the round before finds fastest, as an autotuner would.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

import numpy as np

from hybridlat.graph.operators import KINDS
from hybridlat.model.baselines import _table
from hybridlat.model.baselines.base import Baseline, TrainingRow
from hybridlat.model.kernel_view import TILES, View

_ROUNDS = 6
_CLASSES = 6
_TERMS = 4


class WaveModel(Baseline):
    """Staircase plus alignment steps: 4 coefficients per class of kernel, all with a meaning.

    Classes: contractions by alignment of the channels (to 32, to 8, neither), 1x1 apart from
    larger windows; depthwise convolutions; everything else. A class with fewer than five rows
    takes the coefficients of all rows.
    """

    name: ClassVar[str] = "wave_model"

    def fit(self, rows: Sequence[TrainingRow]) -> None:
        texts, truth = _table.usable(rows)
        cells, view = _table.read(texts, self.device, self.precision)
        classes = _classes(view)
        guess = view.roofline_us + 1.0
        everything = np.zeros(_TERMS)
        self._lines = np.tile(everything, (_CLASSES, 1))
        tile = _smallest_wave_time(view)
        for _ in range(_ROUNDS):
            kernel_us = guess * (truth / _table.summed(cells, guess))[cells.cell]
            terms = _terms(view, tile)
            everything = _table.relative_line(terms, kernel_us)
            for number in range(_CLASSES):
                mine = classes == number
                self._lines[number] = (
                    _table.relative_line(terms[mine], kernel_us[mine])
                    if mine.sum() >= 5
                    else everything
                )
            guess, tile = self._best(view, classes)
            guess = np.maximum(guess, 1e-3)

    def _best(self, view: View, classes: _table.Array) -> tuple[_table.Array, _table.Array]:
        """Latency of every kernel with its fastest tile, and that tile."""
        lines = self._lines[classes.astype(int)]
        every = np.stack(
            [(_terms(view, np.full(len(view.m), i)) * lines).sum(axis=1) for i in range(len(TILES))]
        )
        best = every.argmin(axis=0)
        return every[best, np.arange(len(best))], best

    def predict(self, texts: Sequence[str]) -> _table.Array:
        cells, view = _table.read(texts, self.device, self.precision)
        return _table.summed(cells, self._best(view, _classes(view))[0])


def _classes(view: View) -> _table.Array:
    contracts = view.contracts & (view.groups == 1)
    channels = np.where((view.c_in % 32 == 0) & (view.c_out % 32 == 0), 0, 2)
    channels = np.where((view.c_in % 8 != 0) | (view.c_out % 8 != 0), 3, channels)
    window = (view.k_h * view.k_w > 1) & (channels == 0)
    result = np.where(window, 1, channels)
    other = np.where(view.kind == KINDS["conv"], 4, 5)
    return np.where(contracts, result, other)


def _smallest_wave_time(view: View) -> _table.Array:
    times = np.stack([view.wave_us(tile) for tile in TILES])
    return cast(_table.Array, times.argmin(axis=0))  # positions, used as such


def _terms(view: View, tile: _table.Array) -> _table.Array:
    """Launch, arithmetic of the waves, steps of the waves along K, bytes moved."""
    rows = np.arange(len(tile))
    waves = np.stack([view.waves(t) for t in TILES])[tile, rows]
    arithmetic = np.stack([view.wave_us(t) for t in TILES])[tile, rows]
    return np.stack([np.ones(len(tile)), arithmetic, waves * view.k, view.memory_us], axis=1)
