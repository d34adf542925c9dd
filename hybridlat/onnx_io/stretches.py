"""A file as a chain of stretches: runs of operators between tensors that alone are live.

The networks of a search space differ, but they repeat their blocks. What a stretch becomes hangs
on its operators and on the one tensor at each end, so it need not be worked out again for the next
network that holds it; which types its tensors have need not even be asked. Files that are odd in
any way, or have several inputs or outputs, are no chain.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING

from hybridlat.errors import NetworkError
from hybridlat.graph.network import Constant, Network, Node, TensorType
from hybridlat.onnx_io.checks import MAX_WEIGHT_BYTES
from hybridlat.onnx_io.nodes import FileNode, file_node, node_of
from hybridlat.onnx_io.quick_reading import (
    OF_SIZES,
    Key,
    Known,
    Odd,
    head_of,
    infer_types,
    make_constant,
    makes_constant,
)
from hybridlat.onnx_io.values import keeps_float_values

if TYPE_CHECKING:
    from hybridlat.onnx_io.file import OnnxFile, Shapes


@dataclass(frozen=True, slots=True)
class Stretch:
    """Operators of a file, at ``positions``, that read ``entry`` and make ``exit``.

    ``inputs`` are the tensors that each reads, the results of equal operators under one name.
    ``key`` is the same for stretches of the same operators, linked alike. ``readers`` counts how
    often operators behind it read its result; 0 at the end of the network.
    """

    key: Key
    positions: tuple[int, ...]
    nodes: tuple[FileNode, ...]
    inputs: tuple[tuple[str, ...], ...]
    entry: str
    exit: str
    readers: int


@dataclass(frozen=True)
class Chain:
    """All stretches of a file, in order, and what they share.

    ``type`` is that of the network's input; ``removed`` are the positions of operators that only
    make constants; ``weight_bytes`` those of the whole network.
    """

    stretches: tuple[Stretch, ...]
    type: TensorType
    removed: tuple[int, ...]
    weight_bytes: int
    opset: int
    known: Mapping[str, Known]
    keeps: Mapping[str, bool]

    def network(self, stretch: Stretch, entry: TensorType) -> Network | None:
        """One stretch as a network whose input has the type ``entry``; None where that fails."""
        types = {stretch.entry: entry}
        nodes: list[Node] = []
        try:
            for position, read, inputs in zip(
                stretch.positions, stretch.nodes, stretch.inputs, strict=True
            ):
                plain = read if read.inputs == inputs else _reading(read, inputs)
                infer_types(plain, self.opset, self.known, types)
                nodes.append(node_of(plain, str(position), self.opset))
        except (Odd, NetworkError, TypeError, ValueError):
            return None
        constants = {
            name: self._constant(name)
            for inputs in stretch.inputs for name in inputs if name in self.keeps
        }  # fmt: skip
        names = (stretch.entry,), (stretch.exit,)
        return Network("stretch", tuple(nodes), *names, types, constants)

    def _constant(self, name: str) -> Constant:
        known = self.known[name]
        return known.value if self.keeps[name] else known.weight


def chain_of(
    file: OnnxFile, batch: int | None, shapes: Shapes, joining: Collection[str]
) -> Chain | None:
    """The stretches of a file; None where it is none for this way.

    Operators of the kinds ``joining`` may become one with what makes the tensor that they read, so
    no stretch ends before one, unless another kind of operator reads the tensor too.
    """
    try:
        return _chain(file, batch, shapes, joining)
    except (Odd, NetworkError, TypeError, ValueError):  # the careful way says what is wrong
        return None


@dataclass(slots=True)
class _Steps:
    """The operators of a file that compute, one list for each thing to know of them.

    An operator reads by their numbers what others make: the input of the network is 0, the result
    of the first operator 1. ``codes`` are alike for operators that are, and read what stands as far
    before them. ``readers`` are the numbers of all that read what each makes, from the input on,
    rising, once for each time they do.
    An operator that computes the same as an earlier one is that one's twin and has no number.
    """

    positions: list[int] = field(default_factory=list)
    nodes: list[FileNode] = field(default_factory=list)
    inputs: list[tuple[str, ...]] = field(default_factory=list)
    codes: list[Key] = field(default_factory=list)
    readers: list[list[int]] = field(default_factory=lambda: [[]])
    twins: dict[int, list[tuple[int, FileNode, tuple[str, ...]]]] = field(default_factory=dict)

    def twin_of(self, node: FileNode, inputs: tuple[str, ...], reads: Sequence[int]) -> int:
        """The number of an earlier operator that computes the same; 0 if there is none."""
        for number in self.readers[reads[0]]:
            other = number - 1
            if self.nodes[other].structure == node.structure and self.inputs[other] == inputs:
                return number
        return 0

    def part(self, start: int, end: int, entry: str) -> Stretch:
        """Operators ``start`` to ``end``, counted from 0, with their twins."""
        exit_ = self.nodes[end - 1].outputs[0]
        readers = len(self.readers[end])
        twins = [number for number in range(start + 1, end + 1) if number in self.twins]
        if not twins:
            return Stretch(
                tuple(self.codes[start:end]), tuple(self.positions[start:end]),
                tuple(self.nodes[start:end]), tuple(self.inputs[start:end]), entry, exit_, readers,
            )  # fmt: skip
        own = slice(start, end)
        every: list[tuple[int, FileNode, tuple[str, ...], Key]] = list(
            zip(
                self.positions[own], self.nodes[own], self.inputs[own], self.codes[own], strict=True
            )
        )
        for number in twins:
            code = ("twin", number - start)
            every += [(*twin, code) for twin in self.twins[number]]
        every.sort(key=itemgetter(0))
        positions, nodes, inputs, codes = zip(*every, strict=True)
        return Stretch(codes, positions, nodes, inputs, entry, exit_, readers)


def _chain(file: OnnxFile, batch: int | None, shapes: Shapes, joining: Collection[str]) -> Chain:
    head = head_of(file, batch, shapes)
    if len(head.types) != 1 or len(head.outputs) != 1:
        raise Odd
    ((entry, type_),) = head.types.items()
    ((output, stated),) = head.outputs
    if stated not in ("", type_.dtype):
        raise Odd
    known = dict(head.known)
    removed: list[int] = []
    made = {entry: 0}
    same: dict[str, str] = {}
    keeps: dict[str, bool] = {}
    steps = _Steps()
    readers = steps.readers
    for position, node in enumerate(file.nodes):
        if makes_constant(node, known):
            make_constant(node, known, made)
            removed.append(position)
            continue
        if node.has_graph or node.domain not in ("", "ai.onnx") or node.op in OF_SIZES:
            raise Odd
        (out,) = node.outputs
        if not out or out in made or out in known:
            raise Odd
        inputs = tuple([same.get(n, n) for n in node.inputs]) if same else node.inputs
        here = len(readers)
        code: list[object] = [node.structure]
        reads: list[int] = []
        for name in inputs:
            maker = made.get(name)
            if maker is not None:
                code.append(here - maker)
                reads.append(maker)
                continue
            constant = known.get(name)
            if constant is None:
                if name:
                    raise Odd  # made further down, or nowhere
                code.append("")
                continue
            code.append(constant)
            keep = constant.is_small and keeps_float_values(node.op, constant.type.shape)
            if keeps.setdefault(name, keep) is not keep:
                raise Odd
        if not reads:
            raise Odd
        twin = steps.twin_of(node, inputs, reads) if readers[reads[0]] else 0
        if twin:
            steps.twins.setdefault(twin, []).append((position, node, inputs))
            same[out] = steps.nodes[twin - 1].outputs[0]
            made[out] = twin
            continue
        for maker in reads:
            readers[maker].append(here)
        made[out] = here
        readers.append([])
        steps.positions.append(position)
        steps.nodes.append(node)
        steps.inputs.append(inputs)
        steps.codes.append(tuple(code))
    end = len(readers) - 1
    unread = not all(readers[:end])
    if made.get(output) != end or output in same or end in steps.twins or unread:
        raise Odd  # the output stands elsewhere, or nobody reads what an operator makes
    weight_bytes = sum([
        known[n].value_bytes if keep else known[n].weight_bytes for n, keep in keeps.items()
    ])  # fmt: skip
    if weight_bytes > MAX_WEIGHT_BYTES:
        raise Odd
    stretches = _cut(steps, entry, joining)
    return Chain(stretches, type_, tuple(removed), weight_bytes, head.opset, known, keeps)


def _cut(steps: _Steps, entry: str, joining: Collection[str]) -> tuple[Stretch, ...]:
    """Cut where one tensor alone is still to be read, and nothing behind joins its maker."""
    nodes = steps.nodes
    stretches: list[Stretch] = []
    start, reach = 0, steps.readers[0][-1]
    for number, readers in enumerate(steps.readers[1:], start=1):
        if reach <= number:
            behind = {nodes[reader - 1].op for reader in readers}
            if len(behind) != 1 or not behind.issubset(joining):
                stretches.append(steps.part(start, number, entry))
                start, entry = number, nodes[number - 1].outputs[0]
        if readers and readers[-1] > reach:
            reach = readers[-1]
    return tuple(stretches)


def _reading(node: FileNode, inputs: tuple[str, ...]) -> FileNode:
    """The same operator, reading tensors of other names."""
    proto = node.proto()
    del proto.input[:]
    proto.input.extend(inputs)
    return file_node(proto.SerializeToString())
