"""From cells to the network: ``latency = overhead + scale × Σ cells``, with an interval.

The two constants are fitted per target to whole networks. The interval joins the cells' errors,
whose shared part does not average out (see posterior.py), with those of the composition. How many
standard errors it reaches is read off held-out networks (see calibration.py).

A target without training composes its cells by the plain sum, the cost of entering the engine, and
the width of the same engine's interval elsewhere, widened by what borrowing costs. Every network
measured whole with its cells then tells constants and width of its machine.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Annotated, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from hybridlat.estimate.compose.posterior import DEGREES, SHARED, Block, CellPrior, ErrorPosterior
from hybridlat.model.conformal import USUAL, normal_quantile

COMPOSITION_FORMAT = 4
_READ = (2, 3, COMPOSITION_FORMAT)  # of 2, constants of a correlation no longer count
CALIBRATED_AT = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Confidences at which the reach of intervals is calibrated on held-out networks."""
_CELL_DEGREES = 4.0  # of errors of cells that are no network's, at least
PRIOR_RESIDUAL = 0.05  # what a composition is taken to err by before any network says so
BORROWING_SHARE = 0.05
"""What borrowing costs: sums of measured cells missed 26 networks of another CPU by 5.5 %, the
lender's own by 2.0 %, so by √(5.5² − 2.0²) more (experiments/onboarding.md)."""
_PART_SHARE = BORROWING_SHARE / math.sqrt(2)  # of the constant, and again of the scatter
_MACHINES = 2.0  # degrees of freedom of what was lent: as many as machines compared
MOST_EXCESS_SHARE = 0.15
"""120 networks of the shipped CPU pack lie within 8 % of the sums of their measured cells."""
_LONE_SHARE = 0.05  # scatter of networks where no machine lends
_HUBER = 1.5
FAR_OUT = 3.0
_ROUNDS = 50
_Spread = Annotated[float, msgspec.Meta(ge=0, le=1e3)]
_Factor = Annotated[float, msgspec.Meta(ge=1e-3, le=1e3)]
_Real = TypeVar("_Real", float, NDArray[np.float64])


@dataclass(frozen=True, slots=True)
class NetworkInterval:
    """A latency; ``half_width_share`` is the relative distance of the farther end from it."""

    latency_us: float
    interval_us: tuple[float, float]
    half_width_share: float

    def covering(self, other: NetworkInterval) -> NetworkInterval:
        low_us = min(self.interval_us[0], other.interval_us[0])
        high_us = max(self.interval_us[1], other.interval_us[1])
        half = max(high_us / self.latency_us, self.latency_us / low_us) - 1
        return replace(self, interval_us=(low_us, high_us), half_width_share=half)


