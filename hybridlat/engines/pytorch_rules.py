"""What PyTorch computes in one call or one kernel, as tables that are read from top to bottom.

``CALLS`` write a file's operators as a module calls them. ``COMPOSITES`` then are one ATen call,
``INDUCTOR`` is what the compiler fuses. Words that no operator has (``Scores``, ``Generated``) are
kinds of group, which rules make and later rules read.

A view is free as long as strides can describe its result over the bytes that are there
(:func:`follow`). It copies where a reshape cannot be (a channel shuffle), and where its reader
wants dense memory (a convolution reads a slice). Strides are followed as ATen does: convolutions
and poolings keep the layout of what they read, element-wise operators that of their first operand.
"""

import re
from dataclasses import replace

from hybridlat.engines.fusion import conditions as when
from hybridlat.engines.fusion.composites import GUARDS, NEUTRAL, PARAMETER, Bound, X, bind, made
from hybridlat.engines.fusion.conditions import all_of, any_of, unless
from hybridlat.engines.fusion.patterns import (
    TURNS,
    TWINS,
    Match,
    Pass,
    Rewritten,
    each,
    integers,
    same,
)
from hybridlat.engines.fusion.places import EARLY_CUTS, EARLY_PLACES, PLACES
from hybridlat.engines.fusion.rules import Eliminate, Fuse, Rule
from hybridlat.graph.network import AttributeValue, Constant, Network, Node, TensorType
from hybridlat.graph.operators import Sizes, packed, reshaped
from hybridlat.graph.symmetry import with_ordered_operands

VIEW = "Reshape Transpose Slice Split Expand"
_VIEW_OPS = frozenset(VIEW.split())
_CHANNELS_LAST = ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "Resize")
_BY_LAYOUT = frozenset(_CHANNELS_LAST) | {"BatchNormalization"}
"""What has other kernels where channels are innermost."""
_NORMS = "LayerNormalization InstanceNormalization GroupNormalization RMSNormalization"
_WANT_DENSE = frozenset(_CHANNELS_LAST) | set(_NORMS.split())


def _chunks(net: Network, node: Node, match: Match) -> None:
    """Each part of a Split is a Slice, which may be copied alone."""
    axis, end = int(str(node.attribute("axis", 0))), 0
    sizes = net.constant(node, 1)
    for out, size in zip(node.outputs, (sizes and sizes.values) or (), strict=False):
        start, end = end, end + int(size)
        if out:
            part = Node(node.name, "Slice", node.inputs[:1], (out,), version=13)
            match.put(part, integers(start), integers(end), integers(axis))


def _channels_first(net: Network, node: Node, match: Match) -> None:
    """What a file has channels last for, and turns at once, a module is fed with channels first."""
    x, order = node.inputs[0], node.sizes("perm") or ()
    is_turned = len(order) > 3 and order == (0, len(order) - 1, *range(1, len(order) - 1))
    is_fed = x in net.inputs and net.consumers[x] == [net.producers[match.made]]
    if is_turned and is_fed and match.made not in net.outputs:
        match.types[x] = net.types[match.made]
        match.skip(x)


def _strided(net: Network, node: Node, match: Match) -> None:
    """All elements of a vector in their order are ``as_strided`` as an exporter writes it: a view."""
    places, (_, shape) = net.constant(node, 1), net.type_of(node.inputs[0])
    if places is not None and len(shape) == 1 and places.values == tuple(range(*shape)):
        match.view(node.inputs[0], net.types[match.made].shape)


def _resized(net: Network, node: Node, match: Match) -> None:
    """What lies between two neighbours, by its distance from one, is a linear resize of rows."""
    bound, shape = bind(net, match.made, _BETWEEN, Bound()), net.types[match.made].shape
    low, high, again = [m for m in bound.members if m.op == "Gather"] if bound else [node] * 3
    rows = [c.values for c in (net.constant(end, 1) for end in (low, high)) if c and c.values]
    if bound is None or low is not again or len(rows) != 2 or low.attributes != high.attributes:
        return
    axis, read = int(str(low.attribute("axis", 0))), net.type_of(bound.x).shape
    if {b - a for a, b in zip(*rows, strict=True)} <= {0, 1} and len(read) == len(shape):
        ratio, way = read[axis] / shape[axis], dict[str, AttributeValue]()
        if any(a != int(max(0, (i + 0.5) * ratio - 0.5)) for i, a in enumerate(rows[0])):
            way["coordinate_transformation_mode"] = "align_corners"
        way |= {"mode": "linear", "nearest_mode": "floor"}
        match.add("Resize", (bound.x, "", ""), shape, integers(*shape), **way)


