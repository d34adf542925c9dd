"""Units and names of cells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridlat.report import labels, units


@pytest.mark.parametrize(
    ("latency_us", "text"),
    [
        (None, "–"), (0.51, "0.51 µs"), (8.0, "8.00 µs"), (99.96, "100 µs"), (812.4, "812 µs"),
        (999.4, "999 µs"), (999.6, "1.00 ms"), (8123.4, "8.12 ms"), (81234.0, "81.2 ms"),
        (999_600.0, "1.00 s"), (1.5e6, "1.50 s"), (4.2e9, "4,200 s"),
    ],
)  # fmt: skip
def test_latencies_take_the_unit_that_fits(latency_us: float | None, text: str) -> None:
    assert units.latency_text(latency_us) == text


@given(st.floats(0.01, 1e9))
def test_what_is_written_is_within_half_a_percent(latency_us: float) -> None:
    number, unit = units.latency_text(latency_us).replace(",", "").split(" ")
    factor = {"µs": 1.0, "ms": 1e3, "s": 1e6}[unit]
    assert float(number) * factor == pytest.approx(latency_us, rel=0.005, abs=0.0051)


def test_an_interval_has_one_unit() -> None:
    assert units.interval_text((990.0, 1010.0)) == "0.99 – 1.01 ms"
    assert units.interval_text(None) == "–"


@pytest.mark.parametrize(
    ("share", "text"), [(None, "–"), (0.013, "±1.3 %"), (0.0996, "±10 %"), (0.25, "±25 %")]
)
def test_half_widths(share: float | None, text: str) -> None:
    assert units.plus_minus_text(share) == text


@pytest.mark.parametrize(
    ("ops", "text"),
    [
        ((), ""),
        (("Conv+Relu", "Conv+Relu", "Conv+Add+Relu"), "Conv+Relu ×2 → Conv+Add+Relu"),
        (("A", "B") * 3, "(A → B) ×3"),
        (("A", "A", "B") * 2 + ("C",), "(A ×2 → B) ×2 → C"),
        (("A", "B", "A"), "A → B → A"),
    ],
)
def test_repetitions_are_counted(ops: tuple[str, ...], text: str) -> None:
    assert labels.chain(ops) == text


names = st.sampled_from(["Conv", "Conv+Relu", "MaxPool", "Concat", "BatchNormalization+Relu"])


@given(st.lists(names, max_size=40), st.integers(1, 90))
def test_a_short_name_fits_and_is_the_whole_one_where_that_fits(ops: list[str], width: int) -> None:
    short = labels.short_chain(ops, width)
    assert len(short) <= width
    if len(labels.chain(ops)) <= width:
        assert short == labels.chain(ops)


def test_the_middle_gives_way_and_says_how_much() -> None:
    ops = ("Conv", "MaxPool", "Concat", "Split", "Gemm", "Softmax")
    assert labels.short_chain(ops, 36) == "Conv → MaxPool → … 3 more → Softmax"


def test_a_place_is_the_first_operator() -> None:
    assert labels.first_and_more(["conv1"]) == "conv1"
    assert labels.first_and_more(["", "conv1", "relu"]) == "conv1 +1"
    assert labels.first_and_more([]) == ""
