"""Files that end a library, take all memory or lie about themselves are refused in a sentence."""

import re
import resource

import onnx
import pytest
from onnx import helper, parser

from hybridlat import Predictor
from hybridlat.engines import registry
from hybridlat.engines.ort import lowering as engine
from hybridlat.errors import LONGEST_MESSAGE, InputError, NetworkError
from hybridlat.graph.network import Network, TensorType
from hybridlat.onnx_io import isolation, load, read_network
from hybridlat.onnx_io.values import Value
from hybridlat.schema.files import warn_once
from hybridlat.schema.target import Target
from tests.onnx_io.test_reading_shapes import ops

CPU = Target("here", "onnxruntime", "fp32", 1)


def model(body: str, opset: int = 17) -> onnx.ModelProto:
    """Weights without values, which a test writes as ``<float[8] s>``, are inputs."""
    weights, fed = re.match(r"<([^=]*)>|", body), ""
    if weights and weights[1]:
        fed, body = f", {weights[1]}", body[weights.end() :]
    foreign = ", ".join(f'"{name}" : 1' for name in ("my.domain", "ai.onnx.ml", "com.microsoft"))
    opsets = f'["" : {opset}, {foreign}]'
    head = f"<ir_version: 8, opset_import: {opsets}> g (float[1,8,8,8] x{fed}) => (y)"
    return parser.parse_model(f"{head} {body}")


