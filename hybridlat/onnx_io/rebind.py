"""Constants that an exporter wrote for one batch, made to hold for another.

Exporters trace a network at one batch and write its sizes into the constants of Reshape, Expand,
Slice, Tile, Resize and Concat. The types of all tensors at that batch, beside those at the other
one, tell which of these sizes were the batch: in row-major order a reshape keeps the place of what
lies outermost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from hybridlat.graph.network import TensorType
from hybridlat.onnx_io.nodes import FileNode, file_node
from hybridlat.onnx_io.values import Known, Value

Sizes = tuple[int, ...]


def batch_change(
    before: Mapping[str, TensorType], after: Mapping[str, TensorType]
) -> tuple[int, int] | None:
    """The batch of a file and the one asked for, where nothing else of its inputs differs."""
    changes = set()
    for name, type_ in before.items():
        old, new = type_.shape, after[name].shape
        if old != new:
            if old[1:] != new[1:]:
                return None
            changes.add((old[0], new[0]))
    return changes.pop() if len(changes) == 1 else None


@dataclass(slots=True)
class Rebinding:
    """What changes from the batch ``old`` to the batch ``new``; ``before`` is known at the old one.

    ``changed`` are the operators whose constants were made anew.
    """

    before: Mapping[str, Known]
    old: int
    new: int
    changed: list[str] = field(default_factory=list)

    def adapt(self, node: FileNode, known: dict[str, Known]) -> FileNode:
        """The operator with constants for the new batch, which are added to ``known``."""
        if node.domain:
            return node
        if node.op == "Concat":
            return self._concat(node, known)
        if node.op not in _SIZES_AT:
            return node
        place, sizes_of = _SIZES_AT[node.op]
        name = node.inputs[place] if len(node.inputs) > place else ""
        value = known.get(name)
        if not isinstance(value, Value) or value != self.before.get(name) or value.array is None:
            return node  # its sizes follow the batch already
        source = _Source(self, node, known)
        sizes = sizes_of(source, tuple(map(int, value.array.reshape(-1))))
        if sizes is None:
            return node
        array = np.array(sizes, value.array.dtype).reshape(value.array.shape)
        return self._with(node, {place: Value.of_array(array)}, known)

    def _concat(self, node: FileNode, known: dict[str, Known]) -> FileNode:
        """A weight beside results of the batch, as a class token is: one for each of its items."""
        pairs = [(_shape(self.before.get(n)), _shape(known.get(n))) for n in node.inputs]
        axes = {axis for old, new in pairs if (axis := changed_axis(old, new)) is not None}
        if len(axes) != 1:
            return node
        axis = axes.pop()
        if any(
            attribute.name == "axis" and attribute.i == axis for attribute in node.proto().attribute
        ):
            return node
        made: dict[int, Value] = {}
        for place, name in enumerate(node.inputs):
            value = known.get(name)
            if isinstance(value, Value) and value.type.shape[axis : axis + 1] == (self.old,):
                shape = value.type.shape
                shape = (*shape[:axis], self.new, *shape[axis + 1 :])
                made[place] = Value.of_type(TensorType(value.type.dtype, shape))
        return self._with(node, made, known) if made else node

    def _with(
        self, node: FileNode, values: Mapping[int, Value], known: dict[str, Known]
    ) -> FileNode:
        self.changed.append(node.name)
        proto = node.proto()
        for place, value in values.items():
            name = f"{node.inputs[place]}@{node.name}"
            proto.input[place] = name
            known[name] = value
        return replace(file_node(proto.SerializeToString()), name=node.name)


@dataclass(frozen=True, slots=True)
class _Source:
    """The first input of an operator at both batches."""

    change: Rebinding
    node: FileNode
    known: Mapping[str, Known]

    @property
    def before(self) -> Sizes:
        return _shape(self.change.before.get(self.node.inputs[0]))

    @property
    def axis(self) -> int | None:
        """The axis with the batch, alone or as the outer factor; None without one."""
        return changed_axis(self.before, _shape(self.known.get(self.node.inputs[0])))

    def scaled(self, sizes: Sizes, place: int) -> Sizes | None:
        """The sizes with the one at ``place`` for the new batch; None if it follows."""
        if sizes[place] <= 0:
            return None
        size = sizes[place] * self.change.new // self.change.old
        return (*sizes[:place], size, *sizes[place + 1 :])


def changed_axis(before: Sizes, after: Sizes) -> int | None:
    """The only axis whose size differs; None for none and for several."""
    if len(before) != len(after):
        return None
    axes = [axis for axis, size in enumerate(before) if size != after[axis]]
    return axes[0] if len(axes) == 1 else None


def _shape(known: Known) -> Sizes:
    if known is None:
        return ()
    return known.type.shape if isinstance(known, Value) else known.shape


def _reshaped(source: _Source, sizes: Sizes) -> Sizes | None:
    axis = source.axis
    result = _shape(source.change.before.get(source.node.outputs[0]))
    if axis is None or len(result) != len(sizes):
        return None
    place = reshaped_axis(source.before, axis, result, source.change.old)
    return None if place is None else source.scaled(sizes, place)


def reshaped_axis(source: Sizes, axis: int, result: Sizes, batch: int) -> int | None:
    """Where the batch, the outer factor of ``axis``, lies after a reshape; None if undecided.

    What lies outside the batch stays outside it, as elements keep their row-major order.
    """
    outside = math.prod(source[:axis])
    for place, size in enumerate(result):
        before = math.prod(result[:place])
        if before == outside:
            if batch == 1:  # behind other sizes it has left no trace in a product
                return place if size == 1 or outside == 1 else None
            if size > 1:
                return place if size % batch == 0 else None
        if before * size > outside:
            return place if size % (outside // before * batch) == 0 else None
    return None


def _expanded(source: _Source, sizes: Sizes) -> Sizes | None:
    axis, before = source.axis, source.before
    if axis is None:
        is_batch = source.change.old > 1 and sizes[:1] == (source.change.old,)
        return source.scaled(sizes, 0) if is_batch else None
    place = axis + len(sizes) - len(before)
    return source.scaled(sizes, place) if place >= 0 and sizes[place] == before[axis] else None


def _resized(source: _Source, sizes: Sizes) -> Sizes | None:
    axis = source.axis
    return None if axis is None or axis >= len(sizes) else source.scaled(sizes, axis)


def _tiled(source: _Source, repeats: Sizes) -> Sizes | None:
    is_batch = source.axis is None and source.change.old > 1
    return source.scaled(repeats, 0) if is_batch and repeats[0] == source.change.old else None


def _sliced(source: _Source, ends: Sizes) -> Sizes | None:
    """The end of a slice that takes the whole batch."""
    axis, node = source.axis, source.node
    starts, axes = (_numbers(source.known.get(name)) for name in (*node.inputs, "", "")[1:4:2])
    if axis is None or axis not in axes:
        return None
    place = axes.index(axis)
    is_whole = starts[place] == 0 and ends[place] == source.before[axis]
    return source.scaled(ends, place) if is_whole else None


def _numbers(known: Known) -> Sizes:
    array = known.array if isinstance(known, Value) else None
    return () if array is None else tuple(map(int, array.reshape(-1)))


_SIZES_AT: Mapping[str, tuple[int, Callable[[_Source, Sizes], Sizes | None]]] = {
    "Reshape": (1, _reshaped),
    "Expand": (1, _expanded),
    "Tile": (1, _tiled),
    "Slice": (2, _sliced),
    "Resize": (3, _resized),
}
"""Of each operator with sizes: which input has them, and what they are at the new batch."""
