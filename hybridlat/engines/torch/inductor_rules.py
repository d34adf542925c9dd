"""What inductor fuses, as a table that is read from top to bottom."""

from __future__ import annotations

from hybridlat.engines.fusion.rewriter import Rule, Scene, join
from hybridlat.engines.tensorrt.predicates import all_of, any_of, only_reader

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


def same_elements(s: Scene, upper: int, lower: int) -> bool:
    """Both groups make as many elements: one loop can do both."""
    return s.output(upper).elements == s.output(lower).elements


def reads_what_it_reduced(s: Scene, upper: int, lower: int) -> bool:
    """The lower group runs over the elements that the upper group has reduced along one axis."""
    source = next((n for n in s.nodes(upper)[-1].inputs if n in s.network.types), "")
    if not source:
        return False
    read, made = s.network.types[source], s.output(lower)
    kept = s.output(upper).shape
    reduced = sum(a != b for a, b in zip(read.shape, kept, strict=False))
    return made.elements == read.elements and len(kept) == len(read.shape) and reduced == 1


# fmt: off
RULES: tuple[Rule, ...] = (
    join("point-wise", _GENERATED, _GENERATED, "one loop, or computed where it is read", any_of(same_elements, only_reader), "Generated", pick="every"),
    join("window", WINDOW, _GENERATED, "one loop", all_of(only_reader, same_elements), "Window"),
    join("window", "Window", _GENERATED, "one loop", all_of(only_reader, same_elements)),
    join("reduction", _GENERATED, f"{REDUCE} {NORM}", "computed while it is reduced", only_reader, "Reduction", pick="every"),
    join("reduction, result", f"{REDUCE} Reduction", _GENERATED, "done to the result", all_of(only_reader, same_elements), "Reduction"),
    join("reduction, elements", f"{REDUCE} {NORM} Reduction", _GENERATED, "a second pass over the same elements", any_of(reads_what_it_reduced, all_of(only_reader, same_elements)), "Reduction"),
)
# fmt: on
