"""Units and names of cells."""

import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridlat.report import cell_texts, units
from hybridlat.schema import shown
from hybridlat.schema.structure import CellStructure, WarningCode, Work
from tests.pages import ROOT
from tests.report.estimates import kernel


@pytest.mark.parametrize(
    ("text_of", "values"),
    [
        (units.latency_text, {
            None: "–", 0.51: "0.51 µs", 8.0: "8.00 µs", 99.96: "100 µs", 812.4: "812 µs",
            999.4: "999 µs", 999.6: "1.00 ms", 8123.4: "8.12 ms", 81234.0: "81.2 ms",
            999_600.0: "1.00 s", 1.5e6: "1.50 s", 4.2e9: "4,200 s",
        }),
        (units.interval_text, {(990.0, 1010.0): "0.99 – 1.01 ms", None: "–",
                               (3990.0, math.inf): "at least 3.99 ms"}),
        (units.plus_minus_text, {None: "–", 0.013: "±1.3 %", 0.0996: "±10 %", 0.25: "±25 %"}),
        (shown.part_text, {  # never rounded to all or nothing
            0.0: "0 %", 1e-6: "< 1 %", 0.0049: "< 1 %", 0.006: "1 %", 0.725: "72 %",
            0.994: "99 %", 0.996: "> 99 %", 0.999: "> 99 %", 1 - 1e-12: "100 %", 1.0: "100 %",
        }),
        (units.confidence_text, {  # with the digits that were asked for
            0.9: "90 %", 0.57: "57 %", 0.975: "97.5 %", 0.999: "99.9 %", 0.99999: "99.999 %",
        }),
        # A column says what is below the resolution.
        (partial(units.each_text, shown.Scale("µs", 1.0)), {None: "–", 0.4: "< 1", 1.0: "1.0"}),
        (partial(units.each_text, shown.Scale("ms", 1e3)), {0.4: "< 0.001", 1500.0: "1.500"}),
        (partial(units.each_text, shown.Scale("s", 1e6)), {2e6: "2.000000"}),
        (units.fps_text, {1234.4: "1,234 fps", 9.87: "9.87 fps", None: "–"}),
    ],
)  # fmt: skip
def test_quantities_in_words(text_of: Callable[[Any], str], values: dict[Any, str]) -> None:
    assert {value: text_of(value) for value in values} == values


names = st.sampled_from(["Conv", "Conv+Relu", "MaxPool", "Concat", "BatchNormalization+Relu"])


@given(st.lists(names, max_size=40), st.integers(1, 90))
def test_a_short_name_fits_and_is_the_whole_one_where_that_fits(ops: list[str], width: int) -> None:
    short = cell_texts.chain(ops, width)
    assert len(short) <= width
    if len(cell_texts.chain(ops)) <= width:
        assert short == cell_texts.chain(ops)


def test_what_is_left_out_of_names_is_counted_or_a_range() -> None:
    ops = ("Conv", "MaxPool", "Concat", "Split", "Gemm", "Softmax")
    assert cell_texts.chain(ops, 36) == "Conv → MaxPool → … 3 more → Softmax"
    names = [f"Constant_{i}" for i in range(40)]
    names += ["/a/Concat_2", "b", "Constant_50", "c1_2", "c2_1"]
    assert cell_texts.names_text(names) == "Constant_0–39,50, /a/Concat_2, b, c1_2, c2_1"


@pytest.mark.parametrize(
    ("paths", "width", "text"),
    [
        ([], 20, ""),
        (["", ""], 20, ""),
        (["layer3.0"], 20, "layer3.0"),
        (["layer3.0", "layer3.0"], 20, "layer3.0"),
        (["layer1.0", "layer1.1", "layer1.2"], 20, "layer1.0–2"),
        (["fire2", "fire3", "fire9"], 20, "fire2–3,9"),
        (["blocks.2.0.conv", "blocks.3.0.conv"], 20, "blocks.2–3.0.conv"),
        (["layer1.1", "layer2.0"], 20, "layer1.1 +1"),
        (["stem", "layer2.0", ""], 20, "stem +1"),
        (["stages.3.blocks.11.attn"], 12, "…cks.11.attn"),
    ],
)
def test_where_is_the_path_that_the_uses_share(paths: list[str], width: int, text: str) -> None:
    assert cell_texts.where_text(paths, width) == text


