"""What PyTorch computes in one call or one kernel, as tables that are read from top to bottom.

``COMPOSITES`` are operators of a file that are one ATen call, in the form that ``fusion.forms``
gives them, ``INDUCTOR`` what the compiler fuses.

A view is free as long as strides can describe its result over the bytes that are there
(:func:`follow`). It copies where a reshape cannot be (a channel shuffle), and where its reader
wants dense memory (a convolution reads a slice). Strides are followed as ATen does: convolutions
and poolings keep the layout of what they read, element-wise operators that of their first operand.
"""

from __future__ import annotations

from collections.abc import Sequence

from hybridlat.engines.fusion import conditions as when
from hybridlat.engines.fusion.composites import group_norms, uneven_pads
from hybridlat.engines.fusion.conditions import all_of, any_of
from hybridlat.engines.fusion.patterns import (
    Match,
    Pass,
    Rewritten,
    chunks,
    each,
    neutral,
    still,
    twins,
    views,
)
from hybridlat.engines.fusion.rules import Eliminate, Fuse, Rule
from hybridlat.graph.network import Network, Node
from hybridlat.graph.symmetry import with_ordered_operands

VIEW = "Reshape Transpose Slice Split Expand"
_VIEW_OPS = frozenset(VIEW.split())
Strides = tuple[int, ...]
_CHANNELS_LAST = ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "Resize")
_BY_LAYOUT = frozenset(_CHANNELS_LAST) | {"BatchNormalization"}
"""What has other kernels where channels are innermost."""
_NORMS = "LayerNormalization InstanceNormalization GroupNormalization RMSNormalization"
_WANT_DENSE = frozenset(_CHANNELS_LAST) | set(_NORMS.split())


def _guards(net: Network, node: Node, match: Match) -> None:
    """What exporters put behind a masked softmax (zeros for no number) and a softplus (its end)."""
    condition, other, kept = node.inputs
    guard, soft = net.maker(condition, "IsNaN", "Greater"), net.maker(kept, "Softmax", "Softplus")
    if guard is None or soft is None:
        return
    is_softplus, (read, *_) = soft.op == "Softplus", guard.inputs
    if (read, other) == (soft.inputs[0],) * 2 if is_softplus else read == kept:
        match.members = (guard, node)
        match.skip(kept)


MOVES: tuple[Pass, ...] = (each("Transpose", still), each("Reshape", views))
"""What moves nothing."""
CALLS: tuple[Pass, ...] = (
    *MOVES,
    each("Conv", uneven_pads),
    (frozenset(["Pad", "MaxPool", "AveragePool", "GlobalAveragePool", "Relu", "Sigmoid"]), twins),
    each("Split", chunks),
    each("GroupNormalization", group_norms),
    each("Add Mul", neutral),
    each("Where", _guards),
)
"""What a module calls, where files say it otherwise."""


# fmt: off
COMPOSITES: tuple[Rule, ...] = (
    Eliminate("Identity Dropout", "do nothing at inference"),
    Fuse("Sigmoid", "Mul", "aten::silu", when.gates_itself, "SiLU"),
    Fuse("Softplus", "Tanh", "aten::mish", when.only_reader, "SoftplusTanh"),
    Fuse("SoftplusTanh", "Mul", "aten::mish", when.only_reader, "Mish"),
    Fuse("InstanceNormalization", "Mul", "aten::group_norm", when.behind_norm),
    Fuse("InstanceNormalization", "Add", "aten::group_norm", when.behind_norm),
    Fuse("MatMul", "Add", "aten::addmm", when.by_constant),
    Fuse("Mul Div", "MatMul Scores", "aten::scaled_dot_product_attention", all_of(when.of_producer(when.by_scalar), when.only_reader, when.in_attention), "Scores", match_policy="every", since="2.0"),
    Fuse("MatMul Scores", "Mul Div", "aten::scaled_dot_product_attention", all_of(when.by_scalar, when.in_attention), "Scores", since="2.0"),
    Fuse("MatMul Scores", "Add", "aten::scaled_dot_product_attention", all_of(when.only_reader, when.in_attention), "Scores", since="2.0"),
    Fuse("MatMul Scores", "Softmax", "aten::scaled_dot_product_attention", all_of(when.only_reader, when.in_attention), "Attention", since="2.0"),
    Fuse("Attention", "MatMul", "aten::scaled_dot_product_attention", all_of(when.only_reader, when.reads_two), since="2.0"),
)
# fmt: on


def free_views(copies: frozenset[int]) -> Rule:
    """Views cost nothing, but for those that copy."""
    reason = "another view of the same bytes"
    return Eliminate(VIEW, reason, lambda _, view: view.positions[0] not in copies)


# ---- what inductor fuses ----

LIBRARY = "Conv ConvTranspose Gemm MatMul Attention Scores LSTM GRU RNN Einsum"
POINTWISE = (
    "Add Sub Mul Div Sum Mean Pow Sqrt Exp Log Neg Abs Min Max Erf Cast Relu LeakyRelu PRelu Clip "
    "Sigmoid Tanh Elu Selu HardSwish HardSigmoid Gelu Softplus Mish BatchNormalization SiLU "
    "SoftplusTanh Softsign Reciprocal Where Equal Greater Less Not And Or Floor Ceil Round"
)
COPY = f"Concat Pad DepthToSpace SpaceToDepth Gather Tile Resize Upsample {VIEW}"
WINDOW = "MaxPool AveragePool LRN"
REDUCE = "GlobalAveragePool GlobalMaxPool ReduceMean ReduceSum ReduceMax ReduceMin ReduceL2"
NORM = f"Softmax LogSoftmax {_NORMS}"
_GENERATED = f"{POINTWISE} {COPY} Generated"


