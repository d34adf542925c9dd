"""The normal form of a network: one spelling for what exporters and operator sets write otherwise.

A form gets the network that is written and an operator, which it keeps, drops or replaces.
Operators are those of operator set 17 (``operators``), axes count from the front, and sizes are
written out. What does nothing at inference is gone. Each constant has one reader.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from hybridlat.graph.builder import Writing
from hybridlat.graph.network import AttributeValue, Constant, Network, Node, TensorType
from hybridlat.graph.operators import QUANTISERS, RECURRENT, Sizes

_VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


def _view(w: Writing, node: Node) -> None:
    """What only gives another shape is a Reshape to that shape; the last of several in a row."""
    made, shape = node.outputs[0], w.shape(node.outputs[0])
    if 0 in shape or node.inputs[0] not in w.types:
        return w.keep(node)
    reader = w.source.reader(node, *_VIEWS) if w.joins_views else None
    if reader is not None and reader.inputs[0] == made:
        return w.drop(node)
    node = replace(node, op="Reshape", attributes=(), version=14)
    w.keep(node, w.put(node, "shape", shape))


def _turn(w: Writing, node: Node) -> None:
    """The order of the axes is written out."""
    backwards = tuple(range(len(w.shape(node.inputs[0]))))[::-1]
    w.keep(node.with_attributes(perm=node.sizes("perm") or backwards))


def _nothing(w: Writing, node: Node) -> None:
    """An Identity, or a Dropout whose mask nothing reads."""
    is_read = any(m in w.source.consumers or m in w.source.outputs for m in node.outputs[1:])
    (w.keep if is_read else w.drop)(node)


def _cast(w: Writing, node: Node) -> None:
    """One to the type that is there already does nothing."""
    (w.drop if w.types.get(node.inputs[0]) == w.types[node.outputs[0]] else w.keep)(node)


def _reduce(w: Writing, node: Node) -> None:
    """All axes are named: by an attribute, those of a ReduceSum by an input."""
    rank = len(w.shape(node.inputs[0]))
    if not rank:
        return w.keep(node)
    parts = w.operands(node, "axes")
    if not parts:
        return w.keep(node if node.op == "ReduceSum" else replace(node, version=18))
    if not parts[0] and node.attribute("noop_with_empty_axes", 0):
        return w.drop(node)
    axes = tuple(sorted([axis % rank for axis in parts[0] or range(rank)]))
    node = replace(node.with_attributes("axes", "noop_with_empty_axes"), inputs=node.inputs[:1])
    if node.op == "ReduceSum":
        w.keep(node, w.put(node, "axes", axes))
    else:
        w.keep(node.with_attributes(axes=axes))


def _along(usual: int | None) -> Callable[[Writing, Node], None]:
    """An axis counts from the front and is left out where it is the ``usual`` one."""

    def form(w: Writing, node: Node) -> None:
        axis, rank = node.attribute("axis"), len(w.shape(node.inputs[0]))
        if isinstance(axis, int) and rank:
            axis %= rank
            is_usual = usual is not None and axis == usual % rank
            node = node.with_attributes("axis", **({} if is_usual else {"axis": axis}))
        w.keep(node)

    return form


def _softmax(w: Writing, node: Node) -> None:
    """Before set 13 one ran over all axes from one on, by default from the second."""
    if node.version >= 13:
        return _along(-1)(w, node)
    source, made = node.inputs[0], node.outputs[0]
    if not w.shape(source) or source not in w.types:
        return w.keep(node)
    dtype, shape = w.types[source]
    axis = int(str(node.attribute("axis", 1))) % len(shape)
    node = replace(node.with_attributes("axis"), version=13)
    if math.prod(shape[axis:]) == shape[axis]:
        return _along(-1)(w, node.with_attributes(axis=axis))
    rows, result = f"{made}/rows", f"{made}/result"
    flat = TensorType(dtype, (math.prod(shape[:axis]), math.prod(shape[axis:])))
    w.types.update({rows: flat, result: flat})
    _view(w, replace(node, inputs=(source,), outputs=(rows,)))
    w.keep(replace(node, inputs=(rows,), outputs=(result,)))
    _view(w, replace(node, inputs=(result,), outputs=(made,)))


def _clip(w: Writing, node: Node) -> None:
    """Bounds are inputs."""
    bounds = [node.attribute("min"), node.attribute("max")]
    if bounds == [None, None]:
        return w.keep(node)
    dtype, read = w.types[node.outputs[0]].dtype, list[str]()
    for label, value in zip(("min", "max"), bounds, strict=True):
        read.append("" if value is None else w.put(node, label, (float(str(value)),), dtype))
    w.keep(node.with_attributes("min", "max"), *(read if read[1] else read[:1]))


def _pad(w: Writing, node: Node) -> None:
    """Sizes for every axis are an input; zeros are what is filled in by default."""
    parts, rank = w.operands(node, "pads", "value", "axes"), len(w.shape(node.inputs[0]))
    if not parts:
        return w.keep(node)
    sizes, (fill, *_), axes = parts[0], parts[1] or (node.attribute("value", 0),), parts[2]
    axes, full = axes or tuple(range(rank)), [0] * (2 * rank)
    for axis, before, behind in zip(axes, sizes, sizes[len(axes) :], strict=False):
        full[axis % rank], full[axis % rank + rank] = before, behind
    node, read = node.with_attributes("pads", "value"), [w.put(node, "pads", full)]
    if fill:
        read.append(w.put(node, "value", (float(str(fill)),), w.types[node.outputs[0]].dtype))
    w.keep(node, *read)


def _slice(w: Writing, node: Node) -> None:
    """Axes in order, from the front; bounds within the tensor; steps where one is not 1."""
    shape, labels = w.shape(node.inputs[0]), ("starts", "ends", "axes", "steps")
    starts, ends, axes, steps = w.operands(node, *labels) or [()] * 4
    if not starts:
        return w.keep(node)
    axes = axes or tuple(range(len(starts)))
    steps, cuts = steps or (1,) * len(axes), dict[int, Sizes]()
    lengths = {len(part) for part in (starts, ends, axes, steps)}
    if len(lengths) > 1 or not {*range(-len(shape), len(shape))}.issuperset(axes):
        return w.keep(node)  # the file's mistake, which engines name
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        size = shape[axis]
        # As Python's are read. Backwards the end may lie before the first element.
        first, last, step = slice(start, end, step).indices(size)
        if (first, last, step) != (0, size, 1):
            cuts[axis % len(shape)] = (first, last if last >= 0 else -size - 1, step)
    if not cuts:  # some engines run it all the same
        cuts[axes[0] % len(shape)] = (0, shape[axes[0]], 1)
    rows = [(*cuts[axis][:2], axis, cuts[axis][2]) for axis in sorted(cuts)]
    columns = dict(zip(labels, zip(*rows, strict=True), strict=True))
    node = node.with_attributes(*columns)
    if set(columns["steps"]) == {1}:
        del columns["steps"]
    w.keep(node, *[w.put(node, label, column) for label, column in columns.items()])


def _split(w: Writing, node: Node) -> None:
    """The size of every part is an input."""
    if not all(node.outputs):
        return w.keep(node)
    axis = int(str(node.attribute("axis", 0))) % max(1, len(w.shape(node.inputs[0])))
    stated: dict[str, AttributeValue] = {"axis": axis} if axis else {}
    node = node.with_attributes("axis", "split", "num_outputs", **stated)
    w.keep(node, w.put(node, "split", [w.shape(out)[axis] for out in node.outputs]))


def _resize(w: Writing, node: Node) -> None:
    """What Upsample and the first Resize do, in the words of later ones."""
    if node.op == "Resize" and node.version > 10:
        return w.keep(node)
    scales, stated = "".join(node.inputs[1:2]), node.attribute("scales")
    if isinstance(stated, tuple):
        type_ = TensorType("float32", (len(stated),))
        scales = w.add(node, "scales", Constant(type_, tuple(map(float, stated))))
    way = {"coordinate_transformation_mode": "asymmetric"}
    if node.attribute("mode", "nearest") == "nearest":
        way["nearest_mode"] = "floor"
    w.keep(replace(node.with_attributes("scales", **way), op="Resize", version=13), "", scales)


def _top_k(w: Writing, node: Node) -> None:
    """How many is an input."""
    k = node.attribute("k")
    if not isinstance(k, int):
        return _along(-1)(w, node)
    w.keep(node.with_attributes("k"), w.put(node, "k", (k,)))


def _cumulated(w: Writing, node: Node) -> None:
    """The axis is one whole number of 64 bits that counts from the front."""
    if parts := [part for part in w.operands(node, "axis") if part]:
        axis = parts[0][0] % (len(w.shape(node.inputs[0])) or 1)  # of a number, in a broken file
        return w.keep(node, w.add(node, "axis", Constant(TensorType("int64", ()), (axis,))))
    w.keep(node)


def _roi_align(w: Writing, node: Node) -> None:
    """Before set 16 pixels were not shifted by half."""
    way = {"coordinate_transformation_mode": "output_half_pixel"} if node.version < 16 else {}
    w.keep(replace(node.with_attributes(**way), version=16))


def _grid_sample(w: Writing, node: Node) -> None:
    """Set 20 calls its modes otherwise, and knows volumes."""
    mode, rank = node.attribute("mode"), len(w.shape(node.inputs[0]))
    if mode in ("linear", "cubic"):
        node = node.with_attributes("mode", **({"mode": "bicubic"} if mode == "cubic" else {}))
    w.keep(node if rank == 4 else replace(node, version=20))


def _window(w: Writing, node: Node) -> None:
    """Padding is written in numbers; so is how many windows of a pool start inside the data."""
    mode = node.attribute("auto_pad")
    if mode is None and not node.attribute("ceil_mode", 0):
        return w.keep(node)
    read, made = w.shape(node.inputs[0])[2:], w.shape(node.outputs[0])[2:]
    kernel = node.sizes("kernel_shape") or w.shape(node.inputs[1])[2:]
    if len(kernel) != len(read):
        return w.keep(node)
    strides, dilations = (node.sizes(n) or (1,) * len(read) for n in ("strides", "dilations"))
    extra = node.sizes("output_padding") or (0,) * len(read)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    wide, narrow = (made, read) if node.op == "ConvTranspose" else (read, made)
    windows = zip(wide, narrow, strides, spans, extra, strict=True)
    totals = [(count - 1) * step + span + more - size for size, count, step, span, more in windows]
    if mode is None:
        pads = node.sizes("pads") or (0,) * 2 * len(read)
        behind = [total - pad for total, pad in zip(totals, pads, strict=False)]
        if any(pad > most for pad, most in zip(pads[len(read) :], behind, strict=False)):
            ends = [max(0, most) for most in behind]
            node = node.with_attributes("ceil_mode", pads=(*pads[: len(read)], *ends))
        return w.keep(node)
    if min(totals, default=0) < 0 and mode != "VALID" and node.op == "ConvTranspose":
        return w.keep(node)
    totals = [max(0, total) if mode != "VALID" else 0 for total in totals]
    node = node.with_attributes("auto_pad", "output_shape")
    if any(totals):
        less, rest = [total // 2 for total in totals], [-(-total // 2) for total in totals]
        node = node.with_attributes(pads=(*less, *rest) if mode == "SAME_UPPER" else (*rest, *less))
    w.keep(node)


def _quantise(w: Writing, node: Node) -> None:
    """One scale for a whole tensor has no axis."""
    if math.prod(w.shape(node.inputs[1])) > 1:
        return _along(1)(w, node)
    w.keep(node.with_attributes("axis"))


def _element_wise(w: Writing, node: Node) -> None:
    """Constants have no sizes of 1 in front; of a sum or product they stand behind."""
    places = [place for place, name in enumerate(node.inputs) if name in w.source.constants]
    if not places or len(places) == len(node.inputs):
        return w.keep(node)
    rank, inputs = len(w.shape(node.outputs[0])), list(node.inputs)
    is_wide = any(len(w.shape(n)) == rank for n in inputs if n not in w.source.constants)
    for place in places:
        constant = w.source.constants[inputs[place]]
        shape = constant.type.shape
        while is_wide and len(shape) > 1 and shape[0] == 1:
            shape = shape[1:]
        type_ = constant.type._replace(shape=shape)
        same = replace(constant, type=type_, copy_of=constant.copy_of or inputs[place])
        inputs[place] = w.add(node, str(place), same)
    if node.op in ("Add", "Mul") and places == [0]:
        inputs.reverse()
    w.keep(replace(node, inputs=tuple(inputs)))


Forms = Mapping[str, Callable[[Writing, Node], None]]
ELEMENT_WISE: Forms = dict.fromkeys(("Add", "Sub", "Mul", "Div", "Pow", "PRelu"), _element_wise)
_REDUCTIONS = "Mean Sum Max Min Prod L1 L2 LogSum LogSumExp SumSquare"
FORMS: Forms = {
    **ELEMENT_WISE,
    **dict.fromkeys(_VIEWS, _view),
    **dict.fromkeys(("Identity", "Dropout"), _nothing),
    **dict.fromkeys(RECURRENT, Writing.keep_read),
    **dict.fromkeys([f"Reduce{kind}" for kind in _REDUCTIONS.split()], _reduce),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _softmax),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization", "LpNormalization"), _along(-1)),
    **dict.fromkeys(("Gather", "GatherElements", "ScatterElements", "ArgMax", "ArgMin"), _along(0)),
    **dict.fromkeys(("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool"), _window),
    **dict.fromkeys(("Resize", "Upsample"), _resize),
    **dict.fromkeys(QUANTISERS, _quantise),
    "Concat": _along(None),
    **dict.fromkeys(("Cast", "CastLike"), _cast),
    "Clip": _clip,
    "Pad": _pad,
    "Slice": _slice,
    "Split": _split,
    "TopK": _top_k,
    "CumSum": _cumulated,
    "Transpose": _turn,
    "RoiAlign": _roi_align,
    "Scatter": lambda w, node: _along(0)(w, replace(node, op="ScatterElements", version=16)),
    "GridSample": _grid_sample,
}
"""The form of each operator of ONNX's own domain that has several spellings."""


def written(network: Network, forms: Forms = FORMS) -> Network:
    """The normal form of a network whose operators are each as ``onnx_io.local_form`` writes it."""
    w = Writing(network, sum(forms.get(node.op) is _view for node in network.nodes) > 1)
    for node in network.nodes:
        if w.stands_for and not w.stands_for.keys().isdisjoint(node.inputs):
            node = replace(node, inputs=tuple([w.stands_for.get(i, i) for i in node.inputs]))
        form = None if node.domain else forms.get(node.op)
        (form or Writing.keep)(w, node)
    return w.network()
