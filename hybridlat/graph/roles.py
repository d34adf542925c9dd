"""Which constants decide what an operator computes, and which are weights, whatever their values.

No engine's kernel depends on a weight's value: not on that of a filter, a learned scale of one
number, the scales, zero points and biases of quantisation.
"""

from __future__ import annotations

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
_STORED = frozenset({"QuantizeLinear", "DequantizeLinear", "MatMulNBits"})


def decides(op: str, place: int, type_: TensorType) -> bool:
    """Whether the values of an operator's constant input say what is computed.

    ``op`` is without its domain; ``place`` counts its inputs from 0. Indices and sizes do, and so
    do the few floats that are bounds, scales or exponents.
    """
    if type_.dtype in WHOLE:
        return type_.dtype in _SIZES and not (op in _STORED or is_quantised(op))
    if op in STRUCTURAL:
        return place > 0 and type_.elements <= SMALL_ELEMENTS
    return op in _BOUNDS and type_.elements == 1
