"""Operator sets: in which one an operator's present meaning began, as far as networks tell.

Networks are written in the words of set 17, the newest that all of TensorRT reads; sets after it
changed the meaning of few operators, and what they added is kept where a file uses it. Held
against ``onnx.defs`` by a test.
"""

from __future__ import annotations

from collections.abc import Mapping

SET = 17
_WORDS = {
    1: "GlobalAveragePool GlobalMaxPool LpNormalization MaxRoiPool Not RandomNormal "
    "RandomNormalLike RandomUniform RandomUniformLike Softplus Softsign",
    2: "GlobalLpPool",
    6: "Elu HardSigmoid InstanceNormalization Selu",
    7: "Acos And Asin Atan Cos Multinomial Or Sin Tan Xor",
    9: "Acosh Asinh Atanh ConstantOfShape Cosh EyeLike Shrink Sinh TfIdfVectorizer",
    10: "ConvInteger IsInf MatMulInteger QLinearConv QLinearMatMul ReverseSequence "
    "StringNormalizer ThresholdedRelu",
    11: "AveragePool BitShift Compress ConcatFromSequence Conv ConvTranspose Det "
    "DynamicQuantizeLinear LpPool MaxUnpool NonMaxSuppression OneHot Range Round SequenceAt "
    "SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength SplitToSequence "
    "TopK Unique",
    12: "Celu Einsum MaxPool",
    14: "Add CumSum Div GRU HardSwish LSTM Mul RNN Relu Reshape Sub Trilu",
    15: "BatchNormalization Bernoulli CastLike Optional OptionalGetElement OptionalHasElement Pow "
    "Shape",
    16: "GreaterOrEqual GridSample Identity If LeakyRelu LessOrEqual Loop PRelu RoiAlign Scan "
    "ScatterElements ScatterND Where",
    17: "BlackmanWindow DFT HammingWindow HannWindow LayerNormalization MelWeightMatrix STFT "
    "SequenceMap",
    18: "BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CenterCropPad Col2Im Mish",
    19: "DeformConv",
    20: "AffineGrid Gelu ImageDecoder RegexFullMatch StringConcat StringSplit",
    23: "Attention RMSNormalization RotaryEmbedding",
    24: "Swish TensorScatter",
    26: "BitCast CumProd",
    27: "CausalConvWithState LinearAttention",
    28: "SwiGLU",
}
_SINCE = {op: version for version, ops in _WORDS.items() for op in ops.split()}
_USUAL = 13
"""The set in which all other operators last changed their words up to 17."""
_MEANINGS: Mapping[str, tuple[int, ...]] = {
    "GroupNormalization": (18, 21), "Upsample": (7, 9), "Resize": (10, 13), "RoiAlign": (10, 16),
    "Softmax": (1, 13), "LogSoftmax": (1, 13), "Hardmax": (1, 13), "DFT": (17, 20),
}  # fmt: skip
"""The sets in which each meaning of an operator with several began."""
_FIRST_OF_SECOND = {"Resize": 11}
_ADDED = {
    "AveragePool": ("dilations",), "LpPool": ("dilations", "ceil_mode"),
    "Cast": ("round_mode", "saturate"), "CastLike": ("round_mode", "saturate"),
    "QuantizeLinear": ("block_size", "output_dtype", "precision", "saturate"),
    "DequantizeLinear": ("block_size", "output_dtype"), "Range": ("stash_type",),
    "Resize": ("antialias", "axes", "keep_aspect_ratio_policy"), "SpaceToDepth": ("mode",),
}  # fmt: skip
"""Attributes that came after set 17; what they say by default is what set 17 does."""
_ADDED_VALUES = {
    "Pad": {"wrap"}, "Resize": {"half_pixel_symmetric"}, "ScatterElements": {"max", "min"},
    "ScatterND": {"max", "min"},
}  # fmt: skip


def plain_version(op: str, version: int, attributes: Mapping[str, object]) -> int:
    """The version by which networks name an operator of ONNX's own: equal for equal meanings.

    ``version`` is the set in which the file's form of it began, ``attributes`` are those that are
    not at their defaults. What set 17 cannot say keeps its version.
    """
    if version > SET:
        values = {value for value in attributes.values() if isinstance(value, str)}
        is_new = not set(_ADDED.get(op, ())).isdisjoint(attributes)
        if is_new or not values.isdisjoint(_ADDED_VALUES.get(op, ())):
            return version
    if op in _MEANINGS:
        first, second = _MEANINGS[op]
        return second if version >= _FIRST_OF_SECOND.get(op, second) else first
    return _SINCE.get(op, _USUAL)
