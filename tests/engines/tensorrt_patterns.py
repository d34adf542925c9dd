"""Small networks, one for each idea of the rules of TensorRT, and the kernels they become.

The rules are held against these everywhere, TensorRT-RTX's compiler where it is installed.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import onnx.parser

from hybridlat.engines.tensorrt.fusion_rules import RTX
from hybridlat.engines.tensorrt.lowering import in_precision, lower
from hybridlat.graph.network import Lowered, Network
from hybridlat.onnx_io import read_network
from hybridlat.schema.target import Target

CONV = "Conv<kernel_shape=[3,3], pads=[1,1,1,1]>"
POINT = "Conv<kernel_shape=[1,1]>"
MEAN = "GlobalAveragePool"


def network(
    body: str, inputs: str = "float[1,64,28,28] x", outputs: str = "y", opset: int = 18
) -> Network:
    text = f'<ir_version: 8, opset_import: ["": {opset}]> g ({inputs}) => (float[] {outputs})'
    model = onnx.parser.parse_model(f"{text} {{ {body} }}")
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    return read_network(model)


def by_rules(net: Network, version: str = "", precision: str = "") -> Lowered:
    """The kernels in the precision that the network is written in, unless another is named.

    TensorRT-RTX's without a version.
    """
    is_half = any(type_.dtype == "float16" for type_ in net.types.values())
    precision = precision or ("fp16" if is_half else "fp32")
    runtime = f"tensorrt-{version}" if version else RTX
    return lower(net, Target.parse(f"a-gpu/{runtime}/{precision}"))


def weights(**shapes: tuple[int, ...]) -> str:
    """Weights made by ConstantOfShape: text needs no values."""
    lines = []
    for name, shape in shapes.items():
        dims = ",".join(map(str, shape))
        lines.append(f"{name}_s = Constant<value = int64[{len(shape)}] {{{dims}}}>()")
        lines.append(f"{name} = ConstantOfShape<value = float[1] {{0.5}}>({name}_s)")
    return " ".join(lines)


def number(name: str, value: float) -> str:
    return f"{name} = Constant<value = float[1] {{{value}}}>()"


W3 = weights(w=(64, 64, 3, 3), w2=(64, 64, 3, 3), p=(64, 64, 1, 1), v=(64,), ch=(64, 1, 1))
WIDE = weights(a=(256, 256, 1, 1), d=(256, 256, 3, 3), c=(256, 1, 1))


@dataclass(frozen=True)
class Pattern:
    """A network as text and its kernels in the order of their last operators."""

    name: str
    body: str
    kernels: str
    inputs: str = "float[1,64,28,28] x"
    half: bool = False

    def network(self) -> Network:
        net = network(self.body, self.inputs)
        return in_precision(net, "float16") if self.half else net

    def expected(self) -> list[str]:
        return self.kernels.split(" | ")


def kernel_texts(net: Network, kernels: Iterable[tuple[int, ...]]) -> list[str]:
    """Groups of operators as text, in the order of their last operators."""
    ordered = sorted(kernels, key=lambda kernel: kernel[-1])
    return ["+".join(net.nodes[i].op for i in kernel) for kernel in ordered]


_SCALED = f"i = {CONV}(x, d) k = Relu(i) j = {CONV}(k, d) z = Relu(j) m = {POINT}(z, a) "
_SCALED += f"s = Mul(m, c) r = Add(s, k) y = {CONV}(r, d)"
_HEAD = weights(a=(1280, 512, 1, 1), f=(1000, 1280))
_HEAD += f" m = {MEAN}(x) q = {POINT}(m, a) h = HardSwish(q) z = Flatten(h)"
_HEAD += " y = Gemm<transB=1>(z, f)"
_EXCITE = f"m = {MEAN}(r) e = {POINT}(m, p) g = Sigmoid(e) n = Mul(r, g)"
PATTERNS = (
    Pattern(
        "an activation before a global mean joins the mean",
        f"{W3} a = {CONV}(x, w) s = Sigmoid(a) m = Mul(a, s) y = {MEAN}(m)",
        "Conv | Sigmoid+Mul+GlobalAveragePool",
    ),
    Pattern(
        "a ReLU before a global mean does not",
        f"{W3} a = {CONV}(x, w) s = Relu(a) y = {MEAN}(s)", "Conv+Relu | GlobalAveragePool",
    ),
    Pattern(
        "a split is a copy and joins what copies on",
        "k = Constant<value = int64[2] {16, 48}>() a, c = Split<axis=1>(x, k) "
        "d = Concat<axis=1>(c, a) y = Relu(d)", "Split+Concat+Relu",
    ),
    Pattern(
        "flattening feature maps is a copy",
        f"{weights(f=(10, 64 * 196))} a = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) "
        "c = Flatten(a) y = Gemm<transB=1>(c, f)", "MaxPool | Reshape | Gemm",
    ),
    Pattern(
        "a convolution takes the scale of a residual and its sum",
        f"{WIDE} {_SCALED}", "Conv+Relu | Conv+Relu | Conv+Mul+Add | Conv", "float[1,256,14,14] x",
    ),
    Pattern(
        "a matrix product takes the scale but not the sum",
        f"{WIDE} {_SCALED}", "Conv+Relu | Conv+Relu | Conv+Mul | Add | Conv",
        "float[1,256,14,14] x", half=True,
    ),
    Pattern(
        "a scaled and shifted square of a ReLU is an epilogue",
        f"{W3} {number('two', 2)} {number('s', 0.9)} {number('b', 0.4)} a = {POINT}(x, p) "
        f"r = Relu(a) q = Pow(r, two) m = Mul(q, s) t = Add(m, b) y = {CONV}(t, w)",
        "Conv+Relu+Pow+Mul+Add | Conv",
    ),
    Pattern(
        "the last branch applies SiLU to the sum",
        f"{W3} a = {POINT}(x, p) e = {CONV}(x, w) r = Add(a, e) s = Sigmoid(r) m = Mul(r, s) "
        f"y = {CONV}(m, w2)",
        "Conv | Conv+Add+Sigmoid+Mul | Conv",
    ),
    Pattern(
        "SiLU of a sum that is read further on stays apart",
        f"{W3} a = {CONV}(x, w) r = Add(a, x) s = Sigmoid(r) m = Mul(r, s) e = {CONV}(m, w2) "
        "y = Add(e, r)",
        "Conv+Add | Sigmoid+Mul | Conv+Add",
    ),
    Pattern(
        "a normalisation that alone reads a sum is an epilogue",
        f"{W3} a = {POINT}(x, p) e = {CONV}(x, w) r = Add(a, e) "
        f"n = BatchNormalization(r, v, v, v, v) t = Relu(n) y = {CONV}(t, w2)",
        "Conv | Conv+Add+BatchNormalization+Relu | Conv",
    ),
    Pattern(
        "an excited map is scaled where it is added",
        f"{W3} a = {CONV}(x, w) r = Relu(a) {_EXCITE} o = Add(n, x) t = Relu(o) y = {CONV}(t, w2)",
        "Conv+Relu | GlobalAveragePool | Conv+Sigmoid | Mul+Add+Relu | Conv",
        "float[1,64,56,56] x",
    ),
    Pattern(
        "HardSwish and mean are one kernel on maps of an odd size",
        f"{W3} {weights(k=(576, 64, 1, 1), l=(64, 576, 1, 1))} a = {POINT}(x, k) h = HardSwish(a) "
        f"m = {MEAN}(h) y = {POINT}(m, l)",
        "Conv | HardSwish+GlobalAveragePool | Conv",
        "float[1,64,15,15] x",
    ),
    Pattern(
        "HardSwish and mean are two kernels on maps of an even size",
        f"{W3} {weights(k=(576, 64, 1, 1), l=(64, 576, 1, 1))} a = {POINT}(x, k) h = HardSwish(a) "
        f"m = {MEAN}(h) y = {POINT}(m, l)",
        "Conv | HardSwish | GlobalAveragePool | Conv",
        "float[1,64,16,16] x",
    ),
    Pattern("a wide convolution of one pixel takes no HardSwish", _HEAD,
            "GlobalAveragePool | Conv | HardSwish | Gemm", "float[1,512,7,7] x"),
    Pattern("a matrix product of one pixel does", _HEAD,
            "GlobalAveragePool | Conv+HardSwish | Gemm", "float[1,512,7,7] x", half=True),
    Pattern(
        "a stem of three channels has an epilogue in half precision",
        f"{weights(k=(32, 3, 3, 3), l=(32, 32, 3, 3))} a = {CONV}(x, k) s = Sigmoid(a) "
        f"m = Mul(a, s) y = {CONV}(m, l)",
        "Conv+Sigmoid+Mul | Conv", "float[1,3,32,32] x", half=True,
    ),
    Pattern(
        "parts of two concatenations are copied into the second",
        f"{W3} {weights(k=(64, 128, 1, 1), l=(64, 192, 1, 1))} a = {CONV}(x, w) e = {CONV}(a, w2) "
        f"f = Concat<axis=1>(a, e) g = {POINT}(f, k) h = Concat<axis=1>(a, e, g) y = {POINT}(h, l)",
        "Conv | Conv | Concat | Conv | Concat | Conv",
    ),
    Pattern(
        "a map is resized and added in one kernel",
        f"{W3} {number('_', 1)} o = Constant<value = float[4] {{1,1,2,2}}>() "
        f"a = {POINT}(u, p) b = Resize<mode=\"nearest\">(a, , o) r = Add(x, b) t = Relu(r) "
        f"y = {CONV}(t, w)",
        "Conv | Resize+Add+Relu | Conv",
        "float[1,64,28,28] x, float[1,64,14,14] u",
    ),
    Pattern(
        "a group norm is scaled back in the shape of its input",
        f"{W3} {weights(q=(8,))} i = Constant<value = int64[3] {{1,8,-1}}>() "
        "o = Constant<value = int64[4] {1,64,28,28}>() "
        f"a = {CONV}(x, w) b = Reshape(a, i) n = InstanceNormalization(b, q, q) e = Reshape(n, o) "
        f"m = Mul(e, ch) t = Add(m, ch) s = Sigmoid(t) g = Mul(t, s) y = {CONV}(g, w2)",
        "Conv | Reshape | InstanceNormalization | Reshape+Mul+Add+Sigmoid+Mul | Conv",
    ),
    Pattern(
        "zeros around a convolution are its own",
        f"{W3} {number('_', 1)} z = Constant<value = int64[8] {{0,0,0,0,0,0,1,1}}>() "
        f"a = {CONV}(x, w) r = Relu(a) b = Pad(r, z) "
        "y = Conv<kernel_shape=[3,3], strides=[2,2]>(b, w2)",
        "Conv+Relu | Conv",
    ),
    Pattern(
        "a pooling of one position at a time is none",
        f"{W3} a = {CONV}(x, w) r = Relu(a) b = AveragePool<kernel_shape=[1,1]>(r) "
        f"y = {CONV}(b, w2)",
        "Conv+Relu | Conv",
    ),
    Pattern(
        "a SiLU is applied while resizing into a concatenation",
        f"{W3} k = Constant<value = float[4] {{1, 1, 2, 2}}>() "
        f"a = {POINT}(x, p) s = Sigmoid(a) m = Mul(a, s) r = Resize<mode=\"nearest\">(m, , k) "
        "y = Concat<axis=1>(r, z)",
        "Conv | Sigmoid+Mul+Resize+Concat", "float[1,64,28,28] x, float[1,64,56,56] z",
    ),
    Pattern(
        "a number is multiplied in the epilogue",
        f"{W3} {number('k', 1.7)} a = {POINT}(x, p) s = Sigmoid(a) m = Mul(a, s) t = Mul(m, k) "
        f"y = {CONV}(t, w)",
        "Conv+Sigmoid+Mul+Mul | Conv",
    ),
    Pattern(
        "a group's variance is one kernel, what it scales another",
        f"{W3} {number('eps', 0.001)} i = Constant<value = int64[5] {{1,8,8,28,28}}>() "
        "e = Constant<value = int64[5] {1,8,8,28,28}>() o = Constant<value = int64[4] "
        f"{{1,64,28,28}}>() axes = Constant<value = int64[3] {{2,3,4}}>() a = {CONV}(x, w) "
        "g = Reshape(a, i) m = ReduceMean(g, axes) d = Sub(g, m) q = Mul(d, d) "
        "n = ReduceMean(q, axes) t = Add(n, eps) r = Sqrt(t) b = Expand(r, e) f = Reshape(b, o) "
        f"k = Mul(a, ch) l = Sigmoid(k) h = Mul(a, l) z = Div(h, f) y = {CONV}(z, w2)",
        "Conv | Reshape+ReduceMean+Sub+Mul+ReduceMean+Add+Sqrt "
        "| Expand+Reshape+Mul+Sigmoid+Mul+Div | Conv",
    ),
    Pattern(
        "a gate is made where the other part of a split comes back",
        f"{weights(k=(16, 96), b=(96,), u=(16, 1, 7, 7), l=(48, 16), q=(16,))} "
        "t = Transpose<perm=[0,2,3,1]>(x) n = LayerNormalization<axis=-1>(t, q, q) "
        "m = MatMul(n, k) a = Add(m, b) c = Constant<value = int64[3] {48,32,16}>() "
        "d, e, f = Split<axis=-1>(a, c) g = Transpose<perm=[0,3,1,2]>(f) "
        "h = Conv<kernel_shape=[7,7], pads=[3,3,3,3], group=16>(g, u) "
        "i = Transpose<perm=[0,2,3,1]>(h) j = Concat<axis=-1>(e, i) s = Sigmoid(d) r = Mul(d, s) "
        "w = Mul(r, j) o = MatMul(w, l) y = LayerNormalization<axis=-1>(o, q, q)",
        "Transpose+LayerNormalization | MatMul+Add | Split+Transpose | Conv "
        "| Transpose+Concat+Sigmoid+Mul+Mul | MatMul | LayerNormalization",
        "float[1,16,20,20] x",
    ),
)  # fmt: skip
