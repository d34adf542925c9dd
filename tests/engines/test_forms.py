"""What files write in several ways is one form for engines whose rules see through it."""

import math
from dataclasses import replace

import onnx
import pytest

from hybridlat.engines import registry
from hybridlat.engines.fusion.forms import FORMS
from hybridlat.engines.fusion.patterns import Rewritten
from hybridlat.graph.network import Network, Node, TensorType
from hybridlat.graph.signature import sign
from hybridlat.graph.signature_reading import read
from hybridlat.onnx_io import read_network
from hybridlat.schema.target import Target
from tests.engines.test_backends import assert_accounted
from tests.onnx_io.test_reading_shapes import model

PIXELS = TensorType("float32", (1, 8, 6, 6))
TARGETS = ("t4/tensorrt-10/fp16", "v100/torch-2.9/fp32", "rtx-4090/torch-compile-2.9/fp32")
X, Y, Z = "float[1,8,6,6] x", "float[1,8,6,6] y", "float[4,8] x"
ROWS = "float[2,5,8] x) => (float[2,5,8] y"
HEADS = "float[2,3,5,8] q, float[2,3,6,8] k, float[2,3,6,8] v) => (float[2,3,5,8] y"
SCALED = """<int64[3] s3 = {6,6,8}, int64[4] s4 = {2,3,8,6}, float[1] one = {0.6},
  float[1] two = {0.6}> { b = Reshape(k, s3) c = Transpose<perm=[0,2,1]>(b) e = Reshape(c, s4)
  a = Mul(q, one) f = Mul(e, two)"""
TURNED = """<float[1] one = {0.6}, float[1] two = {0.6}> { b = Transpose<perm=[1,0,2,3]>(k)
  e = Transpose<perm=[1,0,3,2]>(b)"""
NUMBERS = """<float one = {1.0}, float half = {0.5}, float root = {1.4142}, float zero = {0.0},
  float inverse = {0.7071}, float three = {3.0}, float six = {6.0}, float slope = {0.7979},
  float cubic = {0.0447}>"""
