"""Which constants decide what an operator computes, and which are weights, whatever their values.

No engine's kernel depends on a weight's value: not on that of a filter, a learned scale of one
number, the scales, zero points and biases of quantisation.
"""

from __future__ import annotations

from functools import lru_cache

from hybridlat.graph.network import TensorType
from hybridlat.graph.operators import is_quantised

SMALL_ELEMENTS = 16
WHOLE = frozenset({
    "int64", "int32", "bool", "uint8", "int8", "int16", "uint16", "uint32", "uint64", "int4",
    "uint4", "int2", "uint2",
})  # fmt: skip
"""Types of whole numbers."""
COMMUTES = frozenset({"Add", "Mul", "Sum", "Min", "Max"})
"""Operators that read their operands in any order."""
_SIZES = frozenset({"int64", "int32", "bool"})
# Float operands that say what is computed: bounds, scales, an exponent.
STRUCTURAL = frozenset({"Resize", "Upsample", "Pad", "Clip", "Pow", "Range", "Expand"})
_BOUNDS = frozenset({"Min", "Max"})
"""A bound where they have one number."""
# A single float given to these is a parameter that was learned, not part of the computation.
LEARNED = frozenset({
    "Conv", "ConvTranspose", "Gemm", "MatMul", "PRelu", "BatchNormalization",
    "InstanceNormalization", "LayerNormalization", "GroupNormalization", "Einsum",
})  # fmt: skip
_STORED = frozenset({"QuantizeLinear", "DequantizeLinear", "MatMulNBits"})


def decides(op: str, place: int, type_: TensorType) -> bool:
    """Whether the values of an operator's constant input say what is computed.

    ``op`` is without its domain; ``place`` counts its inputs from 0. Indices and sizes do, and so
    do the few floats that are bounds, scales or exponents.
    """
    if type_.dtype in WHOLE:
        return type_.dtype in _SIZES and not (op in _STORED or is_quantised(op))
    return is_number(op, type_) and (op in _BOUNDS or (op in STRUCTURAL and place > 0))


@lru_cache(maxsize=16_384)
def is_number(op: str, type_: TensorType) -> bool:
    """Whether floats that an operator reads may be numbers of the computation, no weights.

    Those of files are kept: ONNX Runtime's optimiser looks at each, such as the half of a Gelu.
    """
    if op in STRUCTURAL:
        return type_.elements <= SMALL_ELEMENTS
    return type_.elements == 1 and op not in LEARNED
