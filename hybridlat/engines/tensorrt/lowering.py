"""What TensorRT fuses, as a table that is read from top to bottom.

By NVIDIA's list of fusions and published listings of engines of 7.1 to 10.7. First convolutions
take a ReLU or a clip, and a sum that no such thing stands before. Those of one tensor with the same
windows become one. Chains of element-wise operators become one kernel. In half precision a
convolution takes that if it is quicker; in whole numbers before convolutions become one. Concats
and Splits are no kernels, but some parts are copied: see :mod:`.conditions`.

From version 10 on TensorRT gives what it can to a compiler, Myelin, whose kernels stand here as
TensorRT-RTX's compiler makes them: convolutions and products are ready-made, with a small epilogue;
all else that hangs together becomes a generated one. These rules hold in regions: what it takes.
"""

from contextlib import suppress
from dataclasses import replace

from hybridlat.engines import device_sheets
from hybridlat.engines.fusion import conditions as when
from hybridlat.engines.fusion.composites import COMPILED, GUARDS, NEUTRAL, NUMBERS
from hybridlat.engines.fusion.conditions import all_of, any_of, unless
from hybridlat.engines.fusion.forms import CONTRACTING, FORMS, biases, norms
from hybridlat.engines.fusion.groups import lowered_of, traced
from hybridlat.engines.fusion.patterns import Match, Pass, each
from hybridlat.engines.fusion.precision import in_floats, in_precision, narrow_weights
from hybridlat.engines.fusion.rules import Eliminate, Fuse, Rule, apply, in_force, unknown_operators
from hybridlat.engines.tensorrt import conditions as trt
from hybridlat.errors import TargetError
from hybridlat.graph.network import Lowered, Network, Node
from hybridlat.graph.operators import KINDS, is_quantised, kind_of, named
from hybridlat.graph.symmetry import with_ordered_operands
from hybridlat.schema.target import Target, version_key

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
COPY = (
    "Concat Split Slice Transpose Pad Expand DepthToSpace SpaceToDepth Gather GatherND GatherElements "
    "Shuffle"
)
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
_chains = all_of(when.only_reader, trt.same_shape)
_adds = all_of(_chains, unless(when.holds("Relu", "Clip", "Add", "Sum")))
_adds_up = all_of(trt.is_half, when.only_reader, when.holds("Add", "Sum"))


