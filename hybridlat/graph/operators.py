"""What is known of operators over all engines: families, what constants and views do."""

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

from hybridlat.graph.network import TensorType
from hybridlat.graph.work import FAMILY_OF

Sizes = tuple[int, ...]
_FAMILIES = ("conv", "matmul", "pool", "pointwise", "reduce", "move", "other")
KINDS = {name: number for number, name in enumerate(_FAMILIES)}
"""Family of an operator and its number.

conv and matmul contract (FLOP = 2·M·N·K), pool reads a window per output, pointwise does a few
operations per element, reduce reads more than it writes, move computes nothing. Which operator is
of which family says the table of :mod:`hybridlat.graph.work`.
"""


def named(text: str) -> frozenset[str]:
    """The operators, types or attributes that a text names, with spaces between."""
    return frozenset(text.split())


_WHOLE_NUMBERS = named(
    "ConvInteger MatMulInteger MatMulIntegerToFloat QGemm DynamicQuantizeMatMul NhwcMaxPool "
    "DynamicQuantizeLSTM QAttention"
)
VIEWS = named("Reshape Flatten Squeeze Unsqueeze Identity Dropout")
"""Operators that give out the bytes that they read, in another shape at most."""
RECURRENT = named("LSTM GRU RNN")
_CHEAP = named("LeakyRelu Clip PRelu ThresholdedRelu")


@lru_cache(maxsize=4096)
def kind_of(qualified_op: str) -> int:
    """Number of the family of an operator, whatever its domain; ``other`` where unknown."""
    return KINDS[FAMILY_OF.get(qualified_op.rpartition("::")[2], "other")]


def contracts(qualified_op: str) -> bool:
    """Whether an operator is a convolution or a product."""
    return kind_of(qualified_op) <= KINDS["matmul"]


def is_quantised(op: str) -> bool:
    """Whether an operator (without its domain) computes with whole numbers of 8 bits."""
    return op.startswith("QLinear") or op in _WHOLE_NUMBERS


def weight_place(qualified_op: str) -> int:
    """Which input of a convolution or product is the second operand: scales come between."""
    op = qualified_op.rpartition("::")[2]
    return 3 if op in ("QLinearConv", "QLinearMatMul", "QGemm") else 1


def activation_class(name: str) -> int:
    """What a fused activation costs.

    0 nothing, 1 a Relu (one instruction, in the registers), 2 a compare and often a pass of its own
    over the output, 3 more.
    """
    return 0 if not name else 1 if name == "Relu" else 2 if name in _CHEAP else 3


# ---- which constants decide what is computed, and which are weights, whatever their values ----

# No engine's kernel depends on a weight's value: not on that of a filter, a learned scale of one
# number, the scales, zero points and biases of quantisation.
SMALL_ELEMENTS = 16
WHOLE = named("int64 int32 bool uint8 int8 int16 uint16 uint32 uint64 int4 uint4 int2 uint2")
"""Types of whole numbers."""
COMMUTES = named("Add Mul Sum Min Max")
"""Operators that read their operands in any order."""
SIZES = named("int64 int32 bool")
"""Types of indices and sizes."""
# Float operands that say what is computed: bounds, scales, an exponent.
STRUCTURAL = named("Resize Upsample Pad Clip Pow Range Expand")
# A single float given to these is a parameter that was learned, not part of the computation.
LEARNED = named(
    "Conv ConvTranspose Gemm MatMul PRelu BatchNormalization InstanceNormalization "
    "LayerNormalization RMSNormalization GroupNormalization Einsum"
)
QUANTISERS = frozenset({"QuantizeLinear", "DequantizeLinear"})
_STORED = QUANTISERS | {"MatMulNBits"}


def decides(op: str, place: int, type_: TensorType) -> bool:
    """Whether the values of an operator's constant input say what is computed.

    Indices and sizes do, and so do the few floats that are bounds, scales or exponents. ``op`` is
    without its domain; ``place`` counts its inputs from 0.
    """
    if type_.dtype in WHOLE:
        return type_.dtype in SIZES and not (op in _STORED or is_quantised(op))
    is_bound = op in ("Min", "Max") or (op in STRUCTURAL and place > 0)
    return is_bound and is_number(op, type_)