@dataclass(frozen=True)
class Composition:
    """The constants and the calibration of one target; ``networks`` were used to fit them.

    ``residual_share`` is the spread of ln(true / composed) of networks left out of the fit; where
    they are too few for ``quantiles``, intervals reach as Student's distribution with ``degrees``.
    ``shared_share`` is the part of a cell's variance that all cells of its network share.
    ``quantiles`` are (x, q): the interval of this ``confidence`` is exp(±q·σ) where x, 0..1, is the
    cells' part of σ², with q interpolated. ``levels`` are (confidence, factor), both rising: how
    far intervals reach at one confidence against another. ``wander_share`` is the standard error of
    the machine's pace, which no measuring lessens, ``shown_ratio`` what is shown (a median at the
    usual pace) in units of what is composed (a low quantile at that of records).

    Cells without a convolution take ``unconvolved_ratio`` times as long in their network as alone,
    and networks of such cells alone err by ``unconvolved_spread`` besides.
    """

    overhead_us: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0.0
    scale: _Factor = 1.0
    confidence: Annotated[float, msgspec.Meta(gt=0, lt=1)] = USUAL
    residual_share: _Spread = PRIOR_RESIDUAL
    networks: Annotated[int, msgspec.Meta(ge=0)] = 0
    shared_share: Annotated[float, msgspec.Meta(ge=0, le=1)] = SHARED
    quantiles: tuple[tuple[_Spread, _Spread], ...] = ()
    levels: tuple[tuple[float, float], ...] = ()
    wander_share: _Spread = 0.0
    shown_ratio: _Factor = 1.0
    degrees: Annotated[float, msgspec.Meta(ge=1, le=1e6)] | None = None
    unconvolved_ratio: _Factor = 1.0
    unconvolved_spread: _Spread = 0.0

    def for_cells(self, cells: ErrorPosterior) -> Composition:
        """The composition of the network that these cells make, by all that is known of them."""
        return self.of_network(cells.unconvolved_share)

    def of_network(self, unconvolved: float) -> Composition:
        """The composition of a network with this share of its time outside convolutions."""
        return replace(
            self,
            scale=self.scale * (1 + (self.unconvolved_ratio - 1) * unconvolved),
            residual_share=math.hypot(self.residual_share, self.unconvolved_spread * unconvolved),
            unconvolved_ratio=1.0,
            unconvolved_spread=0.0,
        )

    def latency_us(self, sum_of_cells_us: float) -> float:
        return self.overhead_us + self.scale * sum_of_cells_us

    def start(self, priors: Sequence[CellPrior], block: Block | None = None) -> ErrorPosterior:
        return ErrorPosterior.start(priors, self.shared_share, block)

    def after_residual(self, log_ratio: float, noise: float) -> Composition:
        """The composition given a network's ln(true / composed), with its ``noise``."""
        kept = self.residual_share**2 / (self.residual_share**2 + noise**2)
        factor = math.exp(kept * log_ratio)
        return replace(
            self,
            overhead_us=factor * self.overhead_us,
            scale=factor * self.scale,
            residual_share=self.residual_share * math.sqrt(1 - kept),
        )

    def variances(self, cells_variance: _Real, sum_of_cells_us: float) -> tuple[_Real, _Real]:
        """The cells' part of the variance of ln(latency), and the whole of it."""
        composed = self.latency_us(sum_of_cells_us)
        lever = self.scale * sum_of_cells_us / composed if composed > 0 else 1.0
        cells = cells_variance * lever**2
        return cells, cells + self.residual_share**2

    @lru_cache(maxsize=1024)  # noqa: B019  the networks of a target share a few of some bytes
    def at(self, confidence: float) -> Composition:
        ratio = self.interval_factor(confidence) / self.interval_factor(self.confidence)
        scaled = tuple((x, q * ratio) for x, q in self.quantiles)
        return replace(self, confidence=confidence, quantiles=scaled)

    def interval_factor(self, confidence: float) -> float:
        """How far an interval of that confidence reaches, in a unit of its own."""
        # Linear in the normal quantile between ``levels``, as Student's quantiles beyond them.
        if not self.levels:
            return student_quantile(confidence, DEGREES)
        known, reaches = zip(*self.levels, strict=True)
        nearest = min(max(confidence, known[0]), known[-1])
        if nearest != confidence:
            outer = student_quantile(confidence, DEGREES) / student_quantile(nearest, DEGREES)
            return float(reaches[known.index(nearest)] * outer)
        points = [normal_quantile(level) for level in known]
        return float(np.interp(normal_quantile(confidence), points, reaches))

    def half_width_share(self, cells_variance: float, sum_of_cells_us: float) -> float:
        return float(self.half_width_shares(np.array([cells_variance]), sum_of_cells_us)[0])

    def half_width_shares(
        self, cells_variances: NDArray[np.float64], sum_of_cells_us: float
    ) -> NDArray[np.float64]:
        """Relative half-widths of the interval on its upper, larger side, by variances of cells."""
        cells, total = self.variances(cells_variances, sum_of_cells_us)
        parts = cells / np.where(total > 0, total, 1.0)
        points, values = zip(*self.quantiles or self._students(), strict=True)
        return self._reaching(np.interp(parts, points, values) * np.sqrt(total))

    def _students(self) -> list[tuple[float, float]]:
        if self.degrees is None:
            return [(0.0, normal_quantile(self.confidence))]
        ends = (0.0, self.degrees), (1.0, max(self.degrees, _CELL_DEGREES))
        return [(x, student_quantile(self.confidence, degrees)) for x, degrees in ends]

    def measured_half_width_share(self, noise: float) -> float:
        """Relative half-width of a network that was measured whole."""
        return float(self._reaching(np.array(normal_quantile(self.confidence) * noise)))

    def _reaching(self, logs: NDArray[np.float64]) -> NDArray[np.float64]:
        wandering = normal_quantile(self.confidence) * self.wander_share
        return np.asarray(np.expm1(np.minimum(np.hypot(logs, wandering), 50.0)), np.float64)

    def after_whole(self, cells: ErrorPosterior, latency_us: float, noise: float) -> ErrorPosterior:
        """The cells given their network's latency, unless that leaves nothing for them."""
        cells_us = latency_us - self.overhead_us
        if cells_us / self.scale <= 0:
            return cells
        noise = math.hypot(noise, self.residual_share) * latency_us / cells_us
        return cells.observe_total(cells_us / self.scale, noise)

    def interval(self, posterior: ErrorPosterior) -> NetworkInterval:
        total = posterior.sum_us
        latency = self.latency_us(total)
        return self.around(latency, self.half_width_share(posterior.variance_share, total))

    def around(self, latency_us: float, half_width_share: float) -> NetworkInterval:
        middle, reach = latency_us * self.shown_ratio, 1 + half_width_share
        return NetworkInterval(middle, (middle / reach, middle * reach), half_width_share)

    def to_json(self) -> dict[str, object]:
        return {"format": COMPOSITION_FORMAT, **msgspec.to_builtins(self)}

    @classmethod
    def from_json(cls, body: Mapping[str, object]) -> Composition:
        """The composition that ``to_json`` wrote; ValueError says what is wrong."""
        if body.get("format") not in _READ:
            raise ValueError(
                f"composition format {body.get('format')!r} is none that this version reads "
                f"({', '.join(map(str, _READ))})"
            )
        older = {"degrees": None, "shared_share": SHARED}
        body = {**older, "unconvolved_ratio": 1.0, "unconvolved_spread": 0.0, **body}
        if missing := [one.name for one in fields(cls) if one.name not in body]:
            raise ValueError(f"it lacks {', '.join(missing)}")
        composition = msgspec.convert({one.name: body[one.name] for one in fields(cls)}, cls)
        for a, b in itertools.pairwise(composition.levels):
            if not (0 < a[0] < b[0] < 1 and 0 < a[1] < b[1]):
                raise ValueError(f"levels {composition.levels} do not rise")
        return composition


