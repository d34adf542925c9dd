"""Estimates as Python shows them: a line, a terminal's table, a notebook, a data frame, a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hybridlat.errors import HybridlatError, MissingExtra
from hybridlat.report import terminal, units
from hybridlat.report.html import page
from hybridlat.report.html_section import in_notebook
from hybridlat.report.prediction_table import record_of, table_of
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.files import write_text
from hybridlat.schema.shown import part_text, visible

if TYPE_CHECKING:
    from _typeshed import StrPath


def line(estimate: Estimate) -> str:
    """``Estimate(a.onnx on l4/tensorrt/fp16, batch 1: 547 µs, 369–810 µs (90 %), rough, …)``."""
    facts = [units.latency_text(estimate.latency_us) if estimate.latency_us else "no latency"]
    if estimate.interval_us is not None:
        sure = units.confidence_text(estimate.confidence)
        facts.append(f"{units.interval_text(estimate.interval_us).replace(' – ', '–')} ({sure})")
    if estimate.grade is not None:
        facts.append(estimate.grade)
    if estimate.grade != "measured":
        facts.append(f"{part_text(estimate.measured_share)} measured")
    facts.append(units.count_text(len(estimate.cells), "cell"))
    of = f"{estimate.network} on {estimate.target}, batch {estimate.batch}"
    return visible(f"Estimate({of}: {', '.join(facts)})")


def text(estimate: Estimate) -> str:
    """What ``hybridlat predict`` prints, without colours."""
    return terminal.printed(lambda console: terminal.print_estimate(console, estimate))


def notebook(estimate: Estimate) -> str:
    """A piece of a page for a notebook, light or dark: the answer and the slowest cells."""
    head = terminal.printed(lambda console: console.print(terminal.headline(estimate)))
    notes = [terminal.less_options(note.plain) for note in terminal.notes(estimate)]
    shown = [terminal.cells_table(*terminal.shown_rows(estimate, False), terminal.WIDTH)]
    return in_notebook(head.splitlines(), shown if estimate.cells else [], notes)


def text_of_many(estimates: Sequence[Estimate | HybridlatError]) -> str:
    """One table, as a terminal shows it."""
    return terminal.printed(table_of(estimates).print)


def notebook_of_many(estimates: Sequence[Estimate | HybridlatError]) -> str:
    """One table for a notebook."""
    table = table_of(estimates)
    return in_notebook(list(filter(None, [str(table.caption)])), [table])


def to_html(estimates: Iterable[Estimate], path: StrPath | None = None) -> str | None:
    """One page about all estimates: its text, or None where it was written to ``path``.

    Several batches of one network become a curve, several networks or targets are compared. The
    graph of cells and the roofline need ``predict(..., describe=True)``.
    """
    text = page(tuple(estimates))
    if path is None:
        return text
    write_text(path, text)
    return None


def to_frame(estimates: Any) -> Any:
    """A pandas data frame with one row for each estimate, in the columns of ``predict --csv``.

    Takes any iterable of estimates, a Comparison or a Sweep, whose rows have its values and steps
    as well. Of an error among them the row holds ``error`` alone.
    Raises MissingExtra where pandas is not installed.
    """
    held: Any = getattr(estimates, "estimates", estimates)
    if isinstance(held, Mapping):
        return _frame(estimates.to_json()["points"])
    rows: list[dict[str, object]] = []
    for one in held:
        rows.append({"error": str(one)} if isinstance(one, HybridlatError) else record_of(one))
    return _frame(rows)


def frame_of_cells(estimate: Estimate) -> Any:
    """One row for each cell, in the order of ``estimate.cells``, as the JSON has it."""
    rows = []
    for cell, body in zip(estimate.cells, estimate.to_json()["cells"], strict=True):
        low_us, high_us = body.pop("interval_us") or (None, None)
        first = {"ops": " → ".join(body.pop("ops")), "uses": body.pop("count")}
        first |= {"latency_us": cell.latency_us, "low_us": low_us, "high_us": high_us}
        rows.append(first | {"total_us": cell.total_us, **body, "reason": cell.reason})
    return _frame(rows)


def _frame(rows: Sequence[dict[str, object]]) -> Any:
    try:
        import pandas
    except ImportError:
        raise MissingExtra("pandas", "train", "to_frame") from None
    return pandas.DataFrame(rows)