@pytest.mark.parametrize(
    ("body", "opset", "words"),
    [
        # What brought onnx's inference to an end.
        ("{ y, b, c = Split<num_outputs=1>(x) }", 18, "onnx aborts.* with Split"),
        # What does not fit its schema.
        ("{ y = Relu(x, x) }", 17, "Relu .*input size 2 not in range"),
        ("{ y = Gather(x) }", 17, "Gather .*input size 1 not in range"),
        ('{ y = EyeLike("") }', 9, "EyeLike .*empty string"),
        ("{ y = MaxPool(x) }", 17, "Required attribute 'kernel_shape'"),
        ("{ y = MaxPool<kernel_shape=3>(x) }", 17, "Expected: 'INTS', actual: 'INT'"),
        ("{ y = Relu<axis=1.5>(x) }", 17, "Unrecognized attribute: axis"),
        # What was folded before anything looked at it.
        ("<float[1] c = {1}> { y, z = Cos(c) }", 17, "Cos .*2 outputs.* at most 1"),
        ("{ y, z = Shape(x) }", 17, "Shape .*2 outputs"),
        ("{ y, z = Identity(x) }", 17, "Identity .*2 outputs"),
        ("<float[1] s = {nan}> { y = ConstantOfShape(s) }", 17, "makes the sizes .nan."),
        ("<float[1] s = {1e30}> { y = ConstantOfShape(s) }", 17, "makes the sizes .1.*e.*30"),
        ("<int64[1] s = {-3}> { y = ConstantOfShape(s) }", 17, r"makes the sizes \[-3\]"),
        ("<int64[3] s = {9000000000, 0, 9000000000}> { y = ConstantOfShape(s) }", 17, "at most"),
        ("<int64[4] s = {1, 8, 0, 2}> { c = ConstantOfShape(s) d = MaxPool<kernel_shape=[1,4]>(c) "
         "y = Add(x, d) }", 17, "do not fit together|zero or less"),
        # What is no graph, or makes nothing.
        ("{ y = Add(x, nowhere) }", 17, "reads the tensor 'nowhere', which nothing makes"),
        ("{ a = Add(x, b) b = Relu(a) y = Relu(b) }", 17, "cycle"),
        ("{ y = Relu(x) y = Sigmoid(x) }", 17, "made by two operators: export it again"),
        ("{ z = Relu(x) }", 17, "made by no operator: export it again"),
        ("{ t = my.domain.Twist(x) y = Relu(t) }", 17, "'t', made by .*'my.domain'.* value_info"),
        ("{ y = Constant<value_float = 1.0>() }", 17, "nothing but constants: export it with"),
        ("{ y = Loop(x) }", 17, r"control flow \(Loop .* unrolled, or as LSTM"),
        ("{ }", 17, "no operators in the file: it is empty"),
        ("{ y = SplitToSequence(x) }", 17, "SplitToSequence .* makes no tensor: export"),
        ("{ s = SplitToSequence(x) n = ArgMax(x) y = SequenceAt(s, n) }", 17,
         "takes no part of .* that is known: export"),
        ("{ f = Flatten(x) y = ai.onnx.ml.ZipMap<classlabels_int64s=[0,1]>(f) }", 17,
         "ZipMap .*no tensor: export"),
        ("<uint8[9] d = {0,0,0,0,0,0,0,0,0}> { i = ImageDecoder(d) f = Cast<to=1>(i) y = Relu(f) }",
         20, "ImageDecoder .*Runtime: export with fixed"),
        ("{ y = Relu(x) }", 3, "opset 3: opsets 7 to"),
        ("{ z = NonZero(x) y = Neg(z) }", 17, r"depends on data \(NonZero .*post-processing"),
        # What nobody knows.
        ("{ y = NoSuchOp(x) }", 17,
         "ONNX has no operator NoSuchOp .*: use another .* state the shape of 'y' in"),
        ("{ y = HardSwish(x) }", 13, "HardSwish .*from operator set 14 on.* of set 13: export it"),
        ("{ y = TRT_FP8QuantizeLinear(x) }", 17, "no target is predicted: .* in int8 as QDQ"),
        ("<float[1,8,8,8] q, int64 k = {1}> { q = my.domain.Quant(x) y = Relu(q) }", 17,
         "Quant .* in int8 as QDQ"),
        # Sizes.
        ("<float[4,3,3,3] w> { y = Conv(x, w) }", 17, "expects 3 input channels"),
        ("<float[8,8,3,3] w> { y = Conv<group=0>(x, w) }", 17, "has 0 groups"),
        ("<float[6,2,3,3] w> { y = Conv<group=4>(x, w) }", 17, "has 6 channels in 4 groups"),
        ("<float[9,4] w> { f = Flatten(x) y = Gemm(f, w) }", 11, "512 columns with 9 rows"),
        ("{ y = MaxPool<kernel_shape=[20,20]>(x) }", 17, "zero or less|do not fit"),
        ("<float[1,4] z> { y = Add(x, z) }", 17, "do not fit together"),
        ("<float[1] c> { t = ReduceMean<keepdims=0>(x) y = BatchNormalization(t, c, c, c, c) }", 17,
         "no channels"),
        ("<int64[4] s = {1, 8, 800000, 80000}> { r = Relu(x) m = ReduceMean(r) y = Expand(m, s) }",
         17, "absurdly large"),
        # What only an engine sees, when it runs.
        ("<float[8,4,3,3] w> { y = ConvTranspose<kernel_shape=[2,2]>(x, w) }", 17, "kernel_shape"),
        ("<float[8,4,3,3] w, float[8] b> { y = ConvTranspose(x, w, b) }", 17, "4 channels.*bias"),
        ("<float[7] s, float[8] b> { y = InstanceNormalization(x, s, b) }", 17, "8 channels"),
        ("<float[4,3] s> { y = PRelu(x, s) }", 17, r"PRelu .*1x8x8x8.*\[4x3"),
        ("<float[7] s> { y = LayerNormalization(x, s) }", 17, r"LayerNormalization .*\[7"),
        ("<float[5] s> { y = GroupNormalization<num_groups=2>(x, s, s) }", 18, "2 groups.*5"),
        ("<float[7] s> { y = GroupNormalization<num_groups=2>(x, s, s) }", 21, "8x8.*ter .*7"),
        ("<float[8] s> { y = GroupNormalization<num_groups=-7>(x, s, s) }", 21, "8 .* -7 groups"),
        ("<float[8] s> { y = GroupNormalization<num_groups=9>(x, s, s) }", 21, "8 .* 9 groups"),
        ("{ y = Transpose<perm=[0,1,2]>(x) }", 17, "Transpose .*3 axes.*1x8x8x8"),
        ("{ c = Concat<axis=1>(x, x) y = DepthToSpace<blocksize=3>(c) }", 17, "24x24.*blocks of 3"),
        ("{ y = SpaceToDepth<blocksize=3>(x) }", 17, "1x72x2x2.*blocks of 3"),
        ("<float[512,4] w, float[3] c> { f = Flatten(x) y = Gemm(f, w, c) }", 17, "1x4.*parame.*3"),
        ("<int64 s = {0}> { y = Squeeze(x, s) }", 17, "Squeeze .*where a vector is due"),
        ("<float s = {2}> { y = Resize(x, s, s) }", 17, "Resize .*where a vector is due"),
        ("<float[2,2] s = {1, 1, 2, 2}> { y = Upsample(x, s) }", 9, "Upsample .*"),
        ("{ y = Resize() }", 17, "Resize .*"),
        ("<int64[2] i = {0, 8}> { y = Gather<axis=1>(x, i) }", 17, "indices 0 to 8 of 8"),
        ('<float[4,5] k> { y = Einsum<equation="nchw,oc->nohw">(x, k) }', 17, "gives c 8 and 5"),
        ("<float[1,64,9] w, float[1,64,16] r> { s = ReduceMean<axes=[3],keepdims=0>(x) "
         "y = LSTM<hidden_size=16>(s, w, r) }", 17, "LSTM .*1x8x8.* a weight .*1x64x9"),
        ("<float[8,8,3,3] w> { y = ConvTranspose<output_shape=[4,4]>(x, w) }", 17, "makes .*1x8"),
        ("{ y = MaxPool<kernel_shape=[2,2],pads=[5,5,5,5]>(x) }", 17, "MaxPool .*pads.*kernel"),
        ('<float[8,8,3,3] w> { y = Conv<auto_pad="SAME">(x, w) }', 17, "auto_pad.*'SAME'"),
        ("<float[8] s> { y, m, v = BatchNormalization<training_mode=1>(x, s, s, s, s) }", 17,
         "training mode: export"),
        ("<float r = {0.5}, bool t = {1}> { y = Dropout(x, r, t) }", 17, "Dropout.*training mode"),
        ("<float r = {0.5}, bool[2] t = {0, 1}> { y = Dropout(x, r, t) }", 17, "training mode"),
        ("<float[4] x> { y = Relu(x) }", 17, "'x' has two shapes, .*8, 8.* and .4.:"),
    ],
)  # fmt: skip
def test_is_refused(body: str, opset: int, words: str) -> None:
    with pytest.raises(NetworkError, match=words) as caught:
        read_network(model(body, opset))
    assert "\n" not in str(caught.value)
    assert read_network(model("{ y = Relu(x) }")).nodes  # and this process lives on


