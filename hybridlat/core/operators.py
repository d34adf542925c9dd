"""Families of operators, over all engines: what decides which formula a kernel's work follows."""

from __future__ import annotations

from functools import lru_cache

KINDS = {name: i for i, name in enumerate(
    ("conv", "matmul", "pool", "pointwise", "reduce", "move", "other")
)}  # fmt: skip
"""Family of an operator and its number.

conv and matmul contract (FLOP = 2·M·N·K), pool reads a window per output, pointwise does a few
operations per element, reduce reads more than it writes, move computes nothing.
"""

_FAMILIES: dict[str, tuple[str, ...]] = {
    "conv": ("Conv", "FusedConv", "ConvTranspose", "QLinearConv", "ConvInteger", "NhwcConv",
             "NhwcFusedConv"),
    "matmul": ("MatMul", "Gemm", "FusedMatMul", "FusedGemm", "QLinearMatMul", "QGemm",
               "MatMulInteger"),
    "pool": ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool",
             "NhwcMaxPool"),
    "pointwise": (
        "Relu", "LeakyRelu", "PRelu", "Clip", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Elu",
        "Selu", "Softplus", "Erf", "Gelu", "FastGelu", "BiasGelu", "QuickGelu", "Mish", "Swish",
        "Exp", "Log", "Sqrt", "Pow", "Abs", "Neg", "Reciprocal", "Floor", "Ceil", "Round", "Not",
        "Add", "Sub", "Mul", "Div", "Min", "Max", "Sum", "Mean", "Where", "Equal", "Greater",
        "Less", "And", "Or", "Cast", "Identity", "Dropout", "BatchNormalization", "QuantizeLinear",
        "DequantizeLinear", "ThresholdedRelu",
    ),
    "reduce": (
        "Softmax", "LogSoftmax", "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2",
        "ReduceSumSquare", "ReduceProd", "LRN", "LayerNormalization", "InstanceNormalization",
        "GroupNormalization", "SkipLayerNormalization", "MeanVarianceNormalization", "ArgMax",
        "ArgMin", "TopK", "LpNormalization", "CumSum",
    ),
    "move": (
        "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Concat", "Split", "Slice",
        "Pad", "Gather", "GatherND", "GatherElements", "Expand", "Tile", "DepthToSpace",
        "SpaceToDepth", "Resize", "Upsample", "ReorderInput", "ReorderOutput", "Shape",
        "ConstantOfShape", "ScatterND", "Range",
    ),
}  # fmt: skip
_KIND_OF = {op: KINDS[family] for family, ops in _FAMILIES.items() for op in ops}
_CHEAP = frozenset({"Relu", "LeakyRelu", "Clip", "PRelu", "ThresholdedRelu"})


@lru_cache(maxsize=4096)
def kind_of(qualified_op: str) -> int:
    """Number of the family of an operator, whatever its domain; ``other`` where unknown."""
    return _KIND_OF.get(qualified_op.rpartition("::")[2], KINDS["other"])


def activation_class(name: str) -> int:
    """0 no fused activation, 1 one that costs a compare (Relu, Clip), 2 one that costs more."""
    return 0 if not name else 1 if name in _CHEAP else 2