VECTORS = "float[8] k, float[8] l, float[8] m, float[8] v"
PRODUCT = "<float[8,8] k, float[8] l"
MANY = "float[1,32,6,6] y) { a = Relu(x) b = Tanh(x) c = Sigmoid(x)"
HALF = "float[1,4,6,6] y"
TWO = "float[2,8,5] i) => (float[2,5,8] y, float[2,5,8] z"
STEPS = "float[5,1,8] x) => (float[5,1,1,4] y) <float[1,16,8] w, float[1,16,4] r>"
TF_NORMS = [
    ("ReduceMean<axes=[2]>", "n = Mul(m, s) u = Sub(l, n)"),
    ("GlobalAveragePool", "n = Neg(m) o = Mul(n, s) u = Add(o, l)"),
]
ROW_PRODUCTS = "float[8,6] f, float[6] g, float[6,8] h, float[8] j"
CUT = "int64[1] i0 = {0}, int64[1] i1 = {1}, int64[1] i4 = {4}, int64[1] i2 = {2}"
SAME = {
    "rows between views": [
        (20, f"g ({ROWS}) <{ROW_PRODUCTS}> "
             "{ a = MatMul(x, f) b = Add(a, g) c = Gelu(b) d = MatMul(c, h) y = Add(d, j) }"),
        (20, f"g ({ROWS}) <{ROW_PRODUCTS}, int64[2] s = {{10,8}}, int64[3] t = {{2,5,8}}> "
             "{ a = Reshape(x, s) b = Gemm(a, f, g) c = Gelu(b) d = Gemm(c, h, j) "
             "y = Reshape(d, t) }"),
    ],
    "a sum that keeps its axes": [
        (17, f"<{CUT}, int64[4] s = {{1,1,6,6}}> {{ a = ReduceSum(x, i1) y = Add(x, a) }}"),
        (17, f"<{CUT}, int64[4] s = {{1,1,6,6}}> "
             "{ b = ReduceSum<keepdims=0>(x, i1) a = Reshape(b, s) y = Add(x, a) }"),
    ],
    "a slice of a slice": [
        (17, f"<{CUT}> {{ a = Slice(x, i0, i4, i1) b = Slice(a, i1, i4, i2) y = Relu(b) }}"),
        (17, "<int64[2] s = {0,1}, int64[2] e = {4,4}, int64[2] a = {1,2}> "
             "{ b = Slice(x, s, e, a) y = Relu(b) }"),
    ],
    "gelu": [
        (20, "y = Gelu(x)"),
        (17, "a = Div(x, root) b = Erf(a) c = Add(b, one) d = Mul(x, c) y = Mul(d, half)"),
        (17, "h = Mul(x, half) a = Mul(x, inverse) b = Erf(a) c = Add(b, one) y = Mul(h, c)"),
        (13, "a = Mul(x, inverse) b = Erf(a) c = Add(one, b) d = Mul(c, half) y = Mul(d, x)"),
    ],
    "gelu by tanh": [
        (20, 'y = Gelu<approximate="tanh">(x)'),
        (17, """p = Pow(x, three) q = Mul(p, cubic) r = Add(x, q) s = Mul(r, slope) t = Tanh(s)
             u = Add(t, one) v = Mul(x, u) y = Mul(v, half)"""),
        (17, """o = Mul(x, x) p = Mul(x, o) q = Mul(p, cubic) r = Add(x, q) s = Mul(r, slope)
             t = Tanh(s) u = Add(t, one) v = Mul(x, u) y = Mul(v, half)"""),
    ],
    "silu": [
        (24, "y = Swish(x)"),
        (17, "s = Sigmoid(x) y = Mul(x, s)"),
        (13, "s = Sigmoid(x) y = Mul(s, x)"),
    ],
    "hard swish": [
        (14, "y = HardSwish(x)"),
        (13, "a = Add(x, three) b = Clip(a, zero, six) c = Div(b, six) y = Mul(x, c)"),
        (13, "a = HardSigmoid<alpha=0.166667>(x) y = Mul(x, a)"),
    ],
    "mish": [
        (18, "y = Mish(x)"),
        (17, "s = Softplus(x) t = Tanh(s) y = Mul(x, t)"),
    ],
    "batch norm": [
        (15, f"""g ({X}) => ({Y}) <{VECTORS}> {{ r = Relu(x)
             n = BatchNormalization(r, k, l, m, v) y = Relu(n) }}"""),
        (13, f"""g ({X}) => ({Y}) <float[8,1,1] k, float[1,8,1,1] l> {{ r = Relu(x)
             m = Mul(k, r) n = Add(m, l) y = Relu(n) }}"""),
    ],
    "layer norm": [
        (17, f"g ({ROWS}) <float[8] k, float[8] l> {{ y = LayerNormalization(x, k, l) }}"),
        (13, f"""g ({ROWS}) <float[8] k, float[8] l, float two = {{2.0}}, float eps = {{1e-5}}> {{
             m = ReduceMean<axes=[-1]>(x) d = Sub(x, m) q = Pow(d, two)
             v = ReduceMean<axes=[2]>(q) a = Add(v, eps) r = Sqrt(a) n = Div(d, r)
             s = Mul(n, k) y = Add(s, l) }}"""),
        *[(13, f"""g ({ROWS}) <float[8] k, float[8] l, float eps = {{1e-5}}> {{
             m = {mean}(x) d = Sub(x, m) q = Mul(d, d) v = {mean}(q) a = Add(v, eps) r = Sqrt(a)
             i = Reciprocal(r) s = Mul(i, k) t = Mul(x, s) {shift} y = Add(t, u) }}""")
          for mean, shift in TF_NORMS],
    ],
    "a mean over pixels": [
        (13, f"g ({X}) => (float[1,8] y) {{ a = GlobalAveragePool(x) y = Flatten(a) }}"),
        (18, f"""g ({X}) => (float[1,8] y) <int64[2] a = {{-1,-2}}>
             {{ y = ReduceMean<keepdims=0>(x, a) }}"""),
        (13, f"""g ({X}) => (float[1,8] y) {{ t = Transpose<perm=[0,2,3,1]>(x)
             y = ReduceMean<axes=[1,2], keepdims=0>(t) }}"""),
    ],
    "a mean over pixels as an image": [
        (13, f"g ({X}) => (float[1,8,1,1] y) {{ a = GlobalAveragePool(x) y = Relu(a) }}"),
        (13, f"""g ({X}) => (float[1,8,1,1] y) <int64[4] s = {{1,8,1,1}}> {{
             a = ReduceMean<axes=[2,3], keepdims=0>(x) b = Reshape(a, s) y = Relu(b) }}"""),
    ],
    "a maximum over pixels": [
        (13, f"g ({X}) => (float[1,8,1,1] y) {{ y = GlobalMaxPool(x) }}"),
        (13, f"g ({X}) => (float[1,8,1,1] y) {{ y = ReduceMax<axes=[2,3]>(x) }}"),
    ],
    "a product": [
        (13, f"""g ({Z}) => (float[4,3] y) <float[3,8] k, float[3] b>
             {{ y = Gemm<transB=1>(x, k, b) }}"""),
        (13, f"""g ({Z}) => (float[4,3] y) <float[8,3] k, float[3] b>
             {{ a = MatMul(x, k) y = Add(a, b) }}"""),
    ],
    "a product of flattened rows": [
        (13, f"g ({ROWS}) {PRODUCT}> {{ a = MatMul(x, k) y = Add(a, l) }}"),
        (13, f"""g ({ROWS}) {PRODUCT}, int64[2] s = {{-1,8}}, int64[3] t = {{2,5,8}}>
             {{ a = Reshape(x, s) b = Gemm(a, k, l) y = Reshape(b, t) }}"""),
        (13, f"""g ({ROWS}) {PRODUCT}, int64[2] s = {{-1,8}}, int64[3] t = {{2,5,8}}>
             {{ a = Reshape(x, s) b = MatMul(a, k) c = Reshape(b, t) y = Add(c, l) }}"""),
    ],
    "a product of rows that a view cuts on": [
        (13, f"""g (float[2,5,8] x) => (float[2,5,2,4] y) {PRODUCT}, int64[4] t = {{2,5,2,4}}>
             {{ a = MatMul(x, k) b = Add(a, l) y = Reshape(b, t) }}"""),
        (13, f"""g (float[2,5,8] x) => (float[2,5,2,4] y) {PRODUCT}, int64[2] s = {{-1,8}},
             int64[4] t = {{2,5,2,4}}> {{ a = Reshape(x, s) b = Gemm<transB=1>(a, k, l)
             y = Reshape(b, t) }}"""),
    ],
    "a product of rows that a view puts together": [
        (13, f"""g (float[2,5,2,4] x) => (float[2,5,8] y) {PRODUCT}, int64[3] t = {{2,5,8}}>
             {{ a = Reshape(x, t) b = MatMul(a, k) y = Add(b, l) }}"""),
        (13, """g (float[2,5,2,4] x) => (float[2,5,8] y) <float[8,8] k, int64[2] s = {-1,8},
             int64[3] t = {2,5,8}> { a = Reshape(x, s) b = Gemm<transB=1>(a, k)
             y = Reshape(b, t) }"""),
    ],
    "products of the same rows": [
        (13, f"""g ({TWO}) {PRODUCT}, float[8,8] m, float[8] n> {{ x = Transpose<perm=[0,2,1]>(i)
             a = MatMul(x, k) y = Add(a, l) b = MatMul(x, m) z = Add(b, n) }}"""),
        (13, f"""g ({TWO}) {PRODUCT}, float[8,8] m, float[8] n, int64[2] s = {{-1,8}},
             int64[3] t = {{2,5,8}}> {{ x = Transpose<perm=[0,2,1]>(i) r = Reshape(x, s)
             a = Gemm(r, k, l) y = Reshape(a, t) b = Gemm(r, m, n) z = Reshape(b, t) }}"""),
    ],
    "attention": [
        (23, f"g ({HEADS}) {{ y = Attention(q, k, v) }}"),
        (23, f"g ({HEADS}) {{ y = Attention<is_causal=0, scale=0.25>(q, k, v) }}"),
        (17, f"g ({HEADS}) {SCALED} d = MatMul(a, f) s = Softmax(d) y = MatMul(s, v) }}"),
        (17, f"""g ({HEADS}) {TURNED} a = Mul(q, one) f = Mul(e, two)
             d = MatMul(a, f) s = Softmax(d) y = MatMul(s, v) }}"""),
    ],
    "masked attention": [
        (23, f"g ({HEADS}) <float[5,6] m> {{ y = Attention(q, k, v, m) }}"),
        (17, f"""g ({HEADS}) {SCALED.replace('<', '<float[5,6] m, ', 1)} d = MatMul(a, f)
             h = Add(d, m) s = Softmax(h) y = MatMul(s, v) }}"""),
    ],
    "a recurrent layer": [
        (14, f"g ({STEPS} {{ y = LSTM<hidden_size=4>(x, w, r) }}"),
        (14, f"g ({STEPS} {{ y, h, c = LSTM<hidden_size=4>(x, w, r) }}"),
    ],
    "parts of parts of parts": [
        (13, f"g ({X}) => ({MANY} y = Concat<axis=1>(a, b, c, x) }}"),
        (13, f"""g ({X}) => ({MANY} d = Concat<axis=1>(b, c) e = Concat<axis=1>(a, d)
             y = Concat<axis=1>(e, x) }}"""),
        (13, f"""g ({X}) => ({MANY} d = Concat<axis=1>(a, b) e = Concat<axis=1>(c, x)
             y = Concat<axis=1>(d, e) }}"""),
    ],
    "parts": [
        (13, f"""g ({X}) => ({HALF}) {{ a, b = Split<axis=1>(x) c = Relu(a) d = Relu(b)
             y = Add(c, d) }}"""),
        (13, f"""g ({X}) => ({HALF}) <int64[1] z = {{0}}, int64[1] f = {{4}}, int64[1] e = {{8}},
             int64[1] o = {{1}}> {{ a = Slice(x, z, f, o) b = Slice(x, f, e, o) c = Relu(a)
             d = Relu(b) y = Add(c, d) }}"""),
    ],
    "the order of branches": [
        (13, f"""g ({X}) => ({Y}) <float[8,8,1,1] w, float[8] b, float[8,8,1,1] v>
             {{ p = Conv(x, w, b) q = Relu(p) r = Conv(q, v, b) s = Conv(x, w, b) t = Add(r, s)
             y = Relu(t) }}"""),
        (13, f"""g ({X}) => ({Y}) <float[8,8,1,1] w, float[8] b, float[8,8,1,1] v>
             {{ s = Conv(x, w, b) p = Conv(x, w, b) q = Relu(p) r = Conv(q, v, b) t = Add(r, s)
             y = Relu(t) }}"""),
    ],
}  # fmt: skip
FOLDED = [
    "<float[8,8,1,1] w> { a = Conv(x, w) y = Relu(a) }",
    "<float[8,8,1,1] w, float[8] b> { a = Conv(x, w, b) y = Relu(a) }",
    """<float[8,8,1,1] w, float[8] b, float[8] c, float[8] d, float[8] e>
    { a = Conv(x, w) n = BatchNormalization(a, b, c, d, e) y = Relu(n) }""",
    """<float[8,8,1,1] w, float[8,1,1] s, float[8,1,1] b>
    { a = Conv(x, w) m = Mul(a, s) n = Add(m, b) y = Relu(n) }""",
]

