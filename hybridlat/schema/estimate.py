"""What a prediction says: the latency of a network, how sure it is, and where the time goes."""

import itertools
import math
from dataclasses import asdict, dataclass, field, fields, replace
from statistics import NormalDist
from typing import Any, Literal, Self, get_args

from hybridlat.errors import InputError
from hybridlat.schema.shown import NOTHING, Shown, number_of, part_text
from hybridlat.schema.structure import CellEstimate, EstimateWarning, Memory, OriginCode, Structure

ESTIMATE_FORMAT = 1
Grade = Literal["measured", "good", "rough", "order of magnitude"]
Verdict = Literal["within", "over", "unsure"]
_GOOD_SHARE, _ROUGH_FACTOR, _GRADED_AT = 0.2, 2.0, 0.9


@dataclass(frozen=True, repr=False)
class Estimate(Shown):
    """The answer for one network on one target; see the JSON of ``predict --json``.

    Attributes:
        network: the name of the file or the class.
        target: device, engine and precision, as the user wrote them.
        batch: items that are computed at once.
        latency_us: of one batch, in microseconds; None where no cell has a latency.
        interval_us: its ends in microseconds; without a cell's latency the upper is infinite.
        confidence: the probability that the interval holds the true latency, 0..1.
        within_tolerance: whether the interval is as narrow as ``tolerance``, and no cell strange.
        sum_of_cells_us: all uses of all cells, in microseconds.
        measured_share: the part of the time that comes from measurements, 0..1.
        measured_now: cells that were measured to answer this call.
        elapsed_s: what the answer took, in seconds.
        cells: every distinct cell.
        removed: operators that the engine does not run, those of constants last.
        constants: how many of ``removed`` only make constants.
        to_measure: signatures of the cells whose measuring would keep the ``tolerance``.
        tolerance: the half width that measuring works towards, as a share of the latency.
        tolerance_given: whether the user asked for it.
        warnings: what a reader must know besides the numbers.
        structure: what the cells are made of and where they stand, after ``describe=True``.
        source: ``measured`` where the whole network was measured, else ``composed`` of its cells.
        reason: when it was measured as a whole.
        network_measured_now: whether the whole network was measured to answer this call.
        pace_share: the half width that an unsure pace of the machine causes, of the latency.
        contradicted: whether network and cells were measured and cannot both be right.
        busy: whether the machine had other work while it measured.
        reaches: the half width, as a share of the latency, of the interval at each confidence.
        left_out: convolutions and products that are left out, as the data decide their sizes.
        max_latency_us: the budget that the latency is held against; see ``against``.
        memory: what it takes of the device's memory.
        power_w: what the device takes at most.
        peak_flops: what it computes at most at this precision, in FLOP a second.
        answered_as: the target whose data answered, with the version that the user left open.
        model: the hash of the target's own model, where it answered for a cell; else empty.
        check: the command that measures the same with the engine's own tool, or empty.
        check_field: the figure in its output that the latency compares with.
    """

    network: str
    target: str
    batch: int
    latency_us: float | None
    interval_us: tuple[float, float] | None
    confidence: float
    within_tolerance: bool
    sum_of_cells_us: float
    measured_share: float
    measured_now: int
    elapsed_s: float
    cells: tuple[CellEstimate, ...]
    removed: tuple[str, ...] = ()
    constants: int = 0
    to_measure: tuple[str, ...] = ()
    tolerance: float | None = None
    tolerance_given: bool = False
    warnings: tuple[EstimateWarning, ...] = ()
    structure: Structure | None = field(default=None, compare=False)
    source: Literal["measured", "composed"] = "composed"
    reason: str = ""
    network_measured_now: bool = False
    pace_share: float = 0.0
    contradicted: bool = False
    busy: bool = False
    reaches: tuple[tuple[float, float], ...] = ()
    left_out: int = 0
    max_latency_us: float | None = None
    memory: Memory | None = None
    power_w: float | None = None
    peak_flops: float | None = None
    answered_as: str = ""
    model: str = ""
    check: str = ""
    check_field: str = ""

    @property
    def supported(self) -> bool:
        """True when every cell has a latency, and no convolution or product is left out."""
        return not self.left_out and all(cell.source != "unsupported" for cell in self.cells)

    @property
    def trusted(self) -> bool:
        """Whether every cell has a latency, the user's tolerance holds, and measurements agree."""
        is_doubtful = self.busy or self.contradicted or self.left_out or self.latency_us is None
        complete = self.supported or self.source == "measured"
        return not is_doubtful and complete and (self.within_tolerance or not self.tolerance_given)

    @property
    def is_beyond_belief(self) -> bool:
        """Whether it, or a latency that was given for it, is far from all that is believed."""
        return any(warning.code in ("beyond-physics", "surprising") for warning in self.warnings)

    def warned(self, warnings: tuple[EstimateWarning, ...]) -> Self:
        """The estimate with these warnings; with what is beyond belief no tolerance holds."""
        one = replace(self, warnings=warnings)
        return replace(one, within_tolerance=False) if one.is_beyond_belief else one

    @property
    def grade(self) -> Grade | None:
        """How much the estimate is worth; None where something has no latency.

        ``measured``: the network was, or all of its cells. Else by the interval of 90 %: ``good``
        within 20 %, ``rough`` (at best, if disturbed) by a factor of 2, else an order of magnitude.
        """
        is_whole = self.source == "measured" and not self.left_out
        if not (self.latency_us and self.interval_us and (self.supported or is_whole)):
            return None
        if self.is_beyond_belief:
            return "order of magnitude"
        disturbed = self.busy or self.contradicted
        if not disturbed and (is_whole or all(cell.source == "measured" for cell in self.cells)):
            return "measured"
        low, high = (end / self.latency_us for end in self.interval_us)
        if self.confidence != _GRADED_AT and _GRADED_AT in (reaches := dict(self.reaches)):
            low, high = 1 / (1 + reaches[_GRADED_AT]), 1 + reaches[_GRADED_AT]
        if low >= 1 - _GOOD_SHARE and high <= 1 + _GOOD_SHARE and not disturbed:
            return "good"
        rough = low >= 1 / _ROUGH_FACTOR and high <= _ROUGH_FACTOR
        return "rough" if rough else "order of magnitude"

    @property
    def rests_on(self) -> str:
        """What the answer rests on: ``learned from 120 public timings of this GPU (trtutils)``."""
        if self.source == "measured":
            return f"measured ({self.reason})" if self.reason else "measured"
        if self.measured_share > NOTHING:
            by_cell = "measured (cell by cell)"
            part = f"{part_text(self.measured_share)} of the time measured"
            return by_cell if self.grade == "measured" else part
        text = self._origin.text if self._origin else "predicted" if self.latency_us else ""
        return f"{text[:1].lower()}{text[1:].rstrip('.')}"

    @property
    def basis(self) -> tuple[str, str]:
        """What it comes from, and the engine's version: what agrees in both compares closely."""
        kind = self._origin.code if self._origin else "predicted"
        runtime = (self.answered_as or self.target).split("/")[1]
        return "measured" if self.grade == "measured" else kind, runtime

    @property
    def _origin(self) -> EstimateWarning | None:
        return next((one for one in self.warnings if one.code in get_args(OriginCode)), None)

    @property
    def low_us(self) -> float | None:
        """The lower end of the interval."""
        return None if self.interval_us is None else self.interval_us[0]

    @property
    def high_us(self) -> float | None:
        """The upper end of the interval, infinite where a cell has no latency."""
        return None if self.interval_us is None else self.interval_us[1]

    def against(self, max_latency_us: float | None = None, *, fps: float | None = None) -> Self:
        """The estimate with a budget: microseconds for one batch, or images a second.

        InputError unless one of the two is given, and above 0.
        """
        rate = number_of(fps) or math.nan
        limit_us = number_of(max_latency_us) if fps is None else self.batch * 1e6 / rate
        if None not in (max_latency_us, fps) or not 0 < limit_us < math.inf:
            raise InputError(f"{max_latency_us=}, {fps=} is no budget: give one of them, above 0")
        return replace(self, max_latency_us=limit_us)

    @property
    def is_too_large(self) -> bool:
        """Whether it takes more memory than the device has, and was not measured there."""
        is_larger = self.memory is not None and self.memory.verdict == "too large"
        return is_larger and self.source != "measured"

    @property
    def verdict(self) -> Verdict | None:
        """Whether the whole interval is ``within`` the budget, or ``over`` it; None without one.

        ``unsure`` where the interval holds the budget, the estimate is not trusted, or the device's
        memory is too small.
        """
        if self.max_latency_us is None or self.busy or self.is_beyond_belief:
            return None if self.max_latency_us is None else "unsure"
        low_us, high_us = self.interval_us or (0.0, math.inf)
        if low_us > self.max_latency_us:
            return "over"
        is_kept = self.trusted and not self.is_too_large and high_us <= self.max_latency_us
        return "within" if is_kept else "unsure"

    @property
    def probability_within(self) -> float | None:
        """The probability that the budget is kept; None without one, see ``probability_below``."""
        return None if self.max_latency_us is None else self.probability_below(self.max_latency_us)

    def probability_below(self, latency_us: float) -> float | None:
        """The probability (0..1) that the true latency is at most that; None without a cell's.

        It is read off ``reaches``, as of a normal distribution between and beyond them.
        """
        if math.isnan(budget_us := number_of(latency_us)):
            raise InputError(f"latency_us={latency_us!r} is no latency: give microseconds")
        if not self.latency_us or self.interval_us is None or self.finite_high_us is None:
            return None
        low_us, high_us = self.interval_us
        reaches = self.reaches or ((self.confidence, high_us / self.latency_us - 1),)
        ends = [(math.log1p(reach), NormalDist().inv_cdf(0.5 + c / 2)) for c, reach in reaches]
        log_ratio = math.log(min(max(budget_us, 1e-9), 1e300) / self.latency_us)
        distance, (last, z_last) = abs(log_ratio), ends[-1]
        z = z_last * max(distance / max(last, 1e-9), 1.0)
        for (near, z_near), (far, z_far) in itertools.pairwise([(0.0, 0.0), *ends]):
            if distance < far:
                z = z_near + (z_far - z_near) * (distance - near) / (far - near)
                break
        probability, tail = NormalDist().cdf(math.copysign(z, log_ratio)), (1 - self.confidence) / 2
        # An end of the interval may be nearer, or farther, than its confidence alone has it.
        if budget_us < low_us:
            return min(probability, tail)
        return max(probability, 1 - tail) if budget_us >= high_us else probability

    @property
    def beside_share(self) -> float:
        """What a run takes beside its cells, as a share of the latency; below 0 for less."""
        known = self.supported and self.latency_us
        return 1 - self.sum_of_cells_us / known if known else 0.0

    @property
    def throughput_per_s(self) -> float | None:
        """Items a second, one batch after another; None where a cell has no latency."""
        latency_us = self.latency_us if self.finite_high_us else None
        return self.batch * 1e6 / latency_us if latency_us else None

    @property
    def throughput_interval_per_s(self) -> tuple[float, float] | None:
        """What ``interval_us`` says of the items a second."""
        low_us, high_us = self.interval_us or (0.0, 0.0)
        return (self.batch * 1e6 / high_us, self.batch * 1e6 / low_us) if low_us > 0 else None

    def to_json(self) -> dict[str, Any]:
        """The fixed JSON object of ``predict --json`` (format 1)."""
        body: dict[str, Any] = {"format": ESTIMATE_FORMAT}
        body |= {f.name: getattr(self, f.name) for f in fields(self) if f.name != "structure"}
        body["interval_us"] = self.interval_us and [self.low_us, self.finite_high_us]
        body["memory"] = self.memory and asdict(self.memory) | {"verdict": self.memory.verdict}
        body["warnings"] = [warning.text for warning in self.warnings]
        body["cells"] = [self._cell_json(position) for position in range(len(self.cells))]
        body["throughput_per_s"] = body["fps"] = self.throughput_per_s
        body["throughput_interval_per_s"] = self.throughput_interval_per_s
        for name in ("trusted", "grade", "supported", "low_us", "high_us", "rests_on", "verdict"):
            body[name] = getattr(self, name)
        body |= {"high_us": self.finite_high_us, "probability_within": self.probability_within}
        body["remarks"] = [asdict(warning) for warning in self.warnings]
        return body

    @property
    def finite_high_us(self) -> float | None:
        """The upper end for what knows no infinity: None there."""
        return self.high_us if self.high_us is not None and math.isfinite(self.high_us) else None

    def _cell_json(self, position: int) -> dict[str, Any]:
        cell = self.cells[position]
        body = {{"uses": "count"}.get(key, key): value for key, value in asdict(cell).items()}
        if not cell.reason:
            del body["reason"]
        if self.structure is not None:
            made_of = self.structure.cells[position]
            limit, share = made_of.limit(cell.latency_us) or (None, None)
            body |= {"paths": self.structure.paths(position), "flop": made_of.flop}
            body |= {"bytes": made_of.bytes, "limit": limit, "limit_share": share}
        return body
