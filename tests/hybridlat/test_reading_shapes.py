"""Shape arithmetic in a file: what an exporter writes down, and what is left of it."""

from __future__ import annotations

import onnx
import pytest
from onnx import parser

from hybridlat.core.network import Network, TensorType
from hybridlat.onnx_io import read_network

HEAD = '<ir_version: 8, opset_import: ["" : {opset}]>\n'


def model(body: str, opset: int = 17) -> onnx.ModelProto:
    return parser.parse_model(HEAD.format(opset=opset) + body)


def ops(network: Network) -> list[str]:
    return [node.op for node in network.nodes]


# Padding worked out at run time, as TensorFlow's "same" is exported: the sizes are scalars, and
# the second convolution's are known only once the first one's are.
SAME = """g (float[{batch},3,9,9] x) => (float[{batch},3,3,3] y)
  <int64 two = {{2}}, int64 one = {{1}}, int64[1] axis = {{0}}, int64[6] none = {{0, 0, 0, 0, 0, 0}}>
  {{ {steps} y = Relu(p1) }}"""
STEP = """s{i} = Shape({x})  h{i} = Gather<axis=0>(s{i}, two)  f{i} = Cast<to=1>(h{i})
  by{i} = Cast<to=1>(two)  q{i} = Div(f{i}, by{i})  c{i} = Ceil(q{i})  o{i} = Cast<to=7>(c{i})
  d{i} = Mul(o{i}, two)  l{i} = Sub(d{i}, h{i})  u{i} = Unsqueeze(l{i}, axis)
  pads{i} = Concat<axis=0>(none, u{i}, u{i})  w{i} = Pad<mode="constant">({x}, pads{i})
  p{i} = MaxPool<kernel_shape=[2,2], strides=[2,2]>(w{i}) """


def same_padding(batch: str = "1") -> onnx.ModelProto:
    steps = STEP.format(i=0, x="x") + STEP.format(i=1, x="p0")
    return model(SAME.format(batch=batch, steps=steps))


@pytest.mark.parametrize("batch", ["1", "N"])
def test_a_folded_scalar_stays_a_scalar(batch: str) -> None:
    network = read_network(same_padding(batch))
    assert ops(network) == ["Pad", "MaxPool", "Pad", "MaxPool", "Relu"]
    assert network.constants["pads0"].values == (0, 0, 0, 0, 0, 0, 1, 1)
    assert network.types["y"] == TensorType("float32", (1, 3, 3, 3))


def test_a_folded_scalar_index_takes_the_axis_away() -> None:
    """A class token is picked with a scalar index: the axis goes, and a later pass agrees."""
    made = model("""g (float[2,5,8] x) => (float[2,8] y)
      <int64 one = {1}, int64 zero = {0}, float steps = {2.0}>
      { i = Sub(one, one)  t = Gather<axis=1>(x, i)  s = Shape(x)  n = Gather<axis=0>(s, zero)
        f = Cast<to=1>(n)  q = Div(f, steps)  c = Ceil(q)  k = Cast<to=7>(c)
        u = Unsqueeze(k, m)  both = Concat<axis=0>(u, w)  e = Expand(t, both)  y = Relu(e) }""")
    made.graph.initializer.append(onnx.helper.make_tensor("m", 7, [1], [0]))
    made.graph.initializer.append(onnx.helper.make_tensor("w", 7, [1], [8]))
    network = read_network(made)
    assert ops(network) == ["Gather", "Expand", "Relu"]
    assert network.types["t"] == TensorType("float32", (2, 8))
    assert network.constants["i"].type.shape == ()