@pytest.mark.parametrize("op", ["Conv", "MaxPool"])
@pytest.mark.parametrize(("mode", "side"), [("SAME_UPPER", 8), ("VALID", 6), ("NOTSET", 10)])
def test_pads_beside_auto_pad_do_not_count(
    op: str, mode: str, side: int, caplog: pytest.LogCaptureFixture
) -> None:
    """As ONNX Runtime pools, and as TensorRT does; onnx's own inference counts them."""
    warn_once.cache_clear()
    text = f'{op}<kernel_shape=[3,3],auto_pad="{mode}",pads=[2,2,2,2]>'
    weight, inputs = ("<float[8,8,3,3] w>", "x, w") if op == "Conv" else ("", "x")
    network = read_network(model(f"{weight} {{ y = {text}({inputs}) }}"))
    assert network.types["y"].shape == (1, 8, side, side)
    assert ("ONNX Runtime refuses the file" in caplog.text) == (op == "Conv" and mode != "NOTSET")
    assert network.nodes[0].attribute("pads") == {8: (1,) * 4, 6: None, 10: (2,) * 4}[side]


def test_a_constant_that_lies_about_its_size_reaches_no_library() -> None:
    """Eight terabytes without a byte of data took 5.5 GB of ONNX Runtime's process."""
    lying = model("<int64[1] s = {1}> { y = Expand(x, s) }")
    lie = onnx.TensorProto(name="s", data_type=onnx.TensorProto.INT64, dims=[1 << 40])
    lying.graph.initializer[0].CopyFrom(lie)
    with pytest.raises(NetworkError, match="'s' is damaged: 1099511627776 numbers without data"):
        read_network(lying)


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_library_that_ends_costs_one_answer(package: str) -> None:
    question: tuple[object, ...] = (1, 2) if package == "onnx" else ("", "", "", "no number", {})
    assert isolation.ask(package, *question) is None
    good = model("{ y = Relu(x) }").SerializeToString()
    rest = (b"", {"": 17}) if package == "onnx" else ("", "", 1, {})
    assert isolation.ask(package, good, *rest)