def _uneven_pads(net: Network, node: Node, match: Match) -> None:
    """A convolution that pads one side more is a Pad before it."""
    x, pads = node.inputs[0], node.sizes("pads") or ()
    before, behind = pads[: len(pads) // 2], pads[len(pads) // 2 :]
    if before != behind:
        grown = map(sum, zip(net.types[x].shape[2:], before, behind, strict=True))
        sizes = integers(0, 0, *before, 0, 0, *behind)
        padded = match.add("Pad", (x,), (*net.types[x].shape[:2], *grown), sizes)
        match.put(replace(node.with_attributes("pads"), inputs=(padded, *node.inputs[1:])))


def _in_calls(net: Network, node: Node, match: Match) -> None:
    """A norm by the root of a mean square, in the calls of a module that writes it out."""
    (x, *scale), (dtype, shape) = node.inputs, net.types[match.made]
    axes = (*range(int(str(node.attribute("axis", len(shape) - 1))), len(shape)),)
    rows, number = (*shape[: axes[0]], *[1] * len(axes)), Constant(TensorType(dtype, ()))
    two = replace(number, values=(2.0,))
    y = match.add("Pow", (x,), shape, two)
    y = match.add("ReduceMean", (y,), rows, axes=axes)
    y = match.add("Sqrt", (match.add("Add", (y,), rows, number),), rows)
    y = match.add("Mul", (x, match.add("Reciprocal", (y,), rows)), shape)
    match.add("Mul", (y, *scale), shape)


def _unscaled(net: Network, node: Node, match: Match) -> None:
    """A number by which attention scales, before its first product or behind it, is the call's."""
    number, steps, end = net.constant(node, 1), "", node
    while (
        not ("Softmax" in steps and end.op == "MatMul")
        and (below := net.reader(end, *_STEPS)) is not None
    ):
        end, steps = below, f"{steps}{below.op} "
    is_behind = net.maker(node.inputs[0], "MatMul") is not None
    is_scale = _ATTENDED.match(steps) or (is_behind and _ATTENDED.match(f"MatMul {steps}"))
    is_weighed = not net.constants.keys().isdisjoint(end.inputs)
    if number is not None and number.type.elements == 1 and is_scale and not is_weighed:
        same(net, node.inputs[0], match)


_STEPS = ("Reshape", "Transpose", "Mul", "Div", "Add", "Softmax", "MatMul")
_VIEWS = "((Reshape|Transpose) )*"
_ATTENDED = re.compile(f"{_VIEWS}MatMul ((Mul|Div|Add|Reshape) )*Softmax {_VIEWS}MatMul ")
UNSCALED = each("Mul Div", _unscaled)
_LOW = made("Gather", X, PARAMETER)
_BETWEEN = made("Add", _LOW, made("Mul", made("Sub", _LOW, _LOW), PARAMETER))
INDEXED: tuple[Pass, ...] = (
    *PLACES,
    EARLY_PLACES,
    TURNS,
    each("Add", _resized),
)
"""What the newer exporter writes with GatherND, where a module takes places or resizes rows."""
RMS_NORMS = each("RMSNormalization", _in_calls)
FED = each("Transpose", _channels_first)
CALLS: tuple[Pass, ...] = (
    each("Gather", _strided),
    TURNS,
    each("Conv", _uneven_pads),
    TWINS,
    each("Split", _chunks),
    EARLY_CUTS,
    TURNS,
    NEUTRAL,
    GUARDS,
)
"""How a file's operators become those that a module calls, in this order."""

LIBRARY = "Conv ConvTranspose Gemm MatMul Attention Scores LSTM GRU RNN Einsum"
POINTWISE = (
    "Add Sub Mul Div Sum Mean Pow Sqrt Exp Log Neg Abs Min Max Erf Cast Relu LeakyRelu PRelu Clip "
    "Sigmoid Tanh Elu Selu HardSwish HardSigmoid Gelu Softplus Mish BatchNormalization SiLU "
    "SoftplusTanh Softsign Reciprocal Where Equal Greater Less Not And Or Floor Ceil Round"
)
COPY = f"Concat Pad DepthToSpace SpaceToDepth Gather GatherND GatherElements Tile Resize Upsample {VIEW}"
WINDOW = "MaxPool AveragePool LRN"
REDUCE = "GlobalAveragePool GlobalMaxPool ReduceMean ReduceSum ReduceMax ReduceMin ReduceL2"
NORM = f"Softmax LogSoftmax {_NORMS}"
_GENERATED = f"{POINTWISE} {COPY} Generated"


# fmt: off
ATTENTION = Fuse("Attention", "MatMul", "aten::scaled_dot_product_attention", all_of(when.only_reader, unless(when.by_constant)), since="2.0")
COMPOSITES: tuple[Rule, ...] = (
    Eliminate("Identity Dropout", "do nothing at inference"),
    Fuse("Sigmoid", "Mul", "aten::silu", when.gates_itself, "SiLU"),
    Fuse("Sqrt", "Reciprocal", "aten::rsqrt", when.only_reader),
    Fuse("Softplus", "Tanh", "aten::mish", when.only_reader, "SoftplusTanh"),
    Fuse("SoftplusTanh", "Mul", "aten::mish", when.only_reader, "Mish"),
    Fuse("InstanceNormalization", "Mul Add", "aten::group_norm", when.behind_norm),
    Fuse("MatMul", "Add", "aten::addmm", when.by_constant),
    Fuse("MatMul Scores", "Add", "aten::scaled_dot_product_attention", all_of(when.only_reader, when.in_attention), "Scores", since="2.0"),
    Fuse("MatMul Scores", "Softmax", "aten::scaled_dot_product_attention", all_of(when.only_reader, when.in_attention), "Attention", since="2.0"),
    ATTENTION,
)
INDUCTOR: tuple[Rule, ...] = (
    Fuse(_GENERATED, _GENERATED, "one loop, or computed where it is read", any_of(when.same_elements, when.only_reader), "Generated", match_policy="every"),
    Fuse(WINDOW, _GENERATED, "one loop", all_of(when.only_reader, when.same_elements), "Window"),
    Fuse("Window", _GENERATED, "one loop", all_of(when.only_reader, when.same_elements)),
    Fuse(_GENERATED, f"{REDUCE} {NORM}", "computed while it is reduced", when.only_reader, "Reduction", match_policy="every"),
    Fuse(f"{REDUCE} Reduction", _GENERATED, "done to the result", all_of(when.only_reader, when.same_elements), "Reduction"),
    Fuse(f"{REDUCE} {NORM} Reduction", _GENERATED, "a second pass over the same elements", any_of(when.reads_what_it_reduced, all_of(when.only_reader, when.same_elements)), "Reduction"),
)
# fmt: on


# ---- which views copy ----


def dense(shape: tuple[int, ...], channels_last: bool = False) -> Sizes:
    """Strides of a tensor without gaps, in elements; channels last where it has four axes."""
    return packed(shape, (0, 2, 3, 1) if channels_last and len(shape) == 4 else range(len(shape)))


def is_channels_last(shape: tuple[int, ...], strides: Sizes) -> bool:
    """Whether channels are innermost, as ATen asks it before it chooses a kernel's layout."""
    if len(shape) != 4 or shape[1] == 1 or shape[2] * shape[3] == 1:
        return False
    expected = dense(shape, channels_last=True)
    return all(s == w or n == 1 for n, s, w in zip(shape, strides, expected, strict=True))


def follow(network: Network, channels_last: bool = False) -> tuple[frozenset[int], frozenset[int]]:
    """Positions of the views that copy, and of what runs with channels last."""
    strides = {name: dense(network.types[name].shape, channels_last) for name in network.inputs}
    copies, last = set[int](), set[int]()
    for position, node in enumerate(network.nodes):
        if node.op in _VIEW_OPS and not node.domain and node.inputs[0] in strides:
            made = _viewed(network, node, strides)
            if made is None:
                # The copy is done where the order is changed, if that is what lies before it.
                before = network.producers.get(node.inputs[0], -1)
                moved = before >= 0 and network.nodes[before].op in ("Transpose", "Expand")
                copies.add(before if moved else position)
                made = [dense(network.types[out].shape) for out in node.outputs]
            strides.update(zip(node.outputs, made, strict=True))
            continue
        if node.qualified_op in _WANT_DENSE:
            _densify(network, node, strides, copies)
        read = node.inputs[0] if node.inputs else ""
        by_layout = node.qualified_op in _BY_LAYOUT and read in strides
        if by_layout and is_channels_last(network.types[read].shape, strides[read]):
            last.add(position)
        strides |= {out: _made(network, node, out, strides) for out in node.outputs if out}
    return frozenset(copies), frozenset(last)


def ordered(module: Rewritten, channels_last: bool) -> Rewritten:
    """The module with operands in one order, unless another first one makes other strides."""
    network = with_ordered_operands(module.network)
    if network is module.network:
        return module
    other = module._replace(network=network).then(())
    layouts = []
    for net in (module.network, other.network):
        parts = follow(net, channels_last)  # as results, since operators have moved
        layouts.append([{net.nodes[i].outputs for i in part} for part in parts])
    return other if layouts[0] == layouts[1] else module


def _densify(network: Network, node: Node, strides: dict[str, Sizes], copies: set[int]) -> None:
    """What the node reads is copied unless it is dense, in an order that the node can read."""
    name = node.inputs[0]
    maker = network.producers.get(name, -1)
    if name not in strides or maker < 0 or network.nodes[maker].op not in _VIEW_OPS:
        return  # what an element-wise operator makes in this order is the reader's own copy
    shape, current = network.types[name].shape, strides[name]
    plain = all(s == d or n == 1 for s, d, n in zip(current, dense(shape), shape, strict=True))
    if not plain and not (node.op in _CHANNELS_LAST and is_channels_last(shape, current)):
        copies.add(maker)
        strides[name] = dense(shape)


def _viewed(network: Network, node: Node, strides: dict[str, Sizes]) -> list[Sizes] | None:
    """Strides of what a view makes, None where it has to copy."""
    shape, current = network.types[node.inputs[0]].shape, strides[node.inputs[0]]
    if node.op == "Transpose":
        return [tuple([current[axis] for axis in node.sizes("perm") or ()])]
    if node.op in ("Slice", "Split"):
        return [current for _ in node.outputs]
    to = network.types[node.outputs[0]].shape
    if node.op == "Expand":
        padded = (0,) * (len(to) - len(shape)) + current
        sizes = (1,) * (len(to) - len(shape)) + shape
        return [tuple(s if n == m else 0 for s, n, m in zip(padded, sizes, to, strict=True))]
    made = reshaped(shape, current, to)
    return None if made is None else [made]


def _made(network: Network, node: Node, out: str, strides: dict[str, Sizes]) -> Sizes:
    """Strides of a result that is no view, by those of what the operator reads."""
    shape = network.types[out].shape
    read = [name for name in node.inputs if name in strides]
    same_shape = [name for name in read if network.types[name].shape == shape]
    if node.op in _CHANNELS_LAST or node.op in ("Concat", "Pad"):
        last = [is_channels_last(network.types[n].shape, strides[n]) for n in read]
        return dense(shape, channels_last=bool(last) and all(last))
    is_dense = node.op in ("MatMul", "Gemm", "LayerNormalization", "RMSNormalization")
    if is_dense or not same_shape:
        return dense(shape)
    current = strides[same_shape[0]]
    return packed(shape, sorted(range(len(shape)), key=lambda axis: (-current[axis], axis)))
