"""Groups of operators as networks of kernels, and back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridlat.engines import registry
from hybridlat.engines.fusion.groups import Groups, lowered_of
from hybridlat.engines.fusion.rules import apply
from hybridlat.engines.tensorrt.lowering import RULES
from hybridlat.errors import MeasurementError
from hybridlat.graph.cells import cut
from hybridlat.graph.fused import unfuse
from hybridlat.graph.network import Lowered, Network, Node, TensorType
from hybridlat.graph.signature import sign
from hybridlat.graph.signature_reading import read
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
        assert_whole(unfuse(rebuilt))


@given(graphs, st.data())
def test_any_grouping_becomes_a_network_of_kernels(network: Network, data: st.DataObject) -> None:
    """Even one that no engine would make: kernels that hang on themselves are taken apart."""
    keys = [data.draw(st.integers(0, 4)) for _ in network.nodes]
    kernels = {k: tuple(i for i, key in enumerate(keys) if key == k) for k in set(keys)}
    lowered = lowered_of(network, Groups(tuple(kernels.values()), ()), "test")
    assert_accounted(network, lowered)
    assert_same_work(network, lowered)


@given(graphs)
def test_fused_kernels_become_the_operators_they_hold(network: Network) -> None:
    everything = frozenset(range(len(network.nodes)))
    groups = apply(network, RULES, drops_dead=True, region=everything)
    assert_same_work(network, lowered_of(network, groups, "test"))


def assert_same_work(network: Network, lowered: Lowered) -> None:
    """Taking the kernels apart gives the file's network again, views read by several repeated."""
    whole = unfuse(lowered.network)
    assert_whole(whole)
    removed = {network.nodes[i].op for i in lowered.removed}
    kept = sorted(n.op for n in whole.nodes if n.op not in removed)
    assert kept == sorted(n.op for n in network.nodes if n.op not in removed)
    if not removed:
        assert structure(whole) == structure(network)


def structure(network: Network) -> tuple[list[int], list[int]]:
    """What every operator computes, whatever the order of operators and of terms."""
    known: dict[str, tuple[object, ...]] = {
        n: ("input", str(network.types[n])) for n in network.inputs
    }
    known |= {n: ("constant", str(c.type), c.values) for n, c in network.constants.items()}
    result = []
    for node in network.nodes:
        operands = [hash(known[n]) if n else 0 for n in node.inputs]
        if node.op in ("Add", "Mul"):
            operands.sort()
        code = (node.op, tuple(operands), tuple(a for a in node.attributes))
        for place, out in enumerate(node.outputs):
            known[out] = (hash(code), place)
        result.append(hash(code))
    return sorted(result), sorted(hash(known[o]) for o in network.outputs)


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
    assert [n.op for n in unfuse(lowered.network).nodes] == ["Reshape", "Gemm"]


def test_a_kernel_that_says_too_little_is_refused() -> None:
    data = TensorType("float32", (1, 8))
    node = Node("k", "Relu+Transpose", ("x",), ("y",), (("fused", ("Relu", "Transpose")),), "fused")
    network = Network("net", (node,), ("x",), ("y",), {"x": data, "y": data})
    with pytest.raises(MeasurementError, match="cannot be built by itself"):
        unfuse(network)


def foreign() -> Network:
    """With operators of another domain under names of ONNX's own."""
    text = """g (float[1,8,9,9] x) => (float[1,8,9,9] y) <float[1,8,9,9] a, float[1,8,9,9] b>
      { c = Conv<pads=[1,1,1,1]>(x, w)  a = com.microsoft.Gelu(c)  s = Sigmoid(a)
        b = com.microsoft.Mul(a, s)  y = com.microsoft.Add(b, x) }"""
    return read_network(model(text, {"w": (FLOAT, [8, 8, 3, 3])}))


@pytest.mark.parametrize("target", ["l4/tensorrt-10.3/fp16", "l4/torch-compile-2.4/amp"])
def test_an_operator_of_another_domain_is_another_operator(target: str) -> None:
    """It is a kernel of its own, as its warning says, whatever ONNX's own of the name does."""
    network = foreign()
    lowered = registry.lower(network, Target.parse(target))
    assert {(1,), (3,), (4,)} <= {*lowered.origins}
    named = [op for op in ("Gelu", "Mul", "Add") if any(op in w for w in lowered.warnings)]
    assert named == ["Gelu", "Mul", "Add"]


def test_wires_keep_the_domains_of_operators() -> None:
    """An engine that is asked may fuse them, and their kernel is built of the same operators."""
    network = foreign()
    lowered = lowered_of(network, Groups(((0, 1), (2,), (3, 4)), ()), "test")
    again = unfuse(lowered.network).nodes
    assert [node.qualified_op for node in again] == [n.qualified_op for n in network.nodes]


@pytest.mark.parametrize(
    ("target", "kept"),
    [("l4/tensorrt/fp16", 1), ("l4/torch-compile-2.9/fp32", 1), ("l4/torch-2.4/fp32", 3)],
)
def test_compilers_drop_what_no_output_needs(target: str, kept: int) -> None:
    network = text_network("y = Conv(x, point) d = Conv(x, few) e = Relu(d)")
    lowered = registry.lower(network, Target.parse(target))
    assert len(lowered.network.nodes) == kept
    assert lowered.network.outputs == ("y",)
    held = {i for origins in lowered.origins for i in origins}
    assert held | set(lowered.removed) == {0, 1, 2}
