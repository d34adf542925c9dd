"""What ONNX Runtime makes of a convolutional network, foretold by rules of our own.

The engine shares equal operators, folds batch normalisation into convolutions, fuses activations
and additions into them, and keeps activations in a layout of blocks of channels (NCHWc) for as long
as it can, with reorders at the borders. The rules below say so for the operators that search
spaces of convolutional networks are made of; ``draft`` gives up on anything else. They are a guess
until the engine has confirmed it: see ``quick``, which also uses the ``patterns`` that every draft
lists, one for what was done to each operator and what stood around it.

Facts: ONNX Runtime's documentation and sources (NCHWc transformer, fusions of convolutions), and
what it answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from hybridlat.engines.onnxruntime.draft_graph import (
    BLOCKED_DOMAIN,
    DraftGraph,
    Kernel,
    UncoveredError,
    padded,
)
from hybridlat.engines.onnxruntime.patterns import ALIGNMENT, Pattern, patterns_of
from hybridlat.graph.network import Constant, Lowered, Network, Node, TensorType

FUSED_DOMAIN = "com.microsoft"
_LARGEST = 3.4028234663852886e38
_SMALLEST_ALPHA = 0.009999999776482582
_FIFTH = 0.20000000298023224
# Stay as they are, in the layout of the file.
_PLAIN = frozenset({
    "Flatten", "Gemm", "Reshape", "ReduceMean", "Softmax", "LRN", "HardSwish", "HardSigmoid",
    "Clip", "LeakyRelu", "Relu", "Sigmoid", "Tanh", "Mul", "Add", "Concat", "Conv", "MaxPool",
    "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "BatchNormalization",
})  # fmt: skip
_FUSED_ACTIVATIONS = frozenset({
    "Relu", "Sigmoid", "Tanh", "LeakyRelu", "Clip", "HardSigmoid", "HardSwish",
})  # fmt: skip
# Those that run on blocks as they are, and join a convolution behind an addition.
_BLOCKED_ACTIVATIONS = frozenset({"Relu", "Sigmoid", "Tanh"})
_POOLS = frozenset({"MaxPool", "AveragePool"})
_GLOBAL_POOLS = frozenset({"GlobalAveragePool", "GlobalMaxPool"})


@dataclass(frozen=True)
class Draft:
    """What the rules make of a network, and the patterns that it rests on."""

    lowered: Lowered
    patterns: frozenset[Pattern]


def draft(network: Network, block: int, context: str, by: str) -> Draft | None:
    """The lowered network, as far as the rules know, for blocks of that many channels.

    None for a network that holds anything the rules do not cover.
    """
    if any(n.op not in _PLAIN or n.domain or len(n.outputs) != 1 for n in network.nodes):
        return None
    if any(type_.dtype != "float32" for type_ in network.types.values()):
        return None
    try:
        graph = _Rules(network, block)
        for position, node in enumerate(network.nodes):
            if position not in graph.done:
                _RULES.get(node.op, _Rules.plain)(graph, position, node)
    except UncoveredError:
        return None
    graph.finish()
    return Draft(graph.lowered(context, by), patterns_of(graph))


class _Rules(DraftGraph):
    """One method for each kind of operator."""

    def _conv(self, position: int, node: Node) -> None:
        weight, *bias = [self.weight(name) for name in node.inputs[1:]]
        if len(weight.type.shape) != 4 or len(bias) > 1:
            raise UncoveredError
        kernel = self.new_kernel(position, node)
        operands = list(node.inputs[1:])
        end = node
        if (after := self.only_reader(end)) is not None:
            behind = self.network.nodes[after]
            if behind.op == "BatchNormalization":
                for name in behind.inputs[1:]:
                    self.weight(name)
                end = self.join(kernel, after)
                operands = [operands[0], f"{end.outputs[0]}:bias"]
                channels = (weight.type.shape[0],)
                self.constants[operands[1]] = Constant(TensorType("float32", channels))
        after = self.only_reader(end)
        if after is not None and self.network.nodes[after].op in _FUSED_ACTIVATIONS:
            end = self._activate(kernel, after)
            kernel.op, kernel.domain, kernel.version = "FusedConv", FUSED_DOMAIN, 1
        self._place_conv(kernel, node, operands, weight.type.shape)
        self.count_uses(kernel)

    def _place_conv(
        self, kernel: Kernel, node: Node, operands: list[str], shape: tuple[int, ...]
    ) -> None:
        """Bring a convolution onto blocks where its channels allow it."""
        source, channels = self.input(node, 0), shape[0]
        group = cast(int, node.attribute("group", 1))
        fits, is_deep, reads_blocks, filter_shape = _blocks_of(shape, group, self.block)
        wide = filter_shape[0]
        if not fits:
            kernel.inputs = [source, *operands]
            for name in operands:
                if name not in self.constants:
                    self.constants[name] = self.network.constants[name]
            self.emit(kernel)
            return
        kernel.op, kernel.domain, kernel.version = "Conv", BLOCKED_DOMAIN, 1
        if is_deep and group != wide:
            kernel.put("group", wide)
        names = [self.sized(operands[0], filter_shape)]
        names += [self.sized(name, (wide,)) for name in operands[1:]]
        first = self.as_blocks(source) if reads_blocks else source
        kernel.inputs = [first, *names]
        self.emit(kernel, channels)

    def _normalise(self, position: int, node: Node) -> None:
        """On blocks a batch normalisation becomes a convolution of one tap and channel each."""
        source = self.input(node, 0)
        held = self.blocked.get(source)
        for name in node.inputs[1:]:
            self.weight(name)
        if held is None:
            return self.plain(position, node)
        kernel = self.new_kernel(position, node)
        wide = padded(held.channels, self.block)
        weight, bias = f"{node.outputs[0]}:scale", f"{node.outputs[0]}:shift"
        self.constants[weight] = Constant(TensorType("float32", (wide, 1, 1, 1)))
        self.constants[bias] = Constant(TensorType("float32", (wide,)))
        kernel.op, kernel.domain, kernel.version = "Conv", BLOCKED_DOMAIN, 1
        kernel.attributes = (("group", wide),)
        kernel.inputs = [self.as_blocks(source), weight, bias]
        self.emit(kernel, held.channels)
        self.count_uses(kernel)

    def _pool(self, position: int, node: Node) -> None:
        source = self.input(node, 0)
        shape = self.network.types[source].shape
        anywhere = node.op in _POOLS
        fits = self.block > 1 and len(shape) == 4 and shape[1] % self.block == 0
        if not fits or not (anywhere or source in self.blocked):
            return self.plain(position, node)
        kernel = self.new_kernel(position, node)
        kernel.domain, kernel.version = BLOCKED_DOMAIN, 1
        kernel.inputs = [self.as_blocks(source)]
        self.emit(kernel, shape[1])
        self.count_uses(kernel)

    def _activation(self, position: int, node: Node) -> None:
        source = self.input(node, 0)
        held = self.blocked.get(source)
        if held is None:
            return self.plain(position, node)
        if held.op == "Conv" and held.uses == 1 and not held.is_activated:
            held.left -= 1
            held.put("activation", node.op)
            self.move(held, position, node)
            return
        self._on_blocks(position, node, held.channels)

    def _binary(self, position: int, node: Node) -> None:
        sources = [self.input(node, i) for i in range(len(node.inputs))]
        if len(sources) != 2 or any(name in self.network.constants for name in sources):
            raise UncoveredError
        shapes = {self.network.types[name].shape for name in sources}
        if any(name not in self.blocked for name in sources) or len(shapes) > 1:
            return self.plain(position, node)
        held = [self.blocked[name] for name in sources]
        if node.op == "Add":
            for one, other in ((held[0], held[1]), (held[1], held[0])):
                joins = one.op == "Conv" and len(one.inputs) < 4 and one.uses == 1
                if joins and not one.is_activated:
                    one.left -= 1
                    other.left -= 1
                    one.inputs += [""] * (3 - len(one.inputs))
                    one.inputs.append(other.output)
                    self.move(one, position, node)
                    return
        self._on_blocks(position, node, held[0].channels)

    def _concat(self, position: int, node: Node) -> None:
        sources = [self.input(node, i) for i in range(len(node.inputs))]
        held = [self.blocked.get(name) for name in sources]
        aligned = all(k is not None and k.channels % self.block == 0 for k in held)
        if not aligned or node.attribute("axis") != 1:
            return self.plain(position, node)
        self._on_blocks(position, node, sum(k.channels for k in held if k is not None))

    def _gemm(self, position: int, node: Node) -> None:
        after = self.only_reader(node)
        if after is not None and self.network.nodes[after].op in _FUSED_ACTIVATIONS:
            raise UncoveredError
        self.plain(position, node)

    def plain(self, position: int, node: Node) -> None:
        """Left as it is, in the layout of the file."""
        kernel = self.new_kernel(position, node)
        # What holds blocks is reordered at the end, under the name that it has in the file.
        kernel.inputs = [self.input(node, index) for index in range(len(node.inputs))]
        for name in kernel.inputs:
            if name in self.network.constants:
                self.constants[name] = self.network.constants[name]
        self.emit(kernel)
        self.count_uses(kernel)

    def _on_blocks(self, position: int, node: Node, channels: int) -> None:
        """The same operator, fed with blocks."""
        kernel = self.new_kernel(position, node)
        sources = [self.input(node, i) for i in range(len(node.inputs))]
        kernel.inputs = [self.as_blocks(name) for name in sources]
        self.emit(kernel, channels)
        self.count_uses(kernel)

    def _activate(self, kernel: Kernel, position: int) -> Node:
        node = self.network.nodes[position]
        parameters = self._parameters(node)
        self.join(kernel, position)
        kernel.put("activation", node.op)
        if parameters:
            kernel.put("activation_params", parameters)
        return node

    def _parameters(self, node: Node) -> tuple[float, ...]:
        if node.op == "LeakyRelu":
            return (cast(float, node.attribute("alpha", _SMALLEST_ALPHA)),)
        if node.op == "HardSigmoid":
            alpha, beta = node.attribute("alpha", _FIFTH), node.attribute("beta", 0.5)
            return cast(float, alpha), cast(float, beta)
        if node.op != "Clip":
            return ()
        if len(node.inputs) == 1:
            low, high = node.attribute("min", -_LARGEST), node.attribute("max", _LARGEST)
            return cast(float, low), cast(float, high)
        bounds = [-_LARGEST, _LARGEST]
        for index, name in enumerate(node.inputs[1:]):
            if not name:
                continue
            constant = self.network.constants.get(name)
            if constant is None or constant.values is None:
                raise UncoveredError
            bounds[index] = float(constant.values[0])
        return tuple(bounds)


@lru_cache(maxsize=4096)
def _blocks_of(
    shape: tuple[int, ...], group: int, block: int
) -> tuple[bool, bool, bool, tuple[int, ...]]:
    """How a convolution with weights of that shape is brought onto blocks, if at all.

    Whether it is, whether each of its groups is of one channel, whether its input is brought onto
    blocks too, and the shape that its weights get.
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
    "Gemm": _Rules._gemm,
    **dict.fromkeys(_BLOCKED_ACTIVATIONS, _Rules._activation),
    **dict.fromkeys((*_POOLS, *_GLOBAL_POOLS), _Rules._pool),
}
