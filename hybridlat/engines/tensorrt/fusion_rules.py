"""What TensorRT fuses, as a table that is read from top to bottom.

``RTX`` is TensorRT-RTX 1.7, whose compiler tells the layers it makes: the table was shaped on half
of the project's networks, on two thirds of a larger folder of architectures, and on small made-up
graphs of common patterns. Tests hold it against that compiler, on networks it was not shaped on
too. Where the compiler is installed, :mod:`hybridlat.engines.rtx_compiler` asks it instead. ``MYELIN`` is the part
that classic TensorRT shares from version 10 on, for networks with layer normalisations.

``CLASSIC`` is TensorRT itself, by NVIDIA's list of fusions and published listings of engines of 7.1
to 10.7. First convolutions take a ReLU or a clip, and a sum that no such thing stands before. Those
of one tensor with the same windows become one. Chains of element-wise operators become one kernel.
In half precision a convolution takes that if it is quicker; in whole numbers before convolutions
become one. Concats and Splits are no kernels, but some parts are copied: see :mod:`.conditions`.

How Myelin works, as far as it can be seen: convolutions and products are ready-made kernels
with a small epilogue. Everything else that hangs together (element-wise operators, copies,
reductions) becomes one generated kernel. An epilogue beyond ReLU costs a convolution its fastest
kernels, so it moves into a generated kernel wherever one has to follow anyway. In half precision a
wide dense 1x1 convolution is a matrix product: it takes a scale, but no sum behind an epilogue.
"""

from __future__ import annotations

from dataclasses import replace

from hybridlat.engines.fusion import conditions as when
from hybridlat.engines.fusion.conditions import all_of, any_of, unless
from hybridlat.engines.fusion.rules import Eliminate, Fuse, Group, Rule
from hybridlat.engines.tensorrt import conditions as trt
from hybridlat.graph.network import Network
from hybridlat.graph.operators import KINDS, kind_of, named

CLASSIC, RTX, MYELIN = "tensorrt", "tensorrt-rtx", "myelin"
CONV = "Conv ConvTranspose"
MEAN = "ReduceMean GlobalAveragePool"
VIEW = "Reshape Flatten Squeeze Unsqueeze"
CHAINED = "SiLU Swish LeakyRelu HardSwish HardSigmoid Gelu TanhGelu Mish Sigmoid Tanh Elu"
ACTIVATION = "Clip Sigmoid Tanh PRelu Elu"  # cheap ones, next to Relu, that Myelin's conv takes
POINTWISE = (
    "Add Sub Mul Div Sum Pow Sqrt Exp Neg Abs Min Max Erf Relu Softplus Reciprocal Clip Elementwise "
    + CHAINED
)
ELEMENTWISE = f"{POINTWISE} PRelu Cast BatchNormalization Affine Gate"
COPY = "Concat Split Slice Transpose Pad Expand DepthToSpace SpaceToDepth Gather Shuffle Written"
GENERATED = f"{ELEMENTWISE} {COPY} Softmax ReduceSum ReduceMax Generated"
_BUILT_IN = named("Conv ConvTranspose MaxPool AveragePool GlobalAveragePool Resize Upsample Gemm")
_MAP = 4  # dimensions of feature maps
_COMPUTES = frozenset({KINDS["pointwise"], KINDS["matmul"], KINDS["reduce"]})

