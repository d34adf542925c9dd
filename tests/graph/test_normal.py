"""Files that say the same in other words are one network, and hold the same cells."""

import onnx
import pytest
from hypothesis import given

from hybridlat.engines.ort import lowering as engine
from hybridlat.errors import NetworkError
from hybridlat.graph.forms import FORMS
from hybridlat.graph.network import Network
from hybridlat.graph.operators import SET
from hybridlat.graph.signature import read, sign
from hybridlat.onnx_io import load, nodes, plain_version, read_network, to_onnx
from hybridlat.onnx_io import read as reading
from hybridlat.schema.target import Target
from tests.engines.texts import model_of
from tests.networks import NETS, Builder, normal_form
from tests.strategies import networks

X = "float[2,8,6,6] x"
CONSTANTS = """
  int64[1] first = {1}, int64[1] start = {-8}, int64[1] end = {-4}, int64[1] behind = {-3},
  int64[2] sides = {-1,-2}, int64[2] turned = {2,-1}, int64[2] rows = {2,-1},
  int64[2] kept = {0,288}, int64[3] most = {0,0,-1}, int64[4] ones = {1,1,1,1}, float zero = {0},
  float one = {1}, float six = {6}, float half = {0.5}, float tenth = {0.1}, uint8 three = {3},
  uint8 middle = {128}, float[1] scale = {0.7}, float[1] whole = {1}, float[1,1,1,1] wide = {1.0},
  float[2,1,1,1] k = {1,1}, float[2,1,1,1] l = {1,2}, float[2,8,1,1] w, float[2] zeros = {0,0},
  float[2] biases = {1,1}, float[4] twice = {1,1,2,2}, int64 axis = {1}, int32 narrow = {1},
  int64 back = {-3}"""
# What is made of ``x``, in several spellings: operator set and operators.
FILES = {
    "axes of a mean": [
        (13, "y = ReduceMean<axes=[2,3]>(x)"),
        (17, "y = ReduceMean<axes=[-1,-2], keepdims=1>(x)"),
        (20, "y = ReduceMean(x, sides)"),
    ],
    "axes turned back to front": [
        (13, "y = Transpose(x)"), (17, "y = Transpose<perm=[3,2,1,0]>(x)"),
    ],
    "views": [
        (13, "y = Flatten(x)"), (17, "y = Reshape(x, rows)"),
        (20, "a = Reshape(x, most)  y = Reshape(a, kept)"),
    ],
    "nothing": [
        (17, "y = Relu(x)"), (17, "a = Identity(x)  b = Dropout(a)  y = Relu(b)"),
        (23, "a = Cast<to=1>(x)  y = Relu(a)"),
    ],
    "a slope": [(17, "y = PRelu(x, whole)"), (17, "y = PRelu(x, wide)")],
    "a sixth, cut off": [
        (17, f"y = HardSigmoid<alpha={sixth}>(x)")
        for sixth in ("0.16666667", "0.1666667", "0.166667")
    ],
    "bounds": [(9, "y = Clip<min=0.0, max=6.0>(x)"), (13, "y = Clip(x, zero, six)")],
    "an axis from behind": [
        (17, "y = Softmax<axis=-1>(x)"), (17, "y = Softmax<axis=3>(x)"),
        (11, "y = Softmax<axis=3>(x)"),
    ],
    "an axis of sums": [(17, f"y = CumSum(x, {axis})") for axis in ("axis", "narrow", "back")],
    "parts": [
        (11, "a, b = Split<axis=1>(x)  y = Add(a, b)"),
        (18, "a, b = Split<axis=-3, num_outputs=2>(x)  y = Add(a, b)"),
    ],
    "padding in words": [
        (13, 'y = MaxPool<auto_pad="SAME_UPPER", kernel_shape=[3,3], strides=[2,2]>(x)'),
        (13, "y = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[0,0,1,1],"
             " dilations=[1,1]>(x)"),
    ],
    "zeros around": [
        (7, "y = Pad<pads=[0,0,1,1,0,0,1,1]>(x)"), (18, "y = Pad(x, ones, , turned)"),
    ],
    "a cut": [
        (9, "y = Slice<axes=[1], starts=[0], ends=[4]>(x)"),
        (13, "y = Slice(x, start, end, behind, first)"),
    ],
    "a learned scale": [(17, "y = Mul(x, scale)"), (17, "y = Mul(wide, x)")],
    "shared weights": [
        (17, "a = Mul(x, k)  b = Relu(a)  y = Mul(b, k)"),
        (17, "a = Mul(x, k)  b = Relu(a)  y = Mul(b, l)"),
    ],
    "learned biases, defaults spelled out": [
        (17, "y = Conv(x, w, zeros)"),
        (17, "y = Conv<dilations=[1,1], group=1, kernel_shape=[1,1], strides=[1,1],"
             ' auto_pad="NOTSET">(x, w, biases)'),
    ],
    "calibrated anew": [
        (17, "y = QuantizeLinear(x, half, three)"),
        (21, "y = QuantizeLinear<axis=0>(x, tenth, middle)"),
    ],
    "doubled by an older set": [
        (9, "y = Upsample(x, twice)"),
        (13, 'y = Resize<coordinate_transformation_mode="asymmetric", '
             'nearest_mode="floor">(x, , twice)'),
    ],
    "other axes": [(13, "y = ReduceMean<axes=[3]>(x)"), (13, "y = ReduceMean<axes=[2]>(x)")],
    "other bounds": [(13, "y = Clip(x, zero)"), (13, "y = Clip(x, one)")],
    "other axes of an older softmax": [
        (11, "y = Softmax<axis=1>(x)"), (13, "y = Softmax<axis=1>(x)"),
    ],
    "other scales, one for each": [(17, "y = Mul(x, whole)"), (17, "y = Mul(x, k)")],
}  # fmt: skip


