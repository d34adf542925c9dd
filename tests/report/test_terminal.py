"""What people see in a terminal: golden texts at fixed widths, and what holds at any width."""

from __future__ import annotations

import dataclasses
import io
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from hybridlat.report import compare, terminal
from hybridlat.report.units import why_untrusted
from hybridlat.schema.cell_estimate import LatencySource
from hybridlat.schema.estimate import Estimate, EstimateWarning
from tests.report.estimates import described, long_tail, residual, untrusted

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "report"


def on_a_terminal(width: int, show: Callable[[Console], None]) -> str:
    """What is printed on a terminal so wide, without colours or spaces at the ends of lines."""
    out = io.StringIO()
    show(Console(file=out, width=width, color_system=None, highlight=False, markup=False))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def printed(estimate: Estimate, width: int = 100, **options: Any) -> str:
    return on_a_terminal(
        width, lambda console: terminal.print_estimate(console, estimate, **options)
    )


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
    cells = (*estimate.cells, dataclasses.replace(estimate.cells[2], signature="f" * 32, uses=27))
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
    alone = dataclasses.replace(untrusted(), batch=1)
    text = on_a_terminal(
        100, lambda console: compare.print_comparison(console, [residual(), long_tail(4), alone])
    )
    hold_against("comparison_100.txt", text)


@given(st.integers(30, 200), st.sampled_from([residual(), untrusted(), long_tail(40), described()]))
def test_no_line_is_wider_than_the_terminal(width: int, estimate: Estimate) -> None:
    text = printed(estimate, width)
    lines = [line for line in text.splitlines() if not line.startswith("  hybridlat ")]
    assert max(map(cell_len, lines)) <= width


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


def strange() -> Estimate:
    """An interval of ±1.7 %, and a cell predicted where the model has never been."""
    cells = list(residual().cells)
    cells[3] = dataclasses.replace(cells[3], reason="far from every trained cell", trusted=False)
    return dataclasses.replace(
        residual(), cells=tuple(cells), within_tolerance=False, tolerance_given=True
    )


WIDE = dataclasses.replace(residual(), within_tolerance=False, tolerance_given=True)


@pytest.mark.parametrize(
    ("estimate", "why"),
    [
        (dataclasses.replace(strange(), tolerance=0.05), "1 cell is unlike all that was measured"),
        (dataclasses.replace(WIDE, tolerance=0.01), "you asked for ±1.0 %, this is ±1.7 %"),
        (untrusted(), "1 cell without a latency"),
        (dataclasses.replace(WIDE, busy=True), "the machine was busy while measuring"),
        (dataclasses.replace(WIDE, contradicted=True), "contradict each other"),
        (residual(), ""),
        (dataclasses.replace(WIDE, tolerance_given=False), ""),
    ],
)
def test_why_an_estimate_is_not_trusted(estimate: Estimate, why: str) -> None:
    assert why in why_untrusted(estimate) and bool(why) == (not estimate.trusted)
    said = f"not to be trusted: {why_untrusted(estimate)}"
    assert (said in printed(estimate, 200)) == bool(why)


def test_a_note_with_hundreds_of_names_takes_a_few_lines_and_says_where_the_rest_is() -> None:
    names = ", ".join(f"ConstantOfShape_{i}" for i in range(300))
    many = dataclasses.replace(
        residual(), warnings=(EstimateWarning("file", f"Removed: {names}."),)
    )
    text = printed(many, 100)
    assert "ConstantOfShape_0" in text and "ConstantOfShape_299" not in text
    assert "(--all shows all of it)" in " ".join(text.split())
    assert len(text.splitlines()) <= len(printed(residual(), 100).splitlines()) + 3
    assert "ConstantOfShape_299" in printed(many, 100, every_cell=True)


def test_what_is_removed_is_named_on_demand_alone() -> None:
    estimate = dataclasses.replace(residual(), removed=("Dropout_7", "odd & name"), constants=1)
    assert "odd & name" not in printed(estimate)
    assert "Not run: Dropout_7, odd & name\n" in printed(estimate, every_cell=True)


def test_where_nothing_has_a_latency_no_sum_and_no_time_are_spoken_of() -> None:
    none: dict[str, Any] = {"latency_us": None, "interval_us": None}
    cells = tuple(
        dataclasses.replace(cell, source="unsupported", share=0.0, **none)
        for cell in untrusted().cells
    )
    nothing = dataclasses.replace(untrusted(), cells=cells, sum_of_cells_us=0.0, **none)
    text = printed(nothing)
    assert "sum of cells" not in text and "None" not in text


GUESS = dataclasses.replace(
    long_tail(4), network="a.onnx", target="l4/tensorrt/fp16", latency_us=547.0,
    interval_us=(369.0, 810.0), within_tolerance=False, measured_share=0.0, tolerance=0.05,
    cells=tuple(dataclasses.replace(cell, source="predicted") for cell in long_tail(4).cells),
    warnings=(
        EstimateWarning("device-unmeasured", "Learned from other GPUs, no L4 measured."),
        EstimateWarning("to-measure", "Measuring 4 cells, about 2 min, narrows this.",
                        "hybridlat measure a.onnx --target l4/tensorrt/fp16 --host USER@HOST"),
    ),
)  # fmt: skip


def test_a_guess_says_what_it_is_worth_in_a_line_and_then_what_to_do() -> None:
    _, answer, worth, *table, advice, command = printed(GUESS, 80).splitlines()
    assert answer == "547 µs   1,828 fps   369 – 810 µs (90 %)"
    assert worth == "rough: learned from other GPUs, no L4 measured"
    assert "±" not in "".join(table) and "≈" not in "".join(table)  # all rows alike
    assert advice.startswith("Measuring 4 cells") and command.strip() == GUESS.warnings[1].fix
    narrow = printed(GUESS, 40).splitlines()
    assert f"  {GUESS.warnings[1].fix}" in narrow  # a command in one piece can be copied
    assert "not to be trusted: you asked for ±5.0 %, this is ±48 %" in printed(
        dataclasses.replace(GUESS, tolerance_given=True)
    )


@pytest.mark.parametrize(
    ("interval_us", "source", "grade"),
    [
        ((480.0, 620.0), "predicted", "good"),
        ((369.0, 810.0), "predicted", "rough"),
        ((200.0, 1500.0), "predicted", "order of magnitude"),
        ((200.0, 1500.0), "measured", "measured"),
        ((369.0, math.inf), "unsupported", None),
    ],
)
def test_grades(interval_us: tuple[float, float], source: LatencySource, grade: str | None) -> None:
    cells = tuple(dataclasses.replace(cell, source=source) for cell in GUESS.cells)
    estimate = dataclasses.replace(GUESS, cells=cells, interval_us=interval_us)
    assert estimate.grade == estimate.to_json()["grade"] == grade
    assert dataclasses.replace(estimate, source="measured").grade == "measured"


@pytest.mark.parametrize(
    ("share", "top", "bar"),
    [(0.5, 0.5, "██████"), (0.25, 0.5, "███"), (1e-9, 0.5, "▏"), (0.0, 0.5, ""), (0.1, 0.0, "")],
)
def test_bars(share: float, top: float, bar: str) -> None:
    assert terminal.bar(share, top) == bar