# What keeps an operator out of a convolution that reaches it.
_scale_and_shift_apart = all_of(when.before_generated, unless(when.ends_in("Relu")))
_scale_apart = any_of(
    trt.is_winograd,  # fast 3x3 kernels have no epilogue but ReLU
    trt.is_a_classifier,
    trt.before_scaled_branches,
    all_of(when.before_generated, any_of(when.by_scalar, unless(trt.is_fully_connected))),
)
_sum_apart = any_of(
    all_of(
        trt.is_fully_connected,
        when.holds("Add", "BatchNormalization", "Mul", "Relu", "LeakyRelu", "Sigmoid", "Clip"),
    ),
    all_of(when.holds("Add"), when.before_generated),
    all_of(when.holds("Mul"), when.before_odd_mean),
)
_takes_chain = all_of(
    when.only_reader,
    when.is_half,
    unless(trt.makes_few_channels),
    any_of(when.is_int8, unless(any_of(trt.reads_pixels, trt.has_a_twin))),
)
_takes_both = all_of(when.is_half, unless(when.is_int8), when.large_maps)
_adds = all_of(when.only_reader, when.same_shape, unless(when.holds("Relu", "Clip", "Add", "Sum")))
_silu_of_a_sum = any_of(
    all_of(when.only_reader, when.holds("Add", "Sum")),
    all_of(when.holds("Add"), when.holds("Mul"), unless(trt.is_fully_connected)),
)
_gelu_apart = all_of(when.read_by("ReduceL2"), unless(trt.is_fully_connected))
_mean_takes = any_of(
    when.odd_maps,
    when.holds("Sigmoid"),
    all_of(
        when.only_reader,
        when.holds("BatchNormalization", "Mul"),
        unless(when.holds("Resize")),
        unless(when.squares),
    ),
)
_copied_for_a_norm = all_of(
    when.made_by(*CONV.split()), when.read_by("InstanceNormalization", "GroupNormalization")
)