# fmt: off
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


def dense(shape: tuple[int, ...], channels_last: bool = False) -> Strides:
    """Strides of a tensor without gaps, in elements; channels last where it has four axes."""
    is_last = channels_last and len(shape) == 4
    return _packed(shape, (0, 2, 3, 1) if is_last else range(len(shape)))


def _packed(shape: tuple[int, ...], order: Sequence[int]) -> Strides:
    """Strides of a tensor without gaps whose axes lie in this order, the last one innermost."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def is_channels_last(shape: tuple[int, ...], strides: Strides) -> bool:
    """Whether channels are innermost, as ATen asks it before it chooses a kernel's layout."""
    if len(shape) != 4 or shape[1] == 1 or shape[2] * shape[3] == 1:
        return False
    expected = dense(shape, channels_last=True)
    return all(s == w or n == 1 for n, s, w in zip(shape, strides, expected, strict=True))


def reshaped(shape: tuple[int, ...], strides: Strides, to: tuple[int, ...]) -> Strides | None:
    """Strides of another shape over the same bytes, None where there are none.

    Axes that follow each other without a gap are one stretch; a new shape must not join two.
    """
    stretches: list[list[int]] = []  # [elements, innermost stride]
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if stretches and stretches[-1][1] == stride * size:
            stretches[-1] = [stretches[-1][0] * size, stride]
        else:
            stretches.append([size, stride])
    strides_out: list[int] = []
    left = 1  # elements of the stretch at hand that axes to the right do not yet cover
    step = 1
    for size in reversed(to):
        if left == 1 and size > 1:
            if not stretches:
                return None
            left, step = stretches.pop()
        if size > 1 and left % size:
            return None
        strides_out.append(step)
        if size > 1:
            left //= size
            step *= size
    return tuple(reversed(strides_out)) if left == 1 and not stretches else None


def follow(network: Network, channels_last: bool = False) -> tuple[frozenset[int], frozenset[int]]:
    """Positions of the views that copy, and of what runs with channels last."""
    strides = {name: dense(network.types[name].shape, channels_last) for name in network.inputs}
    producers = network.producers
    copies: set[int] = set()
    last: set[int] = set()
    for position, node in enumerate(network.nodes):
        if node.op in _VIEW_OPS and not node.domain and node.inputs[0] in strides:
            made = _viewed(network, node, strides)
            if made is None:
                # The copy is done where the order is changed, if that is what lies before it.
                before = producers.get(node.inputs[0], -1)
                moved = before >= 0 and network.nodes[before].op in ("Transpose", "Expand")
                copies.add(before if moved else position)
                made = [dense(network.types[out].shape) for out in node.outputs]
            strides.update(zip(node.outputs, made, strict=True))
            continue
        if node.qualified_op in _WANT_DENSE:
            _densify(network, node, strides, producers, copies)
        read = node.inputs[0] if node.inputs else ""
        by_layout = node.qualified_op in _BY_LAYOUT and read in strides
        if by_layout and is_channels_last(network.types[read].shape, strides[read]):
            last.add(position)
        for out in node.outputs:
            if out:
                strides[out] = _made(network, node, out, strides)
    return frozenset(copies), frozenset(last)


def ordered(module: Rewritten, channels_last: bool) -> Rewritten:
    """The module with operands in one order, unless another first one makes other strides."""
    network = with_ordered_operands(module.network)
    if network is module.network:
        return module
    ways, layouts = (module, module._replace(network=network).then(())), []
    for net in [way.network for way in ways]:
        parts = follow(net, channels_last)
        layouts.append([{net.nodes[i].outputs for i in part} for part in parts])
    return ways[layouts[0] == layouts[1]]


def _densify(
    network: Network,
    node: Node,
    strides: dict[str, Strides],
    producers: dict[str, int],
    copies: set[int],
) -> None:
    """What the node reads is copied unless it is dense, in an order that the node can read."""
    name = node.inputs[0]
    maker = producers.get(name, -1)
    if name not in strides or maker < 0 or network.nodes[maker].op not in _VIEW_OPS:
        return  # what an element-wise operator makes in this order is the reader's own copy
    shape, current = network.types[name].shape, strides[name]
    plain = all(s == d or n == 1 for s, d, n in zip(current, dense(shape), shape, strict=True))
    if not plain and not (node.op in _CHANNELS_LAST and is_channels_last(shape, current)):
        copies.add(maker)
        strides[name] = dense(shape)


def _viewed(network: Network, node: Node, strides: dict[str, Strides]) -> list[Strides] | None:
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


def _made(network: Network, node: Node, out: str, strides: dict[str, Strides]) -> Strides:
    shape = network.types[out].shape
    read = [name for name in node.inputs if name in strides]
    same = [name for name in read if network.types[name].shape == shape]
    if node.op in _CHANNELS_LAST or node.op in ("Concat", "Pad"):
        last = [is_channels_last(network.types[n].shape, strides[n]) for n in read]
        return dense(shape, channels_last=bool(last) and all(last))
    if node.op in ("MatMul", "Gemm", "LayerNormalization", "RMSNormalization") or not same:
        return dense(shape)
    current = strides[same[0]]
    return _packed(shape, sorted(range(len(shape)), key=lambda axis: (-current[axis], axis)))