@pytest.mark.parametrize("name", ["Relu", "axis", "node7", "tensor7"])
def test_names_that_are_no_text_are_refused(name: str) -> None:
    text = "{ [node7] tensor7 = Softmax<axis=1>(x) y = Relu(tensor7) }"
    data = model(text).SerializeToString().replace(name.encode(), b"\xff" * len(name))
    with pytest.raises(NetworkError, match=r"is not text|damaged"):
        read_network(data)


def test_an_element_type_that_there_is_not_is_refused() -> None:
    made = model("{ y = Relu(x) }")
    made.graph.input[0].type.tensor_type.elem_type = 99
    with pytest.raises(NetworkError, match="99 is not a tensor type"):
        read_network(made)
    made.graph.initializer.add(name="w", data_type=1, dims=[-8, 8])
    with pytest.raises(NetworkError, match=r"'w' has a negative size: float32\[-8x8"):
        read_network(made)
    empty = TensorType("float32", (0, 1 << 40, 1 << 40))  # the other sizes may be any
    assert Value.of_type(empty).array is None and Value.of_type(empty).type == empty


def test_messages_are_one_printable_line() -> None:
    name = "\x1b[2J\n" + "x" * 5000
    with pytest.raises(InputError) as raised:
        read_network(model("{ y = Relu(x) }"), shapes={name: (1,)}, name=name)
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) <= LONGEST_MESSAGE


def product(columns: int) -> Network:
    made = model(f"""<int64[2] s = {{8, {columns}}}> {{ w = ConstantOfShape(s)
      y = MatMul(x, w) }}""")
    return read_network(made)


