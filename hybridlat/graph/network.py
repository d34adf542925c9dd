"""A network as hybridlat sees it: operators, the tensors between them, and no weights."""

import heapq
import json
import marshal
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

AttributeValue = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]
Shapes = Mapping[str, tuple[int, ...]]
"""Whole shapes of inputs, by their names."""

ITEM_BYTES: Mapping[str, float] = {
    "float64": 8, "int64": 8, "uint64": 8, "complex64": 8, "complex128": 16,
    "float32": 4, "int32": 4, "uint32": 4,
    "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2,
    "int8": 1, "uint8": 1, "bool": 1, "float8e4m3fn": 1, "float8e5m2": 1, "float8e4m3fnuz": 1,
    "float8e5m2fnuz": 1, "float8e8m0": 1, "float6e2m3": 0.75, "float6e3m2": 0.75,
    "float4e2m1": 0.5, "int4": 0.5, "uint4": 0.5, "int2": 0.25, "uint2": 0.25, "string": 16,
}  # fmt: skip


def pixels_of(sizes: Sequence[int | None]) -> slice:
    """The axes of an image's height and width; TensorFlow has the channels behind them."""
    colours = (1, 3, 4)
    return slice(1, 3) if sizes[3] in colours and sizes[1] not in colours else slice(2, 4)


class TensorType(NamedTuple):
    """Element type (``float32`` …) and static shape of a tensor; quick to compare."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    @lru_cache(maxsize=16_384)  # noqa: B019  networks share them
    def bytes(self) -> int:
        return math.ceil(self.elements * ITEM_BYTES[self.dtype])

    def __str__(self) -> str:
        return f"{self.dtype}[{'x'.join(map(str, self.shape))}]"

    @classmethod
    def of(cls, dtype: str, sizes: str) -> "TensorType":
        """Of sizes in text, as in ``1x3x8x8``; ValueError for what is none."""
        return cls(dtype, tuple(map(int, sizes.split("x"))) if sizes else ())


@dataclass(frozen=True, slots=True)
class Constant:
    """A weight, known by type alone, or a small structural constant with its ``values``.

    Row-major values are kept where they decide what is computed: shapes, pads, scales, axes,
    bounds, exponents. Without them any value will do. ``copy_of`` names the constant of the file
    that this one repeats for another reader: an engine holds it once.
    """

    type: TensorType
    values: tuple[int, ...] | tuple[float, ...] | None = None
    copy_of: str = field(default="", compare=False)


@dataclass(frozen=True)
class Node:
    """One operator. ``inputs`` may hold empty names for inputs left out, as in ONNX.

    ``version`` is the opset version in which the operator last changed (its *since* version);
    ``attributes`` are sorted by name.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[tuple[str, AttributeValue], ...] = ()
    domain: str = ""
    version: int = 1

    @cached_property
    def kind(self) -> str:
        """All but names: ``Relu@14 {}``."""
        return f"{self.qualified_op}@{self.version} {self.written}"

    @property
    def written(self) -> str:
        """The attributes as JSON, as signatures have them."""
        return _json_of(self.attributes, marshal.dumps(self.attributes, 2))

    @property
    def qualified_op(self) -> str:
        """``Conv``, or ``com.microsoft.nchwc::Conv`` outside ONNX's own domain."""
        return f"{self.domain}::{self.op}" if self.domain else self.op

    def attribute(self, name: str, default: AttributeValue | None = None) -> AttributeValue | None:
        for key, value in self.attributes:
            if key == name:
                return value
        return default

    def sizes(self, name: str) -> tuple[int, ...] | None:
        """An attribute of several whole numbers; None where it is not there."""
        value = self.attribute(name)
        return tuple(map(int, value)) if isinstance(value, tuple) else None

    def with_attributes(self, *drop: str, **put: AttributeValue) -> "Node":
        """The operator without some attributes and with others."""
        attributes = {k: v for k, v in self.attributes if k not in drop} | put
        return replace(self, attributes=tuple(sorted(attributes.items())))