LAYER_SCALES = [
    """<float[8,8,1,1] w, float[8] b, float[8,1,1] s>
    { a = Conv(x, w, b) m = Mul(a, s) y = Add(m, x) }""",
    """<float[8,8,1,1] w, float[8] b, float[8] c, float[8] d, float[8] e, float[8,1,1] s>
    { a = Conv(x, w, b) n = BatchNormalization(a, b, c, d, e) m = Mul(n, s) y = Add(m, x) }""",
]
DEPTHWISE = [
    "<float[8,1,1,1] w> { a = Conv<group=8>(x, w) y = Relu(a) }",
    "<float[8,1,1,1] w, float[8,1,1] s> { a = Conv<group=8>(x, w) m = Mul(a, s) y = Relu(m) }",
]


PRE_ACTIVATED = [
    f"<{VECTORS}> {{ r = Relu(x) n = BatchNormalization(r, k, l, m, v) y = Relu(n) }}",
    "<float[8,1,1] k> { r = Relu(x) n = Mul(r, k) y = Relu(n) }",
]


def network_of(opset: int, text: str) -> Network:
    """The network of a text, in which tensors without values are weights."""
    head = f"g ({X}) => ({Y}) {'' if text.startswith('<') else NUMBERS}"
    body = text if text.startswith("<") else f"{{ {text} }}"
    whole = text if text.startswith("g (") else f"{head} {body}"
    return with_weights(model(whole, opset=opset))