# fmt: off
RULES: tuple[Rule, ...] = (
    # upper operators or kinds, lower ones, reason, condition, kind that it makes
    Eliminate("Identity Dropout", "do nothing at inference"),

    # Patterns that count as one operator below.
    Fuse("BatchNormalization", "Mul", "one scale and shift per channel", when.by_constant, "Affine"),
    Fuse("Affine", "Add", "one scale and shift per channel", when.by_constant),
    Fuse("Sigmoid", "Mul", "x * sigmoid(x) is one activation", when.gates_itself, "SiLU"),
    Fuse("Softplus", "Tanh", "x * tanh(softplus(x)) is one activation", when.only_reader, "SoftTanh"),
    Fuse("SoftTanh", "Mul", "x * tanh(softplus(x)) is one activation", when.gates_itself, "Mish"),
    Fuse("Reshape", "Transpose", "one copy", when.only_reader, "Shuffle"),

    # What a following generated kernel takes before a convolution can.
    Fuse("BatchNormalization Affine", "Relu", "one element-wise kernel", when.only_reader, "Affine"),
    Fuse("Relu", "Reshape", "a sum over split channels takes the activation", when.read_by("ReduceSum"), "Generated", in_region=True),
    Fuse("HardSwish BatchNormalization Affine", MEAN, "the reduction applies the activation, on maps of an odd size", all_of(trt.is_global, trt.odd_maps), "Reduction", in_region=True),

    # Epilogues of convolutions.
    Fuse(CHAINED, "Add Sum", "one element-wise kernel", when.only_reader, "Elementwise", before="8.6"),
    Fuse(CHAINED, "Add Sum", "one element-wise kernel; a convolution is quicker with both on large maps", all_of(when.only_reader, unless(_takes_both)), "Elementwise", since="8.6"),
    Fuse(CONV, "Relu Clip", "epilogue", when.only_reader),
    Fuse("Conv", "MaxPool", "convolution of an image and its pooling", all_of(trt.is_int8, when.only_reader, when.holds("Relu"), trt.reads_pixels)),
    Fuse(CONV, CHAINED, "epilogue, if that is quicker", all_of(_takes_chain, unless(trt.is_depthwise))),
    Fuse(CONV, CHAINED, "epilogue, if that is quicker", _takes_chain, before="10.7"),
    Fuse(CONV, "Mul", "epilogue, unless a generated kernel follows anyway", all_of(when.by_constant, any_of(trt.is_fully_connected, unless(trt.before_generated))), in_region=True),
    Fuse(CONV, "Add Sum", "residual: the branch that the sum names first adds, in whole numbers", all_of(trt.is_int8, _adds, trt.is_added_first), since="8.4", before="8.5"),
    Fuse(CONV, "Add Sum", "residual: the branch that the sum names first adds", all_of(_adds, trt.is_added_first), since="8.5", before="9"),
    Fuse(CONV, "Add Sum", "residual: the branch of larger windows adds", all_of(_adds, trt.has_larger_windows), since="8.2", before="8.4"),
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
    Fuse("Transpose Reshape", NORM, "read transposed, or in another shape", when.only_reader, "Norm", in_region=True),
    Fuse(f"{NORM} Norm", NORM, "one pass over the same rows", makes="Norm", in_region=True),
    Fuse("Transpose", "Conv", "a convolution that is no matrix product reads any layout", all_of(when.only_reader, unless(when.of_consumer(trt.is_fully_connected))), "Conv", in_region=True),

    # Everything else that hangs together is one generated kernel.
    Fuse(VIEW, "Concat Split Slice Transpose Gather Shuffle", "a copy reads another shape", makes="Generated", match_policy="every", in_region=True),
    Fuse(GENERATED, GENERATED, "one generated kernel", unless(trt.writes_in_place), "Generated", match_policy="every", in_region=True),
    Fuse(VIEW, "Generated", "a sum over parts reads them in place", when.of_consumer(when.holds("ReduceSum")), "Generated", match_policy="every", in_region=True),
    Fuse(GENERATED, f"Norm {NORM}", "one generated kernel", makes="Generated", in_region=True),
    Fuse(GENERATED, MEAN, "the reduction takes what it reads", all_of(trt.is_global, trt.odd_maps), "Reduction", in_region=True),
    Eliminate(VIEW, "another shape of the same bytes", trt.layout_unchanged),
    Eliminate("Transpose", "a product reads its operands either way", trt.is_for_products, before="10"),
    Fuse(GENERATED, "Generated", "a sum over parts makes its weights", all_of(when.only_reader, when.holds("Softmax"), when.of_consumer(when.holds("ReduceSum"))), "Generated", in_region=True),

    # What is left of element-wise operators, Splits and Concats.
    Fuse(POINTWISE, POINTWISE, "a chain is one kernel", _chains, "Elementwise", match_policy="every", before="8.6"),
    Fuse(POINTWISE, POINTWISE, "a chain is one kernel, and may broadcast", all_of(when.only_reader, trt.spreads_one_axis), "Elementwise", match_policy="every", since="8.6", before="10"),
    Fuse(POINTWISE, POINTWISE, "a chain is one kernel", _chains, "Elementwise", match_policy="every", since="10"),
    Fuse("Conv", "Conv", "convolutions of one tensor with the same windows", trt.is_a_twin, match_policy="beside", before="7.1"),
    Fuse("Conv", "Conv", "convolutions of one tensor with the same windows", all_of(trt.is_a_twin, unless(trt.behind_a_relu)), match_policy="beside", since="7.1", before="7.2"),
    Fuse("Conv", "Conv", "convolutions of one tensor with the same windows", trt.is_a_twin, match_policy="beside", since="7.2"),
    Eliminate("Split Slice", "read where they lie", trt.is_read_in_place),
    Eliminate("Concat", "written in place", trt.is_in_place),
    Eliminate("Concat", "the parts are written in place", trt.writes_in_place),
)
# fmt: on


def compiled(network: Network) -> frozenset[int]:
    """Positions of operators that Myelin compiles in a network without layer normalisations.

    A published engine of 10.7 has them around what computes on anything but feature maps, with the
    copies and views that hang on it. Products of two tensors, as attention has them, are there too.
    """
    nodes, types = network.nodes, network.types
    free = {i for i, node in enumerate(nodes) if node.op not in _BUILT_IN}

    def computes_apart(position: int) -> bool:
        node = nodes[position]
        ranks = [len(types[name].shape) for name in node.inputs if name in types]
        if kind_of(node.op) == KINDS["matmul"] and len(ranks) > 1:
            return True
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


_TENSORRT_OF_PADDLE = {"2020": "6.0", "2021": "8.0", "ngc": "8.0"}
"""The TensorRT that a version which is no TensorRT's stands for, by the releases of that time."""
_NEWEST = "10"
"""What a target means that names no version, unless TensorRT 10 does not run there."""
_HALF = ("fp16", "bf16", "int8")
_NORMS = frozenset({"LayerNormalization", "RMSNormalization"})  # what a transformer is known by
_BEFORE_TURING = ("kepler", "maxwell", "pascal", "volta")
_FOREIGN = (
    "TensorRT compiles a network with layer normalisations into a ForeignNode or a few: its "
    "kernels are named nowhere, and stand here as TensorRT-RTX makes them"
)


def _folds(*scales: str) -> Pass:
    """A norm behind a convolution or product is in its weights, with scales and shifts behind it.

    So is one alone behind a convolution, where ``scales`` names it: "Convolution and Scale" in
    NVIDIA's list. Myelin leaves a scale, behind a folded norm too.
    """

    def fill(net: Network, node: Node, match: Match) -> None:
        alone, members = () if node.op == "Gemm" else scales, [node]
        below = net.reader(node, "BatchNormalization", *alone)
        while below is not None and _is_of_channels(net, below):
            members.append(below)
            below = net.reader(below, "Mul", "Add")
        while not scales and members[-1].op == "Mul":
            members.pop()
        if len(members) > 1:
            match.members = tuple(members)
            match.put(replace(node, outputs=members[-1].outputs))

    return each(f"{CONTRACTING} Gemm", fill)