def test_weights_are_not_filled_to_lower_a_network() -> None:
    """What 1.9 GB of weights become is what 32 KB do, but for sizes."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    large, small = (engine.lower(product(c), CPU) for c in (59_000_000, 1000))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000
    assert [n.op for n in large.network.nodes] == [n.op for n in small.network.nodes] == ["MatMul"]
    assert large.network.weight_bytes == 59_000 * small.network.weight_bytes
    assert large.origins == small.origins


def test_tensors_that_no_device_holds_are_named() -> None:
    file = model("{ y = Relu(x) }")
    with Predictor("l4/tensorrt/fp16", measure="never") as predictor:
        memory = predictor.predict(file, shapes={"x": (1, 1, 100_000, 100_000)}).memory
    assert memory is not None and memory.verdict == "too large"


def test_an_operator_of_constants_that_stays_is_lowered() -> None:
    """Its axes are wrong, so that nothing folds it; no tensor that it reads is an activation."""
    made = model("<int32[4] c = {1,2,3,4}> { z = Squeeze<axes=[-1,100]>(c) y = Relu(x) }", 9)
    made.graph.output.append(helper.make_tensor_value_info("z", 6, None))
    try:
        network = read_network(made)
    except NetworkError:
        return
    for target in ("t4/tensorrt-10/fp16", "rtx-4090/torch/amp"):
        assert registry.lower(network, Target.parse(target)).network.nodes


@pytest.mark.parametrize(
    ("body", "opset"),
    [
        # The engine writes them out, with sizes that its own inference does not follow.
        ("<float[8] s> { y = GroupNormalization<num_groups=2>(x, s, s) }", 21),
        ("<int64[2] s = {6, 6}> { y = CenterCropPad<axes=[2,3]>(x, s) }", 18),
        # onnx has withdrawn it, exporters wrote it, and engines run it.
        ("<float[2] s> { y = GroupNormalization<num_groups=2>(x, s, s) }", 18),
    ],
)
@pytest.mark.parametrize("target", [CPU, Target("t4", "tensorrt-10", "fp16")])
def test_functions_of_the_standard_are_lowered(body: str, opset: int, target: Target) -> None:
    lowered = registry.lower(read_network(model(body, opset)), target)
    assert 0 in {position for origin in lowered.origins for position in origin}


ENDLESS = {
    "Expand": "s = Add(sides, none)  e = Expand(one, s)",
    "Tile": "s = Mul(sides, sides)  n = ReduceProd<keepdims=0>(sides)  u = Unsqueeze(n, axis) "
    "e = Tile(ones, u)",
    "Range": "n = ReduceProd<keepdims=0>(sides)  i = Range(zero, n, step)  e = Cast<to=1>(i)",
    "Pad": "s = Mul(sides, sides)  e = Pad(ones, s)",
    "OneHot": "n = ReduceProd<keepdims=0>(sides)  e = OneHot(none, n, values)",
    "Resize": 's = Add(sides, none)  e = Resize<mode="linear">(image, , , s)',
    "HannWindow": "n = ReduceProd<keepdims=0>(sides)  e = HannWindow(n)",
    "ConstantOfShape": "s = Add(sides, none)  c = ConstantOfShape(s)  e = Relu(c)",
    "Conv": "e = Conv<pads=[200000,200000,200000,200000], strides=[200000,200000]>"
    "(picture, filter)",
    "MaxPool": "e = MaxPool<kernel_shape=[200000,200000], pads=[199999,199999,199999,199999]>"
    "(picture)",
}
CONSTANTS = """int64[2] sides = {200000, 200000}, int64[2] none = {0, 0}, int64[1] axis = {0},
  int64 zero = {0}, int64 step = {1}, float one = {1.0}, float[1] ones = {1.0},
  float[2] values = {0.0, 1.0}, float[2,2] image = {1.0, 1.0, 1.0, 1.0},
  float[1,1,2,2] picture = {1.0, 1.0, 1.0, 1.0}, float[1,1,2,2] filter = {1.0, 1.0, 1.0, 1.0}"""


@pytest.mark.parametrize("name", ENDLESS)
def test_a_constant_of_any_size_is_a_weight_and_not_computed(name: str) -> None:
    made = model(
        f"<{CONSTANTS}> {{ {ENDLESS[name]}  r = ReduceSum<keepdims=0>(e)  y = Add(x, r) }}"
    )
    assert len(made.SerializeToString()) < 800
    assert ops(read_network(made)) == ["Add"]


def with_functions(*bodies: str) -> onnx.ModelProto:
    """A network that calls ``f0`` of these functions."""
    text = '<ir_version: 8, opset_import: ["" : 17, "f" : 1]>\n'
    text += "g (float[1,4] x) => (float[1,4] y) { y = f.f0(x) }\n"
    for body in bodies:
        text += f'<opset_import: ["" : 17, "f" : 1], domain: "f">\n{body}\n'
    return parser.parse_model(text)


def test_functions_that_double_thirty_times_or_call_in_a_circle_are_refused() -> None:
    doubling = [f"f{i} (x) => (y) {{ t = f.f{i + 1}(x)  y = f.f{i + 1}(t) }}" for i in range(30)]
    with pytest.raises(NetworkError, match=r"functions that stand for 3.*e\+09 operators: at most"):
        load(with_functions(*doubling, "f30 (x) => (y) { y = Relu(x) }"))
    few = load(with_functions(*doubling[:3], "f3 (x) => (y) { y = Relu(x) }"))
    assert ops(few.network()) == ["Relu"] * 8
    bodies = "f0 (x) => (y) { y = f.f1(x) }", "f1 (x) => (y) { y = f.f0(x) }"
    with pytest.raises(NetworkError, match="call each other in a circle: export it again"):
        load(with_functions(*bodies))


@pytest.mark.parametrize(
    ("scopes", "path"),
    [
        ("['', 'stem', 'stem.act', 'relu_1']", "stem.act"),
        ("-" * 100_000 + "1", ""),
        ("[" * 100_000, ""),
        ("['a', 'b'", ""),
        ("__import__('os')", ""),
    ],
)
def test_scopes_are_names_and_nothing_evaluates_them(scopes: str, path: str) -> None:
    made = model("{ y = Relu(x) }")
    entry = made.graph.node[0].metadata_props.add()
    entry.key, entry.value = "pkg.torch.onnx.name_scopes", scopes
    assert load(made).facts.module_paths == (path,)
