"""What inductor fuses, as a table that is read from top to bottom."""

from __future__ import annotations

from hybridlat.engines.fusion.rewriter import FusionState, Rule, fuse
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
RULES: tuple[Rule, ...] = (
    fuse("point-wise", _GENERATED, _GENERATED, "one loop, or computed where it is read", any_of(same_elements, only_reader), "Generated", match_policy="every"),
    fuse("window", WINDOW, _GENERATED, "one loop", all_of(only_reader, same_elements), "Window"),
    fuse("window", "Window", _GENERATED, "one loop", all_of(only_reader, same_elements)),
    fuse("reduction", _GENERATED, f"{REDUCE} {NORM}", "computed while it is reduced", only_reader, "Reduction", match_policy="every"),
    fuse("reduction, result", f"{REDUCE} Reduction", _GENERATED, "done to the result", all_of(only_reader, same_elements), "Reduction"),
    fuse("reduction, elements", f"{REDUCE} {NORM} Reduction", _GENERATED, "a second pass over the same elements", any_of(reads_what_it_reduced, all_of(only_reader, same_elements)), "Reduction"),
)
# fmt: on