def with_weights(file: onnx.ModelProto) -> Network:
    for info in file.graph.value_info:
        dims = [size.dim_value for size in info.type.tensor_type.shape.dim]
        values = [0.1 * (i + 1) for i in range(math.prod(dims))]
        weight = onnx.helper.make_tensor(info.name, onnx.TensorProto.FLOAT, dims, values)
        file.graph.initializer.append(weight)
    del file.graph.value_info[:]
    return read_network(file)


def forms_in(texts: list[str]) -> list[int]:
    """How many forms these texts have under each target."""
    return [len(set(lowered([(17, text) for text in texts], target))) for target in TARGETS]


def lowered(files: list[tuple[int, str]], target: str) -> list[str]:
    texts = []
    for network in [network_of(opset, text) for opset, text in files]:
        result = registry.lower(network, Target.parse(target))
        assert_accounted(network, result)
        texts.append(sign(result.network).text)
    return texts


def in_one_form(network: Network) -> Network:
    return Rewritten.of(network).then(FORMS).network


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("what", SAME)
def test_one_computation_has_one_form(what: str, target: str) -> None:
    first, *others = lowered(SAME[what], target)
    assert others == [first] * len(others)
    for opset, text in SAME[what]:
        once = in_one_form(network_of(opset, text))
        assert sign(in_one_form(once)) == sign(once)


