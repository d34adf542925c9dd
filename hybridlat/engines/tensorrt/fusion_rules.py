"""What TensorRT fuses, as a table that is read from top to bottom.

The table was shaped on TensorRT-RTX 1.7, whose compiler tells the layers it makes: on half of the
project's networks, and on small made-up graphs of common patterns. Tests hold it against that
compiler, on the other half too. Where the compiler is installed, :mod:`.tensorrt_rtx` asks it
instead. Rules without a version are also in NVIDIA's list of fusions for TensorRT 8 and later;
``since="10"`` marks what was seen with the newer compiler alone.

How the compiler works, as far as it can be seen: convolutions and products are ready-made kernels
with a small epilogue. Everything else that hangs together (element-wise operators, copies,
reductions) becomes one generated kernel. An epilogue beyond ReLU costs a convolution its fastest
kernels, so it moves into a generated kernel wherever one has to follow anyway.
"""

from __future__ import annotations

from hybridlat.engines.fusion.rewriter import Rule, gone, join, lower_by
from hybridlat.engines.tensorrt.predicates import (
    adds_a_large_gated_map,
    all_of,
    any_of,
    before_generated,
    branches_together,
    by_constant,
    by_scalar,
    ends_in,
    few_input_channels,
    gates_itself,
    holds,
    is_fully_connected,
    is_global,
    is_half,
    is_winograd,
    keeps_all,
    layout_unchanged,
    makes_one_pixel,
    maps_below,
    only_reader,
    other_readers_are_concats,
    reads_layer_norm,
    reads_two,
    same_shape,
    sums_channels,
    unless,
    writes_in_place,
)
from hybridlat.graph.network import Lowered, Network

CONV = "Conv ConvTranspose"
MEAN = "ReduceMean GlobalAveragePool"
VIEW = "Reshape Flatten Squeeze Unsqueeze"
ACTIVATION = "Clip Sigmoid Tanh PRelu Elu"  # cheap ones, next to Relu, that a conv always takes
ELEMENTWISE = (
    "Add Sub Mul Div Sum Pow Sqrt Exp Neg Abs Min Max Erf Cast Relu LeakyRelu HardSwish HardSigmoid "
    "Gelu Softplus Mish BatchNormalization SiLU Affine Gate Elementwise " + ACTIVATION
)
COPY = "Concat Split Slice Transpose Pad Expand DepthToSpace SpaceToDepth Gather Shuffle Written"
GENERATED = f"{ELEMENTWISE} {COPY} Softmax ReduceSum ReduceMax Generated"

_bn_leaves = all_of(before_generated, unless(ends_in("Relu")))

