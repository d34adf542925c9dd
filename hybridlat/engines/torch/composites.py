"""Operators of a file that are one ATen call, as a table that is read from top to bottom."""

from __future__ import annotations

from hybridlat.engines.fusion.rewriter import Rule, Scene, gone, join
from hybridlat.engines.tensorrt.predicates import (
    all_of,
    by_constant,
    by_scalar,
    gates_itself,
    keeps_all,
    only_reader,
)

VIEW = "Reshape Flatten Squeeze Unsqueeze Transpose Slice Split Expand"


def reciprocal(s: Scene, upper: int, lower: int) -> bool:
    """The lower Div divides one by what the upper group makes: one call, ``rsqrt``."""
    first = s.only(lower).inputs[0]
    return first in s.network.constants and only_reader(s, upper, lower)


def behind_norm(s: Scene, upper: int, lower: int) -> bool:
    """The lower operator scales or shifts what the upper normalisation makes."""
    return by_constant(s, upper, lower) and s.ops(lower)[0] not in s.ops(upper)


def centres(s: Scene, upper: int, lower: int) -> bool:
    """The lower Sub takes the mean off, and what is left is squared and no more."""
    sub, readers = s.only(lower), s.lowers(lower)
    if s.only(upper).inputs[0] != sub.inputs[0] or not only_reader(s, upper, lower):
        return False
    return len(readers) == 1 and s.only(readers[0]).inputs == sub.outputs * 2


def attends(s: Scene, upper: int, lower: int) -> bool:
    """Both operands of both products are activations, as in attention."""
    activations = {name for name in s.only(lower).inputs if name in s.network.types}
    return only_reader(s, upper, lower) and len(activations) == 2


# fmt: off
COMPOSITES: tuple[Rule, ...] = (
    gone("inference", "Identity Dropout", "do nothing at inference"),
    gone("whole slice", "Slice", "keeps everything", keeps_all),
    gone("same type", "Cast", "is of that type already", keeps_all),
    join("silu", "Sigmoid", "Mul", "aten::silu", gates_itself, "SiLU"),
    join("hardswish", "HardSigmoid", "Mul", "aten::hardswish", gates_itself, "HardSwish"),
    join("mish", "Softplus", "Tanh", "aten::mish", only_reader, "SoftplusTanh"),
    join("mish", "SoftplusTanh", "Mul", "aten::mish", only_reader, "Mish"),
    join("gelu", "Div", "Erf", "aten::gelu", only_reader, "ErfGelu"),
    join("gelu", "ErfGelu", "Add", "aten::gelu", by_scalar),
    join("gelu", "ErfGelu", "Mul", "aten::gelu", only_reader, "HalfGelu"),
    join("gelu", "HalfGelu", "Mul", "aten::gelu", by_scalar, "Gelu"),
    join("variance", "ReduceMean", "Sub", "aten::var", centres, "Centred"),
    join("variance", "Centred", "Mul", "aten::var", only_reader, "Squared"),
    join("variance", "Squared", "ReduceMean", "aten::var", only_reader, "Variance"),
    join("variance", "Variance", "Mul Div", "aten::var", by_scalar),
    join("rsqrt", "Sqrt", "Div Reciprocal", "aten::rsqrt", reciprocal, "Rsqrt"),
    join("group norm", "InstanceNormalization", "Mul", "aten::group_norm", behind_norm),
    join("group norm", "InstanceNormalization", "Add", "aten::group_norm", behind_norm),
    join("linear", "MatMul", "Add", "aten::addmm", by_constant),
    join("attention", "MatMul", "Mul Div", "aten::scaled_dot_product_attention", all_of(by_scalar, only_reader), "Scores", since="2.0"),
    join("attention", "MatMul Scores", "Softmax", "aten::scaled_dot_product_attention", only_reader, "Attention", since="2.0"),
    join("attention", "Attention", "MatMul", "aten::scaled_dot_product_attention", attends, since="2.0"),
)
# fmt: on


def views(copies: frozenset[int]) -> Rule:
    """Views cost nothing, but for those that copy."""

    def is_free(s: Scene, upper: int, lower: int) -> bool:
        return s.members[lower][0] not in copies

    return gone("view", VIEW, "another view of the same bytes", is_free)
