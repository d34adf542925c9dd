"""Sizes are said with the channels first, whatever layout an engine keeps an image in."""

from __future__ import annotations

from hybridlat.estimate.structure import _kernels
from hybridlat.model.geometry import geometry
from hybridlat.report.cell_texts import what_text
from hybridlat.schema.structure import CellStructure

# Turned round for an operator that has no quantised kernel, and back.
TURNED = """hybridlat-signature 2
input 0 uint8:1x56x48x32
node com.microsoft::QLinearConv@1 \
(0 float32: uint8: int8:32x32x3x3 float32: int8: float32: uint8:) -> (1:uint8:1x56x48x32) \
{"auto_pad":"NOTSET","channels_last":1,"group":1,"kernel_shape":[3,3],"pads":[1,1,1,1]}
node Transpose@13 (1) -> (2:uint8:1x32x56x48) {"perm":[0,3,1,2]}
node Celu@12 (2) -> (3:uint8:1x32x56x48) {}
node Transpose@13 (3) -> (4:uint8:1x56x48x32) {"perm":[0,2,3,1]}
output 4
context small
"""


def test_what_is_turned_back_within_a_cell_is_said_with_the_channels_first() -> None:
    kernels = _kernels(TURNED)
    assert what_text(CellStructure(kernels)) == "32, 3×3, 56×48 int8"
    assert {kernel.output_shape for kernel in kernels} == {(1, 32, 56, 48)}


def test_scales_are_no_sum_and_no_bias_of_a_quantised_convolution() -> None:
    plain = geometry([TURNED])
    assert plain.column("has_add")[0] == plain.column("has_bias")[0] == 0
    assert geometry([TURNED.replace("float32:", "float32:32")]).column("has_bias")[0] == 0
    biased = TURNED.replace("uint8:) ->", "uint8: int32:32) ->")
    assert geometry([biased]).column("has_bias")[0] == 1
    sizes = [int(plain.column(name)[0]) for name in ("c_in", "h_in", "w_in", "c_out", "h_out")]
    assert sizes == [32, 56, 48, 32, 56]