def test_a_norm_that_onnx_runtime_joins_in_an_old_file_is_that_of_a_new_one() -> None:
    """It writes out what newer operator sets state as the default."""
    new, old = lowered(SAME["layer norm"][:2], "here/onnxruntime-1.31/fp32/1t")
    assert new == old and new.count("LayerNormalization") == 1


def test_tensorrt_folds_norms_and_adds_zeros() -> None:
    for texts, forms in ((FOLDED, [1, 3]), (DEPTHWISE, [1, 2]), (PRE_ACTIVATED, [1, 2])):
        assert forms_in([f"g ({X}) => ({Y}) {text}" for text in texts])[:2] == forms


def test_tensorrt_scales_a_layer_alike_behind_a_norm_and_behind_a_folded_one() -> None:
    assert forms_in([f"g ({X}) => ({Y}) {text}" for text in LAYER_SCALES])[0] == 1


CALL = "%c : [num_users=1] = call_function[target=torch.ops.aten.conv2d.default](args = (%x, %w"


@pytest.mark.parametrize(
    ("arguments", "forms"), [(", %b), kwargs = {})", 1), ("), kwargs = {})", 2)]
)
def test_zeros_that_an_exporter_leaves_out_are_put_back(arguments: str, forms: int) -> None:
    """PyTorch's keeps the call beside the operator: that of a bias that is there, and of none."""
    bare = model(of_names("", "conv2d"), opset=17)
    bare.graph.node[0].metadata_props.add(key="pkg.torch.onnx.fx_node", value=CALL + arguments)
    result = registry.lower(with_weights(bare), Target.parse(TARGETS[1]))
    kept = lowered([(17, of_names('"fc.bias"', "conv2d"))], TARGETS[1])
    assert len({sign(result.network).text, *kept}) == forms


