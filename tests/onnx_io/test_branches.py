"""Branches of a constant condition are the network; each of their operators has a place."""

from collections.abc import Callable

import pytest

from hybridlat.engines import registry
from hybridlat.errors import NetworkError
from hybridlat.estimate.partition import partition_network
from hybridlat.graph.signature import sign
from hybridlat.onnx_io import load, read_network
from hybridlat.schema.target import Target
from tests.onnx_io.test_precision import FLOAT, HALF
from tests.onnx_io.test_reading_shapes import model

WEIGHTS = {"w": (FLOAT, [8, 8, 3, 3]), "v": (FLOAT, [8, 8, 1, 1])}
X = "float[1,8,9,9]"
TARGETS = ("here/onnxruntime-1.32/fp32/1t", "l4/tensorrt-8.6/fp16", "l4/torch-2.4/fp32")


def branches(source: str, result: str = "u", first: str = "q", second: str = "q") -> str:
    """A convolution of 3x3 and one of 1x1; both may call what they make by the same names."""
    return (
        f"<then_branch = t () => ({X} {result}) "
        f"{{ {first} = Conv<pads=[1,1,1,1]>({source}, w)  {result} = Relu({first}) }},"
        f" else_branch = e () => ({X} {result}) "
        f"{{ {second} = Conv({source}, v)  {result} = Relu({second}) }}>"
    )


def constant(value: bool) -> str:
    return f"""g ({X} x) => ({X} z) <bool c = {{{value:d}}}>
      {{ y = If(c){branches("x")}  z = Add(y, x) }}"""


def by_shape(value: bool) -> str:
    return f"""g (float[n,8,9,9] x) => ({X} z)
      <int64 size = {{{9 if value else 7}}}, int64 two = {{2}}>
      {{ s = Shape(x)  h = Gather(s, two)  c = Equal(h, size)
        y = If(c){branches("x")}  z = Add(y, x) }}"""


def nested(value: bool) -> str:
    """Around it one that is taken, whose tensors its branches read; the names come again."""
    return f"""g ({X} x) => ({X} z) <bool c = {{1}}, bool d = {{{value:d}}}>
      {{ y = If(c)<then_branch = o () => ({X} u) {{
          q = Identity(x)  u = If(d){branches("q", "r", "p", "p")} }},
        else_branch = e () => ({X} u) {{ u = Neg(x) }}>
        z = Add(y, x) }}"""


def plain(value: bool, copies: bool) -> str:
    source, copy = ("i", "i = Identity(x)") if copies else ("x", "")
    conv = f"Conv<pads=[1,1,1,1]>({source}, w)" if value else f"Conv({source}, v)"
    return f"g ({X} x) => ({X} z) {{ {copy} q = {conv}  y = Relu(q)  z = Add(y, x) }}"


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("write", [constant, by_shape, nested])
def test_the_branch_that_runs_is_the_network(write: Callable[[bool], str], value: bool) -> None:
    expected = read_network(model(plain(value, write is nested), WEIGHTS))
    file = load(model(write(value), WEIGHTS))
    network = file.network()
    for name in TARGETS:
        lowered = registry.lower(network, Target.parse(name))
        other = registry.lower(expected, Target.parse(name))
        assert sign(lowered.network) == sign(other.network), name
        partition = partition_network(network, lowered, file.facts.node_names)
        placed = sorted([*partition.removed, *(n for use in partition.uses for n in use.nodes)])
        assert placed == list(range(len(file.facts.node_names)))
    sizes = [len(each) for each in (file.facts.op_types, file.facts.module_paths)]
    assert sizes == [len(file.facts.node_names)] * 2
    assert len(set(file.facts.node_names)) == sizes[0]


def test_an_if_twice_and_results_from_outside() -> None:
    text = f"""g ({X} x) => ({X} z) <bool c = {{0}}>
      {{ a = Relu(x)  y = If(c){branches("a")}  t = If(c){branches("y")}
        p, o = If(c)<then_branch = t () => ({X} u, {X} k) {{ u = Relu(t)  k = Neg(t) }},
                     else_branch = e () => ({X} a, {X} a) {{ n = Neg(t) }}>
        z = Add(p, o) }}"""
    made = model(text, WEIGHTS)
    kept = [node.op for node in read_network(made).nodes]
    assert kept == ["Relu", *["Conv", "Relu"] * 2, "Neg", "Add"]
    made.graph.node.reverse()
    assert sorted(node.op for node in read_network(made).nodes) == sorted(kept)


def test_the_precision_is_that_of_branches_too() -> None:
    text = constant(True).replace("float[", "float16[")
    made = model(text, {name: (HALF, dims) for name, (_, dims) in WEIGHTS.items()})
    assert load(made).facts.precision.name == "fp16"


def test_a_branch_that_nothing_fixes_or_feeds_is_refused_by_name() -> None:
    free = constant(True).replace("<bool c = {1}>", "").replace("x)", "x, bool c)", 1)
    with pytest.raises(NetworkError, match=r"control flow \(If .* with the branch fixed"):
        read_network(model(free, WEIGHTS))
    with pytest.raises(NetworkError, match=r"Conv 'If_0/then/Conv_0' reads the tensor 'w', which"):
        read_network(model(constant(True)))
    made = model(constant(True), WEIGHTS)
    made.graph.node[0].attribute[0].name = made.graph.node[0].attribute[1].name = "branch"
    with pytest.raises(NetworkError, match="reads the tensor 'y', which nothing makes"):
        read_network(made)


@pytest.mark.parametrize("target", [*TARGETS, "t4/tensorrt-10/fp16"])
def test_an_operator_that_becomes_several_has_one_place(target: str) -> None:
    """A softmax of an older set is a view, a softmax and a view."""
    file = load(model(f"g ({X} x) => ({X} y) {{ y = Softmax<axis=2>(x) }}", opset=11))
    network = file.network()
    assert [node.op for node in network.nodes] == ["Reshape", "Softmax", "Reshape"]
    lowered = registry.lower(network, Target.parse(target))
    partition = partition_network(network, lowered, file.facts.node_names)
    places = [place for use in partition.uses for place in use.places]
    assert [n for place in places for held in place.kernels for n in held] == [0]
