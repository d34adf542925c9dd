"""What ``torch.compile`` runs: inductor's kernels.

Convolutions and matrix products are calls to a library. Everything else is code that inductor
writes: point-wise operators that hang together are one kernel, a reduction takes the point-wise
operators in front of it and those behind it that run over the same elements. Views cost nothing:
they are index arithmetic in whatever reads them. Nothing is folded into weights, so a batch
normalisation is one more point-wise operator (:func:`.torch_graph.as_module`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hybridlat.core.network import Lowered, Network
from hybridlat.core.target import Target
from hybridlat.lowering.fused import lowered_of
from hybridlat.lowering.rules import Rule, Scene, apply, join, unknown_operators
from hybridlat.lowering.tensorrt_conditions import all_of, any_of, only_reader
from hybridlat.lowering.torch_graph import COMPOSITES, Norms, as_module, to_file, views
from hybridlat.lowering.torch_precision import in_precision, is_cpu
from hybridlat.lowering.torch_views import copying

LIBRARY = "Conv ConvTranspose Gemm MatMul Attention Scores"
POINTWISE = (
    "Add Sub Mul Div Sum Mean Pow Sqrt Exp Log Neg Abs Min Max Erf Cast Relu LeakyRelu PRelu Clip "
    "Sigmoid Tanh Elu Selu HardSwish HardSigmoid Gelu Softplus Mish BatchNormalization SiLU Rsqrt "
    "ErfGelu SoftplusTanh Reciprocal Where Equal Greater Less Not And Or Floor Ceil Round"
)
COPY = (
    "Concat Pad DepthToSpace SpaceToDepth Gather Tile Resize Upsample "
    "Reshape Flatten Squeeze Unsqueeze Transpose Slice Split Expand"
)
WINDOW = "MaxPool AveragePool LRN"
REDUCE = "GlobalAveragePool GlobalMaxPool ReduceMean ReduceSum ReduceMax ReduceMin ReduceL2"
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
    join("reduction", _GENERATED, f"{REDUCE} {NORM}", "computed while it is reduced", makes="Reduction", pick="every"),
    join("reduction, result", f"{REDUCE} Reduction", _GENERATED, "done to the result", all_of(only_reader, same_elements), "Reduction"),
    join("reduction, elements", f"{REDUCE} {NORM} Reduction", _GENERATED, "a second pass over the same elements", any_of(reads_what_it_reduced, all_of(only_reader, same_elements)), "Reduction"),
)
# fmt: on


def lower(
    network: Network,
    version: str = "",
    precision: str = "fp32",
    *,
    norms: Norms = "told",
    bias_apart: bool = True,
) -> Lowered:
    """The kernels that inductor makes of the module that ``network`` was exported from.

    ``version`` is PyTorch's (``2.4``; empty is the newest); ``precision`` types the tensors
    (:func:`.torch_precision.in_precision`); ``norms`` and ``bias_apart`` say what is put back
    (:func:`.torch_graph.as_module`): on a CPU the library adds the bias. Operators that no rule
    names stay kernels of their own, and the warnings name them.
    """
    module = as_module(network, norms, bias_apart)
    table = (*COMPOSITES, views(copying(module.network)), *RULES)
    groups = apply(module.network, table, version)
    named = (*table, join("library", LIBRARY, LIBRARY, "a call"))
    unknown = unknown_operators(module.network, named)
    module, groups = in_precision(module, groups, precision, casts_apart=False)
    by = f"rules torch-compile{'-' + version if version else ''}"
    return to_file(module, lowered_of(module.network, groups, by, unknown))


def for_target(target: Target) -> Callable[[Network], Lowered]:
    """The lowering for a target's version and precision; a CPU's convolutions add the bias."""
    apart = not is_cpu(target)
    return partial(lower, version=target.version, precision=target.precision, bias_apart=apart)
