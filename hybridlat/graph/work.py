"""What operators compute: one table of the FLOP of each, of every engine and domain.

An operator stands in one table by its name without the domain. ``FAMILIES`` have one FLOP for each
element that a pointwise operator makes, four for each that a reduction reads. ``PRODUCTS`` have a
formula for their sizes, ``PER_RESULT`` other formulas. The work of what stands in none is unknown:
it depends on data, runs another graph, or is not documented. A multiply-add counts as two.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from hybridlat.errors import NetworkError

_LIBM = """Acos Acosh Asin Asinh Atan Atanh Cos Cosh Sin Sinh Tan Log Softplus Mish Pow Mod Celu
    Selu LpPool GlobalLpPool ReduceLogSumExp"""
LIBM = frozenset(_LIBM.split())
"""What calls a function of the C library for each element on a CPU. That took 2 to 40 ns under ONNX
Runtime 1.32 on an EPYC (200,000 and 500,000 floats), where an Add takes 0.1."""
Shape = tuple[int, ...]
_Shapes = Sequence[Shape]
Attributes = Mapping[str, object]

FAMILIES: Mapping[str, str] = {
    "conv": """Conv FusedConv ConvTranspose ConvTransposeWithDynamicPads QLinearConv ConvInteger
        NhwcConv NhwcFusedConv DeformConv deform_conv2d CausalConvWithState""",
    "matmul": """MatMul Gemm FusedMatMul FusedGemm TransposeMatMul FusedMatMulActivation
        GemmFastGelu GemmFloat8 QLinearMatMul QGemm MatMulInteger MatMulInteger16
        MatMulIntegerToFloat DynamicQuantizeMatMul""",
    "pool": """MaxPool AveragePool GlobalAveragePool GlobalMaxPool LpPool GlobalLpPool NhwcMaxPool
        MaxpoolWithMask QLinearAveragePool QLinearGlobalAveragePool""",
    "pointwise": """Relu LeakyRelu PRelu Clip Sigmoid Tanh HardSigmoid HardSwish Elu Selu Celu
        Softplus Softsign Shrink Erf Gelu FastGelu BiasGelu QuickGelu Mish Swish SwiGLU ScaledSiLU
        Exp Log Sqrt Pow Abs Neg Sign Reciprocal Floor Ceil Round Mod Sin Cos Tan Asin Acos Atan
        Sinh Cosh Asinh Acosh Atanh IsInf IsNaN Not Add Sub Mul Div Min Max Sum Mean Where Equal
        Greater Less GreaterOrEqual LessOrEqual And Or Xor BitShift BitwiseAnd BitwiseNot BitwiseOr
        BitwiseXor BitCast Cast CastLike Identity Dropout BatchNormalization QuantizeLinear
        DequantizeLinear ThresholdedRelu Pointwise DynamicQuantizeLinear QLinearAdd QLinearMul
        QLinearSigmoid QLinearLeakyRelu QLinearWhere AffineGrid RotaryEmbedding MRotaryEmbedding
        GatedAdd LinearAttentionGate BlackmanWindow HammingWindow HannWindow BiasAdd BiasSplitGelu
        MulInteger Scaler Normalizer Binarizer Imputer LabelEncoder CategoryMapper OneHotEncoder
        MurmurHash3 Affine Scale ScaledTanh ParametricSoftplus ImageScaler""",
    "reduce": """Softmax LogSoftmax Hardmax ReduceMean ReduceSum ReduceMax ReduceMin ReduceL1
        ReduceL2 ReduceSumSquare ReduceProd ReduceLogSum ReduceLogSumExp LRN LayerNormalization
        InstanceNormalization GroupNormalization GroupNorm SkipGroupNorm RMSNormalization
        SimplifiedLayerNormalization SkipLayerNormalization SkipSimplifiedLayerNormalization
        EmbedLayerNormalization QEmbedLayerNormalization GatedRMSNorm BranchwiseRMSNorm
        MeanVarianceNormalization ArgMax ArgMin TopK LpNormalization CumSum CumProd QLinearSoftmax
        QLinearReduceMean NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss BiasSoftmax""",
    "move": """Transpose Reshape Flatten Squeeze Unsqueeze ExpandDims Concat Split Slice Pad
        CenterCropPad Gather GatherND GatherElements GatherBlockQuantized GatherPacked Expand Tile
        DepthToSpace SpaceToDepth Resize Upsample ReorderInput ReorderOutput Shape Size
        ConstantOfShape Scatter ScatterND ScatterElements TensorScatter Range QLinearConcat Trilu
        OneHot EyeLike ReverseSequence Constant MaxUnpool UnfoldTensor Crop DynamicSlice
        MemcpyFromHost MemcpyToHost Compress SequenceAt SequenceConstruct SequenceEmpty
        SequenceErase SequenceInsert SequenceLength SplitToSequence ConcatFromSequence Optional
        OptionalGetElement OptionalHasElement ArrayFeatureExtractor FeatureVectorizer CastMap
        DictVectorizer ZipMap""",
}


class Product(NamedTuple):
    """A product of ``m`` x ``k`` and ``k`` x ``n``, and the FLOP of all that is multiplied.

    Each of its ``steps``, one after the other, reads ``again`` elements of the weights anew.
    """

    m: int
    n: int
    k: int
    flop: float
    steps: int = 1
    again: int = 0


def number(attributes: Attributes, name: str, default: int = 0) -> int:
    """An attribute that is a whole number; the default where it is none."""
    value = attributes.get(name)
    return value if type(value) is int else default


def _packed(read: _Shapes, made: _Shapes, attributes: Attributes) -> Product:
    """Weights of a few bits, packed in blocks: 2·M·N·K of the result and what is read first."""
    k, n = read[0][-1], made[0][-1]
    m = math.prod(made[0]) // n
    return Product(m, n, k, 2.0 * m * n * k)


def _attention(read: _Shapes, made: _Shapes, attributes: Attributes) -> Product:
    """2·B·heads·L·(L of keys)·(D + D of values), masked or not: both products of attention.

    Queries are B x heads x L x D or B x L x heads·D. ONNX Runtime's operators also pack them with
    keys and values (B x L x heads x 3 x D, or along the last axis), or project them first.
    """
    query, key = (*read, ())[:2]
    heads = number(attributes, "q_num_heads") or number(attributes, "num_heads", 1)
    shared = number(attributes, "kv_num_heads", heads)
    projected = 0.0
    if len(key) == 2:
        projected = 2.0 * math.prod(query) * key[1]
        query = key = (*query[:2], (key[1] - made[0][-1]) // 2)
    elif len(query) == 5:
        query = key = (*query[:2], heads * query[-1])
    elif not key:
        size = query[2] // (heads + 2 * shared)
        query, key = (*query[:2], heads * size), (*query[:2], shared * size)
    if len(key) == 5:
        key = (*key[:2], heads * key[-1])
    batch, heads, rows, depth = _by_heads(query, heads)
    past = next((read[i][-2] for i in (6, 4, 8) if len(read) > i and len(read[i]) > 3), 0)
    columns, depth_out = _by_heads(key, shared)[2] + past, _by_heads(made[0], heads)[3]
    m = batch * heads * rows
    return Product(m, columns, depth, 2.0 * m * columns * (depth + depth_out) + projected)


def _by_heads(shape: Shape, heads: int) -> Shape:
    return shape if len(shape) == 4 else (shape[0], heads, shape[1], shape[2] // heads)


def _recurrent(gates: int) -> "Formula":
    """2·gates·H·(I + H) for each step, direction and sequence of the batch.

    The inputs' product is one for all steps; each step reads the recurrent weights.
    """

    def formula(read: _Shapes, made: _Shapes, attributes: Attributes) -> Product:
        first, second, width = read[0]
        steps, batch = (second, first) if number(attributes, "layout") else (first, second)
        hidden = number(attributes, "hidden_size", read[2][-1])
        n, k = gates * hidden * read[2][0], width + hidden
        return Product(batch, n, k, 2.0 * steps * batch * n * k, steps, math.prod(read[2]))

    return formula


def _einsum(read: _Shapes, made: _Shapes, attributes: Attributes) -> Product:
    """Operands taken together from the left, as engines do: two times all sizes of each pair.

    What no later operand and not the result names is summed at once. M, N and K are the largest
    pair's: what only the left names (or both, kept), what only the right names, what is summed.
    """
    named, sizes, kept = _axes_of(str(attributes["equation"]), read)

    def size_of(letters: set[str]) -> int:
        return math.prod(sizes[letter] for letter in letters)

    whole, best = set(named[0]), Product(math.prod(made[0]), 1, 1, 0.0)
    flop = 0.0 if len(named) > 1 else float(size_of(whole))
    for place, letters in enumerate(named[1:], 2):
        later = set(kept).union(*named[place:])
        right = set(letters)
        summed = (whole | right) - later
        work = 2.0 * size_of(whole | right) / (1 if summed else 2)
        rows, columns = size_of(whole - summed), size_of(right - whole - summed)
        best = max(best, Product(rows, columns, size_of(summed), work), key=lambda p: p.flop)
        flop, whole = flop + work, (whole | right) & later
    return best._replace(flop=flop)


def einsum_shape(equation: str, read: _Shapes) -> Shape:
    """The shape of an Einsum's result: a size of 1 stretches to another operand's of its name."""
    _, sizes, kept = _axes_of(equation, read)
    return tuple([sizes[letter] for letter in kept])


def _axes_of(equation: str, read: _Shapes) -> tuple[list[list[str]], dict[str, int], list[str]]:
    """The names of the axes of an Einsum's operands, their sizes, and the names of its result."""
    left, has_result, result = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    dots = [len(s) - len(t.replace("...", "")) for t, s in zip(terms, read, strict=False)]
    named = [_letters(term, count) for term, count in zip(terms, dots, strict=False)]
    sizes: dict[str, int] = {}
    for letters, shape in zip(named, read, strict=False):
        for letter, size in zip(letters, shape, strict=True):
            sizes[letter] = max(size, known := sizes.get(letter, 1))
            if min(size, known) not in (1, sizes[letter]):
                raise NetworkError(f"an Einsum of {equation} gives {letter} {known} and {size}")
    most = max(dots)
    if not has_result:
        single = sorted(letter for letter in sizes if left.count(letter) == 1)
        result = "..." * (most > 0) + "".join(single)
    return named, sizes, _letters(result, most)