CONV = "float[8,8,1,1] w, float[8] b"
NORM = "float[8] n, float[8] o, float[8] p, float[8] m"


def of_names(bias: str, result: str, *, is_normed: bool = False) -> str:
    """A convolution whose bias and result have these names, with a norm of its own or without."""
    read = f", {bias}" if bias else ""
    weights = CONV.replace("float[8] b", f"float[8] {bias}" if bias else "float[8] unread")
    norm = f"c = BatchNormalization({result}, n, o, p, m)" if is_normed else f"c = Relu({result})"
    return (
        f"g ({X}) => ({Y}) <{weights}, {NORM}> {{ {result} = Conv(x, w{read}) {norm} y = Relu(c) }}"
    )


@pytest.mark.parametrize("target", TARGETS[1:])
@pytest.mark.parametrize(
    ("bias", "result"),
    [('"conv.weight_bias"', "conv2d"), ('"conv.bias"', "getitem_3"), ("", "getitem")],
)
def test_names_tell_of_a_folded_norm(bias: str, result: str, target: str) -> None:
    folded, legacy = lowered(
        [(17, of_names(bias, result)), (17, of_names('"onnx::Conv_123"', "r"))], target
    )
    own = lowered([(17, of_names('"conv.bias"', "conv2d"))], target)
    assert [folded] == [legacy] != own