def _is_of_channels(net: Network, node: Node) -> bool:
    """Whether an operator reads one tensor and constants: a number, or one for each channel."""
    shape = net.types[node.outputs[0]].shape
    known = [net.constants[name].type for name in node.inputs if name in net.constants]
    sizes = {1, *shape[1:2]} if node.op == "BatchNormalization" else {1}
    ones = (*shape[1:2], *[1] * (len(shape) - 2))
    are_fit = all(c.elements in sizes or c.shape[1 - len(shape) :] == ones for c in known)
    return len(known) == len(node.inputs) - 1 and are_fit


def _parts(net: Network, node: Node, match: Match) -> None:
    """Each part of a Concat is a Concat of its own; those that stay are copies of one part."""
    for place, name in enumerate(node.inputs):
        part = f"{match.made}/part{place}"
        match.types[part] = net.type_of(name)
        match.put(replace(node, name=part, inputs=(name,), outputs=(part,)))
    match.put(replace(node, inputs=tuple(match.types)))


def lower(network: Network, target: Target) -> Lowered:
    """The kernels that TensorRT makes of ``network`` at the target's version and precision.

    They are those of the network in FP32, so that a cell is the same cell at every precision, be
    the file narrowed or quantised. The warnings name operators without a rule. NetworkError for a
    file that is quantised to anything but 8 bits.
    """
    warnings = narrow_weights(network, target.precision == "int8")
    built = (NEUTRAL, GUARDS, *COMPILED, NUMBERS, each("Mul", norms))  # by its builder besides
    written, version = in_floats(network).then((*FORMS, *built)), _version(target)
    is_foreign = _compiles(version) and any(n.op in _NORMS for n in written.network.nodes)
    scales = () if is_foreign else ("Mul", "Add")
    written = written.then((_folds(*scales), each(CONTRACTING, biases)))
    ordered = with_ordered_operands(written.network, trt.fixed_sums(written.network, version))
    written = written._replace(network=ordered)
    if is_foreign:
        region = frozenset(range(len(written.network.nodes)))
    else:  # classic TensorRT may copy parts of Concats
        written = written.then((each("Concat", _parts),))
        region = compiled(written.network) if _compiles(version) else frozenset()
    plain = written.network
    groups = apply(in_precision(plain, _dtype(target)), RULES, version, region=region)
    warnings += (*_unknown(network, plain), *([_FOREIGN] if is_foreign else ()))
    by = f"rules {_as_tensorrt(target).runtime}"
    return traced(lowered_of(plain, groups, by, warnings), plain, written.origins, network)


def identity(target: Target) -> str:
    """The rules and what they ask of a target."""
    version = _version(target)
    return f"rules/tensorrt/{in_force(RULES, version)}/{_compiles(version)}/{_dtype(target)}"


def _dtype(target: Target) -> str:
    """The type by which it fuses: half precision has epilogues of its own from Turing on."""
    if target.precision not in _HALF or target.engine == "paddle-tensorrt":  # with plug-ins
        return "float32"
    with suppress(TargetError):
        if device_sheets.of_target(target).architecture in _BEFORE_TURING:
            return "float32"
    return "int8" if target.precision == "int8" else "float16"


def _version(target: Target) -> str:
    """The version whose rules hold."""
    if version_key(version := _as_tensorrt(target).version):
        return version
    return device_sheets.versions_there(replace(target, runtime="tensorrt")).get("last", _NEWEST)


def _compiles(version: str) -> bool:
    """Whether the engine gives what it can to Myelin."""
    return version_key(version) >= version_key(_NEWEST)


def _as_tensorrt(target: Target) -> Target:
    if target.engine != "paddle-tensorrt":
        return target
    version = _TENSORRT_OF_PADDLE.get(target.version, target.version)
    return replace(target, runtime=f"tensorrt-{version}" if version else "tensorrt")


def _unknown(file: Network, network: Network) -> tuple[str, ...]:
    """Warnings of operators that no rule names, one for all that TensorRT does not even read."""
    ops = [(node.op, node.qualified_op) for node in file.nodes]
    refused = [name for op, name in ops if is_quantised(op) or op == "DynamicQuantizeLinear"]
    warnings = unknown_operators(network, RULES, OWN)
    warnings = tuple([f"{w}, if a plug-in runs it" if "::" in w else w for w in warnings])
    if not refused:
        return warnings
    is_left = any(is_quantised(node.op) for node in network.nodes)
    as_what = "each is taken for a kernel" if is_left else "the latency is as after that"
    return (
        *(w for w in warnings if not any(f" {op} " in w for op in refused)),
        f"TensorRT reads no {refused[0]}, one of {len(refused)} such operators of this file: write "
        f"it with QuantizeLinear and DequantizeLinear (QDQ) instead; {as_what}",
    )
