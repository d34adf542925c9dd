"""What the builder works out by itself, held against ONNX's own inference."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hybridlat import onnx_io
from hybridlat.graph.builder import NetworkBuilder


@given(
    size=st.tuples(st.integers(6, 20), st.integers(6, 20)),
    kernel=st.integers(1, 5),
    stride=st.integers(1, 3),
    group=st.integers(1, 3),
    dilation=st.integers(1, 2),
    bias=st.booleans(),
)
@settings(max_examples=40)
def test_a_convolution_has_the_shape_that_onnx_infers(
    size: tuple[int, int], kernel: int, stride: int, group: int, dilation: int, bias: bool
) -> None:
    builder = NetworkBuilder()
    source = builder.input((2, 4 * group, *size))
    out = builder.conv(source, 6 * group, kernel, stride, group, dilation=dilation, bias=bias)
    network = builder.network()
    assert network.outputs == (out,)
    read = onnx_io.read_network(onnx_io.to_onnx(network, None))
    assert read.types == network.types
