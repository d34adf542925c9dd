"""Estimates in words: what an answer is worth, its budget, what to do; how two of them compare."""

import math
from dataclasses import dataclass
from statistics import NormalDist

from hybridlat.report.table import Cell
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.shown import ALL, decimals_of, part_text
from hybridlat.schema.shown import Scale as Scale
from hybridlat.schema.shown import count_text as count_text
from hybridlat.schema.shown import latency_text as latency_text
from hybridlat.schema.shown import scale_for as scale_for
from hybridlat.schema.structure import half_width_share

RESOLUTION_US = 1.0  # no clock resolves cells below this; their intervals mean nothing
NOTHING = "–"
_BAD = ("missing-cells", "busy", "contradicted", "beyond-physics", "surprising")
_LOPSIDED = 1.2  # sides that differ by more are shown as a range
_NARROW, _MUCH = 0.02, 0.1  # below them nobody minds
_LEAST_SD = 0.002  # of a ratio's logarithm: no two sessions are nearer


def each_text(scale: Scale, latency_us: float | None) -> str:
    """A cell's latency in a column of ``scale``; `< 1` below the resolution."""
    if latency_us is None:
        return "–"
    if latency_us < RESOLUTION_US:
        return f"< {RESOLUTION_US / scale.unit_us:g}"
    return scale.number(latency_us, {1.0: 1, 1e3: 3}.get(scale.unit_us, 6))


def interval_text(interval_us: tuple[float, float] | None) -> str:
    """``7.99 – 8.26 ms``, or ``at least 7.99 ms``; both ends with the decimals of the larger."""
    if interval_us is None:
        return "–"
    low_us, high_us = interval_us
    if math.isinf(high_us):
        return f"at least {latency_text(low_us)}"
    scale = scale_for(interval_us)
    decimals = decimals_of(high_us / scale.unit_us)
    return f"{scale.number(low_us, decimals)} – {scale.number(high_us, decimals)} {scale.name}"


def percent_text(share: float | None, decimals: int = 1) -> str:
    """``7.0 %`` for 0.07; a dash where there is none."""
    return "–" if share is None else f"{100 * share:.{decimals}f} %"


def confidence_text(confidence: float) -> str:
    """``90 %``, ``99.9 %``: with the digits that were given."""
    return f"{100 * confidence:.12g} %"


def plus_minus_text(share: float | None) -> str:
    """``±1.3 %`` for a half width of 0.013; whole percents from ten up."""
    return NOTHING if share is None else f"±{100 * share:.{0 if share >= 0.0995 else 1}f} %"


def reach_text(latency_us: float | None, interval_us: tuple[float, float] | None) -> str:
    """``±1.3 %``: the half width of an interval; its range where the two sides differ much."""
    if not latency_us or interval_us is None:
        return "–"
    low, high = (end / latency_us for end in interval_us)
    short, long = sorted((1 - low, high - 1))
    if long > _LOPSIDED * short and long >= _NARROW:
        return interval_text(interval_us)
    return plus_minus_text(half_width_share(latency_us, interval_us))


def first_upper(sentence: str) -> str:
    """The sentence with its first letter as a capital, the rest as it stands."""
    return sentence[:1].upper() + sentence[1:]


def fps_text(per_s: float | None) -> str:
    """``123 fps``; a dash where there is none."""
    return NOTHING if per_s is None else f"{per_s:,.{decimals_of(per_s)}f} fps"


def answer_text(estimate: Estimate) -> tuple[str, str]:
    """The latency and its interval; ``at least 7.99 ms`` and a dash where a cell has no latency."""
    interval = interval_text(estimate.interval_us)
    if estimate.interval_us is not None and estimate.finite_high_us is None:
        return interval, NOTHING
    return latency_text(estimate.latency_us), interval


