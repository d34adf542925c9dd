"""Estimates in words: what one is worth, its budget, its memory, and what to do about it."""

from __future__ import annotations

from hybridlat.report.table import Cell
from hybridlat.report.units import (
    NOTHING,
    count_text,
    interval_text,
    latency_text,
    percent_text,
    plus_minus_text,
)
from hybridlat.schema.cell_estimate import half_width_share
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.shown import ALL, part_text

_BAD = ("missing-cells", "busy", "contradicted", "beyond-physics", "surprising")


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
    missing = sum(cell.source == "unsupported" for cell in estimate.cells)
    if (missing and estimate.source != "measured") or estimate.latency_us is None:
        return f"{count_text(missing, 'cell')} without a latency"
    if estimate.busy:
        return "the machine was busy while measuring"
    if estimate.contradicted:
        return "the network and its cells contradict each other"
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
    name = "may be over" if estimate.verdict == "unsure" else estimate.verdict
    interval, limit = interval_text(estimate.interval_us), latency_text(estimate.max_latency_us)
    sure = sureness_text(estimate)
    return f"{name}: {interval} against {limit}{', ' if sure else ''}{sure}"


def sureness_text(estimate: Estimate) -> str:
    """How sure a verdict is: ``surely``, ``97 % sure``; of an open one ``62 % within``."""
    probability = estimate.probability_within
    if probability is None:
        return ""
    if estimate.verdict == "unsure":
        return f"{part_text(probability)} within"
    sure = probability if estimate.verdict == "within" else 1 - probability
    return "surely" if sure >= ALL else f"{part_text(sure)} sure"


def memory_text(estimate: Estimate) -> str:
    """``0.29 – 0.81 of 8.59 GB: fits``; without what the engine adds where that is unknown."""
    memory = estimate.memory
    if memory is None:
        return ""
    own_bytes = memory.weights_bytes + memory.activations_bytes
    ends = " – ".join(f"{size / 1e9:.2f}" for size in memory.total_bytes or (own_bytes,))
    of = "" if memory.device_bytes is None else f" of {memory.device_bytes / 1e9:.3g}"
    return f"{ends}{of} GB" + (f": {memory.verdict}" if memory.verdict else "")


def not_run_text(estimate: Estimate) -> str:
    """How many operators of the file the engine does not run."""
    others = len(estimate.removed) - estimate.constants
    counts = [f"{count_text(others, 'operator')} without a kernel"] if others else []
    if estimate.constants:
        makes = "makes" if estimate.constants == 1 else "make"
        counts.append(f"{count_text(estimate.constants, 'operator')} that only {makes} constants")
    return ", ".join(counts)


def remarks(estimate: Estimate) -> list[Cell]:
    """What the reader must know or can do, the worst first: texts, and commands to copy."""
    # What the verdict says already is not said again.
    basis = f"{estimate.rests_on}.".lower() if estimate.trusted else ""
    cells = []
    for warning in estimate.warnings:
        if warning.text.lower() == basis:
            continue
        kind = "bad" if warning.code in _BAD else "warn"
        cells.append(Cell(warning.text, "hint" if warning.fix and kind == "warn" else kind))
        if warning.fix:
            cells.append(Cell(f"  {warning.fix}", "command"))
    return cells
