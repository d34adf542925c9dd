"""What ONNX Runtime makes of a convolutional network, by rules of our own.

The engine shares equal operators, folds batch normalisation into convolutions, and fuses
activations and additions into them. It keeps activations in a layout of blocks of channels (NCHWc)
for as long as it can, with reorders at the borders. The rules below say so for the operators that
search spaces of convolutional networks are made of. They leave a network that holds anything else
to the engine, also where it fuses what no rule here describes. Each such case raises
``UncoveredError`` with its reason beside it.

Facts: ONNX Runtime's documentation and sources (NCHWc transformer, fusions of convolutions), and
its answers for the networks of ``experiments/quick_lowering.py``.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import cast

from hybridlat.engines.ort.predicted_graph import (
    BLOCKED_DOMAIN,
    BLOCKS,
    Kernel,
    PredictedGraph,
    UncoveredError,
    padded,
    weights,
)
from hybridlat.graph.network import Lowered, Network, Node
from hybridlat.graph.operators import named

FUSED_DOMAIN = "com.microsoft"
ALIGNMENT = 4
"""Channels that are no multiple of it are never brought into blocks."""
_LARGEST = 3.4028234663852886e38
_PARAMETERS = {  # of activations, with what they are where they are not written
    "LeakyRelu": (("alpha", 0.009999999776482582),),
    "HardSigmoid": (("alpha", 0.20000000298023224), ("beta", 0.5)),
    "Clip": (("min", -_LARGEST), ("max", _LARGEST)),
}
_CONVOLUTIONS = frozenset({"Conv", "FusedConv"})
_FUSED_ACTIVATIONS = named("Relu Sigmoid Tanh LeakyRelu Clip HardSigmoid HardSwish")
# Those that run on blocks as they are, and join a convolution behind an addition.
_BLOCKED_ACTIVATIONS = frozenset({"Relu", "Sigmoid", "Tanh", "HardSigmoid"})
_POOLS = frozenset({"MaxPool", "AveragePool"})
_GLOBAL_POOLS = frozenset({"GlobalAveragePool", "GlobalMaxPool"})
_OTHERS = named("Gemm Reshape ReduceMean Softmax LRN Mul Add Concat Conv BatchNormalization")
_COVERED = _FUSED_ACTIVATIONS | _POOLS | _GLOBAL_POOLS | _OTHERS


def lower_by_rules(network: Network, block: int, context: str, by: str) -> Lowered | None:
    """The lowered network, for blocks of that many channels; None where no rule covers it."""
    if any(n.op not in _COVERED or n.domain or len(n.outputs) != 1 for n in network.nodes):
        return None
    if {type_.dtype for type_ in network.types.values()} != {"float32"}:
        return None
    try:
        graph = _Rules(network, block)
        for position, node in enumerate(network.nodes):
            if position not in graph.done:
                _RULES.get(node.op, _Rules._other)(graph, position, node)
    except UncoveredError:
        return None
    return graph.lowered(context, by)


class _Rules(PredictedGraph):
    def _conv(self, position: int, node: Node) -> None:
        weight, *bias = [self.weight(name) for name in node.inputs[1:]]
        if len(weight.type.shape) != 4 or len(bias) > 1:
            raise UncoveredError
        kernel = self.new_kernel(position, node)
        operands = list(node.inputs[1:])
        end = node
        while (after := self.only_reader(end, ("BatchNormalization",))) is not None:
            end = self.join(kernel, after)
            for name in end.inputs[1:]:
                self.weight(name)
            operands = [operands[0], f"{end.outputs[0]}:bias"]
            self.constants[operands[1]] = weights(weight.type.shape[:1])
        after = self.only_reader(end, _FUSED_ACTIVATIONS)
        if after is not None:
            self._activate(kernel, after)
            kernel.op, kernel.domain, kernel.version = "FusedConv", FUSED_DOMAIN, 1
        source, group = self.source(node), cast(int, node.attribute("group", 1))
        fits, is_deep, reads_blocks, filter_shape = _blocks_of(weight.type.shape, group, self.block)
        wide = filter_shape[0]
        if not fits:
            if ("activation", "HardSwish") in kernel.attributes:
                raise UncoveredError  # the engine takes it apart for some readers
            return self.emit(kernel, [source, *operands])
        kernel.op, kernel.domain, kernel.version = "Conv", BLOCKED_DOMAIN, 1
        if is_deep and group != wide:
            kernel.put("group", wide)
        names = [self.sized(operands[0], filter_shape)]
        names += [self.sized(name, (wide,)) for name in operands[1:]]
        first = self.as_blocks(source) if reads_blocks else source
        self.emit(kernel, [first, *names], BLOCKS)

    def _normalise(self, position: int, node: Node) -> None:
        """On blocks a batch normalisation becomes a convolution of one tap and channel each."""
        source = self.source(node)
        for name in node.inputs[1:]:
            self.weight(name)
        if self.in_blocks(source) is None:
            return self._plain(position, node)
        wide = padded(self.network.types[source].shape[1], self.block)
        weight, bias = f"{node.outputs[0]}:scale", f"{node.outputs[0]}:shift"
        self.constants[weight] = weights((wide, 1, 1, 1))
        self.constants[bias] = weights((wide,))
        kernel = self.new_kernel(position, node)
        kernel.op, kernel.domain, kernel.version = "Conv", BLOCKED_DOMAIN, 1
        kernel.attributes = (("group", wide),)
        self.emit(kernel, [self.as_blocks(source), weight, bias], BLOCKS)

    def _pool(self, position: int, node: Node) -> None:
        source = self.source(node)
        shape = self.network.types[source].shape
        fits = self.block > 1 and len(shape) == 4 and shape[1] % self.block == 0
        if node.attribute("ceil_mode", 0) and node.attribute("count_include_pad", 0):
            fits = False  # the engine has no such kernel for blocks
        if node.op in _GLOBAL_POOLS:
            fits &= self.in_blocks(source) is not None or source in self.network.inputs
        if not fits:
            return self._plain(position, node)
        kernel = self._on_blocks(position, node)
        kernel.domain, kernel.version = BLOCKED_DOMAIN, 1

    def _activation(self, position: int, node: Node) -> None:
        source = self.source(node)
        held = self.in_blocks(source)
        if held is None:
            return self._plain(position, node)
        if self.is_open(held):
            if node.op == "HardSigmoid":
                raise UncoveredError  # how its parameters would be written was never seen
            held.put("activation", node.op)
            return self.move(held, position)
        self._on_blocks(position, node)

    def _binary(self, position: int, node: Node) -> None:
        sources = self.inputs(node)
        if len(sources) != 2 or not self.network.constants.keys().isdisjoint(sources):
            raise UncoveredError
        for x, gate in (sources, sources[::-1]) if node.op == "Mul" else ():
            maker = self.network.maker(gate, "Sigmoid", "HardSigmoid")
            if maker is not None and self.source(maker) == x:
                raise UncoveredError  # x * sigmoid(x) becomes a QuickGelu, or a HardSwish
        makers = [self.made.get(name) for name in sources]
        held = [maker for maker in makers if maker is not None and maker.layout]
        if len(held) < 2 or len({self.network.types[name].shape for name in sources}) > 1:
            if node.op == "Add":
                if len(held) == 2:
                    raise UncoveredError  # to add one value a channel the engine reshapes both
                if any(m is not None and not m.layout and m.op in _CONVOLUTIONS for m in makers):
                    raise UncoveredError  # a convolution without blocks may take it in
            return self._plain(position, node)
        if node.op == "Add":
            for one, other in (held, held[::-1]):
                if len(one.inputs) < 4 and self.is_open(one):
                    one.inputs += [*[""] * (3 - len(one.inputs)), other.output]
                    return self.move(one, position)
        self._on_blocks(position, node)

    def _concat(self, position: int, node: Node) -> None:
        held = [maker for name in self.inputs(node) if (maker := self.in_blocks(name)) is not None]
        channels = [self.network.types[maker.result].shape[1] for maker in held]
        is_aligned = all(count % self.block == 0 for count in channels)
        if len(held) < len(node.inputs) or not is_aligned or node.attribute("axis") != 1:
            return self._plain(position, node)
        self._on_blocks(position, node)

    def _other(self, position: int, node: Node) -> None:
        """Left as it is, but where the engine fuses it in a way that no rule here describes."""
        source, maker = self.source(node), self.network.maker
        is_behind_its_like = maker(source, "Reshape") is not None
        is_uncovered = {
            "HardSwish": True,  # outside of a convolution the engine takes it apart
            "Clip": maker(source, "Relu") is not None,  # both become one Clip
            "Gemm": self.only_reader(node, _FUSED_ACTIVATIONS) is not None,
            # Behind another that equal ones alone read, the engine joins both.
            "Reshape": is_behind_its_like and len(self.readers[source]) == 1,
        }
        if is_uncovered.get(node.op):
            raise UncoveredError
        self._plain(position, node)

    def _plain(self, position: int, node: Node) -> None:
        """Left as it is, in the layout of the file."""
        # What holds blocks is reordered at the end, under the name that it has in the file.
        self.emit(self.new_kernel(position, node), self.inputs(node))

    def _on_blocks(self, position: int, node: Node) -> Kernel:
        kernel = self.new_kernel(position, node)
        self.emit(kernel, [self.as_blocks(name) for name in self.inputs(node)], BLOCKS)
        return kernel

    def _activate(self, kernel: Kernel, position: int) -> None:
        node = self.join(kernel, position)
        if node.op == "HardSwish" and node.outputs[0] in self.outputs:
            raise UncoveredError  # the engine takes it apart
        kernel.put("activation", node.op)
        parameters = [cast(float, node.attribute(*pair)) for pair in _PARAMETERS.get(node.op, ())]
        for index, name in enumerate(node.inputs[1:]):  # the bounds of a Clip
            constant = self.network.constants.get(name)
            if constant is not None and constant.values is not None:
                parameters[index] = float(constant.values[0])
            elif name:
                raise UncoveredError
        if parameters:
            kernel.put("activation_params", tuple(parameters))


@lru_cache(maxsize=4096)
def _blocks_of(
    shape: tuple[int, ...], group: int, block: int
) -> tuple[bool, bool, bool, tuple[int, ...]]:
    """How a convolution with weights of that shape is brought onto blocks, if at all.

    Whether it is, whether its groups are of one channel, whether its input is in blocks too, and
    the shape of its weights.
    """
    channels, per_group = shape[:2]
    wide = padded(channels, block)
    reads_blocks, filter_inputs = True, per_group
    is_deep = group > 1 and per_group == 1 and channels == group
    fits = block > 1
    if group > 1:
        fits &= channels % ALIGNMENT == 0 and (
            is_deep or not (per_group % block or channels % group or channels // group % block)
        )
    elif per_group < block:
        reads_blocks = False
    else:
        fits &= per_group % ALIGNMENT == 0
        filter_inputs = padded(per_group, block)
    return fits, is_deep, reads_blocks, (wide, filter_inputs, *shape[2:])


_RULES: dict[str, Callable[[_Rules, int, Node], None]] = {
    "Conv": _Rules._conv,
    "BatchNormalization": _Rules._normalise,
    "Add": _Rules._binary,
    "Mul": _Rules._binary,
    "Concat": _Rules._concat,
    **dict.fromkeys(_BLOCKED_ACTIVATIONS, _Rules._activation),
    **dict.fromkeys((*_POOLS, *_GLOBAL_POOLS), _Rules._pool),
}