def _letters(term: str, dots: int) -> list[str]:
    """The names of a term's axes; those that its dots stand for are numbered from the last."""
    before, has_dots, behind = term.partition("...")
    return [*before, *map(str, range(dots if has_dots else 0, 0, -1)), *behind]


Formula = Callable[[_Shapes, _Shapes, Attributes], Product]
_PACKED = """MatMulNBits MatMulBnb4 MatMulFpQ4 MatMulBlockQuantizedFp4Weight
    MatMulBlockQuantizedFp8Weight"""
_ATTENTION = """Attention FlexAttention MultiHeadAttention DecoderMaskedMultiHeadAttention
    GroupQueryAttention QAttention"""
PRODUCTS: Mapping[str, Formula] = {
    **dict.fromkeys(_PACKED.split(), _packed),
    **dict.fromkeys(_ATTENTION.split(), _attention),
    **dict.fromkeys(("LSTM", "DynamicQuantizeLSTM"), _recurrent(4)),
    "GRU": _recurrent(3),
    "RNN": _recurrent(1),
    "Einsum": _einsum,
}


def _by_result(op: str, read: _Shapes, made: _Shapes, attributes: Attributes) -> float:
    results = math.prod(made[0])
    match op:
        case "DFT":  # 5·N·log2 N of N points (Cooley and Tukey 1965, as FFTW counts it)
            points = max(math.prod(read[0][:-1]), math.prod(made[0][:-1]))
            return 5.0 * points * math.log2(max(read[0][number(attributes, "axis", -2)], 2))
        case "STFT":  # as of a DFT, of each frame, as long as the window or as its bins tell
            batch, frames, bins, _ = made[0]
            window = read[2][0] if len(read) > 2 and len(read[2]) == 1 else 0
            length = window or (2 * (bins - 1) if number(attributes, "onesided", 1) else bins)
            return 5.0 * batch * frames * length * math.log2(max(length, 2))
        case "Det" | "Inverse":  # so many times n³ of n x n: LAPACK's counts (Working Note 41)
            return (2.0 if op == "Inverse" else 2 / 3) * math.prod(read[0]) * read[0][-1]
        case "GridSample":  # two FLOP for each point that is weighed, four a side where cubic
            side = {"nearest": 1, "cubic": 4, "bicubic": 4}.get(str(attributes.get("mode")), 2)
            return 2.0 * math.pow(side, len(read[0]) - 2) * results
        case "RoiAlign":  # the same and the mean of samples, two each way where no ratio tells
            return 9.0 * (number(attributes, "sampling_ratio") or 2) ** 2 * results
        case "Col2Im":
            return float(math.prod(read[0]))
        case "CDist":
            return 3.0 * results * read[0][-1]
    return {"CropAndResize": 8.0, "MelWeightMatrix": 4.0}.get(op, 1.0) * results


_WITH_FORMULA = """
    DFT STFT Det Inverse GridSample CropAndResize RoiAlign Col2Im CDist MelWeightMatrix Bernoulli
    Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike"""
PER_RESULT: Mapping[str, Callable[[_Shapes, _Shapes, Attributes], float]] = {
    op: partial(_by_result, op) for op in _WITH_FORMULA.split()
}

FAMILY_OF: Mapping[str, str] = {
    **{op: family for family, ops in FAMILIES.items() for op in ops.split()},
    **dict.fromkeys(PRODUCTS, "matmul"),
}


def moves_many(order: Sequence[int]) -> bool:
    """Whether more than one axis changes its place among the others.

    Engines have quick code for one; ONNX Runtime moves more of them number by number.
    """
    others = [axis for axis, place in enumerate(order) if axis != place]
    first, behind = (others[0], others[-1] + 1) if others else (0, 0)
    plain, turned = [*range(first, behind)], [*order[first:behind]]
    return turned not in ([*plain[1:], *plain[:1]], [*plain[-1:], *plain[:-1]])
