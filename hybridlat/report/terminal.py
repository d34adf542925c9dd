"""An estimate as people read it in a terminal: the answer first, then where the time goes."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.text import Text

from hybridlat.report.cells_table import Row, cells_table, rows_of
from hybridlat.report.table import STYLES
from hybridlat.report.units import (
    basis_text,
    confidence_text,
    interval_text,
    latency_text,
    measured_now_text,
    not_run_text,
    remarks,
    width_text,
)
from hybridlat.schema.estimate import Estimate

ROWS = 15  # cells shown without --all
_NOTE_LENGTH = 240  # about three lines


def print_estimate(
    console: Console,
    estimate: Estimate,
    *,
    every_cell: bool = False,
    tolerance: float | None = None,
) -> None:
    """Print one estimate; ``tolerance`` is the user's (0..1), where known."""
    console.print(headline(estimate))
    if estimate.cells:
        console.print()
        console.print(cells_table(*shown_rows(estimate, every_cell), console.width))
    for note in notes(estimate, tolerance, everything=every_cell):
        console.print(note)


def headline(estimate: Estimate) -> RenderableType:
    """Name, latency with its interval, target, and what the answer rests on."""
    first = Text.assemble(
        (estimate.network, "bold"), "  ", (latency_text(estimate.latency_us), "bold cyan")
    )
    if estimate.interval_us is not None:
        sure = confidence_text(estimate.confidence)
        first.append(
            f"  {width_text(estimate)}  ({interval_text(estimate.interval_us)}, {sure} sure)"
        )
    if not estimate.trusted:
        first.append("  not to be trusted", style="bold red")
    now = measured_now_text(estimate)
    basis = [basis_text(estimate) + (f", {now} just now" if now else "")]
    if estimate.latency_us is not None:
        basis.append(f"sum of cells {latency_text(estimate.sum_of_cells_us)}")
    basis.append(f"answered in {latency_text(estimate.elapsed_s * 1e6)}")
    where = Text(f"on {estimate.target} · batch {estimate.batch}")
    return Group(first, where, Text(" · ".join(basis), "dim"))


def shown_rows(estimate: Estimate, every_cell: bool) -> tuple[list[Row], list[Row]]:
    """The rows to print, slowest first, and the rest. What has no latency is never hidden."""
    rows = rows_of(estimate, fold=not every_cell)
    missing = [row for row in rows if row.latency_us is None]
    known = rows[len(missing) :]
    # One hidden row would take as many lines as the row that stands for it.
    limit = len(known) if every_cell or len(known) == ROWS + 1 else ROWS
    return missing + known[:limit], known[limit:]


def notes(
    estimate: Estimate, tolerance: float | None = None, *, everything: bool = False
) -> list[Text]:
    """What the reader must know before using the number, one line each.

    ``everything``: at any length, and with all operators that do not run.
    """
    lines = []
    for remark in remarks(estimate, tolerance):
        text = remark.text
        if len(text) > _NOTE_LENGTH and not everything:
            text = f"{text[:_NOTE_LENGTH].rpartition(' ')[0]} … (--all shows all of it)"
        lines.append(Text(text, STYLES[remark.kind]))
    if estimate.removed:
        counts = f"{not_run_text(estimate)} (--all names them)"
        text = ", ".join(estimate.removed) if everything else counts
        lines.append(Text(f"Not run: {text}", "dim"))
    return lines
