"""How values are written on the command line."""

import contextlib
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridlat.cli.param_types import (
    BATCHES,
    BUDGET,
    CURVE,
    DURATION,
    FPS,
    MEASURED,
    SHAPE,
    SHARE,
    OutputFile,
)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (SHARE, "5%", 0.05), (SHARE, "0.05", 0.05), (SHARE, " 12 % ", 0.12),
        (MEASURED, "8ms", 8000.0), (MEASURED, " .5 S ", 5e5), (MEASURED, "800us", 800.0),
        (MEASURED, "25 fps", ("fps", 25.0)),
        (MEASURED, "800µs", 800.0), (BUDGET, "8ms", ("max_latency_us", 8000.0)),
        (BUDGET, "29.97 FPS", ("fps", 29.97)),
        (DURATION, "90s", 90.0), (DURATION, "1h30m 5s", 5405.0), (DURATION, "10min", 600.0),
        (SHAPE, "in:0:1x3x224×224", ("in:0", (1, 3, 224, 224))), (SHAPE, "µ:1,3", ("µ", (1, 3))),
        (SHAPE, "in:Nx3x8x8", ("in", (-1, 3, 8, 8))),
        (BATCHES, "8", (8,)), (BATCHES, "4, 1,4,2", (4, 1, 2)),
        (CURVE, "320:448:64", (320, 384, 448)), (CURVE, "0.25:1:0.3", (0.25, 0.55, 0.85)),
        (FPS, "30", 30.0), (FPS, " 29.97 Fps", 29.97),
        (CURVE, "1,4", (1, 4)), (CURVE, "8", (8,)),
    ],
)  # fmt: skip
def test_values_are_read_as_written(kind: click.ParamType[Any], text: str, value: object) -> None:
    found = kind.convert(text, None, None)
    assert found == (pytest.approx(value) if isinstance(value, float) else value)


@pytest.mark.parametrize(
    ("kind", "text", "hint"),
    [
        *((SHARE, text, "5% or 0.05") for text in ("-1%", "nan", "0")),
        (SHARE, "0", "above 0"),
        (SHARE, "100%", "below 100%"),
        (SHARE, "5", "write 5% (or 0.05)"),
        *((MEASURED, text, "8ms") for text in ("8", "8 parsecs", "0ms", "-3ms", "9" * 400 + "ms")),
        *(
            (FPS, text, "30 or 30fps")
            for text in ("0", "-3", "nan", "inf", "1e9", "30 ms", "9" * 20)
        ),
        *((BUDGET, text, "30fps") for text in ("30", "0fps", "fps", "30 ips")),
        *((DURATION, text, "90s") for text in ("90", "10m10m", "1w", "0s", "")),
        *(
            (SHAPE, text, "NAME:1x3x224x224")
            for text in ("1x3x224x224", ":1x3", "in:", "in:1x-3", "a:1xN")
        ),
        (SHAPE, "in:1x0x3", "at least 1"),
        (CURVE, "1:x:2", "320:640:64"),
        *((CURVE, text, "FROM:TO:STEP") for text in ("1:2", "4:2:1", "1:9:.001")),
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
    for kind in (SHARE, DURATION, MEASURED, SHAPE):
        value: object = None
        with contextlib.suppress(click.BadParameter):
            value = kind.convert(text, None, None)
        assert value is None or isinstance(value, float | tuple)


@pytest.mark.parametrize(("text", "dash"), [("--json", True), ("-o", True), ("-", False)])
def test_the_next_option_is_not_taken_for_a_file(text: str, dash: bool) -> None:
    assert OutputFile(allow_dash=True).convert("-", None, None) == "-"
    with pytest.raises(click.BadParameter, match=f"'{text}' looks like an option"):
        OutputFile(allow_dash=dash).convert(text, None, None)
    with pytest.raises(click.BadParameter, match="an empty name"):
        OutputFile().convert("", None, None)
