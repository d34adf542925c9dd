"""What TensorRT fuses, as a table that is read from top to bottom.

By NVIDIA's list of fusions and published listings of engines of 7.1 to 10.7. First convolutions
take a ReLU or a clip, and a sum that no such thing stands before. Those of one tensor with the same
windows become one. Chains of element-wise operators become one kernel. In half precision a
convolution takes that if it is quicker; in whole numbers before convolutions become one. Concats
and Splits are no kernels, but some parts are copied: see :mod:`.conditions`.

From version 10 on TensorRT gives what it can to a compiler, Myelin, whose kernels stand here as
TensorRT-RTX's compiler makes them: convolutions and products are ready-made, with a small epilogue.
Everything else that hangs together (element-wise operators, copies, reductions) becomes one
generated kernel. These rules hold in regions: what Myelin takes.
"""

from __future__ import annotations

from hybridlat.engines.fusion import conditions as when
from hybridlat.engines.fusion.conditions import all_of, any_of, unless
from hybridlat.engines.fusion.rules import Eliminate, Fuse, Rule
from hybridlat.engines.tensorrt import conditions as trt
from hybridlat.graph.network import Network
from hybridlat.graph.operators import KINDS, kind_of, named

CONV = "Conv ConvTranspose"
MEAN = "ReduceMean GlobalAveragePool"
VIEW = "Reshape Flatten Squeeze Unsqueeze"
NORM = "LayerNormalization RMSNormalization"
CHAINED = "SiLU Swish LeakyRelu HardSwish HardSigmoid Gelu Mish Sigmoid Tanh Elu"
ACTIVATION = "Relu Clip Sigmoid Tanh PRelu Elu"
POINTWISE = (
    "Add Sub Mul Div Sum Pow Sqrt Exp Neg Abs Min Max Erf Relu Softplus Reciprocal Clip Elementwise "
    "Selu Softsign " + CHAINED
)
ELEMENTWISE = f"{POINTWISE} PRelu Cast BatchNormalization Affine"
COPY = "Concat Split Slice Transpose Pad Expand DepthToSpace SpaceToDepth Gather Shuffle"
GENERATED = f"{ELEMENTWISE} {COPY} Softmax ReduceSum ReduceMax Generated"
OWN = "AveragePool GlobalMaxPool Resize ReduceL2 Tile"
"""Kernels that no rule joins with others."""
_BUILT_IN = named("Conv ConvTranspose MaxPool AveragePool GlobalAveragePool Resize Upsample Gemm")
_MAP = 4  # dimensions of feature maps
_COMPUTES = frozenset({KINDS["pointwise"], KINDS["matmul"], KINDS["reduce"]})

_takes_chain = all_of(
    when.only_reader,
    trt.is_half,
    unless(trt.makes_few_channels),
    any_of(trt.is_int8, unless(any_of(trt.reads_pixels, trt.has_a_twin))),
)
_takes_both = all_of(trt.is_half, unless(trt.is_int8), trt.large_maps)
_adds = all_of(when.only_reader, trt.same_shape, unless(when.holds("Relu", "Clip", "Add", "Sum")))
_adds_up = all_of(trt.is_half, when.only_reader, when.holds("Add", "Sum"))


