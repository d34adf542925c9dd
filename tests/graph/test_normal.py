"""Files that say the same in other words are one network, and hold the same cells."""

from __future__ import annotations

import onnx
import pytest
from hypothesis import given

from hybridlat.engines.ort import lowering as engine
from hybridlat.errors import NetworkError
from hybridlat.graph.forms import FORMS
from hybridlat.graph.network import Network
from hybridlat.graph.operators import SET, plain_version
from hybridlat.graph.signature import sign
from hybridlat.graph.signature_reading import read
from hybridlat.onnx_io import load, nodes, read_network, to_onnx
from hybridlat.onnx_io import read as reading
from hybridlat.schema.target import Target
from tests.networks import NETS, Builder, normal_form
from tests.onnx_io.test_reading_shapes import model
from tests.strategies import networks

X, Y = "float[2,8,6,6] x", "float[2,8,6,6] y"
SAME = {
    "axes of a mean": [
        (13, f"g ({X}) => (float[2,8,1,1] y) {{ y = ReduceMean<axes=[2,3]>(x) }}"),
        (17, f"g ({X}) => (float[2,8,1,1] y) {{ y = ReduceMean<axes=[-1,-2], keepdims=1>(x) }}"),
        (20, f"g ({X}) => (float[2,8,1,1] y) <int64[2] a = {{-1,-2}}> {{ y = ReduceMean(x, a) }}"),
    ],
    "views": [
        (13, f"g ({X}) => (float[2,288] y) {{ y = Flatten(x) }}"),
        (17, f"g ({X}) => (float[2,288] y) <int64[2] s = {{2,-1}}> {{ y = Reshape(x, s) }}"),
        (20, f"""g ({X}) => (float[2,288] y) <int64[3] s = {{0,0,-1}}, int64[2] t = {{0,288}}>
                {{ a = Reshape(x, s)  y = Reshape(a, t) }}"""),
    ],
    "nothing": [
        (17, f"g ({X}) => ({Y}) {{ y = Relu(x) }}"),
        (17, f"g ({X}) => ({Y}) {{ a = Identity(x)  b = Dropout(a)  y = Relu(b) }}"),
        (23, f"g ({X}) => ({Y}) {{ a = Cast<to=1>(x)  y = Relu(a) }}"),
    ],
    "bounds": [
        (9, f"g ({X}) => ({Y}) {{ y = Clip<min=0.0, max=6.0>(x) }}"),
        (13, f"g ({X}) => ({Y}) <float a = {{0}}, float b = {{6}}> "
             "{ y = Clip(x, a, b) }"),
    ],
    "an axis from behind": [
        (17, f"g ({X}) => ({Y}) {{ y = Softmax<axis=-1>(x) }}"),
        (17, f"g ({X}) => ({Y}) {{ y = Softmax<axis=3>(x) }}"),
        (11, f"g ({X}) => ({Y}) {{ y = Softmax<axis=3>(x) }}"),
    ],
    "parts": [
        (11, f"""g ({X}) => (float[2,4,6,6] y) {{ a, b = Split<axis=1>(x)  y = Add(a, b) }}"""),
        (18, f"""g ({X}) => (float[2,4,6,6] y)
                {{ a, b = Split<axis=-3, num_outputs=2>(x)  y = Add(a, b) }}"""),
    ],
    "padding in words": [
        (13, f"g ({X}) => (float[2,8,3,3] y) {{ y = MaxPool<auto_pad=\"SAME_UPPER\", "
             "kernel_shape=[3,3], strides=[2,2]>(x) }"),
        (13, f"g ({X}) => (float[2,8,3,3] y) {{ y = MaxPool<kernel_shape=[3,3], strides=[2,2], "
             "pads=[0,0,1,1], dilations=[1,1]>(x) }"),
    ],
    "zeros around": [
        (7, f"g ({X}) => (float[2,8,8,8] y) {{ y = Pad<pads=[0,0,1,1,0,0,1,1]>(x) }}"),
        (18, f"""g ({X}) => (float[2,8,8,8] y) <int64[4] p = {{1,1,1,1}}, int64[2] a = {{2,-1}}>
                {{ y = Pad(x, p, , a) }}"""),
    ],
    "a cut": [
        (9, f"g ({X}) => (float[2,4,6,6] y) {{ y = Slice<axes=[1], starts=[0], ends=[4]>(x) }}"),
        (13, f"""g ({X}) => (float[2,4,6,6] y)
                <int64[1] s = {{-8}}, int64[1] e = {{-4}}, int64[1] a = {{-3}}, int64[1] t = {{1}}>
                {{ y = Slice(x, s, e, a, t) }}"""),
    ],
    "a learned scale": [
        (17, f"g ({X}) => ({Y}) <float[1] k = {{0.7}}> {{ y = Mul(x, k) }}"),
        (17, f"g ({X}) => ({Y}) <float[1,1,1,1] k = {{1.0}}> {{ y = Mul(k, x) }}"),
    ],
    "shared weights": [
        (17, f"""g ({X}) => ({Y}) <float[8,1,1] k = {{1,1,1,1,1,1,1,1}}>
                {{ a = Mul(x, k)  b = Relu(a)  y = Mul(b, k) }}"""),
        (17, f"""g ({X}) => ({Y})
                <float[8,1,1] k = {{1,1,1,1,1,1,1,1}}, float[8,1,1] l = {{1,1,1,1,1,1,1,2}}>
                {{ a = Mul(x, k)  b = Relu(a)  y = Mul(b, l) }}"""),
    ],
    "calibrated anew": [
        (17, f"""g ({X}) => (uint8[2,8,6,6] y) <float s = {{0.5}}, uint8 z = {{3}}>
                {{ y = QuantizeLinear(x, s, z) }}"""),
        (21, f"""g ({X}) => (uint8[2,8,6,6] y) <float s = {{0.1}}, uint8 z = {{128}}>
                {{ y = QuantizeLinear<axis=0>(x, s, z) }}"""),
    ],
    "doubled by an older set": [
        (9, f"g ({X}) => (float[2,8,12,12] y) <float[4] k = {{1,1,2,2}}> {{ y = Upsample(x, k) }}"),
        (13, f"""g ({X}) => (float[2,8,12,12] y) <float[4] k = {{1,1,2,2}}>
                {{ y = Resize<coordinate_transformation_mode="asymmetric", nearest_mode="floor">
                       (x, , k) }}"""),
    ],
}  # fmt: skip
OTHER = {
    "axes": [
        (13, f"g ({X}) => (float[2,8,6,1] y) {{ y = ReduceMean<axes=[3]>(x) }}"),
        (13, f"g ({X}) => (float[2,8,1,6] y) {{ y = ReduceMean<axes=[2]>(x) }}"),
    ],
    "bounds": [
        (13, f"g ({X}) => ({Y}) <float a = {{0}}> {{ y = Clip(x, a) }}"),
        (13, f"g ({X}) => ({Y}) <float a = {{1}}> {{ y = Clip(x, a) }}"),
    ],
    "several axes of an older softmax": [
        (11, f"g ({X}) => ({Y}) {{ y = Softmax<axis=1>(x) }}"),
        (13, f"g ({X}) => ({Y}) {{ y = Softmax<axis=1>(x) }}"),
    ],
    "a scale for each channel": [
        (17, f"g ({X}) => ({Y}) <float[1] k = {{1}}> {{ y = Mul(x, k) }}"),
        (
            17,
            f"""g ({X}) => ({Y}) <float[8,1,1] k = {{1,1,1,1,1,1,1,1}}>
                {{ y = Mul(x, k) }}""",
        ),
    ],
}