@lru_cache(maxsize=256)
def student_quantile(confidence: float, degrees: float) -> float:
    """Two-sided quantile of Student's distribution: 1.812 at 0.9 with 10 degrees of freedom.

    Its mass within √ν·tan a of zero is the part of ∫cos^(ν-1) below the angle a, to five digits.
    Importing scipy would take longer than an estimate.
    """
    angles = np.linspace(0.0, math.pi / 2, 20_001)
    below = np.cumsum(np.cos((angles[1:] + angles[:-1]) / 2) ** (degrees - 1))
    angle = np.interp(confidence * below[-1], [0.0, *below], angles)
    return math.sqrt(degrees) * math.tan(float(angle))


# ---- a machine's own composition ----


@dataclass(frozen=True, slots=True)
class SummedNetwork:
    """A network measured whole with all of its cells, each as long as it takes in a network."""

    latency_us: float
    sum_us: float


def machine_composition(
    networks: Sequence[SummedNetwork], dispatch_overhead_us: float, lent: Composition | None = None
) -> Composition:
    """Scale and width of a machine from its own networks and from what another lends.

    Each network's ln((latency − dispatch overhead) / sum) scatters normally around the machine's
    own constant. Half of the variance that borrowing costs is the constant's around 0, half is the
    scatter's beside the lender's, with two degrees of freedom (the conjugate analysis of a normal
    variance). Networks far from the others count less in the constant (Huber's weights).
    """
    known = lent if lent is not None else Composition()
    prior = math.hypot(lent.residual_share, _PART_SHARE) if lent is not None else _LONE_SHARE
    own_us = [max(n.latency_us - dispatch_overhead_us, 0.5 * n.latency_us) for n in networks]
    ratios = np.array([math.log(us / n.sum_us) for us, n in zip(own_us, networks, strict=True)])
    constant, scatter = 0.0, prior
    weights = np.ones(len(ratios))
    for _ in range(_ROUNDS):
        pull = (scatter / _PART_SHARE) ** 2
        center = float((weights * ratios).sum() / (weights.sum() + pull))
        misses = ratios - center
        weights = np.minimum(1.0, _HUBER * scatter / np.maximum(np.abs(misses), 1e-12))
        # The constant was fitted to the same networks: that costs up to one degree of freedom.
        fitted = float(weights.sum() / (weights.sum() + pull))
        degrees = max(len(ratios) - fitted, 0.0) + _MACHINES
        sizes = np.abs(misses)
        usual = 1.4826 * float(np.median(sizes)) if len(sizes) else 0.0
        squares = float((np.minimum(sizes, FAR_OUT * max(usual, prior)) ** 2).sum())
        before, scatter = scatter, math.sqrt((squares + _MACHINES * prior**2) / degrees)
        if abs(center - constant) + abs(scatter - before) < 1e-9:
            break
        constant = center
    unsure = scatter / math.sqrt(weights.sum() + (scatter / _PART_SHARE) ** 2)
    return Composition(
        overhead_us=dispatch_overhead_us,
        scale=math.exp(constant),
        confidence=known.confidence,
        residual_share=math.hypot(scatter, unsure),
        networks=len(networks),
        degrees=degrees,
        unconvolved_ratio=known.unconvolved_ratio,
        unconvolved_spread=known.unconvolved_spread,
    )


def undisturbed(
    networks: Sequence[SummedNetwork], dispatch_overhead_us: float
) -> list[SummedNetwork]:
    """The networks that may say how cells sum up: within ``MOST_EXCESS_SHARE`` of their cells."""
    ratios = [one.latency_us / (dispatch_overhead_us + one.sum_us) for one in networks]
    most = math.log1p(MOST_EXCESS_SHARE)
    return [one for one, r in zip(networks, ratios, strict=True) if abs(math.log(r)) <= most]
