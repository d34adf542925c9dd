"""Constants that an exporter wrote for one batch, made to hold for another.

Exporters trace a network at one batch and write its sizes into the constants of Reshape, Expand,
Slice, Tile and Resize, and weights and indices for each item. The types of all tensors at that
batch, beside those at the other one, say which of these sizes were the batch.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from hybridlat.graph.network import Network, TensorType
from hybridlat.graph.operators import Sizes
from hybridlat.onnx_io.checks import Misfit
from hybridlat.onnx_io.infer import MAX_FOLDED_ELEMENTS
from hybridlat.onnx_io.nodes import FileNode, read_node
from hybridlat.onnx_io.values import Known, Value, type_of

_SIZES_AT: Mapping[str, int] = {"Reshape": 1, "Expand": 1, "Tile": 1, "Slice": 2, "Resize": 3}
"""Which input of an operator has the sizes."""
_EACH_ITEM = ("Concat", "Gather", "GatherElements")  # what they read is there for each item
_OF_REGIONS = ("RoiAlign", "MaxRoiPool")  # what they give is there for each region of an image
_BROADCAST = ("Add", "Sub", "Mul", "Div")


def batch_change(
    before: Mapping[str, TensorType], after: Mapping[str, TensorType]
) -> tuple[int, int] | None:
    """The batch of a file and the one asked for, where nothing else of its inputs differs."""
    pairs = {(before[name].shape, type_.shape) for name, type_ in after.items()}
    changes = {(old[0], new[0], old[1:] == new[1:]) for old, new in pairs if old != new}
    old, new, is_batch = changes.pop() if len(changes) == 1 else (0, 0, False)
    return (old, new) if is_batch and old > 0 else None


@dataclass(slots=True)
class Rebinding:
    """What changes from the batch ``old`` to ``new``.

    ``before`` is known at the old one, and the file has ``stated`` types at that. What is read
    ``by_step`` has the batch second, also where a Reshape turns a batch of 1.
    """

    before: Mapping[str, Known]
    old: int
    new: int
    stated: Mapping[str, TensorType]
    by_step: frozenset[str] = frozenset()
    changed: list[str] = field(default_factory=list)

    def grown(self) -> dict[str, TensorType]:
        """The stated types, those that begin with the old batch with the new one."""
        olds = {n: t for n, t in self.stated.items() if t.shape[:1] == (self.old,)}
        news = {n: t._replace(shape=(self.new, *t.shape[1:])) for n, t in olds.items()}
        return {**self.stated, **news}

    def adapt(self, node: FileNode, known: dict[str, Known]) -> FileNode:
        """The operator with constants for the new batch, which are added to ``known``."""
        made: Mapping[int, Value] = {}
        if node.domain or not (node.inputs and node.outputs):
            return node
        if node.op in _SIZES_AT:
            made = self._sizes(node, known)
        elif node.op in _EACH_ITEM or (node.op in _BROADCAST and self.old > 1):
            made = self._operands(node, known)
        if not made:
            return node
        self.changed.append(node.name)
        proto = node.proto()
        for place, value in made.items():
            digest = hashlib.blake2b(value.data, digest_size=8).hexdigest()
            proto.input[place] = name = f"{node.inputs[place]}@{digest}"  # shared as before
            known[name] = value
        return read_node(proto, node.name)

    def _sizes(self, node: FileNode, known: Mapping[str, Known]) -> Mapping[int, Value]:
        at = _SIZES_AT[node.op]
        name = node.inputs[at] if len(node.inputs) > at else ""
        value = known.get(name)
        if not isinstance(value, Value) or value != self.before.get(name):
            return {}  # the sizes follow the batch already
        sizes = _numbers(value)
        place = self._place(node, sizes, known) if sizes else None
        if place is None or not 0 < sum(sizes[place : place + 1]) * self.new < 1 << 62:
            return {}
        size = sizes[place] * self.new // self.old
        made = np.array([*sizes[:place], size, *sizes[place + 1 :]], np.int64)
        return {at: Value.of_array(made.reshape(value.type.shape))}

    def _place(self, node: FileNode, sizes: Sizes, known: Mapping[str, Known]) -> int | None:
        """Which of an operator's sizes holds the batch; None for none and where it is open."""
        before = _shape(self.before.get(node.inputs[0]))
        axis = changed_axis(before, _shape(known.get(node.inputs[0])))
        if axis is None:  # a weight for each item, made of one for all
            is_wide = node.op in ("Expand", "Tile") and self.old > 1
            return 0 if is_wide and sizes[0] == self.old else None
        if node.op == "Reshape" and node.outputs[0] in self.by_step and sizes[1:2] == (self.old,):
            return 1
        if node.op == "Reshape":
            return reshaped_axis(before, axis, _shape(self.before.get(node.outputs[0])), self.old)
        place = axis + len(sizes) - len(before)
        if node.op == "Slice":
            starts, axes = (_numbers(known.get(name)) for name in (*node.inputs, "", "")[1:4:2])
            pairs = [*zip(starts, axes, strict=False)][: len(sizes)]
            place = pairs.index((0, axis)) if (0, axis) in pairs else -1
        return place if node.op != "Tile" and place >= 0 and sizes[place] == before[axis] else None

    def _operands(self, node: FileNode, known: Mapping[str, Known]) -> Mapping[int, Value]:
        """Weights and indices beside results of the batch, each of them for all of its items."""
        pairs = [(_shape(self.before.get(n)), _shape(known.get(n))) for n in node.inputs]
        axes = {changed_axis(old, new) for old, new in pairs} - {None}
        axis = axes.pop() if len(axes) == 1 else None
        rank, stride = max(len(old) for old, _ in pairs), 0
        along = [a.i for a in node.proto().attribute if a.name == "axis"]
        if node.op == "Gather" and len(pairs[0][0]) == 1:  # of all items in one row
            along, stride = [], pairs[0][0][0] // self.old
        if axis is None or axis in along or axis - rank in along:
            return {}
        values = [(place, known.get(name)) for place, name in enumerate(node.inputs)]
        own = [(p, v) for p, v in values if isinstance(v, Value) and len(v.type.shape) == rank]
        made = {place: self._for_each(value, axis, stride) for place, value in own}
        return {place: value for place, value in made.items() if value is not None}

    def _for_each(self, value: Value, axis: int, stride: int) -> Value | None:
        """A constant for all items, each ``stride`` on; None where it is none for each."""
        (dtype, shape), array = value.type, value.array
        if shape[axis] != self.old:
            return None
        shape = (*shape[:axis], self.new, *shape[axis + 1 :])
        if array is None or dtype != "int64" or math.prod(shape) > MAX_FOLDED_ELEMENTS:
            return Value.of_type(TensorType(dtype, shape))
        first, along = array.take([0], axis), [-1 if i == axis else 1 for i in range(array.ndim)]
        old, new = (first + stride * np.arange(n).reshape(along) for n in (self.old, self.new))
        return Value.of_array(new) if (array == old).all() else None

    def check(self, network: Network) -> None:
        """Misfit for an operator whose result does not grow with the batch as what it reads."""
        changed = {name for name, type_ in network.types.items() if type_ != self.before.get(name)}
        for node in network.nodes:
            grows = node.op not in _OF_REGIONS and changed.intersection(node.inputs)
            of_items = node.outputs[:1] if node.op == "DynamicQuantizeLinear" else node.outputs
            for out in of_items if grows else ():
                elements = math.prod(_shape(self.before.get(out)))
                if out and network.types[out].elements * self.old != elements * self.new:
                    raise Misfit(f"{node.op} {node.name!r} does not grow with the batch")


