"""What people see in a terminal: golden texts at fixed widths, and what holds at any width."""

from __future__ import annotations

import dataclasses
import io
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from hybridlat.report import cells_table, compare, terminal
from hybridlat.report.html_section import network_section
from hybridlat.report.units import why_untrusted
from hybridlat.schema.estimate import Estimate
from tests.report.estimates import described, long_tail, residual, untrusted

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "report"


def printed(
    estimate: Estimate,
    width: int = 100,
    *,
    tolerance: float | None = None,
    every_cell: bool = False,
) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None, highlight=False, markup=False)
    terminal.print_estimate(console, estimate, tolerance=tolerance, every_cell=every_cell)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def hold_against(name: str, text: str) -> None:
    """Compare with the golden file; HYBRIDLAT_WRITE_GOLDEN=1 writes it anew, to be read first."""
    path = GOLDEN / name
    if os.environ.get("HYBRIDLAT_WRITE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_reads_as_agreed(width: int) -> None:
    hold_against(f"residual_{width}.txt", printed(residual(), width))


@pytest.mark.parametrize("width", [60, 80, 120, 160])
def test_rows_say_where_what_and_which_limit(width: int) -> None:
    hold_against(f"described_{width}.txt", printed(described(), width))


def test_cells_that_read_the_same_are_one_row_unless_all_are_asked_for() -> None:
    estimate = described()
    assert estimate.structure is not None
    cells = (*estimate.cells, dataclasses.replace(estimate.cells[2], signature="f" * 32, count=27))
    places = (*estimate.structure.places, *(
        dataclasses.replace(estimate.structure.places[2], cell=6, path=f"layer1.{i}")
        for i in range(3, 30)
    ))  # fmt: skip
    structure = dataclasses.replace(
        estimate.structure, cells=(*estimate.structure.cells, estimate.structure.cells[2]),
        places=places,
    )  # fmt: skip
    many = dataclasses.replace(estimate, cells=cells, structure=structure)
    (row,) = [line for line in printed(many, 120).splitlines() if "64, 3×3, 56×56" in line]
    assert "×30" in row and "layer1.0–29" in row and "1.500" in row
    every = [n for n in printed(many, 120, every_cell=True).splitlines() if "64, 3×3, 56×56" in n]
    assert len(every) == 2
    # Far apart in time: two rows.
    slow = dataclasses.replace(cells[-1], latency_us=3000.0)
    apart = dataclasses.replace(many, cells=(*cells[:-1], slow))
    assert len([n for n in printed(apart, 120).splitlines() if "64, 3×3, 56×56" in n]) == 2


def test_an_untrusted_estimate_says_so_and_why() -> None:
    hold_against("untrusted_100.txt", printed(untrusted(), 100))


def test_the_comparison_reads_as_agreed() -> None:
    out = io.StringIO()
    console = Console(file=out, width=100, color_system=None, highlight=False, markup=False)
    alone = dataclasses.replace(untrusted(), batch=1)
    compare.print_comparison(console, [residual(), long_tail(4), alone])
    text = "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"
    hold_against("comparison_100.txt", text)


@given(st.integers(30, 200), st.sampled_from([residual(), untrusted(), long_tail(40), described()]))
def test_no_line_is_wider_than_the_terminal(width: int, estimate: Estimate) -> None:
    text = printed(estimate, width)
    assert max(cell_len(line) for line in text.splitlines()) <= width


@given(st.integers(1, 60), st.booleans())
def test_shown_and_hidden_cells_are_all_cells(cells: int, every_cell: bool) -> None:
    estimate = long_tail(cells)
    shown, hidden = terminal.shown_rows(estimate, every_cell)
    assert sorted(c.signature for row in shown + hidden for c in row.cells) == sorted(
        c.signature for c in estimate.cells
    )
    assert len(hidden) != 1  # one hidden cell takes as much room as its row
    if every_cell:
        assert not hidden


def test_what_has_no_latency_is_shown_first_however_many_cells_there_are() -> None:
    tail, odd = long_tail(40), untrusted().cells[1]
    estimate = dataclasses.replace(tail, cells=(*tail.cells, odd))
    assert terminal.shown_rows(estimate, False)[0][0].cells == (odd,)


@pytest.mark.parametrize(
    ("share", "top", "bar"),
    [(0.0, 1.0, ""), (1.0, 1.0, "████"), (0.5, 1.0, "██"), (1e-9, 1.0, "▏"), (0.1, 0.0, "")],
)
def test_bars(share: float, top: float, bar: str) -> None:
    assert cells_table.bar(share, top, 4) == bar


@given(st.floats(0, 1), st.floats(0.001, 1), st.integers(1, 40))
def test_a_bar_is_never_longer_than_its_column(share: float, top: float, width: int) -> None:
    assert len(cells_table.bar(share, top, width)) <= width


def strange() -> Estimate:
    """An interval of ±1.7 %, and a cell predicted where the model has never been."""
    cells = list(residual().cells)
    cells[3] = dataclasses.replace(cells[3], reason="far from every trained cell", trusted=False)
    return dataclasses.replace(residual(), cells=tuple(cells), within_tolerance=False)


def test_nearly_all_is_not_all_and_nearly_sure_not_sure() -> None:
    nearly = dataclasses.replace(residual(), measured_share=0.999, confidence=0.999)
    text = printed(nearly)
    assert "> 99 % of the time measured" in text and "99.9 % sure" in text
    assert "100 %" not in text.split("on " + nearly.target)[0]
    section = network_section(nearly, 0, "a network", None)
    assert "99.9 % sure" in section and "&gt; 99 % of the time measured" in section


def test_a_narrow_interval_is_not_called_too_wide() -> None:
    said = why_untrusted(strange(), 0.05)
    assert said == (
        "1 cell is predicted outside what the model was trained on (far from every trained cell)"
    )
    shown = printed(strange(), 200, tolerance=0.05)
    assert said[1:] in shown and "wider" not in shown


def test_an_interval_that_is_too_wide_is_called_so_whatever_the_cells_are() -> None:
    assert why_untrusted(strange(), 0.01) == "the interval ±1.7 % is wider than the tolerance 1.0 %"
    wide = dataclasses.replace(residual(), within_tolerance=False)
    assert why_untrusted(wide, 0.01) == why_untrusted(strange(), 0.01)
    assert "The interval ±1.7 % is wider than the tolerance 1.0 %." in printed(wide, tolerance=0.01)
    # Where the tolerance is not known.
    assert "The interval is wider than the tolerance." in printed(wide)


def test_a_note_with_hundreds_of_names_takes_a_few_lines_and_says_where_the_rest_is() -> None:
    names = ", ".join(f"ConstantOfShape_{i}" for i in range(300))
    many = dataclasses.replace(residual(), warnings=(f"removed by the engine: {names}",))
    text = printed(many, 100)
    assert "ConstantOfShape_0" in text and "ConstantOfShape_299" not in text
    assert "(--all shows all of it)" in " ".join(text.split())
    assert len(text.splitlines()) <= len(printed(residual(), 100).splitlines()) + 3
    assert "ConstantOfShape_299" in printed(many, 100, every_cell=True)


def test_what_is_removed_is_named_on_demand_alone() -> None:
    estimate = dataclasses.replace(residual(), removed=("Dropout_7", "odd & name"), constants=1)
    text = printed(estimate)
    assert "Not run: Dropout_7, 1 operator that only makes constants (--all names them)" in text
    assert "odd & name" not in text
    assert "Not run: Dropout_7, odd & name\n" in printed(estimate, every_cell=True)
    many = dataclasses.replace(
        estimate, removed=tuple(f"Identity_{i}" for i in range(9)), constants=0
    )
    assert "Identity_3, 5 more (--all" in printed(many) and "Identity_4" not in printed(many)


def test_what_was_asked_for_is_held_against_without_being_told_again() -> None:
    asked = dataclasses.replace(strange(), tolerance=0.01)
    assert why_untrusted(asked) == why_untrusted(strange(), 0.01)
    learned = dataclasses.replace(
        strange(),
        cells=tuple(dataclasses.replace(c, reason="from its kin") for c in residual().cells),
        tolerance=0.01,
    )
    assert "outside" not in why_untrusted(learned) and "wider" in why_untrusted(learned)


def test_where_nothing_has_a_latency_no_sum_and_no_time_are_spoken_of() -> None:
    none: dict[str, Any] = {"latency_us": None, "interval_us": None}
    cells = tuple(
        dataclasses.replace(cell, source="unsupported", share=0.0, **none)
        for cell in untrusted().cells
    )
    nothing = dataclasses.replace(untrusted(), cells=cells, sum_of_cells_us=0.0, **none)
    text = printed(nothing)
    assert "sum of cells" not in text and "the time above" not in text
