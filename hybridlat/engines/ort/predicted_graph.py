"""The graph that ONNX Runtime will run, while the rules write it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import itemgetter

from hybridlat.graph.network import AttributeValue, Constant, Lowered, Network, Node, TensorType

BLOCKED_DOMAIN = "com.microsoft.nchwc"
BLOCKS = ":blocks"
"""Behind the name of a tensor that is held in blocks of channels."""
Attributes = tuple[tuple[str, AttributeValue], ...]


@dataclass(slots=True)
class Kernel:
    """A kernel in the making; ``channels`` is 0 for one whose result is in the file's layout.

    ``at`` orders kernels: the position of the last operator in it. ``uses`` counts the readers of
    its result in the file, ``left`` those that want it in the file's layout.
    """

    op: str
    domain: str
    version: int
    inputs: list[str]
    output: str
    attributes: Attributes
    origins: list[int]
    at: float
    channels: int = 0
    uses: int = 0
    left: int = 0
    is_activated: bool = False

    def put(self, name: str, value: AttributeValue) -> None:
        """Set an attribute; they stay sorted by name."""
        self.attributes = _with(self.attributes, name, value, repr(value))
        self.is_activated |= name == "activation"

    def node(self) -> Node:
        inputs, outputs = tuple(self.inputs), (self.output,)
        return Node("", self.op, inputs, outputs, self.attributes, self.domain, self.version)


class UncoveredError(Exception):
    """The network holds what no rule speaks of."""


@dataclass
class PredictedGraph:
    """The kernels so far, for a network and a number of channels in a block.

    ``blocked`` are the kernels whose results are in blocks, ``made`` the makers of all tensors;
    ``readers`` the operators that read each tensor of the file; ``same`` maps results to equal
    earlier ones.
    """

    network: Network
    block: int
    kernels: list[Kernel] = field(default_factory=list)
    blocked: dict[str, Kernel] = field(default_factory=dict)
    made: dict[str, Kernel] = field(default_factory=dict)
    types: dict[str, TensorType] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        network = self.network
        self.outputs = set(network.outputs)
        self.same = equal_results(network)
        if not self.outputs.isdisjoint(self.same.keys() | set(self.same.values())):
            raise UncoveredError
        self.twins: dict[str, list[int]] = {}
        self.readers: dict[str, list[int]] = {}
        for position, node in enumerate(network.nodes):
            first = self.same.get(node.outputs[0])
            if first is not None:
                self.twins.setdefault(first, []).append(position)
                self.done.add(position)
                continue
            for name in node.inputs:
                if name in network.types:
                    self.readers.setdefault(self.same.get(name, name), []).append(position)
        self.types.update((name, network.types[name]) for name in network.inputs)

    def maker(self, name: str) -> Node | None:
        position = self.network.producers.get(name)
        return None if position is None else self.network.nodes[position]

    def lowered(self, context: str, by: str) -> Lowered:
        """The finished graph as a lowered network: reorders behind blocks, kernels in order."""
        self._reorder_outputs()
        self.kernels.sort(key=lambda kernel: kernel.at)
        nodes = tuple([kernel.node() for kernel in self.kernels])
        origins = tuple([tuple(sorted(k.origins)) for k in self.kernels])
        removed = tuple(sorted({*range(len(self.network.nodes))}.difference(*origins)))
        held = replace(self.network, nodes=nodes, types=self.types, constants=self.constants)
        lowered = replace(held, context=context, rebound=())
        return Lowered(lowered, origins, removed, by)

    def inputs(self, node: Node) -> list[str]:
        """What an operator reads, of equal results the first."""
        return [self.same.get(name, name) for name in node.inputs] if self.same else [*node.inputs]

    def weight(self, name: str) -> Constant:
        constant = self.network.constants.get(name)
        if constant is None or constant.type.dtype != "float32":
            raise UncoveredError
        return constant

    def sized(self, name: str, shape: tuple[int, ...]) -> str:
        """A weight brought to another shape."""
        known = self.constants.get(name) or self.network.constants[name]
        self.constants[name] = known if known.type.shape == shape else weights(shape)
        return name

    def new_kernel(self, position: int, node: Node) -> Kernel:
        op, domain, version, out = node.op, node.domain, node.version, node.outputs[0]
        origins = [position, *self.twins.get(out, ())]
        return Kernel(op, domain, version, [], out, node.attributes, origins, position)

    def only_reader(self, node: Node, ops: Collection[str]) -> int | None:
        """The one operator that reads a result, if it is of ``ops``; none if that is given out."""
        out = node.outputs[0]
        readers = self.readers.get(out, ())
        if len(readers) != 1 or out in self.outputs:
            return None
        return readers[0] if self.network.nodes[readers[0]].op in ops else None

    def join(self, kernel: Kernel, position: int) -> Node:
        """Take an operator behind a kernel into it."""
        node = self.network.nodes[position]
        kernel.origins += [position, *self.twins.get(node.outputs[0], ())]
        kernel.output, kernel.at = node.outputs[0], position
        self.done.add(position)
        return node

    def emit(self, kernel: Kernel, inputs: list[str], channels: int = 0) -> None:
        """The kernel stands; its result is blocked if it has ``channels``."""
        kernel.inputs, kernel.channels = inputs, channels
        self.kernels.append(kernel)
        self._name_result(kernel)

    def _name_result(self, kernel: Kernel) -> None:
        out = kernel.output
        type_ = self.network.types[out]
        if kernel.channels:
            self.blocked[out] = kernel
            shape = (type_.shape[0], padded(kernel.channels, self.block), *type_.shape[2:])
            kernel.output = out + BLOCKS
            type_ = TensorType("float32", shape) if shape != type_.shape else type_
        self.made[kernel.output] = kernel
        self.types[kernel.output] = type_
        kernel.left = kernel.uses = len(self.readers.get(out, ())) + (out in self.outputs)

    def move(self, kernel: Kernel, position: int) -> None:
        """A kernel that stands takes in the operator behind it, and gives out its result."""
        del self.types[kernel.output], self.made[kernel.output]
        del self.blocked[kernel.output.removesuffix(BLOCKS)]
        self.join(kernel, position)
        self._name_result(kernel)

    def as_blocks(self, name: str) -> str:
        held = self.blocked.get(name)
        if held is not None:
            held.left -= 1
            return held.output
        known = f"{name}:reordered"
        if known not in self.types:
            type_ = self.network.types[name]
            wide = padded(type_.shape[1], self.block)
            at = self.made[name].at if name in self.made else -1
            attributes: Attributes = (("channels_last", 0),)
            self._reorder("ReorderInput", name, known, attributes, at + 0.5)
            self.types[known] = TensorType("float32", (type_.shape[0], wide, *type_.shape[2:]))
        return known

    def _reorder(
        self, op: str, source: str, result: str, attributes: Attributes, at: float
    ) -> None:
        kernel = Kernel(op, BLOCKED_DOMAIN, 1, [source], result, attributes, [], at)
        self.kernels.append(kernel)

    def _reorder_outputs(self) -> None:
        for name, held in self.blocked.items():
            if held.left <= 0:
                continue
            attributes: Attributes = (("channels", held.channels), ("channels_last", 0))
            at = held.at + 0.25
            self._reorder("ReorderOutput", held.output, name, attributes, at)
            self.types[name] = self.network.types[name]


@lru_cache(maxsize=4096)
def weights(shape: tuple[int, ...]) -> Constant:
    """A weight that the engine brought to that shape."""
    return Constant(TensorType("float32", shape))


@lru_cache(maxsize=4096)
def _with(attributes: Attributes, name: str, value: AttributeValue, text: str) -> Attributes:
    """``text`` tells apart what is equal and yet written otherwise: 0.0 and -0.0."""
    del text
    others = [pair for pair in attributes if pair[0] != name]
    return tuple(sorted([*others, (name, value)], key=itemgetter(0)))


def equal_results(network: Network) -> dict[str, str]:
    """The results of operators that compute the same as an earlier one, with those of that."""
    same: dict[str, str] = {}
    alike: dict[object, str] = {}
    stated = [(name, c) for name, c in network.constants.items() if c.values is not None]
    numbers = {name: (constant.type, constant.values) for name, constant in stated}

    def first(name: str) -> object:
        return numbers.get(name) or same.get(name, name)

    for node in network.nodes:
        if len(node.outputs) == 1:
            (out,) = node.outputs
            key = (node.op, node.domain, node.attributes, *map(first, node.inputs))
            earlier = alike.setdefault(key, out)
            if earlier != out:
                same[out] = earlier
    return same


def padded(channels: int, block: int) -> int:
    """Channels in whole blocks."""
    return -(-channels // block) * block