def changed_axis(before: Sizes, after: Sizes) -> int | None:
    """The only axis whose size differs; None for none and for several."""
    axes = [axis for axis, (old, new) in enumerate(zip(before, after, strict=False)) if old != new]
    return axes[0] if len(axes) == 1 and len(before) == len(after) else None


def reshaped_axis(source: Sizes, axis: int, result: Sizes, batch: int) -> int | None:
    """Where the batch, the outer factor of ``axis``, lies after a reshape; None if undecided."""
    if min((*source, *result), default=0) <= 0:
        return None
    outside = math.prod(source[:axis])
    for place, size in enumerate(result):
        before = math.prod(result[:place])
        if place < axis and result[: place + 1] == source[: place + 1]:
            continue
        if before * size > outside or (before == outside and batch == 1):
            # Behind other sizes a batch of 1 leaves no trace: it may lie in either product.
            is_open = batch == 1 and before == outside and place > 0 and size > 1
            return None if is_open or size % (outside // before * batch) else place
    return None


def _shape(known: Known) -> Sizes:
    type_ = type_of(known)
    return () if type_ is None else type_.shape


def _numbers(known: Known) -> Sizes:
    array = known.array if isinstance(known, Value) and known.type.dtype == "int64" else None
    return () if array is None else tuple(map(int, array.reshape(-1)))
