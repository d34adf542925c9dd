"""The graph that ONNX Runtime will run, while the rules write it."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import itemgetter

import msgspec

from hybridlat.engines.fusion.groups import equal_results
from hybridlat.graph.network import AttributeValue, Constant, Lowered, Network, Node, TensorType

BLOCKED_DOMAIN = "com.microsoft.nchwc"
BLOCKS, REORDERED = ":blocks", ":reordered"
"""Behind the name of a tensor in blocks of channels: made so, or reordered from the file's."""
Attributes = tuple[tuple[str, AttributeValue], ...]


class Kernel(msgspec.Struct, gc=False):
    """A kernel in the making, which makes the ``result`` of an operator in its ``layout``.

    The file's layout is empty. ``at`` orders kernels: the position of the last operator in it.
    """

    op: str
    domain: str
    version: int
    attributes: Attributes
    result: str
    origins: list[int]
    at: float
    inputs: list[str] = []
    layout: str = ""

    @property
    def output(self) -> str:
        return self.result + self.layout

    def put(self, name: str, value: AttributeValue) -> None:
        """Set an attribute; they stay sorted by name."""
        others = [pair for pair in self.attributes if pair[0] != name]
        self.attributes = tuple(sorted([*others, (name, value)], key=itemgetter(0)))

    def node(self) -> Node:
        inputs, outputs = tuple(self.inputs), (self.output,)
        return Node("", self.op, inputs, outputs, self.attributes, self.domain, self.version)


class UncoveredError(Exception):
    """The network holds what no rule speaks of."""


@dataclass
class PredictedGraph:
    """The kernels so far, for a network and a number of channels in a block.

    ``made`` are the makers of the file's tensors, in whichever layout; ``readers`` the operators
    that read each; ``same`` maps results to equal earlier ones. ``constants`` are the weights that
    the engine made or brought to another shape.
    """

    network: Network
    block: int
    kernels: list[Kernel] = field(default_factory=list)
    made: dict[str, Kernel] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    reordered: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        types, same = self.network.types, equal_results(self.network, self.network.nodes)
        self.same, self.outputs = same, set(self.network.outputs)
        if not self.outputs.isdisjoint(same.keys() | set(same.values())):
            raise UncoveredError
        self.twins: dict[str, list[int]] = {}
        readers = self.readers = dict[str, list[int]]()
        for position, node in enumerate(self.network.nodes):
            first = same.get(node.outputs[0])
            if first is not None:
                self.twins.setdefault(first, []).append(position)
                self.done.add(position)
                continue
            for name in node.inputs:
                if name in types:
                    readers.setdefault(same.get(name, name), []).append(position)

    def lowered(self, context: str, by: str) -> Lowered:
        """The finished graph as a lowered network: reorders behind blocks, kernels in order."""
        network, kernels = self.network, self.kernels
        read = {name for kernel in kernels for name in kernel.inputs} | self.outputs
        for name, held in self.made.items():
            if held.layout and name in read:
                channels = network.types[name].shape[1]
                attributes: Attributes = (("channels", channels), ("channels_last", 0))
                self._reorder("ReorderOutput", attributes, name, held.at + 0.25, held.output)
        kernels.sort(key=lambda kernel: kernel.at)
        nodes = tuple([kernel.node() for kernel in kernels])
        origins = tuple([tuple(sorted(kernel.origins)) for kernel in kernels])
        removed = tuple(sorted({*range(len(network.nodes))}.difference(*origins)))
        types = {name: network.types[name] for name in network.inputs}
        for kernel in kernels:
            types[kernel.output] = type_ = network.types[kernel.result]
            if kernel.layout and type_.shape[1] % self.block:
                batch, channels, *pixels = type_.shape
                shape = (batch, padded(channels, self.block), *pixels)
                types[kernel.output] = type_._replace(shape=shape)
        constants = {n: c for n, c in network.constants.items() if n in read} | self.constants
        held_network = replace(network, nodes=nodes, types=types, constants=constants)
        return Lowered(replace(held_network, context=context, rebound=()), origins, removed, by)

    def source(self, node: Node) -> str:
        """What an operator reads first."""
        return self.same.get(node.inputs[0], node.inputs[0])

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
        if known.type.shape != shape:
            self.constants[name] = weights(shape)
        return name

    def new_kernel(self, position: int, node: Node) -> Kernel:
        out = node.outputs[0]
        origins = [position, *self.twins.get(out, ())]
        return Kernel(node.op, node.domain, node.version, node.attributes, out, origins, position)

    def is_open(self, kernel: Kernel) -> bool:
        """Whether a convolution may take in the one operator behind it."""
        reads = len(self.readers.get(kernel.result, ())) + (kernel.result in self.outputs)
        is_activated = any(name == "activation" for name, _ in kernel.attributes)
        return kernel.op == "Conv" and reads == 1 and not is_activated

    def only_reader(self, node: Node, ops: Collection[str]) -> int | None:
        """The one operator that reads a result, if it is of ``ops``; none if that is given out."""
        readers = self.readers.get(node.outputs[0], ())
        if len(readers) != 1 or node.outputs[0] in self.outputs:
            return None
        return readers[0] if self.network.nodes[readers[0]].op in ops else None

    def join(self, kernel: Kernel, position: int) -> Node:
        """Take an operator behind a kernel into it."""
        node = self.network.nodes[position]
        kernel.result, kernel.at = node.outputs[0], position
        kernel.origins += [position, *self.twins.get(kernel.result, ())]
        self.done.add(position)
        return node

    def emit(self, kernel: Kernel, inputs: list[str], layout: str = "") -> None:
        """The kernel stands, with its result in a layout."""
        kernel.inputs, kernel.layout = inputs, layout
        self.kernels.append(kernel)
        self.made[kernel.result] = kernel

    def move(self, kernel: Kernel, position: int) -> None:
        """A kernel that stands takes in the operator behind it, and gives out its result."""
        del self.made[kernel.result]
        self.join(kernel, position)
        self.made[kernel.result] = kernel

    def in_blocks(self, name: str) -> Kernel | None:
        """The kernel that makes a tensor in blocks; None where it is in the file's layout."""
        held = self.made.get(name)
        return held if held is not None and held.layout else None

    def as_blocks(self, name: str) -> str:
        """The tensor in blocks, reordered where it is not made so."""
        maker = self.made.get(name)
        if maker is not None and maker.layout:
            return maker.output
        if name not in self.reordered:
            self.reordered.add(name)
            at = -0.5 if maker is None else maker.at + 0.5
            attributes: Attributes = (("channels_last", 0),)
            self._reorder("ReorderInput", attributes, name, at, name, REORDERED)
        return name + REORDERED

    def _reorder(
        self, op: str, attributes: Attributes, result: str, at: float, source: str, layout: str = ""
    ) -> None:
        kernel = Kernel(op, BLOCKED_DOMAIN, 1, attributes, result, [], at, [source], layout)
        self.kernels.append(kernel)


@lru_cache(maxsize=4096)
def weights(shape: tuple[int, ...]) -> Constant:
    """A weight that the engine brought to that shape."""
    return Constant(TensorType("float32", shape))


def padded(channels: int, block: int) -> int:
    """Channels in whole blocks."""
    return -(-channels // block) * block
