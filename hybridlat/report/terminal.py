"""An estimate as people read it in a terminal: the answer first, then where the time goes."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.text import Text

from hybridlat.report.cells_table import Row, cells_table, rows_of
from hybridlat.report.units import (
    basis_text,
    confidence_text,
    count_text,
    first_upper,
    half_width_share,
    interval_text,
    latency_text,
    measured_now_text,
    plus_minus_text,
    why_untrusted,
)
from hybridlat.schema.estimate import Estimate

ROWS = 15  # cells shown without --all
NAMED = 5  # operators that are not run
_NOTE_LENGTH = 240  # about three lines


def print_estimate(
    console: Console,
    estimate: Estimate,
    *,
    every_cell: bool = False,
    noise_floor: float | None = None,
    tolerance: float | None = None,
) -> None:
    """Print one estimate.

    ``noise_floor`` is the target's and ``tolerance`` the user's (0..1), where known.
    """
    console.print(headline(estimate, noise_floor))
    if estimate.cells:
        console.print()
        console.print(cells_table(*shown_rows(estimate, every_cell), console.width))
    for note in notes(estimate, tolerance, everything=every_cell):
        console.print(note)


def headline(estimate: Estimate, noise_floor: float | None = None) -> RenderableType:
    """Name, latency with its interval, target, and what the answer rests on."""
    first = Text.assemble(
        (estimate.network, "bold"), "  ", (latency_text(estimate.latency_us), "bold cyan")
    )
    if estimate.interval_us is not None:
        width = plus_minus_text(half_width_share(estimate.latency_us, estimate.interval_us))
        sure = confidence_text(estimate.confidence)
        first.append(f"  {width}  ({interval_text(estimate.interval_us)}, {sure} sure)")
    if not estimate.trusted:
        first.append("  not to be trusted", style="bold red")
    basis = [basis_text(estimate)]
    if now := measured_now_text(estimate):
        basis[0] += f", {now} just now"
    if noise_floor is not None:
        basis.append(f"noise {plus_minus_text(noise_floor)}")
    if estimate.latency_us is not None:
        basis.append(f"sum of cells {latency_text(estimate.sum_of_cells_us)}")
    basis.append(f"answered in {latency_text(estimate.elapsed_s * 1e6)}")
    batch = f"batch {estimate.batch}"
    return Group(first, Text(f"on {estimate.target} · {batch}"), Text(" · ".join(basis), "dim"))


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
    lines: list[Text] = []
    missing = [cell for cell in estimate.cells if cell.source == "unsupported"]
    if missing:
        left_out = "" if estimate.latency_us is None else ": the time above leaves them out"
        lines.append(Text(f"{count_text(len(missing), 'cell')} without a latency{left_out}.",
                          "bold red"))  # fmt: skip
        reasons = dict.fromkeys(cell.reason for cell in missing if cell.reason)
        lines += [Text(f"  {reason}", "red") for reason in reasons]
    elif not estimate.within_tolerance:
        lines.append(Text(f"{first_upper(why_untrusted(estimate, tolerance))}.", "bold red"))
    if estimate.to_measure:
        lines.append(Text(f"To be sure, measure {count_text(len(estimate.to_measure), 'cell')} on "
                          f"{estimate.target}.",
                          "yellow"))  # fmt: skip
    for warning in estimate.warnings:
        lines.append(Text(f"Note: {warning if everything else _at_length(warning)}", "yellow"))
    if estimate.removed:
        lines.append(Text(_not_run(estimate, everything), "dim"))
    return lines


def _not_run(estimate: Estimate, everything: bool) -> str:
    """What of the file the engine does not run: counts, and names with --all."""
    others = estimate.removed[: len(estimate.removed) - estimate.constants]
    parts = list(others[:NAMED])
    if len(others) > NAMED:
        parts = [*others[: NAMED - 1], f"{len(others) - NAMED + 1:,} more"]
    if estimate.constants:
        makes = "makes" if estimate.constants == 1 else "make"
        parts.append(f"{count_text(estimate.constants, 'operator')} that only {makes} constants")
    if everything:
        return f"Not run: {', '.join(estimate.removed)}"
    hidden = estimate.constants or len(others) > NAMED
    return f"Not run: {', '.join(parts)}{' (--all names them)' if hidden else ''}"


def _at_length(warning: str) -> str:
    """The warning, cut where it goes on for many lines."""
    if len(warning) <= _NOTE_LENGTH:
        return warning
    return f"{warning[:_NOTE_LENGTH].rpartition(' ')[0]} … (--all shows all of it)"
