"""A machine's own composition, from whole networks measured on it in use, and how its pace drifts.

A target without training composes its cells by the plain sum, the cost of entering the engine, and
the width of the same engine's interval elsewhere, widened by what borrowing costs. Every network
measured whole with its cells then tells constants and width of this machine.

Records are on the scale of one pace: that of the quick side of the machine's first run. A visit's
``drift`` says how much slower the machine was then. A latency is shown at the usual pace of the
processes on record, as the median of runs, where records hold a low quantile.
"""

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hybridlat.estimate.compose.composition import Composition
from hybridlat.schema.measurement import Measurement, was_busy

CALIBRATING = 5
"""So many whole networks are measured beside their cells, whatever the tolerance."""
BORROWING_SHARE = 0.05
"""What borrowing costs: sums of measured cells missed 26 networks of another CPU by 5.5 %, the
lender's own by 2.0 %, so by √(5.5² − 2.0²) more (experiments/onboarding.md)."""
_PART_SHARE = BORROWING_SHARE / math.sqrt(2)  # of the constant, and again of the scatter
MOST_NOISE_SHARE = 0.1
"""A network that was measured worse than this, as on a busy machine, tells no constants."""
_MACHINES = 2.0  # degrees of freedom of what was lent: as many as machines compared
MOST_EXCESS_SHARE = 0.15
"""120 networks of the shipped CPU pack lie within 8 % of the sums of their measured cells."""
_LONE_SHARE = 0.05  # scatter of networks where no machine lends
_HUBER = 1.5
_FAR_OUT = 3.0
_ROUNDS = 50
LARGE_SHARE = 0.03
"""From here on an estimate says that the machine's pace varies."""
_LEAST_VISITS = 2  # a process with fewer says more of single visits than of the machine
_USUAL_PROCESSES = 2
_LEAST_USUAL = 0.01
_STEADY_SHARE = 0.015
_OF_FLICKER = 0.6
"""Processes are first taken to differ by the hypotenuse of these two, this one a part of how much
single visits of one process do. A steady machine had 1.5 % among visits, 2.5 among the paces of
processes, and 1.7 between two that run one network; a shared one 5.5, 3.6 and 3.5 %."""
_MOST_MEDIAN_RATIO = 1.03  # quiet machines show 1.00 to 1.03; what lies above is other work


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
        squares = float((np.minimum(sizes, _FAR_OUT * max(usual, prior)) ** 2).sum())
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


@dataclass(frozen=True, slots=True)
class PaceDrift:
    """How far processes were from the machine's usual pace.

    ``share`` is the root mean square of ln(pace / usual) over ``processes``, pooled with two usual
    ones; 0 without any. ``usual_pace`` is their median, in that of records. The median of samples
    lies ``median_ratio`` above the level of records, and processes that run one network at one pace
    are ``process_share`` apart.
    """

    share: float = 0.0
    processes: int = 0
    usual_pace: float = 1.0
    median_ratio: float = 1.0
    process_share: float = 0.0

    @property
    def wander_share(self) -> float:
        """Standard error of ln(latency) between a user's process and the records."""
        return math.hypot(self.share, self.process_share)

    @property
    def shown_ratio(self) -> float:
        return self.usual_pace * self.median_ratio


def pace_drift_of(records: Iterable[Measurement]) -> PaceDrift:
    """The drift that the visits of a machine's records show.

    Failures and what a busy machine measured tell nothing. A process is known by its run's end, to
    the minute, and its number.
    """
    drifts: dict[tuple[str, int], list[float]] = defaultdict(list)
    ratios, apart = list[float](), list[float]()
    for record in records:
        if record.failure is not None or record.labels.get("role") or was_busy(record.environment):
            continue
        middles: dict[int, list[float]] = defaultdict(list)
        for visit in record.visits:
            drifts[record.measured_at[:16], visit.process].append(math.log(visit.drift))
            if visit.samples_us and record.kind == "network":
                middle_us = statistics.median(visit.samples_us) / visit.drift
                middles[visit.process].append(middle_us)
        if middles and record.latency_us:
            each_us = [statistics.median(of_process) for of_process in middles.values()]
            above_us = statistics.median(itertools.chain(*middles.values()))
            ratios.append((above_us - record.overhead_us) / record.latency_us)
            apart += [math.log(a / b) / math.sqrt(2) for a, b in itertools.pairwise(each_us)]
    median_ratio = min(max(statistics.median(ratios or [1.0]), 1.0), _MOST_MEDIAN_RATIO)
    logs = [own for _, own in sorted(drifts.items()) if len(own) >= _LEAST_VISITS]
    if not logs:
        return PaceDrift(median_ratio=median_ratio)
    paces = [math.exp(statistics.median(own)) for own in logs]
    steps = [abs(x - math.log(p)) for own, p in zip(logs, paces, strict=True) for x in own]
    likely = math.hypot(_STEADY_SHARE, _OF_FLICKER * 1.4826 * statistics.median(steps))
    usual = statistics.median(paces)
    share = _pooled([math.log(pace / usual) for pace in paces], likely)
    process_share = _pooled(apart, likely) if apart else likely
    return PaceDrift(share, len(paces), usual, median_ratio, process_share)


def _pooled(logs: Sequence[float], likely: float) -> float:
    """The root mean square, clipped, pooled with a few that are ``likely``."""
    sizes = [abs(x) for x in logs]
    most = _FAR_OUT * max(1.4826 * statistics.median(sizes), _LEAST_USUAL)
    squares = math.fsum(min(size, most) ** 2 for size in sizes) + _USUAL_PROCESSES * likely**2
    return math.sqrt(squares / (len(sizes) + _USUAL_PROCESSES))