def verdict_text(estimate: Estimate) -> str:
    """``rough: learned from other GPUs``, ``measured (2 runs, shipped data)``, or why no trust."""
    if not estimate.trusted:
        return f"not to be trusted: {why_untrusted(estimate)}"
    now = f"{new} just now" if (new := measured_now_text(estimate)) else ""
    if estimate.grade == "measured":
        return f"measured ({', '.join(filter(None, [estimate.reason or 'cell by cell', now]))})"
    return f"{estimate.grade}: {', '.join(filter(None, [estimate.rests_on, now]))}"


def why_untrusted(estimate: Estimate) -> str:
    """A few words; empty for an estimate that is trusted."""
    if estimate.trusted:
        return ""
    if not estimate.cells:
        return "the engine runs none of its operators"
    missing = sum(cell.source == "unsupported" for cell in estimate.cells)
    if (missing and estimate.source != "measured") or estimate.latency_us is None:
        return f"{count_text(missing, 'cell')} without a latency"
    if estimate.left_out:
        return f"{estimate.left_out} of its convolutions and products without a latency"
    if estimate.busy:
        return "the machine was busy while measuring"
    if estimate.contradicted:
        return "measurements of it contradict each other"
    if estimate.is_beyond_belief:
        return "it, or a latency given for it, is far from all that is believed"
    tolerance = estimate.tolerance
    width = half_width_share(estimate.latency_us, estimate.interval_us)
    if tolerance is not None and width is not None and width <= tolerance:
        # A cell unlike all that the model was trained on has an interval that means little.
        strange = [c for c in estimate.cells if c.source == "predicted" and not c.trusted]
        are = count_text(len(strange), "cell", "is", "are")
        return f"{are} unlike all that was measured"
    return f"you asked for ±{percent_text(tolerance)}, this is {plus_minus_text(width)}"


def measured_now_text(estimate: Estimate) -> str:
    """``3 cells and the network``; empty where nothing was measured to answer."""
    cells = count_text(estimate.measured_now, "cell") if estimate.measured_now else ""
    network = "the network" if estimate.network_measured_now else ""
    return " and ".join(filter(None, [cells, network]))


def budget_text(estimate: Estimate) -> str:
    """``within: 7.16 – 8.22 ms against 33.3 ms, surely``; empty without a budget."""
    if estimate.verdict is None:
        return ""
    unsure = "too large for the device" if estimate.is_too_large else "may be over"
    name = unsure if estimate.verdict == "unsure" else estimate.verdict
    interval, limit = interval_text(estimate.interval_us), latency_text(estimate.max_latency_us)
    return ", ".join(filter(None, [f"{name}: {interval} against {limit}", sureness_text(estimate)]))


def sureness_text(estimate: Estimate) -> str:
    """How sure a verdict is: ``surely``, ``97 % sure``; of an open one ``62 % within``."""
    probability = estimate.probability_within
    if probability is None:
        return ""
    if estimate.verdict == "unsure":
        return f"{part_text(probability)} within"
    sure = probability if estimate.verdict == "within" else 1 - probability
    return "surely" if sure >= ALL else f"{part_text(sure)} sure"


def short_verdict(estimate: Estimate) -> str:
    """``within``, ``over 97 %``: of a probability of 1 there is nothing to say."""
    number, percent, _ = sureness_text(estimate).partition(" %")
    return f"{estimate.verdict or ''} {number + percent if percent else ''}".strip()


def memory_text(estimate: Estimate) -> str:
    """``0.29 – 0.81 of 8.59 GB: fits``; ``at least 0.09`` where not all of it is known."""
    memory = estimate.memory
    if memory is None:
        return ""
    least = f"at least {(memory.weights_bytes + memory.activations_bytes) / 1e9:.2f}"
    ends = " – ".join(f"{size / 1e9:.2f}" for size in memory.total_bytes or ()) or least
    of = "" if memory.device_bytes is None else f" of {memory.device_bytes / 1e9:.3g}"
    return f"{ends}{of} GB" + (f": {memory.verdict}" if memory.verdict else "")


