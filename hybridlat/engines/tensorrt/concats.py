"""Parts of Concats and of Splits under classic TensorRT: read or written in place, or copied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hybridlat.engines.fusion.rewriter import FusionState
from hybridlat.engines.fusion.rewriting import Match, Pass, View
from hybridlat.engines.tensorrt.convolutions import INT8_VECTOR
from hybridlat.engines.tensorrt.predicates import is_int8, reads_one
from hybridlat.graph.operators import KINDS, kind_of

_CONVS, _POOLS = ("Conv", "ConvTranspose"), ("MaxPool", "AveragePool")
_SUMS = frozenset({"Add", "Sum"})
_READ_DENSE = frozenset({"Resize", "Upsample", "Slice", "Split", *_POOLS})  # no part of another
_VECTOR = 8  # channels that lie together in half precision: a part begins at a multiple


def _parts(v: View, places: Sequence[int]) -> Iterator[Match]:
    """Each part of a Concat is a Concat of its own; those that stay are copies of one part."""
    for position in places:
        node, types = v.nodes[position], {}
        for place, name in enumerate(node.inputs):
            types[f"{node.outputs[0]}/part{place}"] = v.network.type_of(name)
        pairs = zip(node.inputs, types, strict=True)
        copies = [replace(node, name=made, inputs=(i,), outputs=(made,)) for i, made in pairs]
        yield Match((position,), (*copies, replace(node, inputs=tuple(types))), types)


PARTS: tuple[Pass, ...] = ((frozenset({"Concat"}), _parts),)


def is_in_place(s: FusionState, producer: int, consumer: int) -> bool:
    """The consumer copies a part of a Concat that its maker can write where it belongs.

    Convolutions can that neither add nor run as one with others, poolings, and element-wise
    kernels in front of convolutions. Nothing may read the part that needs it dense.
    """
    if not reads_one(s, producer, consumer):
        return False
    copy = s.only(consumer)
    (name,), own = copy.inputs, s.members[consumer][0]
    maker, readers = s.producers.get(name), s.consumers[name]
    if maker is None or maker in s.removed or name in s.network.outputs:
        return False
    ops = {reader: s.network.nodes[reader].op for reader in readers}
    if copy.attribute("axis") != 1 or not _READ_DENSE.isdisjoint(ops.values()):
        return False
    if any(op == "Concat" and reader < own for reader, op in ops.items()):
        return False  # it has its place in another one
    shape, held = s.network.type_of(name).shape, s.ops(s.group[maker])
    kind = s.kind[s.group[maker]]
    if kind in _CONVS:
        is_plain = _SUMS.isdisjoint(held) and held.count("Conv") < 2
        return is_plain and not (is_int8(s, producer, consumer) and shape[1] % INT8_VECTOR)
    if kind == "Concat":
        return True
    is_pointwise = all(kind_of(op) == KINDS["pointwise"] for op in held)
    return kind in _POOLS or (is_pointwise and len(shape) == 4 and not shape[1] % _VECTOR)


def is_read_in_place(s: FusionState, producer: int, consumer: int) -> bool:
    """The consumer takes channels of maps, which are read where they lie, unless in a sum."""
    node = s.only(consumer)
    shape = s.network.type_of(node.inputs[0]).shape
    made = [s.network.types[out].shape for out in node.outputs if out]
    if len(shape) != 4 or any((m[0], *m[2:]) != (shape[0], *shape[2:]) for m in made):
        return False
    readers = [r for out in node.outputs for r in s.consumers.get(out, ())]
    sums = [s.group[r] for r in readers if s.network.nodes[r].op in _SUMS]
    return not any(s.kind.get(group) in _CONVS for group in sums)
