"""What ONNX Runtime makes of a convolutional network, foretold by rules of our own.

The engine shares equal operators, folds batch normalisation into convolutions, fuses activations
and additions into them, and keeps activations in a layout of blocks of channels (NCHWc) for as long
as it can, with reorders at the borders. The rules below say so for the operators that search
spaces of convolutional networks are made of; ``draft`` gives up on anything else. They are a guess
until the engine has confirmed it: see ``quick``, which also uses the ``patterns`` that every draft
lists, one for what was done to each operator and what stood around it.

Facts: docs of ONNX Runtime, "Graph optimizations"; all else was read off what the engine answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from typing import cast

from hybridlat.graph.network import AttributeValue, Constant, Lowered, Network, Node, TensorType

BLOCKED_DOMAIN = "com.microsoft.nchwc"
FUSED_DOMAIN = "com.microsoft"
ALIGNMENT = 4
"""Channels that are no multiple of it are never brought into blocks."""
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
_CONVOLUTIONS = frozenset({"Conv", "FusedConv"})
_POOLS = frozenset({"MaxPool", "AveragePool"})
_GLOBAL_POOLS = frozenset({"GlobalAveragePool", "GlobalMaxPool"})
_SIZES = frozenset({"kernel_shape", "pads", "strides", "dilations", "activation_params", "shape"})
_BLOCKS = ":blocks"
Attributes = tuple[tuple[str, AttributeValue], ...]
Pattern = tuple[object, ...]


@dataclass(frozen=True)
class Draft:
    """What the rules make of a network, and the patterns that it rests on."""

    lowered: Lowered
    patterns: frozenset[Pattern]


@dataclass(slots=True)
class _Kernel:
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


class _Uncovered(Exception):
    """The network holds what no rule speaks of."""


def draft(network: Network, block: int, context: str, by: str) -> Draft | None:
    """The lowered network, as far as the rules know, for blocks of that many channels.

    None for a network that holds anything the rules do not cover.
    """
    try:
        return _Drafter(network, block).draft(context, by)
    except _Uncovered:
        return None


@dataclass
class _Drafter:
    network: Network
    block: int
    kernels: list[_Kernel] = field(default_factory=list)
    blocked: dict[str, _Kernel] = field(default_factory=dict)
    made: dict[str, _Kernel] = field(default_factory=dict)
    reordered: dict[str, str] = field(default_factory=dict)
    types: dict[str, TensorType] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        network = self.network
        if any(n.op not in _PLAIN or n.domain or len(n.outputs) != 1 for n in network.nodes):
            raise _Uncovered
        if any(type_.dtype != "float32" for type_ in network.types.values()):
            raise _Uncovered
        self.outputs = set(network.outputs)
        self.same = equal_results(network)
        if not self.outputs.isdisjoint(self.same.keys() | set(self.same.values())):
            raise _Uncovered
        self.twins: dict[str, list[int]] = {}
        self.readers: dict[str, list[int]] = {}
        for position, node in enumerate(network.nodes):
            first = self.same.get(node.outputs[0])
            if first is not None:
                self.twins.setdefault(first, []).append(position)
                self.done.add(position)
                continue
            for name in node.inputs:
                self.readers.setdefault(self.same.get(name, name), []).append(position)

    def draft(self, context: str, by: str) -> Draft:
        network = self.network
        for name in network.inputs:
            self.types[name] = network.types[name]
        for position, node in enumerate(network.nodes):
            if position not in self.done:
                _RULES.get(node.op, _Drafter._plain)(self, position, node)
        self._reorder_outputs()
        self.kernels.sort(key=lambda kernel: kernel.at)
        patterns = frozenset(self._patterns())
        nodes = tuple([
            Node("", k.op, tuple(k.inputs), (k.output,), k.attributes, k.domain, k.version)
            for k in self.kernels
        ])  # fmt: skip
        origins = tuple([
            tuple(k.origins) if len(k.origins) < 2 else tuple(sorted(k.origins))
            for k in self.kernels
        ])  # fmt: skip
        claimed = {i for origin in origins for i in origin}
        removed = tuple(i for i in range(len(network.nodes)) if i not in claimed)
        lowered = Network(
            network.name, nodes, network.inputs, network.outputs, self.types, self.constants,
            network.folded, context,
        )  # fmt: skip
        return Draft(Lowered(lowered, origins, removed, by, is_quick=True), patterns)

    # ---- the rules, one an operator ------------------------------------------------------------

    def _conv(self, position: int, node: Node) -> None:
        weight, *bias = (self._weight(name) for name in node.inputs[1:])
        if len(weight.type.shape) != 4 or len(bias) > 1:
            raise _Uncovered
        kernel = self._kernel(position, node)
        operands = list(node.inputs[1:])
        end = node
        if (after := self._only_reader(end)) is not None:
            behind = self.network.nodes[after]
            if behind.op == "BatchNormalization":
                for name in behind.inputs[1:]:
                    self._weight(name)
                end = self._join(kernel, after)
                operands = [operands[0], f"{end.outputs[0]}:bias"]
                channels = (weight.type.shape[0],)
                self.constants[operands[1]] = Constant(TensorType("float32", channels))
        after = self._only_reader(end)
        if after is not None and self.network.nodes[after].op in _FUSED_ACTIVATIONS:
            end = self._activate(kernel, after)
            kernel.op, kernel.domain, kernel.version = "FusedConv", FUSED_DOMAIN, 1
        self._place_conv(kernel, node, operands, weight.type.shape)
        self._count_uses(kernel)

    def _place_conv(
        self, kernel: _Kernel, node: Node, operands: list[str], shape: tuple[int, ...]
    ) -> None:
        """Bring a convolution onto blocks where its channels allow it."""
        block, source = self.block, self._input(node, 0)
        channels, per_group = shape[:2]
        group = cast(int, node.attribute("group", 1))
        padded = _padded(channels, block)
        reads_blocks, filter_inputs = True, per_group
        deep = group > 1 and per_group == 1 and channels == group
        fits = block > 1
        if group > 1:
            fits &= channels % ALIGNMENT == 0 and (
                deep or not (per_group % block or channels % group or channels // group % block)
            )
        elif per_group < block:
            reads_blocks = False
        else:
            fits &= per_group % ALIGNMENT == 0
            filter_inputs = _padded(per_group, block)
        if not fits:
            kernel.inputs = [source, *operands]
            for name in operands:
                if name not in self.constants:
                    self.constants[name] = self.network.constants[name]
            self._emit(kernel)
            return
        kernel.op, kernel.domain, kernel.version = "Conv", BLOCKED_DOMAIN, 1
        if deep and group != padded:
            kernel.put("group", padded)
        names = [self._sized(operands[0], (padded, filter_inputs, *shape[2:]))]
        names += [self._sized(name, (padded,)) for name in operands[1:]]
        first = self._as_blocks(source) if reads_blocks else source
        kernel.inputs = [first, *names]
        self._emit(kernel, channels)

    def _normalise(self, position: int, node: Node) -> None:
        """On blocks a batch normalisation becomes a convolution of one tap and channel each."""
        source = self._input(node, 0)
        held = self.blocked.get(source)
        for name in node.inputs[1:]:
            self._weight(name)
        if held is None:
            return self._plain(position, node)
        kernel = self._kernel(position, node)
        padded = _padded(held.channels, self.block)
        weight, bias = f"{node.outputs[0]}:scale", f"{node.outputs[0]}:shift"
        self.constants[weight] = Constant(TensorType("float32", (padded, 1, 1, 1)))
        self.constants[bias] = Constant(TensorType("float32", (padded,)))
        kernel.op, kernel.domain, kernel.version = "Conv", BLOCKED_DOMAIN, 1
        kernel.attributes = (("group", padded),)
        kernel.inputs = [self._as_blocks(source), weight, bias]
        self._emit(kernel, held.channels)
        self._count_uses(kernel)

    def _pool(self, position: int, node: Node) -> None:
        source = self._input(node, 0)
        shape = self.network.types[source].shape
        anywhere = node.op in _POOLS
        fits = self.block > 1 and len(shape) == 4 and shape[1] % self.block == 0
        if not fits or not (anywhere or source in self.blocked):
            return self._plain(position, node)
        kernel = self._kernel(position, node)
        kernel.domain, kernel.version = BLOCKED_DOMAIN, 1
        kernel.inputs = [self._as_blocks(source)]
        self._emit(kernel, shape[1])
        self._count_uses(kernel)

    def _activation(self, position: int, node: Node) -> None:
        source = self._input(node, 0)
        held = self.blocked.get(source)
        if held is None:
            return self._plain(position, node)
        if held.op == "Conv" and held.uses == 1 and not held.is_activated:
            held.left -= 1
            held.put("activation", node.op)
            self._move(held, position, node)
            return
        self._on_blocks(position, node, held.channels)

    def _binary(self, position: int, node: Node) -> None:
        sources = [self._input(node, i) for i in range(len(node.inputs))]
        if len(sources) != 2 or any(name in self.network.constants for name in sources):
            raise _Uncovered
        shapes = {self.network.types[name].shape for name in sources}
        if any(name not in self.blocked for name in sources) or len(shapes) > 1:
            return self._plain(position, node)
        held = [self.blocked[name] for name in sources]
        if node.op == "Add":
            for one, other in ((held[0], held[1]), (held[1], held[0])):
                joins = one.op == "Conv" and len(one.inputs) < 4 and one.uses == 1
                if joins and not one.is_activated:
                    one.left -= 1
                    other.left -= 1
                    one.inputs += [""] * (3 - len(one.inputs))
                    one.inputs.append(other.output)
                    self._move(one, position, node)
                    return
        self._on_blocks(position, node, held[0].channels)

    def _concat(self, position: int, node: Node) -> None:
        sources = [self._input(node, i) for i in range(len(node.inputs))]
        held = [self.blocked.get(name) for name in sources]
        aligned = all(k is not None and k.channels % self.block == 0 for k in held)
        if not aligned or node.attribute("axis") != 1:
            return self._plain(position, node)
        self._on_blocks(position, node, sum(k.channels for k in held if k is not None))

    def _gemm(self, position: int, node: Node) -> None:
        after = self._only_reader(node)
        if after is not None and self.network.nodes[after].op in _FUSED_ACTIVATIONS:
            raise _Uncovered
        self._plain(position, node)

    def _plain(self, position: int, node: Node) -> None:
        """Left as it is, in the layout of the file."""
        kernel = self._kernel(position, node)
        # What holds blocks is reordered at the end, under the name that it has in the file.
        kernel.inputs = [self._input(node, index) for index in range(len(node.inputs))]
        for name in kernel.inputs:
            if name in self.network.constants:
                self.constants[name] = self.network.constants[name]
        self._emit(kernel)
        self._count_uses(kernel)

    def _on_blocks(self, position: int, node: Node, channels: int) -> None:
        """The same operator, fed with blocks."""
        kernel = self._kernel(position, node)
        sources = [self._input(node, i) for i in range(len(node.inputs))]
        kernel.inputs = [self._as_blocks(name) for name in sources]
        self._emit(kernel, channels)
        self._count_uses(kernel)

    # ---- their tools ---------------------------------------------------------------------------

    def _input(self, node: Node, index: int) -> str:
        name = node.inputs[index]
        return self.same.get(name, name)

    def _weight(self, name: str) -> Constant:
        constant = self.network.constants.get(name)
        if constant is None or constant.type.dtype != "float32":
            raise _Uncovered
        return constant

    def _sized(self, name: str, shape: tuple[int, ...]) -> str:
        """A weight brought to another shape."""
        known = self.constants.get(name) or self.network.constants[name]
        self.constants[name] = (
            known if known.type.shape == shape else Constant(TensorType("float32", shape))
        )
        return name

    def _kernel(self, position: int, node: Node) -> _Kernel:
        return _Kernel(
            node.op, node.domain, node.version, [], node.outputs[0], node.attributes,
            [position, *self.twins.get(node.outputs[0], ())], position,
        )  # fmt: skip

    def _only_reader(self, node: Node) -> int | None:
        """The one operator that reads a result, if it is read once and not given out."""
        out = node.outputs[0]
        readers = self.readers.get(out, ())
        return readers[0] if len(readers) == 1 and out not in self.outputs else None

    def _join(self, kernel: _Kernel, position: int) -> Node:
        """Take an operator behind a kernel into it."""
        node = self.network.nodes[position]
        kernel.origins += [position, *self.twins.get(node.outputs[0], ())]
        kernel.output, kernel.at = node.outputs[0], position
        self.done.add(position)
        return node

    def _activate(self, kernel: _Kernel, position: int) -> Node:
        node = self.network.nodes[position]
        parameters = self._parameters(node)
        self._join(kernel, position)
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
                raise _Uncovered
            bounds[index] = float(constant.values[0])
        return tuple(bounds)

    def _emit(self, kernel: _Kernel, channels: int = 0) -> None:
        """The kernel stands; its result is blocked if it has ``channels``."""
        kernel.channels = channels
        self.kernels.append(kernel)
        self._name_result(kernel)

    def _name_result(self, kernel: _Kernel) -> None:
        out = kernel.output
        type_ = self.network.types[out]
        if kernel.channels:
            self.blocked[out] = kernel
            shape = (type_.shape[0], _padded(kernel.channels, self.block), *type_.shape[2:])
            kernel.output = out + _BLOCKS
            type_ = TensorType("float32", shape) if shape != type_.shape else type_
        self.made[kernel.output] = kernel
        self.types[kernel.output] = type_

    def _move(self, kernel: _Kernel, position: int, node: Node) -> None:
        """A kernel that stands takes in the operator behind it, and gives out its result."""
        del self.types[kernel.output], self.made[kernel.output]
        del self.blocked[kernel.output.removesuffix(_BLOCKS)]
        self._join(kernel, position)
        self._name_result(kernel)
        self._count_uses(kernel)

    def _count_uses(self, kernel: _Kernel) -> None:
        out = kernel.output.removesuffix(_BLOCKS)
        kernel.uses = len(self.readers.get(out, ())) + (out in self.outputs)
        kernel.left = kernel.uses

    def _as_blocks(self, name: str) -> str:
        held = self.blocked.get(name)
        if held is not None:
            held.left -= 1
            return held.output
        known = self.reordered.get(name)
        if known is None:
            type_ = self.network.types[name]
            known = self.reordered[name] = f"{name}:reordered"
            padded = _padded(type_.shape[1], self.block)
            maker = self.made.get(name)
            reorder = _Kernel(
                "ReorderInput", BLOCKED_DOMAIN, 1, [name], known, (("channels_last", 0),), [],
                (maker.at if maker is not None else -1) + 0.5,
            )  # fmt: skip
            self.types[known] = TensorType("float32", (type_.shape[0], padded, *type_.shape[2:]))
            self.made[known] = reorder
            self.kernels.append(reorder)
        return known

    def _reorder_outputs(self) -> None:
        """What holds blocks and is read in the layout of the file is brought back to it."""
        for name, held in self.blocked.items():
            if held.left <= 0:
                continue
            attributes: Attributes = (("channels", held.channels), ("channels_last", 0))
            reorder = _Kernel(
                "ReorderOutput", BLOCKED_DOMAIN, 1, [held.output], name, attributes, [],
                held.at + 0.25,
            )  # fmt: skip
            self.types[name] = self.network.types[name]
            self.made[name] = reorder
            self.kernels.append(reorder)

    # ---- what a draft rests on -----------------------------------------------------------------

    def _patterns(self) -> Iterator[Pattern]:
        """What was done to each operator and what it reads, without sizes that decide nothing."""
        nodes, made, outputs, block = self.network.nodes, self.made, self.outputs, self.block
        for kernel in self.kernels:
            ops = tuple([nodes[i].op for i in kernel.origins])
            what = (kernel.domain, kernel.op, ops if len(ops) < 2 else tuple(dict.fromkeys(ops)))
            read = []
            for place, name in enumerate(kernel.inputs):
                maker = made.get(name)
                if maker is None:
                    read.append(self._operand(name))
                    continue
                read.append(maker.channels > 0)
                # What a convolution may take in hangs on who else reads it, and what it has taken.
                state = None
                if maker.op in _CONVOLUTIONS and (kernel.op not in _CONVOLUTIONS or place == 3):
                    state = maker.uses > 1, maker.is_activated, len(maker.inputs) > 3
                yield what, place, maker.op, maker.domain, state
            ends = kernel.output.removesuffix(_BLOCKS) in outputs, kernel.left > 0
            kept = _kept(kernel.attributes, block)
            yield what, kernel.version, kept, tuple(read), kernel.uses > 1, ends

    def _operand(self, name: str) -> object:
        """What a kernel reads that no kernel makes: a weight, numbers, an input of the network."""
        constant = self.constants.get(name)
        if constant is None:
            return "input" if name else ""
        return _sizes(constant.type.shape, self.block), constant.values is not None


@lru_cache(maxsize=4096)
def _kept(attributes: Attributes, block: int) -> tuple[tuple[str, object], ...]:
    """Attributes without the sizes that decide nothing."""
    return tuple(
        (name, None if name in _SIZES else _size(value, block) if type(value) is int else value)
        for name, value in attributes
    )


@lru_cache(maxsize=4096)
def _sizes(shape: tuple[int, ...], block: int) -> object:
    return tuple([_size(n, block) for n in shape[:2]]) if len(shape) == 4 else len(shape)


def _size(value: int, block: int) -> int:
    """Which of the engine's divisors a number of channels has, and whether it fills a block."""
    if value < 2:
        return value
    if value < block:
        return 2 if value % ALIGNMENT else 4
    return 16 if value % block == 0 else 8 if value % ALIGNMENT == 0 else 7