# fmt: off
RULES: tuple[Rule, ...] = (
    # name, upper operators or kinds, lower ones, reason, condition, kind that it makes
    Eliminate("Identity Dropout", "do nothing at inference"),
    Eliminate("Cast", "changes nothing", when.keeps_type),
    Eliminate("Concat", "nothing to put together", when.reads_one, engine=RTX),
    Eliminate("Pad", "zeros around a convolution's input are its own padding", all_of(when.pads_zeros, when.only_convolutions_read)),
    Eliminate("AveragePool MaxPool", "gives out what it reads", all_of(when.pools_one_by_one, when.keeps_all)),
    Eliminate("Slice", "keeps everything", when.keeps_all),

    # Patterns that count as one operator below.
    Fuse("BatchNormalization", "Mul", "one scale and shift per channel", when.by_constant, "Affine"),
    Fuse("Affine", "Add", "one scale and shift per channel", when.by_constant),
    Fuse("Sigmoid", "Mul", "x * sigmoid(x) is one activation", when.gates_itself, "SiLU"),
    Fuse("Div", "Erf", "the exact GELU, written out", when.only_reader, "ErfGelu"),
    Fuse("ErfGelu", "Add", "the exact GELU, written out", when.only_reader),
    Fuse("ErfGelu", "Mul", "the exact GELU, written out", when.only_reader, "Gelu"),
    Fuse("Gelu", "Mul", "the exact GELU, written out", when.by_scalar),
    Fuse("Mul", "Mul", "the approximate GELU, written out", all_of(when.only_reader, when.squares), "TanhGelu"),
    Fuse("TanhGelu", "Mul Add Tanh", "the approximate GELU, written out", when.only_reader),
    Fuse("Softplus", "Tanh", "x * tanh(softplus(x)) is one activation", when.only_reader, "SoftTanh", engine=CLASSIC),
    Fuse("SoftTanh", "Mul", "x * tanh(softplus(x)) is one activation", when.gates_itself, "Mish", engine=CLASSIC),
    Fuse("Reshape", "Transpose", "one copy", when.only_reader, "Shuffle"),

    # What a following generated kernel takes before a convolution can.
    Fuse("Concat", "BatchNormalization Affine", "the copy scales", when.other_readers_are_concats, "Written", engine=MYELIN),
    Fuse("Concat", "Relu", "the copy applies the ReLU", when.only_reader, "Written", engine=MYELIN),
    Fuse("Written", "Relu", "the copy applies the ReLU", when.only_reader, engine=MYELIN),
    Fuse("Written", "SiLU Swish", "the copy applies the activation", engine=MYELIN),
    Fuse("BatchNormalization Affine", "Relu", "one element-wise kernel", when.only_reader, "Affine"),
    Fuse("Affine", "Shuffle", "the copy scales, on small maps", all_of(when.only_reader, when.maps_smaller_than(197)), "Shuffle", engine=MYELIN),
    Fuse("Relu", "Reshape", "a sum over split channels takes the activation", when.read_by("ReduceSum"), "Generated", engine=MYELIN),
    Fuse("SiLU Swish Written", MEAN, "the reduction applies the activation", all_of(when.is_global, when.holds("Sigmoid", "Swish")), "Reduction", engine=MYELIN),
    Fuse("SiLU Swish LeakyRelu", "Resize", "applied while resizing into its place", all_of(when.only_reader, when.read_by("Concat")), "Resize", engine=MYELIN),
    Fuse("Concat Written", MEAN, "the reduction reads the parts", all_of(when.is_global, when.only_reader), "Reduction", engine=MYELIN),
    Fuse("HardSwish BatchNormalization Affine", MEAN, "the reduction applies the activation, on small maps or those of an odd size", all_of(when.is_global, any_of(when.odd_maps, when.small_maps)), "Reduction", engine=MYELIN),
    Fuse("Relu", MEAN, "a grouped convolution is summed up where it is reduced", all_of(when.is_global, trt.made_by_grouped), "Reduction", engine=MYELIN),
    Fuse(CONV, "HardSigmoid", "epilogue of a matrix product", all_of(trt.is_fully_connected, when.only_reader), engine=MYELIN),
    Fuse("HardSigmoid", "Mul", "the gate is made where it is used", when.only_reader, "Gate", engine=MYELIN),
    Fuse("Gate", MEAN, "the reduction applies the gate", when.only_reader, "Reduction", engine=MYELIN),

    # Statistics of groups of channels: small groups in one pass, large ones in a pass for each mean.
    Fuse(VIEW, "ReduceMean", "read as groups", when.reduces_groups, "Moment", engine=MYELIN),
    Fuse("Moment", "Sub", "one pass over a small group", when.of_small_groups, engine=MYELIN),
    Fuse("Moment Sub", "Mul", "squared in the same pass", all_of(when.only_reader, when.feeds_a_group_mean), "Moment", engine=MYELIN),
    Fuse("Moment", "ReduceMean", "the mean of squares", when.reduces_groups, engine=MYELIN),
    Fuse("Moment", "Add", "its root in the same pass", all_of(when.of_small_groups, when.by_scalar), engine=MYELIN),
    Fuse("Moment", "Sqrt", "its root in the same pass", when.of_small_groups, engine=MYELIN),
    Fuse("ReduceMean", "Add", "the root of a mean", all_of(when.is_global, when.by_scalar, when.read_by("Sqrt")), engine=MYELIN),
    Fuse("ReduceMean", "Sqrt", "the root of a mean", all_of(when.is_global, when.only_reader), engine=MYELIN),
    Fuse("ReduceMean", "Div", "the root of a mean", all_of(when.is_global, when.holds("Sqrt")), engine=MYELIN),
    Fuse("Expand", VIEW, "a number is repeated in any shape", when.only_reader, engine=MYELIN),

    # Epilogues of convolutions.
    Fuse(CHAINED, "Add Sum", "one element-wise kernel", when.only_reader, "Elementwise", before="8.6", engine=CLASSIC),
    Fuse(CHAINED, "Add Sum", "one element-wise kernel; a convolution is quicker with both on large maps", all_of(when.only_reader, unless(_takes_both)), "Elementwise", since="8.6", engine=CLASSIC),
    Fuse(CONV, "BatchNormalization Affine", "scale and shift in the epilogue", all_of(any_of(when.only_reader, trt.is_fully_connected), unless(_scale_and_shift_apart))),
    Fuse(CONV, "HardSwish", "epilogue", all_of(when.only_reader, unless(trt.is_a_classifier), unless(when.before_generated)), engine=RTX),
    Fuse(CONV, "LeakyRelu", "epilogue", all_of(when.only_reader, unless(when.before_generated)), engine=RTX),
    Fuse(CONV, "Relu Clip", "epilogue", when.only_reader, engine=CLASSIC),
    Fuse(CONV, f"Relu {ACTIVATION}", "epilogue", any_of(when.only_reader, trt.is_fully_connected), engine=RTX),
    Fuse("Conv", "MaxPool", "convolution of an image and its pooling", all_of(when.is_int8, when.only_reader, when.holds("Relu"), trt.reads_pixels), engine=CLASSIC),
    Fuse(CONV, CHAINED, "epilogue, if that is quicker", all_of(_takes_chain, unless(trt.is_depthwise)), engine=CLASSIC),
    Fuse(CONV, CHAINED, "epilogue, if that is quicker", _takes_chain, before="10.7", engine=CLASSIC),
    Fuse(CONV, "SiLU Swish", "epilogue", engine=RTX),
    Fuse(CONV, "Gelu TanhGelu", "epilogue", all_of(when.only_reader, unless(_gelu_apart)), engine=RTX),
    Fuse(CONV, "BatchNormalization Affine", "epilogue", all_of(when.only_reader, unless(when.before_generated)), engine=MYELIN),
    Fuse(CONV, "Pow", "epilogue", when.by_scalar, engine=MYELIN),
    Fuse(CONV, "Mul", "epilogue", all_of(when.by_constant, unless(_scale_apart)), engine=MYELIN),
    Fuse(CONV, "Add", "epilogue", all_of(when.by_scalar, when.holds("Mul")), engine=MYELIN),
    Fuse(CONV, "Mul", "the branch with the activation multiplies", all_of(when.only_reader, when.reads_two, when.same_shape, when.holds("Clip", "Relu", "Sigmoid", "Tanh")), match_policy="first", engine=MYELIN),
    Fuse(CONV, "Add", "residual: a grouped 1x1 branch adds", all_of(when.only_reader, trt.adds_a_grouped_branch), match_policy="first", engine=MYELIN),
    Fuse(CONV, "Add Sum", "residual: a branch without epilogue adds", all_of(when.only_reader, when.same_shape, unless(when.holds("Mul")), trt.adds_a_scaled_branch), engine=MYELIN),
    Fuse(CONV, "Add Sum", "residual: the first branch adds when scales are not folded", all_of(when.only_reader, when.holds("BatchNormalization"), unless(trt.is_fully_connected)), match_policy="first"),
    Fuse(CONV, "Add Sum", "residual: the branch that the sum names first adds, in whole numbers", all_of(when.is_int8, _adds, trt.is_added_first), since="8.4", before="8.5", engine=CLASSIC),
    Fuse(CONV, "Add Sum", "residual: the branch that the sum names first adds", all_of(_adds, trt.is_added_first), since="8.5", before="9", engine=CLASSIC),
    Fuse(CONV, "Add Sum", "residual: the last branch adds; none with an activation", _adds, engine=CLASSIC),
    Fuse(CONV, "Add Sum", "residual: the last branch adds; a matrix product with an epilogue does not", all_of(when.only_reader, when.same_shape, unless(_sum_apart)), engine=RTX),
    Fuse(CONV, "Sub", "epilogue", all_of(when.only_reader, when.holds("Add"), unless(when.is_half)), engine=MYELIN),
    Fuse(CONV, f"Relu {ACTIVATION}", "epilogue", all_of(when.only_reader, when.holds("Add", "Sum"))),
    Fuse(CONV, "BatchNormalization Affine", "epilogue", all_of(when.only_reader, when.holds("Add", "Sum"), unless(when.before_generated)), engine=MYELIN),
    Fuse(CONV, "SiLU Swish", "epilogue; with scales the sum is written as well", all_of(when.is_half, _silu_of_a_sum), since="10", engine=CLASSIC),
    Fuse(CONV, "SiLU Swish", "epilogue; with scales the sum is written as well", _silu_of_a_sum, engine=RTX),
    Fuse(CONV, "Mul", "epilogue", all_of(when.by_constant, when.holds("Add"), unless(trt.is_fully_connected)), engine=MYELIN),
    Fuse(CONV, "Add", "epilogue", all_of(when.only_reader, when.holds("Sub")), engine=MYELIN),
    Fuse(CONV, "LeakyRelu", "epilogue", all_of(when.only_reader, when.holds("Add", "Sum"), unless(when.before_generated))),
    Fuse(CONV, "BatchNormalization", "a residual epilogue writes a second, scaled result", all_of(trt.branches_together, trt.adds_twice), engine=MYELIN),
    Fuse(CONV, "Mul", "a residual epilogue writes a second, scaled result", all_of(when.by_one_constant, trt.branches_together, unless(trt.is_fully_connected), unless(when.of_producer(when.read_by("Reshape")))), engine=MYELIN),

    # Epilogues of products.
    Fuse("Gemm MatMul", "Add", "epilogue, unless a copy follows in half precision", all_of(when.by_constant, unless(all_of(when.is_half, when.read_by("Split"))))),
    Fuse("Gemm MatMul", f"Relu {ACTIVATION}", "epilogue", when.only_reader),
    Fuse("Gemm MatMul", "Mul", "epilogue", when.by_constant, engine=MYELIN),
    Fuse("Gemm MatMul", "Gelu TanhGelu", "epilogue", unless(when.read_by("LayerNormalization", "RMSNormalization"))),

    # Kernels of their own kind.
    Fuse("Relu", "Resize", "applied while resizing", when.only_reader, "Resize", engine=MYELIN),
    Fuse("InstanceNormalization GroupNormalization", "Relu", "applied on the way out, unless FP32 maps are too large", all_of(when.only_reader, any_of(when.is_half, when.maps_smaller_than(6401)))),
    Eliminate("Transpose", "moves axes of size 1 only", all_of(when.layout_unchanged, when.read_by("LayerNormalization", "RMSNormalization"), when.made_by(*CONV.split()))),
    Fuse("Split", "Transpose", "one copy", engine=MYELIN),
    Fuse("Gelu SiLU Swish", "Mul", "made where it is used", when.only_reader, engine=MYELIN),
    Fuse(ELEMENTWISE, "Transpose", "read transposed, all in one pass", all_of(when.only_reader, when.read_by("LayerNormalization", "RMSNormalization")), "Transpose", engine=MYELIN),
    Fuse("Transpose", "LayerNormalization RMSNormalization", "read transposed", when.only_reader, "Norm", engine=MYELIN),
    Fuse("LayerNormalization RMSNormalization Norm", "LayerNormalization RMSNormalization", "one pass over the same rows", makes="Norm", engine=MYELIN),
    Fuse("Transpose", ELEMENTWISE, "written transposed", all_of(when.only_reader, when.of_producer(when.made_by("LayerNormalization", "RMSNormalization", "Norm"))), "Generated", engine=MYELIN),
    Eliminate("Transpose", "moves axes of size 1 only", when.layout_unchanged),
    Fuse("Resize", "Mul", "multiplied while resizing", when.only_reader, "Generated", engine=MYELIN),
    Fuse("Resize", "Add", "added while resizing", when.only_reader, engine=MYELIN),
    Fuse("Resize", "Relu", "added while resizing", all_of(when.only_reader, when.holds("Add")), engine=MYELIN),
    Fuse("BatchNormalization", "Add Sub", "scaled where it is added", when.only_reader, "Affine", engine=MYELIN),
    Fuse("Transpose", "Conv", "a convolution that is no matrix product reads any layout", all_of(when.only_reader, unless(when.of_consumer(trt.is_fully_connected))), "Conv", engine=MYELIN),
    Fuse("Resize", "Concat Pad", "resized into its place", when.only_reader, "Resize", engine=MYELIN),

    Fuse(GENERATED, "ReduceMean", "one pass over the rows", when.reduces_rows, "Generated", match_policy="every", engine=MYELIN),
    Fuse("ReduceMean", GENERATED, "one pass over the rows", when.of_producer(when.reduces_rows), "Generated", match_policy="every", engine=MYELIN),

    # Everything else that hangs together is one generated kernel.
    Fuse(ELEMENTWISE, VIEW, "written in the shape of the norm", when.read_by("InstanceNormalization", "GroupNormalization"), "Flattened", engine=MYELIN),
    Fuse(VIEW, "Concat Split Slice Transpose Gather Shuffle Written", "a copy reads another shape", makes="Generated", match_policy="every", engine=MYELIN),
    Fuse(GENERATED, GENERATED, "one generated kernel", unless(when.writes_in_place), "Generated", match_policy="every", engine=MYELIN),
    Fuse(GENERATED, "Flattened", "one generated kernel", makes="Flattened", match_policy="every", engine=MYELIN),
    Fuse(VIEW, "Generated", "a sum over parts reads them in place", when.of_consumer(when.holds("ReduceSum")), "Generated", match_policy="every", engine=MYELIN),
    Fuse(GENERATED, "Reduction", "one generated kernel", when.only_reader, "Reduction", engine=MYELIN),
    Fuse(GENERATED, "Norm LayerNormalization RMSNormalization", "one generated kernel", unless(when.writes_in_place), "Generated", engine=MYELIN),
    Fuse(VIEW, GENERATED, "scaled back in its shape", when.of_producer(when.made_by("InstanceNormalization", "GroupNormalization")), "Generated", match_policy="every", engine=MYELIN),
    Fuse(GENERATED, MEAN, "the reduction of a sum", all_of(when.is_global, when.holds("ReduceSum")), "Generated", engine=MYELIN),
    Fuse(GENERATED, MEAN, "the reduction takes what it reads", all_of(when.is_global, _mean_takes), "Reduction", engine=MYELIN),
    Fuse(GENERATED, "ReduceL2", "the reduction takes what it reads", makes="Reduction", engine=MYELIN),
    Eliminate(VIEW, "another shape of the same bytes", all_of(when.layout_unchanged, unless(_copied_for_a_norm))),
    Fuse(GENERATED, "Generated", "a sum over parts makes its weights", all_of(when.only_reader, when.holds("Softmax"), when.of_consumer(when.holds("ReduceSum"))), "Generated", engine=MYELIN),

    # Classic TensorRT: what is left of element-wise operators, Splits and Concats.
    Fuse(POINTWISE, POINTWISE, "a chain is one kernel", all_of(when.only_reader, when.same_shape), "Elementwise", match_policy="every", engine=CLASSIC),
    Fuse("Conv", "Conv", "convolutions of one tensor with the same windows", trt.is_a_twin, match_policy="beside", engine=CLASSIC),
    Eliminate("Split Slice", "read where they lie", trt.is_read_in_place, engine=CLASSIC),
    Eliminate("Concat", "written in place", trt.is_in_place, engine=CLASSIC),
    Eliminate("Concat", "the parts are written in place", when.writes_in_place),
)
# fmt: on


def rules_of(
    engine: str, *, compiles: bool = True, region: frozenset[int] = frozenset()
) -> tuple[Rule, ...]:
    """The table of classic TensorRT or TensorRT-RTX.

    ``compiles``: with what Myelin makes; else it makes that of the operators in ``region`` alone.
    """
    held = ("", engine, MYELIN) if compiles or region else ("", engine)
    return tuple(
        _inside(rule, region) if rule.engine == MYELIN and not compiles else rule
        for rule in RULES
        if rule.engine in held
    )


def _inside(rule: Rule, region: frozenset[int]) -> Rule:
    """The rule for operators of a region alone."""

    def inside(producer: Group, consumer: Group) -> bool:
        return region.issuperset((*producer.positions, *consumer.positions))

    return replace(rule, when=all_of(inside, rule.when))


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
