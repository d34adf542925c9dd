"""Sizes are said with the channels first, whatever layout an engine keeps an image in."""

from __future__ import annotations

from hybridlat.estimate.structure import _kernels
from hybridlat.model.geometry import geometry
from hybridlat.report.cell_texts import what_text
from hybridlat.schema.structure import CellStructure
from hybridlat.store.moving import moved

# Turned round for an operator that has no quantised kernel, and back.
OLD_TEXT = """hybridlat-signature 1
input 0 uint8 1x56x48x32
constant 1 float32 = 0.02
constant 2 uint8 = 128
constant 3 int8 32x32x3x3
constant 4 int8 = 0
node com.microsoft::QLinearConv@1 (0 1 2 3 1 4 1 2) -> (5:uint8:1x56x48x32) \
{"auto_pad":"NOTSET","channels_last":1,"group":1,"kernel_shape":[3,3],"pads":[1,1,1,1],\
"strides":[1,1]}
node Transpose@13 (5) -> (6:uint8:1x32x56x48) {"perm":[0,3,1,2]}
node Celu@12 (6) -> (7:uint8:1x32x56x48) {}
node Transpose@13 (7) -> (8:uint8:1x56x48x32) {"perm":[0,2,3,1]}
output 8
context small
"""
TURNED = moved("", OLD_TEXT).text


def test_what_is_turned_back_within_a_cell_is_said_with_the_channels_first() -> None:
    kernels = _kernels(TURNED)
    assert what_text(CellStructure(kernels)) == "32, 3×3, 56×48 int8"
    assert {kernel.output_shape for kernel in kernels} == {(1, 32, 56, 48)}


def test_scales_are_no_sum_and_no_bias_of_a_quantised_convolution() -> None:
    plain = geometry([TURNED])
    assert plain.column("has_add")[0] == plain.column("has_bias")[0] == 0
    scaled = OLD_TEXT.replace("constant 1 float32 = 0.02", "constant 1 float32 32")
    assert geometry([moved("", scaled).text]).column("has_bias")[0] == 0
    biased = OLD_TEXT.replace("(0 1 2 3 1 4 1 2)", "(0 1 2 3 1 4 1 2 9)").replace(
        "constant 4 int8 = 0", "constant 4 int8 = 0\nconstant 9 int32 32"
    )
    assert geometry([moved("", biased).text]).column("has_bias")[0] == 1
    sizes = [int(plain.column(name)[0]) for name in ("c_in", "h_in", "w_in", "c_out", "h_out")]
    assert sizes == [32, 56, 48, 32, 56]