def beside_text(estimate: Estimate) -> str:
    """``155 µs (48 % of the latency) beside the cells: starting a run``; empty below a tenth."""
    share, how = estimate.beside_share, "beside the cells: starting a run"
    how += ", or errors of the cells" if estimate.source == "measured" else ""
    how = how if share > 0 else "less than its cells add up to"
    part = f"{latency_text(abs(share) * (estimate.latency_us or 0.0))} ({part_text(abs(share))}"
    return f"{part} of the latency) {how}" if abs(share) >= _MUCH else ""


def not_run_text(estimate: Estimate) -> str:
    """How many operators of the file the engine does not run."""
    others = len(estimate.removed) - estimate.constants
    counts = [f"{count_text(others, 'operator')} without a kernel"] if others else []
    if estimate.constants:
        makes = count_text(estimate.constants, "operator", "that only makes", "that only make")
        counts.append(f"{makes} constants")
    return ", ".join(counts)


def remarks(estimate: Estimate) -> list[Cell]:
    """What the reader must know or can do, the worst first: texts, and commands to copy."""
    # What the verdict says already is not said again.
    basis = f"{estimate.rests_on}.".lower() if estimate.trusted else ""
    cells = []
    for warning in (one for one in estimate.warnings if one.text.lower() != basis):
        kind = "bad" if warning.code in _BAD else "warn"
        cells.append(Cell(warning.text, "hint" if warning.fix and kind == "warn" else kind))
        if warning.fix:
            cells.append(Cell(f"  {warning.fix}", "command"))
    return cells


@dataclass(frozen=True)
class Ratio:
    """A network's latency in that of the first: the ratio, its interval, and P(it is faster)."""

    ratio: float
    interval: tuple[float, float]
    probability_faster: float

    @property
    def is_sure(self) -> bool:
        """Whether the interval says which of the two is faster."""
        return not self.interval[0] <= 1 <= self.interval[1]


def ratio_to(first: Estimate, other: Estimate, log_sd: float | None = None) -> Ratio | None:
    """How ``other`` compares with ``first``; None where either lacks a cell, and so an upper end.

    ``log_sd`` is the standard error of the ratio's logarithm, never above that of two errors that
    share nothing. Without it they share those of cells that both hold, and of the machine's pace,
    which is the same for all that runs there.
    """
    pair = first, other
    if not all(each.latency_us and each.finite_high_us is not None for each in pair):
        return None
    if first is other:
        return Ratio(1.0, (1.0, 1.0), 0.5)
    ratio = (other.latency_us or 0.0) / (first.latency_us or 1.0)
    uses = [{(c.signature, c.uses) for c in each.cells} for each in pair]
    if first.target == other.target and uses[0] == uses[1]:
        log_sd = 0.0
    a, b = (_log_sd(each.interval_us, _quantile(each)) for each in pair)
    if log_sd is None:
        log_sd = math.sqrt(max(a**2 + b**2 - 2 * min(_covariance(first, other), a * b), 0.0))
    sd = max(min(log_sd, math.hypot(a, b)), _LEAST_SD)
    reach = math.exp(_quantile(first) * sd)
    return Ratio(ratio, (ratio / reach, reach * ratio), NormalDist(0, sd).cdf(-math.log(ratio)))


def _quantile(estimate: Estimate) -> float:
    """The normal one of its confidence."""
    return NormalDist().inv_cdf((1 + estimate.confidence) / 2)


def _log_sd(interval_us: tuple[float, float] | None, z: float) -> float:
    low, high = interval_us or (1.0, 1.0)
    return math.log(high / low) / 2 / z if 0 < low < high < math.inf else 0.0


def _covariance(first: Estimate, other: Estimate) -> float:
    """Of two estimates' errors, as logarithms."""
    if first.target != other.target:
        return 0.0
    shares = {cell.signature: cell.share for cell in other.cells}
    z = _quantile(first)
    cells = sum(
        cell.share * shares.get(cell.signature, 0.0) * _log_sd(cell.interval_us, z) ** 2
        for cell in first.cells
    )
    paces = (math.log1p(each.pace_share) / _quantile(each) for each in (first, other))
    return cells + math.prod(paces)
