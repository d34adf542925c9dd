"""How values are written on the command line."""

from __future__ import annotations

import contextlib
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridlat.cli.param_types import (
    BATCHES,
    DURATION,
    LATENCY,
    SHAPE,
    SHARE,
    TOLERANCE,
    OutputFile,
)

positive = st.floats(1e-3, 1e4).map(lambda x: float(f"{x:.4f}")).filter(lambda x: x > 0)


def test_an_interval_may_be_wider_than_the_latency() -> None:
    assert TOLERANCE.convert("150%", None, None) == pytest.approx(1.5)


@given(st.integers(1, 10_000))
def test_a_share_is_the_same_in_percent_and_as_a_number(basis_points: int) -> None:
    percent = f"{basis_points / 100:.2f}%"
    number = f"{basis_points / 10_000:.4f}"
    assert SHARE.convert(percent, None, None) == pytest.approx(basis_points / 10_000)
    assert SHARE.convert(number, None, None) == pytest.approx(basis_points / 10_000)


@given(positive, st.sampled_from([("us", 1.0), ("µs", 1.0), ("ms", 1e3), ("s", 1e6)]))
def test_latencies_are_microseconds(value: float, unit: tuple[str, float]) -> None:
    name, factor = unit
    for text in (f"{value:.4f}{name}", f" {value:.4f} {name.upper()} "):
        assert LATENCY.convert(text, None, None) == pytest.approx(value * factor)


@given(st.integers(0, 99), st.integers(0, 59), st.integers(1, 59))
def test_durations_add_up_to_seconds(hours: int, minutes: int, seconds: int) -> None:
    text = f"{hours}h{minutes}m {seconds}s"
    assert DURATION.convert(text, None, None) == 3600 * hours + 60 * minutes + seconds


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    st.lists(st.integers(1, 9999), min_size=1, max_size=6),
    st.sampled_from("x×,"),
)
def test_a_shape_keeps_name_and_sizes(name: str, sizes: list[int], cross: str) -> None:
    text = f"{name}:{cross.join(map(str, sizes))}"
    assert SHAPE.convert(text, None, None) == (name, tuple(sizes))


@pytest.mark.parametrize(
    ("kind", "text", "hint"),
    [
        *((SHARE, text, "5% or 0.05") for text in ("5", "-1%", "nan", "")),
        (SHARE, "0", "above 0"),
        (SHARE, "101%", "at most 100%"),
        (TOLERANCE, "5", "5% or 0.05"),
        (TOLERANCE, "901%", "at most 900%"),
        *((LATENCY, text, "8ms") for text in ("8", "8 parsecs", "0ms", "-3ms", "9" * 400 + "ms")),
        *((DURATION, text, "90s") for text in ("90", "10m10m", "1w", "0s", "")),
        *((SHAPE, text, "NAME:1x3x224x224") for text in ("1x3x224x224", ":1x3", "in:", "in:1x-3")),
        (SHAPE, "in:1x0x3", "at least 1"),
        *((BATCHES, text, "8 or 1,2,4,8") for text in ("0", "1,,2", "two", "1,-2", "")),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_way_to_write_it(
    kind: click.ParamType[Any], text: str, hint: str
) -> None:
    with pytest.raises(click.BadParameter) as refused:
        kind.convert(text, None, None)
    assert hint in refused.value.message
    assert repr(text) in refused.value.message


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused_and_nothing_else(text: str) -> None:
    for kind in (SHARE, TOLERANCE, DURATION, LATENCY, SHAPE):
        value: object = None
        with contextlib.suppress(click.BadParameter):
            value = kind.convert(text, None, None)
        assert value is None or isinstance(value, float | tuple)


@pytest.mark.parametrize(("text", "dash"), [("--json", True), ("-o", True), ("-", False)])
def test_the_next_option_is_not_taken_for_a_file(text: str, dash: bool) -> None:
    assert OutputFile(allow_dash=True).convert("-", None, None) == "-"
    with pytest.raises(click.BadParameter, match=f"'{text}' looks like an option"):
        OutputFile(allow_dash=dash).convert(text, None, None)
