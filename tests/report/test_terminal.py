"""What people see in a terminal: golden texts at fixed widths, and what holds at any width."""

import io
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from hybridlat.report import terminal
from hybridlat.report.compare import Comparison, differences_table
from hybridlat.report.units import why_untrusted
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.structure import EstimateWarning, LatencySource
from tests.report.estimates import cell, described, long_tail, of, residual, untrusted


def printed(estimate: Estimate, width: int = 100, **options: Any) -> str:
    """On a terminal so wide, without colours or spaces at the ends of lines."""
    out = io.StringIO()
    console = terminal.plain_console(file=out, width=width, color_system=None)
    terminal.print_estimate(console, estimate, **options)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def hold_against(name: str, text: str) -> None:
    """Compare with the golden file; HYBRIDLAT_WRITE_GOLDEN=1 writes it anew, to be read first."""
    path = Path(__file__).resolve().parents[1] / "golden" / "report" / name
    if os.environ.get("HYBRIDLAT_WRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


COMMAND = "hybridlat measure a.onnx --target l4/tensorrt/fp16 --host USER@HOST"
GUESS = replace(
    long_tail(4),
    network="a.onnx",
    target="l4/tensorrt/fp16",
    latency_us=547.0,
    interval_us=(369.0, 810.0),
    within_tolerance=False,
    measured_share=0.0,
    tolerance=0.05,
    cells=tuple(replace(cell, source="predicted") for cell in long_tail(4).cells),
    warnings=(
        EstimateWarning("device-unmeasured", "Learned from other GPUs, no L4 measured."),
        EstimateWarning("to-measure", "Measuring 4 cells, about 2 min, narrows this.", COMMAND),
    ),
)
NONE: Any = {"latency_us": None, "interval_us": None}
CELLS = tuple(replace(c, source="unsupported", share=0.0, **NONE) for c in untrusted().cells)
SHOWN = {"residual": residual(), "described": described(), "untrusted": untrusted()}
SHOWN |= {"guess": GUESS, "nothing": replace(untrusted(), cells=CELLS, sum_of_cells_us=0.0, **NONE)}
GOLDENS = "residual 60, residual 80, residual 120, untrusted 100, described 60, described 80, "
GOLDENS += "described 120, described 160, guess 40, guess 80, nothing 100"


@pytest.mark.parametrize("golden", GOLDENS.split(", "))
def test_an_estimate_reads_as_agreed(golden: str) -> None:
    name, width = golden.split()
    hold_against(f"{name}_{width}.txt", printed(SHOWN[name], int(width)))


def test_names_are_whole_where_no_terminal_breaks_lines() -> None:
    estimate, stage = described(), "backbone.encoder.fusion_stage."
    assert estimate.structure is not None
    places = [replace(one, path=stage + one.path) for one in estimate.structure.places]
    long = replace(estimate, structure=replace(estimate.structure, places=tuple(places)))
    whole = printed(long, 80, is_cut=False)
    assert all(f" {stage}{name} " in whole for name in ("layer1.0–2", "layer2.0", "conv1", "fc"))
    assert stage not in printed(long, 80)


def test_the_comparison_reads_as_agreed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    alone = replace(untrusted(), batch=1)
    hold_against("comparison_100.txt", str(Comparison((residual(), long_tail(4), alone))) + "\n")
    pair = Comparison((GUESS, replace(GUESS, network="b.onnx")))
    hold_against("guesses_100.txt", str(pair) + "\n")


def test_every_row_of_a_comparison_of_several_says_which_cell_it_is() -> None:
    """Four networks leave little room on a narrow terminal: what a cell does goes first."""
    many = [described(), *[long_tail(4)] * 3]
    rows = differences_table(many, None, 100).rows
    assert rows and all(str(row[-1]).strip(" …") for row in rows)
    assert any("64, 3×3, 56×56" in str(row[-1]) for row in rows)


def test_cells_that_read_the_same_are_one_row_unless_all_are_asked_for() -> None:
    estimate, structure = described(), described().structure
    assert structure is not None
    cells = (*estimate.cells, replace(estimate.cells[2], signature="f" * 32, uses=27))
    new = (replace(structure.places[2], cell=6, path=f"layer1.{i}") for i in range(3, 30))
    structure = replace(
        structure, cells=(*structure.cells, structure.cells[2]), places=(*structure.places, *new)
    )
    many = replace(estimate, cells=cells, structure=structure)

    def rows(shown: Estimate, **options: Any) -> list[str]:
        return [n for n in printed(shown, 120, **options).splitlines() if "64, 3×3, 56×56" in n]

    (row,) = rows(many)
    assert "×30" in row and "layer1.0–29" in row and "1.500" in row
    assert len(rows(many, every_cell=True)) == 2
    assert len(rows(replace(many, cells=(*cells[:-1], replace(cells[-1], latency_us=3000.0))))) == 2


def test_the_first_of_thousands_of_cells_are_shown_however_little_each_takes() -> None:
    cells = tuple(cell(i, (f"Op{i}",), 2.0, share=1 / 4000) for i in range(4000))
    assert "3985 more rows with 99.6 % of the time" in " ".join(str(of(cells)).split())


@given(st.integers(30, 200), st.sampled_from([*SHOWN.values(), long_tail(40)]))
def test_no_line_is_wider_than_the_terminal(width: int, estimate: Estimate) -> None:
    lines = printed(estimate, width).splitlines()
    assert max(cell_len(line) for line in lines if not line.startswith("  hybridlat ")) <= width


@given(st.integers(1, 60), st.booleans())
def test_shown_and_hidden_cells_are_all_cells(cells: int, every_cell: bool) -> None:
    odd = untrusted().cells[1]  # what has no latency comes first
    estimate = replace(long_tail(cells), cells=(*long_tail(cells).cells, odd))
    shown, hidden = terminal.shown_rows(estimate, every_cell)
    both = [cell for row in shown + hidden for cell in row.cells]
    assert sorted(c.signature for c in both) == sorted(c.signature for c in estimate.cells)
    assert len(hidden) != 1  # one hidden cell takes as much room as its row
    assert not (every_cell and hidden) and shown[0].cells == (odd,)


STRANGERS = list(residual().cells)
STRANGERS[3] = replace(STRANGERS[3], reason="far from every trained cell", trusted=False)
WIDE = replace(residual(), within_tolerance=False, tolerance_given=True)
STRANGE = replace(WIDE, cells=tuple(STRANGERS), tolerance=0.05)


@pytest.mark.parametrize(
    ("estimate", "why"),
    [
        (STRANGE, "1 cell is unlike all that was measured"),
        (replace(WIDE, tolerance=0.01), "you asked for ±1.0 %, this is ±1.7 %"),
        (untrusted(), "1 cell without a latency"),
        (replace(untrusted(), cells=(), latency_us=None), "engine runs none of its operators"),
        (replace(WIDE, busy=True), "the machine was busy while measuring"),
        (replace(WIDE, contradicted=True), "contradict each other"),
        (WIDE.warned((EstimateWarning("surprising", "A."),)), "far from all that is believed"),
        (residual(), ""),
        (replace(WIDE, tolerance_given=False), ""),
    ],
)
def test_why_an_estimate_is_not_trusted(estimate: Estimate, why: str) -> None:
    assert why in why_untrusted(estimate) and bool(why) == (not estimate.trusted)
    sentence = f"not to be trusted: {why_untrusted(estimate)}"
    assert (sentence in printed(estimate, 200)) == bool(why)


def test_a_note_with_hundreds_of_names_takes_a_few_lines_and_says_where_the_rest_is() -> None:
    names = ", ".join(f"ConstantOfShape_{i}" for i in range(300))
    warnings = (EstimateWarning("file", f"Removed: {names}."),)
    many = replace(residual(), warnings=warnings, removed=("odd & name",))
    text, whole = printed(many), printed(many, every_cell=True)
    assert "ConstantOfShape_0" in text and "ConstantOfShape_299" not in text
    assert "(--all shows all of it)" in " ".join(text.split()) and "odd & name" not in text
    assert len(text.splitlines()) <= len(printed(residual()).splitlines()) + 3
    assert "ConstantOfShape_299" in whole and "Not run: odd & name\n" in whole


@pytest.mark.parametrize(
    ("interval_us", "source", "grade"),
    [((480.0, 620.0), "predicted", "good"), ((369.0, 810.0), "predicted", "rough"),
     ((369.0, 600.0), "predicted", "rough"), ((480.0, 810.0), "predicted", "rough"),
     ((200.0, 600.0), "predicted", "order of magnitude"),
     ((480.0, 1500.0), "predicted", "order of magnitude"),
     ((200.0, 1500.0), "predicted", "order of magnitude"),
     ((200.0, 1500.0), "measured", "measured"), ((369.0, math.inf), "unsupported", None)],
)  # fmt: skip
def test_grades(interval_us: tuple[float, float], source: LatencySource, grade: str | None) -> None:
    cells = tuple(replace(cell, source=source) for cell in GUESS.cells)
    estimate = replace(GUESS, cells=cells, interval_us=interval_us)
    assert estimate.grade == estimate.to_json()["grade"] == grade
    assert replace(estimate, source="measured").grade == "measured"


def test_a_terminal_of_no_size_shows_the_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    terminal.print_estimate(terminal.plain_console(), residual())
    assert "8.12 ms" in capsys.readouterr().out
