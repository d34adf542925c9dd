"""Groups of operators as networks of kernels."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridlat.engines import registry
from hybridlat.engines.fusion.groups import Groups, lowered_of
from hybridlat.graph.cells import cut
from hybridlat.graph.network import Network
from hybridlat.graph.signature import read, sign
from hybridlat.onnx_io import read_network
from hybridlat.schema.target import Target
from tests.engines.test_backends import assert_accounted, assert_whole
from tests.engines.texts import CONV, by_rules
from tests.engines.texts import network as text_network
from tests.onnx_io.test_precision import FLOAT
from tests.onnx_io.test_reading_shapes import model
from tests.strategies import networks

OPS = ("conv", "add", "Mul", "concat", "pool", "split", "Relu", "Sigmoid", "Identity", "HardSwish")
graphs = networks(max_nodes=14, ends=1, widths=(8,), ops=OPS)


@given(graphs, st.sampled_from(["8.6", "10.0"]))
def test_every_operator_is_in_one_kernel_or_removed(network: Network, version: str) -> None:
    lowered = by_rules(network, version)
    assert_accounted(network, lowered)
    for cell in cut(lowered):
        rebuilt = read(text := sign(cell.network).text)
        assert sign(rebuilt).text == text
        assert_whole(rebuilt)


@given(graphs, st.data())
def test_any_grouping_becomes_a_network_of_kernels(network: Network, data: st.DataObject) -> None:
    """Even one that no engine would make: kernels that hang on themselves are taken apart."""
    keys = [data.draw(st.integers(0, 4)) for _ in network.nodes]
    kernels = {k: tuple(i for i, key in enumerate(keys) if key == k) for k in set(keys)}
    assert_accounted(network, lowered_of(network, Groups(tuple(kernels.values()), ()), "test"))


TOLD = [
    ("a = Relu(x) y = Add(a, z)", True),
    ("a = Relu(x) y = Add(z, a)", True),
    ("a = Relu(x) y = Sub(z, a)", False),
    ("a = Relu(x) y = Add(a, a)", False),
    ("a = Relu(x) y = Add(x, a)", True),
    ("a = Relu(x) y = Mul(x, a)", False),
    ("a = Relu(x) b = Sigmoid(a) y = Mul(a, b)", True),
    ("a = Relu(x) b = Sigmoid(a) y = Add(a, b)", False),
    ("a, b = Split<axis=1>(x, parts) y = Relu(a)", True),
    ("a, b = Split<axis=1>(x, parts) y = Relu(b)", False),
    ("a = Relu(x) b = Relu(z) y = Add(a, b)", False),
    (f"a = {CONV}(x, w, v) y = Relu(a)", True),
    (f"a = {CONV}(x, w) b = PRelu(a, gamma) y = Relu(b)", True),
    (f"a = {CONV}(x, w, v) b = PRelu(a, gamma) y = Relu(b)", True),
    (f"a = {CONV}(x, w) b = BatchNormalization(a, v, v, v, v) y = Relu(b)", True),
    (f"a = {CONV}(x, w) y = Relu(x)", False),
]


@pytest.mark.parametrize(("body", "is_told"), TOLD)
def test_wires_say_what_the_operators_do_not_tell(body: str, is_told: bool) -> None:
    network = text_network(body, "float[1,64,28,28] x, float[1,64,28,28] z")
    lowered = lowered_of(network, Groups((tuple(range(len(network.nodes))),), ()), "test")
    assert_accounted(network, lowered)
    (kernel,) = lowered.network.nodes
    assert (kernel.attribute("wires") is None) == is_told


def test_a_kernel_is_named_by_its_operators_and_keeps_their_attributes() -> None:
    network = text_network(f"c = {CONV}(x, w) y = LeakyRelu<alpha=0.5>(c)")
    (kernel,) = lowered_of(network, Groups(((0, 1),), ()), "test").network.nodes
    assert kernel.qualified_op == "fused::Conv+LeakyRelu"
    leaky = {"fused": ("Conv", "LeakyRelu"), "1.LeakyRelu.alpha": 0.5}
    assert dict(kernel.attributes) == {**dict(network.nodes[0].attributes), **leaky}
    assert (kernel.inputs, kernel.outputs) == (network.nodes[0].inputs, ("y",))


def test_a_view_is_read_through_and_kept_in_the_wires() -> None:
    network = text_network("f = Flatten(x) y = Gemm(f, head)", "float[1,64,1,1] x")
    lowered = lowered_of(network, Groups(((1,),), (0,)), "test")
    (kernel,) = lowered.network.nodes
    wires = kernel.attribute("wires")
    assert kernel.qualified_op == "fused::Gemm" and isinstance(wires, tuple)
    assert kernel.inputs == ("x", "head", network.nodes[0].inputs[1])
    assert [json.loads(str(w))[0] for w in wires] == ["Reshape", "Gemm", "1.0"]


def foreign() -> Network:
    """With operators of another domain under names of ONNX's own."""
    text = """g (float[1,8,9,9] x) => (float[1,8,9,9] y) <float[1,8,9,9] a, float[1,8,9,9] b>
      { c = Conv<pads=[1,1,1,1]>(x, w)  a = com.microsoft.Tanh(c)  s = Sigmoid(a)
        b = com.microsoft.Mul(a, s)  y = com.microsoft.Add(b, x) }"""
    return read_network(model(text, {"w": (FLOAT, [8, 8, 3, 3])}))


@pytest.mark.parametrize("target", ["l4/tensorrt-10.3/fp16", "l4/torch-compile-2.4/amp"])
def test_an_operator_of_another_domain_is_another_operator(target: str) -> None:
    """It is a kernel of its own, as its warning says, whatever ONNX's own of the name does."""
    network = foreign()
    lowered = registry.lower(network, Target.parse(target))
    assert {(1,), (3,), (4,)} <= {*lowered.origins}
    named = [op for op in ("Tanh", "Mul", "Add") if any(op in w for w in lowered.warnings)]
    assert named == ["Tanh", "Mul", "Add"]


def test_wires_keep_the_domains_of_operators() -> None:
    """An engine that is asked may fuse them, and their kernel is built of the same operators."""
    network = foreign()
    lowered = lowered_of(network, Groups(((0, 1), (2,), (3, 4)), ()), "test")
    wires = [node.attribute("wires") for node in lowered.network.nodes]
    lines = [json.loads(str(line)) for each in wires if isinstance(each, tuple) for line in each]
    ops = [node.qualified_op for node in network.nodes if node.op != "Sigmoid"]
    assert [line[0] for line in lines if len(line) == 5] == ops


def test_pools_that_name_an_empty_second_result_are_one_where_they_are_equal() -> None:
    pool = "MaxPool<kernel_shape=[2,2]>(x)"
    network = text_network(f"a = {pool} b = {pool} y = Add(a, b)")
    *pools, total = network.nodes
    pools = [replace(node, outputs=(*node.outputs, "")) for node in pools]
    network = replace(network, nodes=(*pools, total))
    lowered = by_rules(network)
    assert [node.op for node in lowered.network.nodes] == ["MaxPool", "Add"]
    assert_accounted(network, lowered)
