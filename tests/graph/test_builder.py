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


def test_what_nobody_reads_is_given_out() -> None:
    builder = NetworkBuilder("net")
    image = builder.input((1, 4, 8, 8), "image")
    left, right = builder.op_of_many("Split", [image], [(1, 2, 8, 8)] * 2, 11, {"axis": 1})
    flat = builder.op("Reshape", [left, builder.numbers(1, 128)], (1, 128), 14)
    network = builder.network()
    assert network.outputs == (right, flat)
    assert builder.network(flat).outputs == (flat,)
    assert network.inputs == ("image",)
    assert network.constants[network.nodes[1].inputs[1]].values == (1, 128)
    assert len({node.name for node in network.nodes}) == 2