@lru_cache(maxsize=16_384)
def is_number(op: str, type_: TensorType) -> bool:
    """Whether floats that an operator reads may be numbers of the computation, no weights.

    Those of files are kept: ONNX Runtime's optimiser looks at each, such as the half of a Gelu.
    """
    if op in STRUCTURAL:
        return type_.elements <= SMALL_ELEMENTS
    return type_.elements == 1 and op not in LEARNED


SET = 17
"""The operator set in whose words networks are written: the newest that all of TensorRT reads."""


def packed(shape: Sequence[int], order: Sequence[int]) -> Sizes:
    """Strides of a tensor without gaps whose axes lie in this order, the last one innermost."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


Blocks = tuple[tuple[int, int], ...]
"""An order of elements, the outermost first: how many steps of how many elements."""


def joined(steps: Iterable[tuple[int, int]]) -> Blocks:
    """The same order in the fewest blocks: those that follow each other without a gap are one."""
    blocks = list[tuple[int, int]]()
    for size, step in steps:
        if size > 1:
            is_next = blocks and blocks[-1][1] == size * step
            blocks.append((size * blocks.pop()[0] if is_next else size, step))
    return tuple(blocks)


def split(blocks: Blocks, shape: Sizes) -> Blocks:
    """The blocks, cut where axes of the shape begin, if they can be cut there."""
    parts, inner = list[tuple[int, int]](), 1
    starts = sorted({math.prod(shape[axis:]) for axis in range(len(shape))})
    for size, step in reversed(blocks):
        for start in starts:
            part = start // inner
            if inner < start < inner * size and start == part * inner and not size % part:
                parts.append((part, step))
                size, step, inner = size // part, step * part, start
        parts.append((size, step))
        inner *= size
    return tuple(reversed(parts))


def turned(blocks: Blocks, shape: Sizes, order: Sizes) -> Blocks | None:
    """The order of the elements behind a turn of axes; None where a block crosses one."""
    parts, axes = split(blocks, shape), packed(shape, range(len(shape)))
    places = packed([size for size, _ in parts], range(len(parts)))
    if not {axis for axis, size in zip(axes, shape, strict=True) if size > 1} <= {*places}:
        return None
    ends = [(axes[axis], axes[axis] * shape[axis]) for axis in order]
    return joined([p for a, b in ends for p, at in zip(parts, places, strict=True) if a <= at < b])


def turns_between(shape: Sizes, blocks: Blocks, made: Sizes) -> list[tuple[Sizes, Sizes]]:
    """The views, and the turns (with their order of axes), that move elements so; their shapes.

    That is one where one will do, else a turn between views, of the axes of both ends.
    """
    if len(blocks) < 2:
        return [((), made)]
    parts = split(blocks, made)
    inner = split(tuple(sorted(parts, key=lambda part: -part[1])), shape)
    outer = [cut for size, step in parts for cut in inner if step <= cut[1] < step * size]
    before, behind = (tuple([size for size, _ in cuts]) for cuts in (inner, outer))
    wide, ones = ([a for a, size in enumerate(shape) if (size > 1) is w] for w in (True, False))
    places = [inner.index(part) for part in outer]
    ends = [tuple([size for size in end if size > 1]) for end in (shape, made)]
    if len(shape) == len(made) and ends == [before, behind]:
        turns = iter([wide[place] for place in places])
        return [(tuple([next(turns) if size > 1 else ones.pop(0) for size in made]), made)]
    lead = max(wide[0], [size > 1 for size in made].index(True))
    before, behind = (*[1] * lead, *before), (*[1] * lead, *behind)
    order = (*range(lead), *[lead + place for place in places])
    views = ((), before), (order, behind), ((), made)
    return [step for step, old in zip(views, (shape, (), behind), strict=True) if step[1] != old]


def reshaped(shape: Sizes, strides: Sizes, to: Sizes) -> Sizes | None:
    """Strides of another shape over the same bytes, None where there are none."""
    parts, made, step = [*split(joined(zip(shape, strides, strict=True)), to)], list[int](), 1
    if [size for size, _ in parts] != [size for size in to if size > 1]:
        return None
    for size in reversed(to):
        step = parts.pop()[1] if size > 1 else step
        made.append(step)
        step *= max(1, size)
    return tuple(reversed(made))