_RULES: dict[str, Callable[[_Drafter, int, Node], None]] = {
    "Conv": _Drafter._conv,
    "BatchNormalization": _Drafter._normalise,
    "Add": _Drafter._binary,
    "Mul": _Drafter._binary,
    "Concat": _Drafter._concat,
    "Gemm": _Drafter._gemm,
    **dict.fromkeys(_BLOCKED_ACTIVATIONS, _Drafter._activation),
    **dict.fromkeys((*_POOLS, *_GLOBAL_POOLS), _Drafter._pool),
}


@lru_cache(maxsize=4096)
def _with(attributes: Attributes, name: str, value: AttributeValue, text: str) -> Attributes:
    """``text`` tells apart what is equal and yet written otherwise: 0.0 and -0.0."""
    del text
    others = [pair for pair in attributes if pair[0] != name]
    return tuple(sorted([*others, (name, value)], key=itemgetter(0)))


def equal_results(network: Network) -> dict[str, str]:
    """The results of operators that compute the same as an earlier one, with those of that."""
    same: dict[str, str] = {}
    first: dict[object, str] = {}
    numbers = {
        name: (constant.type, constant.values)
        for name, constant in network.constants.items()
        if constant.values is not None
    }
    for node in network.nodes:
        if len(node.outputs) != 1:
            continue
        inputs: tuple[object, ...] = node.inputs
        if same or numbers:
            inputs = tuple([numbers.get(n) or same.get(n, n) for n in node.inputs])
        out = node.outputs[0]
        twin = first.setdefault((node.op, node.domain, inputs, node.attributes), out)
        if twin != out:
            same[out] = twin
    return same


def _padded(channels: int, block: int) -> int:
    return -(-channels // block) * block