@lru_cache(maxsize=16_384)
def _json_of(attributes: tuple[tuple[str, AttributeValue], ...], _exact: bytes) -> str:
    """The JSON of attributes; their ``_exact`` bytes tell equal numbers apart: 1 and 1.0."""
    return json.dumps(dict(attributes), sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class Network:
    """A directed acyclic graph of operators with static shapes.

    ``nodes`` are in a topological order; ``types`` holds every activation, ``constants`` every
    weight and structural constant; ``folded`` names the file's operators that only compute
    constants, and are gone; ``left_out`` (name, operator) those behind a size that only data tell.
    ``rebound`` names operators whose constants were changed for another batch. A *cell* and a
    *kernel* are Networks too: sub-networks of a lowered one. ``context`` says in what kind of
    network they stand, where latency depends on it. ``zero_biases`` names convolutions whose bias
    the exporter left out as it was zero; None where the file does not tell.
    """

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    types: Mapping[str, TensorType]
    constants: Mapping[str, Constant] = field(default_factory=dict)
    folded: tuple[str, ...] = ()
    context: str = ""
    left_out: tuple[tuple[str, str], ...] = ()
    rebound: tuple[str, ...] = ()
    zero_biases: tuple[str, ...] | None = None

    def type_of(self, tensor: str) -> TensorType:
        """Type of an activation or a constant; KeyError for a name the network does not have."""
        type_ = self.types.get(tensor)
        return type_ if type_ is not None else self.constants[tensor].type

    @cached_property
    def held_as(self) -> Mapping[str, str]:
        """Of each constant the first that repeats the same one of the file: it is held once."""
        first: dict[object, str] = {}
        return {
            name: first.setdefault((c.copy_of or name, c.type, c.values), name)
            for name, c in self.constants.items()
        }

    @cached_property
    def weight_bytes(self) -> int:
        held = map(self.constants.__getitem__, {*self.held_as.values()})
        return sum(c.type.bytes for c in held if c.values is None)

    @property
    def copied_bytes(self) -> int:
        """Of its inputs and outputs."""
        return sum(self.type_of(name).bytes for name in (*self.inputs, *self.outputs))

    @cached_property
    def producers(self) -> dict[str, int]:
        """Position of the node that makes each tensor; to be read only."""
        return {out: i for i, node in enumerate(self.nodes) for out in node.outputs if out}

    @cached_property
    def consumers(self) -> dict[str, list[int]]:
        """Positions of the nodes that read each tensor, in order, once each; to be read only."""
        consumers: dict[str, list[int]] = {}
        for i, node in enumerate(self.nodes):
            for name in filter(None, dict.fromkeys(node.inputs)):
                consumers.setdefault(name, []).append(i)
        return consumers

    def constant(self, node: Node, place: int) -> Constant | None:
        """What an operator reads at a place, where it reads a constant there."""
        return self.constants.get(node.inputs[place]) if place < len(node.inputs) else None

    def maker(self, tensor: str, *ops: str) -> Node | None:
        """The operator of these kinds, of ONNX's own domain, that makes a tensor."""
        position = self.producers.get(tensor)
        node = None if position is None else self.nodes[position]
        return node if node is not None and node.op in ops and not node.domain else None

    def reader(self, node: Node, *ops: str) -> Node | None:
        """The operator of these kinds, of ONNX's own domain, that alone reads a node's result."""
        made = node.outputs[0]
        readers = self.consumers.get(made, ())
        if len(readers) != 1 or made in self.outputs:
            return None
        reader = self.nodes[readers[0]]
        return reader if reader.op in ops and not reader.domain else None

    def order_by(self, key: Callable[[int], Any]) -> list[int]:
        """A topological order: of the nodes that are ready, the one of the least key is next."""
        made_by = self.producers
        needs = [{made_by[name] for name in n.inputs if name in made_by} for n in self.nodes]
        return topological_order(needs, key)

    @cached_property
    def ends(self) -> list[int]:
        """Positions of the nodes that make the outputs."""
        return [self.producers[name] for name in self.outputs if name in self.producers]

    def order_before(self, ends: Iterable[int]) -> list[int]:
        """Each of ``ends`` right behind all that it needs, inputs as they are named; each once."""
        order: dict[int, None] = {}
        waiting = [*ends][::-1]
        while waiting:
            position = waiting[-1]
            makers = (self.producers.get(name) for name in self.nodes[position].inputs)
            needed = next((p for p in makers if p is not None and p not in order), None)
            if needed is None or position in order:
                order.setdefault(waiting.pop())
            else:
                waiting.append(needed)
        return list(order)

    def renamed(self, tensors: Mapping[str, str]) -> "Network":
        """The same network under new names: tensors by their old ones, nodes n0, n1 …"""

        def new(names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple([tensors[name] if name else "" for name in names])

        return replace(
            self,
            nodes=tuple(
                replace(node, name=f"n{i}", inputs=new(node.inputs), outputs=new(node.outputs))
                for i, node in enumerate(self.nodes)
            ),
            inputs=new(self.inputs),
            outputs=new(self.outputs),
            types={tensors[name]: type_ for name, type_ in self.types.items()},
            constants={tensors[name]: constant for name, constant in self.constants.items()},
        )

    def subnetwork(self, positions: tuple[int, ...]) -> "Network":
        """The nodes at ``positions`` as a network of their own.

        Its outputs are those that others read, that the whole network gives out, or that none
        reads.
        """
        chosen = set(positions)
        nodes = tuple(self.nodes[i] for i in sorted(chosen))
        made = {out for node in nodes for out in node.outputs if out}
        read = [name for node in nodes for name in node.inputs if name]
        inputs = tuple(dict.fromkeys([t for t in read if t in self.types and t not in made]))
        kept = made.intersection(self.outputs)
        kept.update(out for out in made if not chosen.issuperset(self.consumers.get(out, ())))
        kept.update({out for node in nodes for out in node.outputs[:1]}.difference(read, [""]))
        outputs = tuple(out for node in nodes for out in node.outputs if out in kept)
        constants = {t: self.constants[t] for t in dict.fromkeys(read) if t in self.constants}
        types = {t: self.types[t] for t in (*inputs, *made)}
        return Network(self.name, nodes, inputs, outputs, types, constants, context=self.context)


def topological_order(
    needs: Sequence[Collection[int]], key: Callable[[int], Any] | None = None
) -> list[int]:
    """Positions in an order in which each follows those in ``needs`` of it, all different.

    Of the positions that are ready the one of the least ``key`` comes first, then the least
    position. Positions on a loop, or behind one, are left out.
    """
    waiting = [len(sources) for sources in needs]
    readers: list[list[int]] = [[] for _ in needs]
    for position, sources in enumerate(needs):
        for source in sources:
            readers[source].append(position)
    ready = [(key(i) if key else 0, i) for i, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, position = heapq.heappop(ready)
        order.append(position)
        for reader in readers[position]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, (key(reader) if key else 0, reader))
    return order


@dataclass(frozen=True)
class Lowered:
    """The graph an engine really runs, and which operators of the file each of its kernels holds.

    ``origins[i]`` are positions in the file that ``network.nodes[i]`` computes, ``removed`` those
    that the engine dropped: each is in one place. ``by`` names an engine (``onnxruntime 1.31.1``)
    or a table (``rules tensorrt``).
    """

    network: Network
    origins: tuple[tuple[int, ...], ...]
    removed: tuple[int, ...]
    by: str
    warnings: tuple[str, ...] = ()
