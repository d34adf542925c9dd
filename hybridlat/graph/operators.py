"""Families of operators, over all engines: what decides which formula a kernel's work follows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from hybridlat.graph.work import FAMILY_OF

KINDS = {name: i for i, name in enumerate(
    ("conv", "matmul", "pool", "pointwise", "reduce", "move", "other")
)}  # fmt: skip
"""Family of an operator and its number.

conv and matmul contract (FLOP = 2·M·N·K), pool reads a window per output, pointwise does a few
operations per element, reduce reads more than it writes, move computes nothing. Which operator is
of which family says the table of :mod:`hybridlat.graph.work`.
"""

_KIND_OF = {op: KINDS[family] for op, family in FAMILY_OF.items()}
_WEIGHT_PLACE = {"QLinearConv": 3, "QLinearMatMul": 3, "QGemm": 3}
_WHOLE_NUMBERS = frozenset({
    "ConvInteger", "MatMulInteger", "MatMulIntegerToFloat", "QGemm", "DynamicQuantizeMatMul",
    "NhwcMaxPool",
})  # fmt: skip
_FREE = frozenset({"BatchNormalization", "Add", "Sum", "Identity", "Dropout", "Cast"})
VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"})
"""Operators that give out the bytes that they read, in another shape at most."""
_CHEAP = frozenset({"LeakyRelu", "Clip", "PRelu", "ThresholdedRelu"})


@lru_cache(maxsize=4096)
def kind_of(qualified_op: str) -> int:
    """Number of the family of an operator, whatever its domain; ``other`` where unknown."""
    return _KIND_OF.get(qualified_op.rpartition("::")[2], KINDS["other"])


def is_quantised(op: str) -> bool:
    """Whether an operator (without its domain) computes with whole numbers of 8 bits."""
    return op.startswith("QLinear") or op in _WHOLE_NUMBERS


def weight_place(qualified_op: str) -> int:
    """Which input of a convolution or product is the second operand: scales come between."""
    return _WEIGHT_PLACE.get(qualified_op.rpartition("::")[2], 1)


@dataclass(frozen=True, slots=True)
class Fusion:
    """A kernel that computes several operators of a file, as far as its cost goes.

    ``op`` is the operator that decides the cost, ``adds`` says whether a sum is among the others,
    ``activation`` the class of what is done to each element on the way out.
    """

    op: str
    adds: bool
    activation: int


@lru_cache(maxsize=4096)
def fusion(qualified_op: str) -> Fusion | None:
    """What a kernel of the domain ``fused`` (``fused::Conv+Add+Relu``) is; None for any other.

    Normalisation folds into the weights and counts nothing. A chain of pointwise operators is one
    kind of kernel, whatever its links. A convolution or product that reads through a transpose, or
    a convolution that pools its result, is that convolution, and so are several that run as one;
    two products with a softmax between them are attention. Other operators that both cost are a
    kind of their own.
    """
    domain, _, name = qualified_op.rpartition("::")
    if domain != "fused":
        return None
    members = name.split("+")
    heavy = [op for op in members if kind_of(op) not in (KINDS["pointwise"], KINDS["other"])]
    light = [op for op in members if kind_of(op) in (KINDS["pointwise"], KINDS["other"])]
    cost = max((activation_class(op) for op in light if op not in _FREE), default=0)
    unknown = [op for op in light if kind_of(op) == KINDS["other"]]
    contracting = [op for op in heavy if kind_of(op) <= KINDS["matmul"]]
    if len(contracting) == 2 and "Conv" not in heavy and "Softmax" in heavy:
        return Fusion("Attention", False, 0)
    reorders = heavy == ["Transpose", *contracting] and len(contracting) == 1
    if reorders or set(heavy) == {"Conv"} or heavy == ["Conv", "MaxPool"]:
        heavy = contracting[:1]
    main = "+".join(heavy + unknown) or "Pointwise"
    return Fusion(main, "Add" in members or "Sum" in members, cost)


def activation_class(name: str) -> int:
    """What a fused activation costs.

    0 none, 1 a Relu (one instruction, in the registers), 2 one that costs a compare and often a
    pass of its own over the output, 3 one that costs more.
    """
    return 0 if not name else 1 if name == "Relu" else 2 if name in _CHEAP else 3
