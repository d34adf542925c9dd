"""Files that say the same in other words are one network, and hold the same cells."""

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

X = "float[2,8,6,6]"
# What is made of ``float[2,8,6,6] x``; operator sets, constants and operators of each spelling.
FILES = {
    "axes of a mean": ("float[2,8,1,1]", [
        (13, "", "y = ReduceMean<axes=[2,3]>(x)"),
        (17, "", "y = ReduceMean<axes=[-1,-2], keepdims=1>(x)"),
        (20, "int64[2] a = {-1,-2}", "y = ReduceMean(x, a)"),
    ]),
    "axes turned back to front": ("float[6,6,8,2]", [
        (13, "", "y = Transpose(x)"),
        (17, "", "y = Transpose<perm=[3,2,1,0]>(x)"),
    ]),
    "views": ("float[2,288]", [
        (13, "", "y = Flatten(x)"),
        (17, "int64[2] s = {2,-1}", "y = Reshape(x, s)"),
        (20, "int64[3] s = {0,0,-1}, int64[2] t = {0,288}", "a = Reshape(x, s)  y = Reshape(a, t)"),
    ]),
    "nothing": (X, [
        (17, "", "y = Relu(x)"),
        (17, "", "a = Identity(x)  b = Dropout(a)  y = Relu(b)"),
        (23, "", "a = Cast<to=1>(x)  y = Relu(a)"),
    ]),
    "bounds": (X, [
        (9, "", "y = Clip<min=0.0, max=6.0>(x)"),
        (13, "float a = {0}, float b = {6}", "y = Clip(x, a, b)"),
    ]),
    "an axis from behind": (X, [
        (17, "", "y = Softmax<axis=-1>(x)"),
        (17, "", "y = Softmax<axis=3>(x)"),
        (11, "", "y = Softmax<axis=3>(x)"),
    ]),
    "parts": ("float[2,4,6,6]", [
        (11, "", "a, b = Split<axis=1>(x)  y = Add(a, b)"),
        (18, "", "a, b = Split<axis=-3, num_outputs=2>(x)  y = Add(a, b)"),
    ]),
    "padding in words": ("float[2,8,3,3]", [
        (13, "", 'y = MaxPool<auto_pad="SAME_UPPER", kernel_shape=[3,3], strides=[2,2]>(x)'),
        (13, "", "y = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[0,0,1,1],"
                 " dilations=[1,1]>(x)"),
    ]),
    "zeros around": ("float[2,8,8,8]", [
        (7, "", "y = Pad<pads=[0,0,1,1,0,0,1,1]>(x)"),
        (18, "int64[4] p = {1,1,1,1}, int64[2] a = {2,-1}", "y = Pad(x, p, , a)"),
    ]),
    "a cut": ("float[2,4,6,6]", [
        (9, "", "y = Slice<axes=[1], starts=[0], ends=[4]>(x)"),
        (13, "int64[1] s = {-8}, int64[1] e = {-4}, int64[1] a = {-3}, int64[1] t = {1}",
         "y = Slice(x, s, e, a, t)"),
    ]),
    "a learned scale": (X, [
        (17, "float[1] k = {0.7}", "y = Mul(x, k)"),
        (17, "float[1,1,1,1] k = {1.0}", "y = Mul(k, x)"),
    ]),
    "shared weights": (X, [
        (17, "float[2,1,1,1] k = {1,1}", "a = Mul(x, k)  b = Relu(a)  y = Mul(b, k)"),
        (17, "float[2,1,1,1] k = {1,1}, float[2,1,1,1] l = {1,2}",
         "a = Mul(x, k)  b = Relu(a)  y = Mul(b, l)"),
    ]),
    "learned biases, defaults spelled out": ("float[2,2,6,6]", [
        (17, "float[2,8,1,1] w = {}, float[2] b = {0,0}", "y = Conv(x, w, b)"),
        (17, "float[2,8,1,1] w = {}, float[2] b = {1,1}", "y = Conv<dilations=[1,1], group=1,"
         ' kernel_shape=[1,1], strides=[1,1], auto_pad="NOTSET">(x, w, b)'),
    ]),
    "calibrated anew": ("uint8[2,8,6,6]", [
        (17, "float s = {0.5}, uint8 z = {3}", "y = QuantizeLinear(x, s, z)"),
        (21, "float s = {0.1}, uint8 z = {128}", "y = QuantizeLinear<axis=0>(x, s, z)"),
    ]),
    "doubled by an older set": ("float[2,8,12,12]", [
        (9, "float[4] k = {1,1,2,2}", "y = Upsample(x, k)"),
        (13, "float[4] k = {1,1,2,2}", 'y = Resize<coordinate_transformation_mode="asymmetric", '
             'nearest_mode="floor">(x, , k)'),
    ]),
    "other axes": ("float[2,8,n,m]", [
        (13, "", "y = ReduceMean<axes=[3]>(x)"), (13, "", "y = ReduceMean<axes=[2]>(x)")]),
    "other bounds": (X, [
        (13, "float a = {0}", "y = Clip(x, a)"), (13, "float a = {1}", "y = Clip(x, a)")]),
    "other axes of an older softmax": (X, [
        (11, "", "y = Softmax<axis=1>(x)"), (13, "", "y = Softmax<axis=1>(x)")]),
    "other scales, one for each": (X, [
        (17, "float[1] k = {1}", "y = Mul(x, k)"),
        (17, "float[2,1,1,1] k = {1,1}", "y = Mul(x, k)"),
    ]),
}  # fmt: skip


def file(made: str, opset: int, constants: str, operators: str) -> onnx.ModelProto:
    return model(f"g ({X} x) => ({made} y) <{constants}> {{ {operators} }}", opset=opset)


@pytest.mark.parametrize("what", FILES)
def test_other_words_for_the_same_are_one_network_and_other_work_is_another(what: str) -> None:
    made, rows = FILES[what]
    texts = {sign(read_network(file(made, *row))).text for row in rows}
    assert len(texts) == (len(rows) if what.startswith("other") else 1)


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
def test_engines_run_the_normal_form_as_files(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
    text = f"""g ({X} x) => (float[2,288] y, float[2,8,36] z) <int64[3] s = {{2,8,36}},
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
    made, usual = (
        file("float[2,288]", 17, "int64[2] s = {0,-1}", "y = Reshape(x, s)") for _ in "12"
    )
    made.graph.initializer[0].name = made.graph.node[0].input[1] = "y/shape"
    assert sign(read_network(made)) == sign(read_network(usual))