# fmt: off
RULES: tuple[Rule, ...] = (
    # upper operators or kinds, lower ones, reason, condition, kind that it makes
    Eliminate("Identity Dropout", "do nothing at inference"),
    Eliminate("Pad", "zeros around a convolution's input are its own padding", all_of(trt.pads_zeros, trt.only_convolutions_read)),

    # Patterns that count as one operator below.
    Fuse("BatchNormalization", "Mul", "one scale and shift per channel", when.by_constant, "Affine"),
    Fuse("Affine", "Add", "one scale and shift per channel", when.by_constant),
    Fuse("Sigmoid", "Mul", "x * sigmoid(x) is one activation", when.gates_itself, "SiLU"),
    Fuse("Softplus", "Tanh", "x * tanh(softplus(x)) is one activation", when.only_reader, "SoftTanh"),
    Fuse("SoftTanh", "Mul", "x * tanh(softplus(x)) is one activation", when.gates_itself, "Mish"),
    Fuse("Reshape", "Transpose", "one copy", when.only_reader, "Shuffle"),
    Fuse("Transpose", "Shuffle", "one copy: the layer turns axes before its view and behind", when.only_reader),

    # What a following generated kernel takes before a convolution can.
    Fuse("BatchNormalization Affine", "Relu", "one element-wise kernel", when.only_reader, "Affine"),
    Fuse("Relu", "Reshape", "a sum over split channels takes the activation", when.read_by("ReduceSum"), "Generated", in_region=True),
    Fuse("HardSwish BatchNormalization Affine", MEAN, "the reduction applies the activation, on maps of an odd size", all_of(trt.is_global, trt.odd_maps), "Reduction", in_region=True),

    # Epilogues of convolutions.
    Fuse(CONV, "Mul", "scaled weights", all_of(when.by_constant, trt.scales_channels), before="10"),
    Fuse(CHAINED, "Add Sum", "one element-wise kernel", when.only_reader, "Elementwise", before="8.6"),
    Fuse(CHAINED, "Add Sum", "one element-wise kernel; a convolution is quicker with both on large maps", all_of(when.only_reader, unless(_takes_both)), "Elementwise", since="8.6"),
    Fuse(CONV, "Relu Clip", "epilogue", when.only_reader),
    Fuse("Conv", "MaxPool", "convolution of an image and its pooling", all_of(trt.is_int8, when.only_reader, when.holds("Relu"), trt.reads_pixels)),
    Fuse(CONV, CHAINED, "epilogue, if that is quicker", all_of(_takes_chain, unless(trt.is_depthwise))),
    Fuse(CONV, CHAINED, "epilogue, if that is quicker", _takes_chain, before="10.7"),
    Fuse(CONV, "Mul", "epilogue, unless a generated kernel follows anyway", all_of(when.by_constant, any_of(trt.is_fully_connected, unless(trt.before_generated))), in_region=True),
    Fuse(CONV, "Add Sum", "residual: the branch that the sum names first adds, in whole numbers", all_of(trt.is_int8, _adds, trt.is_added_first), since="8.4", before="8.5"),
    Fuse(CONV, "Add Sum", "residual: the branch that the sum names first adds", all_of(_adds, trt.is_added_first), since="8.5", before="9"),
    Fuse(CONV, "Add Sum", "residual: the last branch adds; none with an activation", _adds),
    Fuse(CONV, f"{ACTIVATION} LeakyRelu", "epilogue", all_of(when.only_reader, when.holds("Add", "Sum"))),
    Fuse(CONV, "SiLU Swish", "epilogue", _adds_up, since="10"),

    # Epilogues of products.
    Fuse("Gemm MatMul", "Add", "epilogue", when.by_constant),
    Fuse("Gemm MatMul", ACTIVATION, "epilogue", when.only_reader),
    Fuse("Gemm MatMul", "Gelu", "epilogue"),
    Fuse("Gemm MatMul", "Mul", "epilogue", when.by_constant, in_region=True),

    # Kernels of their own kind.
    Fuse("InstanceNormalization GroupNormalization", "Relu", "applied on the way out, unless FP32 maps are too large", all_of(when.only_reader, any_of(trt.is_half, trt.few_pixels))),
    Fuse(ELEMENTWISE, "Transpose", "read transposed, all in one pass", all_of(when.only_reader, when.read_by(NORM)), "Transpose", in_region=True),
    Fuse("Transpose", NORM, "read transposed", when.only_reader, "Norm", in_region=True),
    Fuse(f"{NORM} Norm", NORM, "one pass over the same rows", makes="Norm", in_region=True),
    Eliminate("Transpose", "moves axes of size 1 only", trt.layout_unchanged),
    Fuse("Transpose", "Conv", "a convolution that is no matrix product reads any layout", all_of(when.only_reader, unless(when.of_consumer(trt.is_fully_connected))), "Conv", in_region=True),

    # Everything else that hangs together is one generated kernel.
    Fuse(VIEW, "Concat Split Slice Transpose Gather Shuffle", "a copy reads another shape", makes="Generated", match_policy="every", in_region=True),
    Fuse(GENERATED, GENERATED, "one generated kernel", unless(trt.writes_in_place), "Generated", match_policy="every", in_region=True),
    Fuse(VIEW, "Generated", "a sum over parts reads them in place", when.of_consumer(when.holds("ReduceSum")), "Generated", match_policy="every", in_region=True),
    Fuse(GENERATED, f"Norm {NORM}", "one generated kernel", makes="Generated", in_region=True),
    Fuse(GENERATED, MEAN, "the reduction takes what it reads", all_of(trt.is_global, trt.odd_maps), "Reduction", in_region=True),
    Eliminate(VIEW, "another shape of the same bytes", trt.layout_unchanged),
    Fuse(GENERATED, "Generated", "a sum over parts makes its weights", all_of(when.only_reader, when.holds("Softmax"), when.of_consumer(when.holds("ReduceSum"))), "Generated", in_region=True),

    # What is left of element-wise operators, Splits and Concats.
    Fuse(POINTWISE, POINTWISE, "a chain is one kernel", all_of(when.only_reader, trt.same_shape), "Elementwise", match_policy="every"),
    Fuse("Conv", "Conv", "convolutions of one tensor with the same windows", trt.is_a_twin, match_policy="beside"),
    Eliminate("Split Slice", "read where they lie", trt.is_read_in_place),
    Eliminate("Concat", "written in place", trt.is_in_place),
    Eliminate("Concat", "the parts are written in place", trt.writes_in_place),
)
# fmt: on


def compiled(network: Network) -> frozenset[int]:
    """Positions of operators that Myelin compiles in a network without layer normalisations.

    A published engine of 10.7 has them around what computes on anything but feature maps, with the
    copies and views that hang on it.
    """
    nodes, types = network.nodes, network.types
    free = {i for i, node in enumerate(nodes) if node.op not in _BUILT_IN}

    def computes_apart(position: int) -> bool:
        node = nodes[position]
        ranks = [len(types[name].shape) for name in node.inputs if name in types]
        return kind_of(node.op) in _COMPUTES and bool(ranks) and max(ranks) != _MAP

    waiting = [i for i in free if computes_apart(i)]
    region = set(waiting)
    while waiting:
        node = nodes[waiting.pop()]
        beside = {network.producers[name] for name in node.inputs if name in network.producers}
        beside.update(i for out in node.outputs for i in network.consumers.get(out, ()))
        waiting += (beside & free) - region
        region |= beside & free
    return frozenset(region)
