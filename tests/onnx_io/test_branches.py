"""Branches of a constant condition are the network; what depends on data is left out, and named."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from hybridlat import Predictor
from hybridlat.cli.measure import as_object
from hybridlat.engines import registry
from hybridlat.errors import InputError, NetworkError
from hybridlat.estimate.partition import partition_network
from hybridlat.graph.network import Network
from hybridlat.graph.signature import sign
from hybridlat.onnx_io import load, read_network
from hybridlat.report.units import memory_text
from hybridlat.schema.target import Target
from tests.onnx_io.test_precision import FLOAT, HALF
from tests.onnx_io.test_reading_shapes import model, ops

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


@pytest.mark.parametrize(
    ("cut", "first", "last"),
    [
        ("SplitToSequence<axis=1>(x, four)", "Slice(x, zero, four1, one1)",
         "Slice(x, four1, eight, one1)"),
        ("SplitToSequence<axis=1>(x, parts)", "Slice(x, zero, two, one1)",
         "Slice(x, two, eight, one1)"),
        ("SplitToSequence<axis=-1>(x, one1)", "Slice(x, zero, one1, three)",
         "Slice(x, eight, nine, three)"),
    ],
)  # fmt: skip
def test_parts_of_a_sequence_are_those_of_its_tensor(cut: str, first: str, last: str) -> None:
    """As PyTorch's exporter writes a chunk and a split before it optimises."""

    def network(body: str) -> Network:
        head = f"""g ({X} x) => (float[N] y, float[M] z) <int64 at = {{0}}, int64 last = {{-1}},
          int64 four = {{4}}, int64[1] four1 = {{4}}, int64[2] parts = {{2, 6}},
          int64[1] zero = {{0}}, int64[1] one1 = {{1}}, int64[1] two = {{2}},
          int64[1] three = {{3}}, int64[1] eight = {{8}}, int64[1] nine = {{9}}>"""
        return read_network(model(f"{head} {{ {body} y = Relu(a) z = Tanh(b) }}"))

    made = network(f"s = {cut} a = SequenceAt(s, at) b = SequenceAt(s, last)")
    assert sign(made) == sign(network(f"a = {first} b = {last}"))
    assert len(made.folded) == 1


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


DETECTOR = """g (float[1,4,8,8] x) => (float[n,4] picked, float[1,4,8,8] maps)
  <int64 most = {10}, float overlap = {0.5}, int64[3] rows = {1,64,4}, int64[3] ones = {1,1,64},
   int64[1] two = {2}, int64[1] three = {3}, int64[1] axis = {1}, int64[2] flat = {64,4},
   int64[1] far = {8}, int64[1] end = {9}>
  { maps = Relu(x)  s = Sigmoid(maps)  boxes = Reshape(s, rows)
    m = ReduceMean<axes=[2], keepdims=0>(boxes)  scores = Reshape(m, ones)
    chosen = NonMaxSuppression(boxes, scores, most, overlap)
    none = Slice(boxes, far, end, two)  nobody = Relu(none)
    index = Slice(chosen, two, three, axis)  last = Squeeze(index, axis)
    plain = Reshape(boxes, flat)  got = Gather<axis=0>(plain, last)  cut = Abs(got)
    empty = Gather<axis=1>(nobody, last)  picked = Relu(cut) }"""


def test_the_rest_is_removed_with_a_warning_that_names_it(tmp_path: Path) -> None:
    file = load(model(DETECTOR))
    network = file.network()
    assert ops(network) == ["Relu", "Sigmoid", "Reshape", "ReduceMean", "Reshape", "Reshape"]
    left = [op for _, op in network.left_out]
    assert left[0] == "NonMaxSuppression"
    assert sorted(left[1:]) == sorted(["Slice", "Squeeze", "Gather", "Abs", "Gather", "Relu"])
    assert network.folded == ("Slice_6", "Relu_7")  # what is empty is no work
    assert {"maps", "boxes", "scores", "plain"} <= set(network.outputs)
    lowered = registry.lower(network, Target.parse("here/onnxruntime-1.31/fp32/1t"))
    partition = partition_network(network, lowered, file.facts.node_names)
    placed = sorted([*partition.removed, *(n for use in partition.uses for n in use.nodes)])
    assert placed == list(range(len(file.facts.node_names)))
    with Predictor("fake/fake-1.0/fp32/1t", store=str(tmp_path / "s.db")) as predictor:
        report = predictor.measure(model(DETECTOR).SerializeToString(), what="network")
    assert as_object(report)["warnings"] == [*report.warnings]
    for (warning,) in (lowered.warnings, report.warnings):
        assert "NonMaxSuppression" in warning and "6 operators behind it" in warning