# fmt: off
RULES: tuple[Rule, ...] = (
    # name, upper operators or kinds, lower ones, reason, condition, kind that it makes
    gone("inference", "Identity Dropout", "do nothing at inference"),
    gone("whole slice", "Slice", "keeps everything", keeps_all),

    # Patterns that count as one operator below.
    join("affine", "BatchNormalization", "Mul", "one scale and shift per channel", by_constant, "Affine"),
    join("affine", "Affine", "Add", "one scale and shift per channel", by_constant),
    join("silu", "Sigmoid", "Mul", "x * sigmoid(x) is one activation", gates_itself, "SiLU"),
    join("gelu", "Div", "Erf", "the exact GELU, written out", only_reader, "ErfGelu"),
    join("gelu", "ErfGelu", "Add", "the exact GELU, written out", only_reader),
    join("gelu", "ErfGelu", "Mul", "the exact GELU, written out", only_reader, "Gelu"),
    join("gelu", "Gelu", "Mul", "the exact GELU, written out", by_scalar),
    join("shuffle", "Reshape", "Transpose", "one copy", only_reader, "Shuffle"),

    # What a following generated kernel takes before a convolution can.
    join("concat, affine", "Concat", "BatchNormalization Affine", "the copy scales", other_readers_are_concats, "Written", since="10"),
    join("concat, relu", "Concat", "Relu", "the copy applies the ReLU", only_reader, "Written", since="10"),
    join("concat, relu", "Written", "Relu", "the copy applies the ReLU", only_reader, since="10"),
    join("concat, silu", "Written", "SiLU", "the copy applies the activation", since="10"),
    join("affine, relu", "BatchNormalization Affine", "Relu", "one element-wise kernel", only_reader, "Affine"),
    join("affine, shuffle", "Affine", "Shuffle", "the copy scales, on small maps", all_of(only_reader, maps_below(197)), "Shuffle", since="10"),
    join("group sum", "Relu", "Reshape", "a sum over split channels takes the activation", sums_channels, "Generated", since="10"),
    join("silu, mean", "SiLU Written", MEAN, "the reduction applies the activation", all_of(is_global, holds("Sigmoid")), "Reduction", since="10"),
    join("concat, mean", "Concat Written", MEAN, "the reduction reads the parts", all_of(is_global, only_reader), "Reduction", since="10"),
    join("activation, mean", "HardSwish BatchNormalization Affine", MEAN, "the reduction applies the activation, on small maps", all_of(is_global, maps_below(64)), "Reduction", since="10"),
    join("gate in a product", CONV, "HardSigmoid", "epilogue of a matrix product", all_of(is_fully_connected, only_reader), since="10"),
    join("hard gate", "HardSigmoid", "Mul", "the gate is made where it is used", only_reader, "Gate", since="10"),
    join("gate, mean", "Gate", MEAN, "the reduction applies the gate, on small maps", all_of(only_reader, maps_below(64)), "Reduction", since="10"),

    # Epilogues of convolutions.
    join("conv, affine", CONV, "BatchNormalization Affine", "scale and shift in the epilogue", all_of(any_of(only_reader, is_fully_connected), unless(few_input_channels), unless(_bn_leaves))),
    join("conv, hardswish", CONV, "HardSwish", "epilogue", all_of(only_reader, unless(makes_one_pixel), unless(before_generated), unless(few_input_channels))),
    join("conv, leaky relu", CONV, "LeakyRelu", "epilogue", all_of(only_reader, unless(before_generated), unless(few_input_channels))),
    join("conv, activation", CONV, f"Relu {ACTIVATION}", "epilogue", any_of(only_reader, is_fully_connected)),
    join("conv, silu", CONV, "SiLU", "epilogue", unless(few_input_channels)),
    join("conv, gelu", CONV, "Gelu", "epilogue", only_reader),
    join("conv, scale", CONV, "Mul", "epilogue; fast 3x3 kernels have none", all_of(by_scalar, unless(is_winograd), unless(makes_one_pixel), unless(before_generated), unless(few_input_channels)), since="10"),
    join("conv, shift", CONV, "Add", "epilogue", all_of(by_scalar, holds("Mul")), since="10"),
    join("conv, product", CONV, "Mul", "the branch with the activation multiplies", all_of(only_reader, reads_two, same_shape, holds("Clip", "Relu", "Sigmoid", "Tanh")), pick="first", since="10"),
    join("conv, scaled sum", CONV, "Add Sum", "residual: the first branch adds when scales are not folded", all_of(only_reader, holds("BatchNormalization"), unless(is_fully_connected)), pick="first"),
    join("conv, sum", CONV, "Add Sum", "residual: the last branch adds; a matrix product with an epilogue does not", all_of(only_reader, unless(all_of(is_fully_connected, holds("BatchNormalization", "Relu", "LeakyRelu", "Sigmoid", "Clip"))), unless(all_of(holds("Add"), before_generated)))),
    join("conv, sum, activation", CONV, f"Relu {ACTIVATION}", "epilogue", all_of(only_reader, holds("Add", "Sum"))),
    join("conv, sum, leaky relu", CONV, "LeakyRelu", "epilogue", all_of(only_reader, holds("Add", "Sum"), unless(before_generated))),
    join("conv, branch", CONV, "BatchNormalization", "a residual epilogue writes a second, scaled result", branches_together, since="10"),

    # Epilogues of products.
    join("gemm, bias", "Gemm MatMul", "Add", "epilogue", by_constant),
    join("gemm, activation", "Gemm MatMul", f"Relu {ACTIVATION}", "epilogue", only_reader),
    join("gemm, gelu", "Gemm MatMul", "Gelu", "epilogue"),

    # Kernels of their own kind.
    join("relu, resize", "Relu", "Resize", "applied while resizing", only_reader, "Resize", since="10"),
    join("instance norm, relu", "InstanceNormalization", "Relu", "applied on the way out, unless FP32 maps are too large", all_of(only_reader, any_of(is_half, maps_below(6401)))),
    join("layer norm, input", ELEMENTWISE, "Transpose", "read transposed, all in one pass", all_of(only_reader, reads_layer_norm), "Transpose", since="10"),
    join("layer norm, transpose", "Transpose", "LayerNormalization", "read transposed", only_reader, "Norm", since="10"),
    gone("layout", "Transpose", "moves axes of size 1 only", layout_unchanged),
    join("transpose, conv", "Transpose", "Conv", "the convolution reads any layout", only_reader, "Conv", since="10"),
    join("resize, concat", "Resize", "Concat Pad", "resized into its place", only_reader, "Resize", since="10"),

    # Everything else that hangs together is one generated kernel.
    join("generated, view", VIEW, GENERATED, "a view costs nothing inside a generated kernel", makes="Generated", pick="every", since="10"),
    join("generated", GENERATED, GENERATED, "one generated kernel", unless(any_of(writes_in_place, adds_a_large_gated_map)), "Generated", pick="every", since="10"),
    join("generated, norm", GENERATED, "Norm", "one generated kernel", only_reader, since="10"),
    join("generated, sum, mean", GENERATED, MEAN, "the reduction of a sum", all_of(is_global, holds("ReduceSum")), "Generated", since="10"),
    join("generated, mean", GENERATED, MEAN, "the reduction takes what it reads, on small maps", all_of(only_reader, maps_below(64)), "Reduction", since="10"),
    gone("view", VIEW, "another shape of the same bytes", layout_unchanged),
    gone("concat", "Concat", "the parts are written in place", writes_in_place),
)
# fmt: on


def lower(network: Network, version: str = "") -> Lowered:
    """The kernels that TensorRT makes of ``network`` in the precision it is written in.

    ``version`` is the engine's (``8.6``); empty is the newest. Operators that no rule names stay
    kernels of their own, and the warnings name them.
    """
    return lower_by(network, RULES, version, f"rules tensorrt{'-' + version if version else ''}")