WEIGHTS = "float[8,8,1,1] w, float[8] b, float[8,1,1] s, float[8,1,1] t"
SHAPES = "int64[3] u = {1,2,144}, int64[4] v = {1,8,6,6}, int64[8] z = {0,0,0,0,0,0,1,1}"
SLIM = "<float[8,8,1,1] mul_weight, float[8] mul_bias>"
TAKEN = "float[8,8,2,2] c, float[8] n, float[8] o, float[8] p, float[8] m"
ROWED = "float[6,6] w, float[6] b, int64[3] k = {1,48,6}, int64[2] l = {48,6}, " + (
    "int64[4] q = {1,8,6,6}, int64[4] i = {1,8,1,1}, int64[2] j = {4,4}"
)
CUTS = "int64[1] i0 = {0}, int64[1] i1 = {1}, int64[1] i4 = {4}, int64[1] i8 = {8}"
MODULES = {
    "a simplifier folds a layer's scale": (
        "c1 = Conv(x, w, b) a = Mul(c1, s) y = Relu(a)",
        f"{SLIM} {{ mul = Conv(x, mul_weight, mul_bias) y = Relu(mul) }}",
    ),
    "a simplifier folds one behind a norm": (
        "r = Conv(x, w) a = BatchNormalization(r, n, o, p, m) d = Mul(a, s) y = Relu(d)",
        f"{SLIM} {{ [getitem_3] mul = Conv(x, mul_weight, mul_bias) y = Relu(mul) }}",
    ),
    "a sum begins with zero, and a factor is one": (
        "a = Relu(x) y = Tanh(a)",
        "<float zero = {0.0}, float one = {1.0}> "
        "{ a = Relu(x) d = Add(a, zero) e = Mul(d, one) y = Tanh(e) }",
    ),
    "an exporter folds a pad that others read": (
        "q = Pad(x, z) a = MaxPool<kernel_shape=[2,2]>(q) d = Conv(q, c, b) y = Add(a, d)",
        "q = Pad(x, z) a = MaxPool<kernel_shape=[2,2]>(q) "
        "d = Conv<pads=[0,0,1,1]>(x, c, b) y = Add(a, d)",
    ),
    "a product by one stands before a sum": (
        "a = Mul(x, s) y = Add(a, t)",
        f"<{WEIGHTS}, float[1] one = {{1.0}}> {{ a = Mul(x, s) d = Mul(a, one) y = Add(d, t) }}",
    ),
    "a simplifier folds the scale of a product": (
        f"<{ROWED}> {{ r = Reshape(x, k) a = MatMul(r, w) c = Add(a, b) d = Mul(c, b) "
        "e = Relu(d) y = Reshape(e, q) }",
        f"<{ROWED}, float[6,6] w_weight_fused, float[6] w_bias_fused> {{ r = Reshape(x, l) "
        "a = Gemm<transB=1>(r, w_weight_fused, w_bias_fused) d = Reshape(a, k) e = Relu(d) "
        "y = Reshape(e, q) }",
    ),
    "axes of one element are turned": (
        f"<{ROWED}> {{ p = GlobalAveragePool(x) r = Reshape(p, i) a = Relu(r) y = Add(x, a) }}",
        f"<{ROWED}> {{ p = GlobalAveragePool(x) t = Transpose<perm=[0,2,3,1]>(p) "
        "u = Transpose<perm=[0,3,1,2]>(t) a = Relu(u) y = Add(x, a) }",
    ),
    "slices that a sum reads are a split": (
        f"<{ROWED}> {{ m, n = Split<axis=1>(x, j) c = Add(m, n) y = Concat<axis=1>(c, n) }}",
        f"<{ROWED}, {CUTS}> {{ m = Slice(x, i0, i4, i1) n = Slice(x, i4, i8, i1) c = Add(m, n) "
        "y = Concat<axis=1>(c, n) }",
    ),
    "set 21 normalises groups": (
        "r = Reshape(x, u) a = InstanceNormalization(r, f, g) "
        "d = Reshape(a, v) e = Mul(d, s) y = Add(e, t)",
        "y = GroupNormalization<num_groups=2>(x, n, o)",
    ),
}


@pytest.mark.parametrize("what", MODULES)
def test_a_module_is_one_whatever_its_file_says(what: str) -> None:
    """A folded pad is one eagerly alone: inductor pads in the loop of another kernel."""
    head = f"<{WEIGHTS}, {SHAPES}, {TAKEN}, float[2] f, float[2] g>"
    bodies = [t if t.startswith("<") else f"{head} {{ {t} }}" for t in MODULES[what]]
    files = [(21, f"g ({X}) => ({Y}) {body}") for body in bodies]
    eager, compiled = [len({*lowered(files, target)}) for target in TARGETS[1:]]
    assert (eager, compiled) == (1, 2 if "pad" in what else 1)


def test_a_norm_adds_the_bias_in_generated_code() -> None:
    """Eagerly the addition is a call that the file shows."""
    assert forms_in([of_names(bias, "r", is_normed=True) for bias in ('"c.bias"', "")]) == [1, 2, 1]


def test_a_pad_of_nothing_is_a_call_of_its_own_only_eagerly() -> None:
    zeros = "<int64[8] z = {0,0,0,0,0,0,0,0}> { a = Relu(x) b = Pad(a, z) y = Tanh(b) }"
    padded = f"g ({X}) => ({Y}) {zeros}"
    assert forms_in(["a = Relu(x) y = Tanh(a)", padded]) == [1, 2, 1]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("place", range(3))
def test_a_gate_s_signature_is_lowered_as_its_file(place: int, target: str) -> None:
    network = network_of(*SAME["hard swish"][place])
    again = read(sign(network).text)
    chosen = Target.parse(target)
    assert sign(registry.lower(again, chosen).network) == sign(
        registry.lower(network, chosen).network
    )