def test_convolutions_behind_the_data_leave_no_upper_end(tmp_path: Path) -> None:
    """The head of a Faster R-CNN may take longer than all before it; its image has no batch."""
    made = model("""g (float[3,8,8] image) => (float[n,4] y, float[1,4,8,8] maps)
      <float[4,3,1,1] w = {}, float[4,4] v = {}, int64[1] first = {0}, int64[2] flat = {64,4}>
      { x = Unsqueeze(image, first)  maps = Conv(x, w)  s = Sigmoid(maps)
        rows = Reshape(s, flat)  i = NonZero(rows)  j = ReduceMax<axes=[0], keepdims=0>(i)
        k = Gather(rows, j)  y = MatMul(k, v) }""")
    with Predictor("l4/tensorrt-8.6/fp16", store=str(tmp_path / "s.db"), measure="never") as one:
        estimate = one.predict(made)
        with pytest.raises(InputError, match="1 of its convolutions and products without"):
            one.explain(made, 1e3)
        # Rows of nodes and edges; what all of a batch share, and what is listed by its rows.
        for others, batch in {"8,4": 1, "2,8": 1, "1,4": 6, "3,6": 6}.items():
            inputs = f"g (float[6,4] n, float[{others}] e) => (float y, float z)"
            assert one.predict(model(f"{inputs} {{ y = Relu(n)  z = Relu(e) }}")).batch == batch
    assert estimate.interval_us is not None and estimate.interval_us[1] == math.inf
    assert (estimate.grade, estimate.supported, estimate.trusted) == (None, False, False)
    assert memory_text(estimate) == "at least 0.00 of 25.8 GB"  # no fit
    notes = str(estimate.warnings)
    assert estimate.batch == 1 and "1 MatMul" in notes and "to-measure" not in notes


BRANCH = """g (float[4] x, float[4] other) => (float[n] y) <int64[1] row = {0}>
  { r = Relu(x)  q = Exp(r)  i = NonZero(r)  j = Squeeze(i, row)  p = Gather(r, j)
    s = Size(p)  c = Cast<to=9>(s)
    b = If(c) <then_branch = t () => (float[n] u) { u = Abs(p) },
               else_branch = e () => (float[n] v) { v = Add(q, other) }>
    y = Neg(b) }"""


def test_control_flow_behind_the_data_goes_with_it() -> None:
    """A detector's ``If`` asks whether anything was found; what its branches read is kept."""
    network = read_network(model(BRANCH))
    assert ops(network) == ["Relu", "Exp"]
    assert [op for _, op in network.left_out] == [
        "NonZero", "Squeeze", "Gather", "Size", "Cast", "If", "Neg",
    ]  # fmt: skip
    assert set(network.outputs) == {"r", "q"}


def test_what_has_one_size_whatever_the_data_is_part_of_the_network() -> None:
    """A sum over what was picked is a number: the convolution behind it runs at its full size."""
    made = model("""g (float[1,4,8,8] x) => (float[1,4,6,6] y, float[1,n] z)
      <float[4,4,3,3] w = {}, int64[1] row = {0}>
      { r = Relu(x)  i = NonZero(r)  t = Transpose(i)  p = GatherND(r, t)
        s = ReduceSum<keepdims=0>(p)  m = Mul(r, s)  y = Conv(m, w)
        f = Unsqueeze(p, row)  z = Relu(f) }""")
    network = read_network(made)
    assert ops(network) == ["Relu", "Mul", "Conv"]
    left = "NonZero Transpose GatherND ReduceSum Unsqueeze Relu"
    assert [op for _, op in network.left_out] == left.split()
    assert network.inputs == ("x", "s") and set(network.outputs) == {"y", "r"}
    for target in ("here/onnxruntime-1.31/fp32/1t", "l4/tensorrt-10.3/fp16", "l4/torch-2.4/fp32"):
        lowered = registry.lower(network, Target.parse(target))
        assert any("NonZero" in w and "5 operators behind it" in w for w in lowered.warnings)
    made = model("""g (float[4] x) => (float[2] y) <int64[4] k = {1,0,1,0}, int64[1] row = {0}>
      { i = NonZero(k)  j = Squeeze(i, row)  p = Gather(x, j)  y = Relu(p) }""")
    network = read_network(made)
    assert (ops(network), network.left_out) == (["Gather", "Relu"], ())  # NonZero of a constant


@pytest.mark.parametrize("target", ["epyc-26-2/onnxruntime-1.31/fp32/1t", "l4/tensorrt-8.6/fp16"])
def test_weights_that_are_fed_are_named(tmp_path: Path, target: str) -> None:
    text = """g (float[1,4,8,8] x, float[4,4,3,3] w, float[1,4,1,1] gate) => (float[1,4,8,8] y)
      { c = Conv<pads=[1,1,1,1]>(x, w)  r = Relu(c)  y = Mul(r, gate) }"""
    fed, constant = model(text), model(text, {"w": (1, [4, 4, 3, 3])})
    del constant.graph.input[1]
    with Predictor(target, store=str(tmp_path / "store.db"), measure="never") as predictor:
        of_fed, of_constant = (
            [w for w in map(str, predictor.predict(one).warnings) if "initializers" in w]
            for one in (fed, constant)
        )
    assert len(of_fed) == 1 and "(w)" in of_fed[0] and not of_constant