@given(st.lists(st.text("ab.12", max_size=8), max_size=6), st.integers(1, 40))
def test_where_fits_its_width(paths: list[str], width: int) -> None:
    assert len(cell_texts.where_text(paths, width)) <= width


def conv(shapes: str, **more: Any) -> Any:
    return kernel("Conv+Relu", (-1,), shapes, window=(3, 3), **more)


@pytest.mark.parametrize(
    ("kernels", "text"),
    [
        ((), ""),
        ((conv("64x56x56 128x28x28", stride=2),), "64→128, 3×3/2, 28×28"),
        ((conv("96x14x14 96x14x14", groups=96),), "96, 3×3 dw, 14×14"),
        ((conv("96x14x14 96x14x14", groups=4),), "96, 3×3 g4, 14×14"),
        ((conv("64x16x56x56 128x8x28x28", stride=2),), "64→128, 8×28×28"),
        ((conv("80x200 256x200"),), "80→256, 200"),
        # What reduces the map behind a convolution is no stride of it.
        ((conv("3x480x640 32x240x320", stride=2),
          kernel("ReduceMean", (0,), "32x240x320 32x1x1")), "3→32, 3×3/2, 240×320"),
        ((kernel("MaxPool", (-1,), "64x112x112 64x56x56", window=(3, 3), stride=2),),
         "MaxPool 64, 3×3/2, 56×56"),
        ((kernel("Gemm+Relu", (-1,), "2048x1x1 1000", contracts=True),), "Gemm 2048→1000"),
        ((kernel("MatMul+Add", (-1,), "197x192 197x576", contracts=True),),
         "MatMul 197×192→576"),
        ((kernel("Add", (-1,), "197x192 197x192"),), "Add 197×192"),
        ((kernel("Add", (-1,), "197x192 197x192"),
          kernel("MatMul", (0,), "197x192 197x576", contracts=True)), "MatMul 197×192→576 +1"),
        # An inverted bottleneck: the ends' channels, the depthwise window, the stride of the whole.
        ((kernel("Conv+Clip", (-1,), "24x56x56 144x56x56", window=(1, 1)),
          conv("144x56x56 144x28x28", groups=144, stride=2),
          kernel("Conv", (1,), "144x28x28 32x28x28", window=(1, 1))), "24→32, 3×3/2 dw, 28×28"),
    ],
)  # fmt: skip
def test_what_a_cell_does(kernels: tuple[Any, ...], text: str) -> None:
    assert cell_texts.what_text(CellStructure(kernels)) == text


def limit(latency_us: float | None, *works: Work) -> Any:
    return CellStructure(tuple(kernel("Conv", (-1,), "1 1", work=w) for w in works)).limit(
        latency_us
    )


def test_the_limit_is_the_roof_that_explains_the_time_if_one_does() -> None:
    computes, moves = Work(1, 1, 80.0, 10.0), Work(1, 1, 5.0, 30.0)
    assert limit(160.0, computes) == ("compute", 0.5)
    assert limit(40.0, moves) == ("memory", 0.75)
    assert limit(110.0, computes, moves) == ("compute", 1.0)
    assert limit(8.0, Work(1, 1, 1.0, 2.0, 4.0)) == ("launch", 0.5)
    assert limit(None, Work(1, 1, 1.0, 1.0)) is None
    assert limit(10.0, Work(1, 1)) is None  # nothing is known of the device
    assert limit(10.0, Work(1, 1, 8.0, 1.0), Work(1, 1, None, 1.0)) is None
    assert limit(1000.0, Work(1, 1, 9.0, 3.0)) is None  # far from any roof
    assert limit(10.0, Work(1, 1, 1.0, 30.0)) is None  # quicker than main memory: from a cache


def test_the_page_of_help_lists_every_exit_code_and_every_code_of_a_warning() -> None:
    page = (ROOT / "docs/reference/troubleshooting.md").read_text(encoding="utf-8")
    table = page.split("## Warnings")[1].split("##")[0]
    codes = [c for r in re.findall(r"(?m)^\| (`.*?) \|", table) for c in re.findall("`(.*?)`", r)]
    assert sorted(codes) == sorted(get_args(WarningCode))
    assert {re.split(" ", row)[0] for row in re.findall(r"(?m)^\| (\d+ )\|", page)} >= set("0123")
