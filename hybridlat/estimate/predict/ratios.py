"""How latencies on one target compare with another's, and what cells known on both tell of others.

ln(latency here / latency there) of a cell is a part that all cells share, a part of each kind of
kernel by its share of the cell's work, and the cell's own. Each follows a Student distribution:
most releases change little, and now and then one rewrites a kernel. Cells known on both sides
decide the parts, by ridge regression with Student's weights in a few rounds (Lange, Little &
Taylor, "Robust statistical modeling using the t distribution", JASA 84, 1989). So one rewritten
kernel moves its kind, not all, and a kind that contradicts itself becomes wide.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hybridlat.estimate.compose.posterior import Matrix

Kinds = Sequence[tuple[str, float]]
"""A cell's kinds of kernel, each with its share of the cell's work (`source.kinds_of`)."""
_LARGE_SHARE = 0.05  # of a network's time: twice as slow, a kind makes it 5 % slower
_ENOUGH = 0.5  # summed shares of one kind that tell whether it was rewritten
_DEGREES = 4.0
_ROUNDS = 12
_MINORS = 20  # releases between two major ones, where more is not known


@dataclass(frozen=True, slots=True)
class RatioPrior:
    """Standard errors of the parts of ln(ratio), and its ``mean``, before any cell is compared.

    ``network`` is that of a network's ratio beside those of its cells. ``per_minor``: the errors
    are of one minor release, and those of several add up.
    """

    common: float
    kind: float
    cell: float
    network: float
    mean: float = 0.0
    per_minor: bool = False

    def over(self, gap: tuple[int, ...]) -> "RatioPrior":
        """The prior of two versions with this ``gap``, (majors, minors …), between them."""
        if not self.per_minor:
            return self
        steps = max(_MINORS * gap[0] + gap[1] if len(gap) > 1 else _MINORS, 1)
        return RatioPrior(*[part * steps**0.5 for part in self.parts])

    def and_also(self, other: "RatioPrior") -> "RatioPrior":
        """The prior where both differ, independently of each other."""
        common, kind, cell, network = map(math.hypot, self.parts, other.parts)
        return RatioPrior(common, kind, cell, network, self.mean + other.mean)

    @property
    def parts(self) -> tuple[float, float, float, float]:
        return self.common, self.kind, self.cell, self.network

    @property
    def spread(self) -> float:
        return math.hypot(self.common, self.kind, self.cell)


RATIOS: Mapping[tuple[str, str], RatioPrior] = {
    ("version", "onnxruntime"): RatioPrior(0.015, 0.03, 0.03, 0.015, per_minor=True),
    ("version", "torch"): RatioPrior(0.1, 0.1, 0.05, 0.03),
    ("version", "torch-compile"): RatioPrior(0.1, 0.1, 0.05, 0.03),
    ("version", ""): RatioPrior(0.17, 0.2, 0.15, 0.05),
    ("machine", ""): RatioPrior(0.08, 0.16, 0.05, 0.03),
    ("cpu", ""): RatioPrior(0.5, 0.24, 0.4, 0.2, math.log(1.5)),
}
"""What was seen, by what differs and the engine, empty for any other. With few networks measured an
interval reaches 2.1 of these errors, Student's quantile. So nine of ten CPUs that were compared lie
in theirs. ``machine`` is another one of the same CPU. One ran plain convolutions 4 to 7 % and
depthwise ones 30 % quicker than the shipped pack says: intervals that knew of versions alone held
14 of 32 networks. Half of these chose the errors, which held 13 of the other 16."""


class Pair(NamedTuple):
    """A cell known on both sides: its kinds, ln(here / there), and the standard error of that."""

    kinds: Kinds
    log_ratio: float
    noise: float


@dataclass(frozen=True, eq=False)
class Ratios:
    """A prior conditioned by ``pairs``."""

    prior: RatioPrior
    pairs: Sequence[Pair]

    @cached_property
    def _places(self) -> dict[str, int]:
        names = sorted({name for pair in self.pairs for name, _ in pair.kinds})
        return {name: place for place, name in enumerate(names, start=1)}

    @cached_property
    def _parts(self) -> tuple[Matrix, NDArray[np.floating], Matrix]:
        """Mean and covariance of the parts, the common one first, and cells' own variance by it."""
        prior = self.prior
        design = _design([pair.kinds for pair in self.pairs], self._places)
        ratios = np.array([pair.log_ratio for pair in self.pairs]) - prior.mean
        noise = np.array([pair.noise**2 for pair in self.pairs])
        variances = self._variances(len(self._places))
        own, tails, weights = prior.cell**2, np.ones(len(variances)), np.ones(len(ratios))
        for _ in range(_ROUNDS):
            scaled = design * (weights / (own + noise))[:, None]
            covariance = np.linalg.inv(np.diag(tails / variances) + design.T @ scaled)
            means = covariance @ (scaled.T @ ratios)
            misses = ratios - design @ means
            weights = (_DEGREES + 1) / (_DEGREES + misses**2 / (own + noise))
            squares = (means**2 + covariance.diagonal()) / variances
            tails = (_DEGREES + 1) / (_DEGREES + squares)
        telling = design * (own / (own + noise))[:, None]
        # Few cells that differ may do so by themselves or as all of their kind.
        odd = misses * np.maximum(1 - 4 * (own + noise) / np.maximum(misses**2, 1e-12), 0.0)
        as_kind = telling.T @ odd / np.maximum((design * telling).sum(axis=0), 1e-9)
        doubt = 0.5 ** design.sum(axis=0)
        covariance = covariance + np.diag(doubt * (1 - doubt) * (means**2 + as_kind**2))
        squares = _DEGREES * own + telling.T @ np.maximum(misses**2 - noise, 0.0)
        return means, covariance, np.asarray(squares / (_DEGREES + telling.sum(axis=0)))

    def of(self, cells: Sequence[Kinds]) -> tuple[Matrix, Matrix]:
        """Mean and covariance of ln(here / there) of cells, those of ``pairs`` or others."""
        means, covariance, own = self._parts
        new = {name for kinds in cells for name, _ in kinds}.difference(self._places)
        places = self._places | {n: i for i, n in enumerate(sorted(new), start=len(means))}
        design, count = _design(cells, places), len(means)
        parts = np.diag(self._variances(len(places)))
        parts[:count, :count] = covariance
        by_kind = np.append(own[1:], np.full(len(new), self.prior.cell**2))
        return (
            self.prior.mean + design[:, :count] @ means,
            design @ parts @ design.T + np.diag(design[:, 1:] @ by_kind),
        )

    def unchecked(self, cells: Sequence[Kinds], uses_us: Sequence[float]) -> list[int]:
        """Positions of the cells that tell most of kinds that take long and were not compared."""
        compared = _design([pair.kinds for pair in self.pairs], self._places).sum(axis=0)
        known = {name: float(compared[place]) for name, place in self._places.items()}
        times: dict[str, list[float]] = {}
        for place, kinds in enumerate(cells):
            for name, share in kinds:
                times.setdefault(name, [0.0] * len(cells))[place] += share * uses_us[place]
        chosen = []
        for name, each_us in sorted(times.items(), key=lambda item: -sum(item[1])):
            if sum(each_us) >= _LARGE_SHARE * sum(uses_us) and known.get(name, 0.0) < _ENOUGH:
                chosen.append(each_us.index(max(each_us)))
                for other, share in cells[chosen[-1]]:
                    known[other] = known.get(other, 0.0) + share
        return chosen

    def _variances(self, kinds: int) -> Matrix:
        return np.array([self.prior.common**2, *[self.prior.kind**2] * kinds])


def _design(cells: Iterable[Kinds], places: Mapping[str, int]) -> Matrix:
    """A row for each cell: 1, then its share of every kind."""
    rows = list(cells)
    design = np.zeros((len(rows), len(places) + 1))
    design[:, 0] = 1.0
    for row, kinds in enumerate(rows):
        for name, share in kinds:
            design[row, places[name]] += share
    return design
