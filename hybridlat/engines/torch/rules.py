"""What PyTorch computes in one call or one kernel, as tables that are read from top to bottom.

``COMPOSITES`` are operators of a file that are one ATen call, ``INDUCTOR`` what the compiler fuses.
"""

from __future__ import annotations

from hybridlat.engines.fusion.rewriter import FusionState, Rule, eliminate, fuse
from hybridlat.engines.tensorrt.predicates import (
    all_of,
    any_of,
    by_constant,
    by_scalar,
    gates_itself,
    keeps_all,
    only_reader,
)

VIEW = "Reshape Flatten Squeeze Unsqueeze Transpose Slice Split Expand"


def reciprocal(s: FusionState, producer: int, consumer: int) -> bool:
    """The consuming Div divides one by what the producer makes: one call, ``rsqrt``."""
    first = s.only(consumer).inputs[0]
    return first in s.network.constants and only_reader(s, producer, consumer)


def behind_norm(s: FusionState, producer: int, consumer: int) -> bool:
    """The consuming operator scales or shifts what the producing normalisation makes."""
    return by_constant(s, producer, consumer) and s.ops(consumer)[0] not in s.ops(producer)


def centres(s: FusionState, producer: int, consumer: int) -> bool:
    """The consuming Sub takes the mean off, and what is left is squared and no more."""
    sub, readers = s.only(consumer), s.consumers_of(consumer)
    if s.only(producer).inputs[0] != sub.inputs[0] or not only_reader(s, producer, consumer):
        return False
    return len(readers) == 1 and s.only(readers[0]).inputs == sub.outputs * 2


def attends(s: FusionState, producer: int, consumer: int) -> bool:
    """Both operands of both products are activations, as in attention."""
    activations = {name for name in s.only(consumer).inputs if name in s.network.types}
    return only_reader(s, producer, consumer) and len(activations) == 2


# fmt: off
COMPOSITES: tuple[Rule, ...] = (
    eliminate("inference", "Identity Dropout", "do nothing at inference"),
    eliminate("whole slice", "Slice", "keeps everything", keeps_all),
    eliminate("same type", "Cast", "is of that type already", keeps_all),
    fuse("silu", "Sigmoid", "Mul", "aten::silu", gates_itself, "SiLU"),
    fuse("hardswish", "HardSigmoid", "Mul", "aten::hardswish", gates_itself, "HardSwish"),
    fuse("mish", "Softplus", "Tanh", "aten::mish", only_reader, "SoftplusTanh"),
    fuse("mish", "SoftplusTanh", "Mul", "aten::mish", only_reader, "Mish"),
    fuse("gelu", "Div", "Erf", "aten::gelu", only_reader, "ErfGelu"),
    fuse("gelu", "ErfGelu", "Add", "aten::gelu", by_scalar),
    fuse("gelu", "ErfGelu", "Mul", "aten::gelu", only_reader, "HalfGelu"),
    fuse("gelu", "HalfGelu", "Mul", "aten::gelu", by_scalar, "Gelu"),
    fuse("variance", "ReduceMean", "Sub", "aten::var", centres, "Centred"),
    fuse("variance", "Centred", "Mul", "aten::var", only_reader, "Squared"),
    fuse("variance", "Squared", "ReduceMean", "aten::var", only_reader, "Variance"),
    fuse("variance", "Variance", "Mul Div", "aten::var", by_scalar),
    fuse("rsqrt", "Sqrt", "Div Reciprocal", "aten::rsqrt", reciprocal, "Rsqrt"),
    fuse("group norm", "InstanceNormalization", "Mul", "aten::group_norm", behind_norm),
    fuse("group norm", "InstanceNormalization", "Add", "aten::group_norm", behind_norm),
    fuse("linear", "MatMul", "Add", "aten::addmm", by_constant),
    fuse("attention", "MatMul", "Mul Div", "aten::scaled_dot_product_attention", all_of(by_scalar, only_reader), "Scores", since="2.0"),
    fuse("attention", "MatMul Scores", "Softmax", "aten::scaled_dot_product_attention", only_reader, "Attention", since="2.0"),
    fuse("attention", "Attention", "MatMul", "aten::scaled_dot_product_attention", attends, since="2.0"),
)
# fmt: on


def free_views(copies: frozenset[int]) -> Rule:
    """Views cost nothing, but for those that copy."""

    def is_free(s: FusionState, producer: int, consumer: int) -> bool:
        return s.members[consumer][0] not in copies

    return eliminate("view", VIEW, "another view of the same bytes", is_free)


# ---- what inductor fuses ----

LIBRARY = "Conv ConvTranspose Gemm MatMul Attention Scores"
POINTWISE = (
    "Add Sub Mul Div Sum Mean Pow Sqrt Exp Log Neg Abs Min Max Erf Cast Relu LeakyRelu PRelu Clip "
    "Sigmoid Tanh Elu Selu HardSwish HardSigmoid Gelu Softplus Mish BatchNormalization SiLU Rsqrt "
    "ErfGelu HalfGelu SoftplusTanh Reciprocal Where Equal Greater Less Not And Or Floor Ceil Round"
)
COPY = (
    "Concat Pad DepthToSpace SpaceToDepth Gather Tile Resize Upsample "
    "Reshape Flatten Squeeze Unsqueeze Transpose Slice Split Expand"
)
WINDOW = "MaxPool AveragePool LRN"
REDUCE = (
    "Variance GlobalAveragePool GlobalMaxPool ReduceMean ReduceSum ReduceMax ReduceMin ReduceL2"
)
NORM = "Softmax LogSoftmax LayerNormalization InstanceNormalization GroupNormalization"
_GENERATED = f"{POINTWISE} {COPY} Generated"


def same_elements(s: FusionState, producer: int, consumer: int) -> bool:
    """Both groups make as many elements: one loop can do both."""
    return s.output(producer).elements == s.output(consumer).elements


def reads_what_it_reduced(s: FusionState, producer: int, consumer: int) -> bool:
    """The consumer runs over the elements that the producer has reduced along one axis."""
    source = next((n for n in s.nodes(producer)[-1].inputs if n in s.network.types), "")
    if not source:
        return False
    read, made = s.network.types[source], s.output(consumer)
    kept = s.output(producer).shape
    reduced = sum(a != b for a, b in zip(read.shape, kept, strict=False))
    return made.elements == read.elements and len(kept) == len(read.shape) and reduced == 1


# fmt: off
INDUCTOR: tuple[Rule, ...] = (
    fuse("point-wise", _GENERATED, _GENERATED, "one loop, or computed where it is read", any_of(same_elements, only_reader), "Generated", match_policy="every"),
    fuse("window", WINDOW, _GENERATED, "one loop", all_of(only_reader, same_elements), "Window"),
    fuse("window", "Window", _GENERATED, "one loop", all_of(only_reader, same_elements)),
    fuse("reduction", _GENERATED, f"{REDUCE} {NORM}", "computed while it is reduced", only_reader, "Reduction", match_policy="every"),
    fuse("reduction, result", f"{REDUCE} Reduction", _GENERATED, "done to the result", all_of(only_reader, same_elements), "Reduction"),
    fuse("reduction, elements", f"{REDUCE} {NORM} Reduction", _GENERATED, "a second pass over the same elements", any_of(reads_what_it_reduced, all_of(only_reader, same_elements)), "Reduction"),
)
# fmt: on