def file(opset: int, operators: str) -> onnx.ModelProto:
    return model_of(operators, X, opset=opset, constants=CONSTANTS)


@pytest.mark.parametrize("what", FILES)
def test_other_words_for_the_same_are_one_network_and_other_work_is_another(what: str) -> None:
    texts = {sign(read_network(file(*row))).text for row in FILES[what]}
    assert len(texts) == (len(FILES[what]) if what.startswith("other") else 1)


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
    meanings = ("GroupNormalization", "DFT", "OptionalGetElement")
    for op, since in versions.items():
        known = max([v for v in since if v <= SET], default=min(since))
        if op not in ("Upsample", "DFT"):
            assert plain_version(op, known, {}) == known, op
        newest = plain_version(op, max(since), {})
        assert newest in since and (newest == known or op in meanings), op


def test_attributes_that_came_later_keep_their_set() -> None:
    for op in ("AveragePool", "Cast", "DequantizeLinear", "LpPool", "QuantizeLinear", "Resize"):
        old, new = (onnx.defs.get_schema(op, version, "") for version in (SET, 23))
        for name in set(new.attributes) - set(old.attributes):
            assert plain_version(op, new.since_version, {name: 1}) == new.since_version, (op, name)


def test_forms_name_operators_of_onnx() -> None:
    assert all(onnx.defs.has(op) for op in FORMS)


def test_odd_operands_are_no_stumbling_block() -> None:
    """Reductions of one number and of weights, whole numbers around, a cut along no axis."""
    around = "p = Constant<value = int64[4] {1,1,1,1}>() y = Pad(x, p, v)"
    cut = "p = Constant<value_ints: ints = []>() a = Relu(x) y = Slice(a, p, p, p)"
    for inputs, body, constants in (
        ("float x", "y = ReduceMax(x)", ""),
        ("float[2] x", "a = ReduceL2(k) y = Mul(x, a)", "float[2] k = {1,2}"),
        ("int32[2,3] x", around, "int32 v = {6}"),
        ("bool[2,3] x", around, "bool v = {1}"),
        ("float[2,3] x", cut, ""),
    ):
        network = read_network(model_of(body, inputs, opset=13, constants=constants))
        assert sign(read(sign(network).text)) == sign(network)
    weights = model_of("a = ReduceMin(k) y = Mul(a, a)", constants="float[3] k = {1,2,3}")
    with pytest.raises(NetworkError, match="nothing but constants"):
        read_network(weights)
    number = model_of("y = CumSum(x, k)", "float x", opset=17, constants="int64 k = {0}")
    with pytest.raises(NetworkError, match="CumSum operator on a scalar"):
        read_network(number)


def test_a_view_stays_that_is_read_under_another_name() -> None:
    """A Reshape, read by another one and through an Identity."""
    text = "a = Reshape(x, most) b = Identity(a) c = Reshape(%s, rows) d = Relu(%s)"
    bodies = [f"{text % names} y = Relu(c) z = Relu(d)" for names in (("a", "b"), ("b", "b"))]
    files = [model_of(body, X, "y, float[] z", constants=CONSTANTS) for body in bodies]
    read_once, read_twice = map(read_network, files)
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
    usual, made = (
        model_of(f'y = Reshape(x, "{name}")', X, constants=f'int64[2] "{name}" = {{0,-1}}')
        for name in ("s", "y/shape")
    )
    assert sign(read_network(made)) == sign(read_network(usual))