@pytest.mark.parametrize(
    "text",
    [
        f"g ({HEADS}) {{ y = Attention<is_causal=1>(q, k, v) }}",
        f"g ({HEADS}) {{ y = Attention<softcap=2.0>(q, k, v) }}",
        f"g ({HEADS.replace('3,6,8', '1,6,8')}) {{ y = Attention(q, k, v) }}",
        f"g (bool[5,6] m, {HEADS}) {{ y = Attention(q, k, v, m) }}",
    ],
)
def test_attention_of_another_kind_stays(text: str) -> None:
    network = network_of(23, text)
    assert [node.op for node in in_one_form(network).nodes] == ["Attention"]


def test_operators_of_other_domains_stay() -> None:
    """Their names may be ONNX's, what they compute is not."""
    for op, inputs in (("Swish", ("x", "x")), ("Mish", ("x", "x")), ("Slice", ("x",))):
        node = Node("", op, inputs, ("y",), domain="com.example")
        of_domain = Network("g", (node,), ("x",), ("y",), dict.fromkeys("xy", PIXELS))
        assert in_one_form(of_domain) == of_domain


@pytest.mark.parametrize(
    ("what", "part"),
    [
        ("layer norm", "d"),
        ("layer norm", "v"),
        ("gelu", "c"),
        ("gelu by tanh", "v"),
        ("hard swish", "b"),
        ("a product", "a"),
        ("a mean over pixels", "a"),
    ],
)
@pytest.mark.parametrize("is_output", [True, False])
def test_a_part_that_others_read_is_kept(what: str, part: str, *, is_output: bool) -> None:
    opset, text = next((o, t) for o, t in SAME[what] if f" {part} = " in t or f"{{{part} = " in t)
    network = network_of(opset, text)
    if is_output:
        network = replace(network, outputs=(*network.outputs, part))
    else:
        reader = Node("", "Relu", (part,), ("read",), version=14)
        types = {**network.types, "read": network.types[part]}
        network = replace(
            network, nodes=(*network.nodes, reader), types=types, outputs=(*network.outputs, "read")
        )
    made = in_one_form(network)
    assert {n for node in made.nodes for n in node.inputs if n} <= {
        *made.inputs,
        *made.constants,
        *made.producers,
    }
    assert set(made.outputs) == set(network.outputs) <= set(made.producers)


@pytest.mark.parametrize(
    "text",
    [
        f"g ({Z}, float[4,3] r) => (float[4,3] y) <float[8,3] k> {{ y = Gemm(x, k, r) }}",
        f"g ({Z}, float[4,3] r) => (float[4,3] y) <float[3,8] k> {{ y = Gemm<transB=1>(x, k, r) }}",
        "g (float[2,5,8] x, float[10,8] r) => (float[2,5,8] y) <float[8,8] k, int64[2] s = {-1,8}, "
        "int64[3] t = {2,5,8}> { a = Reshape(x, s) b = Gemm(a, k, r) y = Reshape(b, t) }",
        f"g (float[8] r, {ROWS}) <float[8] k> {{ y = LayerNormalization(x, k, r) }}",
    ],
)
def test_a_computed_shift_is_read(text: str) -> None:
    made = in_one_form(network_of(17, text))
    assert "r" in {name for node in made.nodes for name in node.inputs}


@pytest.mark.parametrize(
    "text",
    [
        "a = HardSigmoid(x) y = Mul(x, a)",
        "a = HardSigmoid<alpha=0.166667, beta=0.4>(x) y = Mul(x, a)",
        "a = Add(x, three) b = Clip(a, zero, six) c = Div(b, three) y = Mul(x, c)",
        "a = Add(x, three) b = Clip(a, zero, six) c = Mul(x, b) y = Mul(c, half)",
    ],
)
def test_other_gates_are_no_hard_swish(text: str) -> None:
    made = in_one_form(network_of(13, text))
    assert "HardSwish" not in {node.op for node in made.nodes}