def texts(files: list[tuple[int, str]]) -> list[str]:
    return [sign(read_network(model(text, opset=opset))).text for opset, text in files]


@pytest.mark.parametrize("what", SAME)
def test_other_words_for_the_same(what: str) -> None:
    first, *others = texts(SAME[what])
    assert others == [first] * len(others)


@pytest.mark.parametrize("what", OTHER)
def test_other_work_stays_apart(what: str) -> None:
    different = texts(OTHER[what])
    assert len(set(different)) == len(different)


@given(networks())
def test_a_normal_form_is_its_own(network: Network) -> None:
    once = normal_form(network)
    assert sign(normal_form(once)) == sign(once)
    assert sign(read_network(to_onnx(once, seed=None))) == sign(once)


@pytest.mark.parametrize("name", ["mobilenetv3_small_100", "shufflenet_v2", "convnext_atto"])
def test_converting_the_operator_set_changes_nothing(name: str) -> None:
    file = onnx.load(NETS / f"{name}.onnx")
    own = next(o.version for o in file.opset_import if not o.domain)
    converted = onnx.version_converter.convert_version(file, max(own, 20))
    assert sign(read_network(converted)) == sign(read_network(file))
    assert sign(read(sign(read_network(file)).text)) == sign(read_network(file))


@pytest.mark.parametrize("name", ["ghostnet_100", "squeezenet", "shufflenet", "mobileone_s1"])
def test_the_engine_runs_the_normal_form_as_it_runs_the_file(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target("here", "onnxruntime", "fp32", 1)
    normal = load(NETS / f"{name}.onnx").network()
    with monkeypatch.context() as patch:
        patch.setattr(reading, "written", lambda network: network)
        patch.setattr(nodes, "local_form", lambda node: node)
        nodes.node_of.cache_clear()
        as_written = load(NETS / f"{name}.onnx").network()
    nodes.node_of.cache_clear()
    assert sign(as_written) != sign(normal)
    lowered = [sign(engine.lower(network, target).network) for network in (as_written, normal)]
    assert lowered[0] == lowered[1]


def test_versions_are_those_of_onnx() -> None:
    """Every operator of the standard is named as set 17 names it, where that knows it."""
    versions: dict[str, list[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain and not schema.deprecated:
            versions.setdefault(schema.name, []).append(schema.since_version)
    del versions["Scatter"]  # the form has its later name
    for op, since in versions.items():
        known = max([v for v in since if v <= SET], default=min(since))
        if op not in ("Upsample", "DFT"):
            assert plain_version(op, known, {}) == known, op
        newest = plain_version(op, max(since), {})
        assert newest in since and (newest == known or op in ("GroupNormalization", "DFT")), op


def test_attributes_that_came_later_keep_their_set() -> None:
    for op in ("AveragePool", "Cast", "DequantizeLinear", "LpPool", "QuantizeLinear", "Resize"):
        old, new = (onnx.defs.get_schema(op, version, "") for version in (SET, 23))
        for name in set(new.attributes) - set(old.attributes):
            assert plain_version(op, new.since_version, {name: 1}) == new.since_version, (op, name)


def test_forms_name_operators_of_onnx() -> None:
    assert all(onnx.defs.has(op) for op in FORMS)


def test_odd_operands_are_no_stumbling_block() -> None:
    """Reductions of one number and of weights, whole numbers around, a cut along no axis."""
    for text in (
        "g (float x) => (float y) { y = ReduceMax(x) }",
        "g (float[2] x) => (float[2] y) <float k = {2}> { a = ReduceL2(k)  y = Mul(x, a) }",
        "g (int32[2,3] x) => (int32[4,5] y) <int64[4] p = {1,1,1,1}, int32 v = {6}> "
        "{ y = Pad(x, p, v) }",
        "g (bool[2,3] x) => (bool[4,5] y) <int64[4] p = {1,1,1,1}, bool v = {1}> "
        "{ y = Pad(x, p, v) }",
        "g (float[2,3] x) => (float[2,3] y) { p = Constant<value_ints: ints = []>() "
        "a = Relu(x) y = Slice(a, p, p, p) }",
    ):
        network = read_network(model(text, opset=13))
        assert sign(read(sign(network).text)) == sign(network)
    weights = "<float[3] k = {1,2,3}> { a = ReduceMin(k) y = Mul(a, a) }"
    with pytest.raises(NetworkError, match="nothing but constants"):
        read_network(model(f"g (float[2] x) => (float[1] y) {weights}", opset=13))


def test_a_view_stays_that_is_read_under_another_name() -> None:
    """A Reshape, read by another one and through an Identity."""
    text = f"""g ({X}) => (float[2,288] y, float[2,8,36] z) <int64[3] s = {{2,8,36}},
               int64[2] t = {{2,288}}> {{ a = Reshape(x, s)  b = Identity(a)  c = Reshape(%s, t)
               d = Relu(%s)  y = Relu(c)  z = Relu(d) }}"""
    read_once, read_twice = [
        read_network(model(text % names, opset=17)) for names in (("a", "b"), ("b", "b"))
    ]
    assert sign(read_once) == sign(read_twice)
    made = {*read_once.inputs, *read_once.constants, *read_once.producers}
    assert made.issuperset(name for node in read_once.nodes for name in node.inputs)
    assert sum(node.op == "Reshape" for node in read_once.nodes) == 2


@pytest.mark.parametrize("axes", [(2,), (-3,), (0, 1)])
def test_a_cut_that_fits_no_axes_is_left_to_engines(axes: tuple[int, ...]) -> None:
    b = Builder()
    x = b.input((2, 3))
    b.op("Slice", [x, b.numbers(0), b.numbers(1), b.numbers(*axes)], (1, 3), 13)
    assert normal_form(b.network()) == b.network()


def test_a_constant_of_a_file_may_have_the_name_of_a_new_one() -> None:
    text = f"g ({X}) => (float[2,288] y) <int64[2] s = {{0,-1}}> {{ y = Reshape(x, s) }}"
    made = model(text)
    made.graph.initializer[0].name = made.graph.node[0].input[1] = "y/shape"
    assert sign(read_network(made)) == sign(read_network(model(text)))
