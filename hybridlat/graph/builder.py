"""Networks in the making: built by operators or written in normal form; small ones of protocols."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hybridlat.graph.network import AttributeValue, Constant, Network, Node, TensorType
from hybridlat.graph.operators import WHOLE, Sizes

Shape = tuple[int, ...]
DTYPE = "float32"
CONV_VERSION = 11
"""In which operator set Conv last changed before 22."""


def conv_attributes(
    kernel: tuple[int, int], pads: tuple[int, ...], stride: int, groups: int, dilation: int = 1
) -> dict[str, AttributeValue]:
    """All attributes of a convolution, none left to its default; pads top, left, bottom, right."""
    window: dict[str, AttributeValue] = {"kernel_shape": kernel, "pads": pads, "group": groups}
    return window | {"dilations": (dilation, dilation), "strides": (stride, stride)}


@dataclass
class NetworkBuilder:
    """Float32 networks; a method appends an operator and gives the name of its result."""

    name: str = "net"
    nodes: list[Node] = field(default_factory=list)
    types: dict[str, TensorType] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)

    def input(self, shape: Shape, name: str = "") -> str:
        name = name or f"in{len(self.inputs)}"
        self.inputs.append(name)
        self.types[name] = TensorType(DTYPE, shape)
        return name

    def shape(self, tensor: str) -> Shape:
        return self.types[tensor].shape

    def constant(
        self, shape: Shape, values: tuple[float, ...] | None = None, dtype: str = DTYPE
    ) -> str:
        """A weight, or numbers that say what is computed."""
        name = f"w{len(self.constants)}"
        self.constants[name] = Constant(TensorType(dtype, shape), values)
        return name

    def numbers(self, *values: int) -> str:
        """A structural constant: a shape, axes, pads."""
        return self.constant((len(values),), values, "int64")

    def op(
        self,
        op: str,
        inputs: Sequence[str],
        shape: Shape,
        version: int = 1,
        attributes: Mapping[str, AttributeValue] | None = None,
        domain: str = "",
    ) -> str:
        return self.op_of_many(op, inputs, [shape], version, attributes, domain)[0]

    def op_of_many(
        self,
        op: str,
        inputs: Sequence[str],
        shapes: Sequence[Shape],
        version: int = 1,
        attributes: Mapping[str, AttributeValue] | None = None,
        domain: str = "",
    ) -> list[str]:
        position = len(self.nodes)
        outs = [f"v{position}" if i == 0 else f"v{position}_{i}" for i in range(len(shapes))]
        self.types.update((out, TensorType(DTYPE, s)) for out, s in zip(outs, shapes, strict=True))
        ordered = tuple(sorted((attributes or {}).items()))
        node = Node(f"{op}_{position}", op, tuple(inputs), tuple(outs), ordered, domain, version)
        self.nodes.append(node)
        return outs

    def conv(
        self,
        source: str,
        channels: int,
        kernel: int = 3,
        stride: int = 1,
        group: int = 1,
        *,
        dilation: int = 1,
        bias: bool = False,
    ) -> str:
        """A square convolution whose result has ceil(size / stride) positions for odd kernels."""
        batch, c_in, *size = self.shape(source)
        span = dilation * (kernel - 1)
        pad = (span + 1) // 2
        after = [(d + 2 * pad - span - 1) // stride + 1 for d in size]
        operands = [source, self.constant((channels, c_in // group, kernel, kernel))]
        if bias:
            operands.append(self.constant((channels,)))
        attributes = conv_attributes((kernel, kernel), (pad,) * 4, stride, group, dilation)
        return self.op("Conv", operands, (batch, channels, *after), CONV_VERSION, attributes)

    def network(self, *outputs: str) -> Network:
        """The network so far; its outputs are ``outputs``, else the tensors that nothing reads."""
        read = {name for node in self.nodes for name in node.inputs}
        made = (out for node in self.nodes for out in node.outputs)
        ends = outputs or tuple(out for out in made if out not in read)
        nodes, inputs = tuple(self.nodes), tuple(self.inputs)
        return Network(self.name, nodes, inputs, ends, dict(self.types), dict(self.constants))


class Writing:
    """A network while its normal form is written.

    ``stands_for`` maps the results of operators that are gone to what their readers read instead.
    """

    def __init__(self, source: Network, joins_views: bool = False) -> None:
        self.source, self.joins_views, self.types = source, joins_views, {**source.types}
        self.nodes: list[Node] = []
        self.constants: dict[str, Constant] = {}
        self.stands_for: dict[str, str] = {}

    def keep(self, node: Node, *behind: str) -> None:
        """The operator stays, with what it reads ``behind`` its first input if that is new.

        Constants that another one has read already are copied for it.
        """
        read = (node.inputs[0], *behind) if behind else node.inputs
        for place, name in enumerate(read):
            constant = self.source.constants.get(name)
            if constant is None:
                continue
            if name in self.constants:
                constant = replace(constant, copy_of=constant.copy_of or name)
                read = (*read[:place], self.add(node, str(place), constant), *read[place + 1 :])
            self.constants[read[place]] = constant
        self.nodes.append(node if read == node.inputs else replace(node, inputs=read))

    def keep_read(self, node: Node) -> None:
        """The operator stays, without last results that nothing reads, and constant states."""
        source, read = self.source, node.inputs
        while not read[-1] or (len(read) in (6, 7) and read[-1] in source.constants):
            read = read[:-1]
        is_read = [m in source.consumers or m in source.outputs for m in node.outputs[1:]]
        while is_read and not is_read.pop():
            self.types.pop(node.outputs[-1], None)
            node = replace(node, outputs=node.outputs[:-1])
        self.keep(replace(node, inputs=read))

    def drop(self, node: Node) -> None:
        """Its readers read what it reads; an Identity stays where it gives a result out."""
        source, (made, *masks) = node.inputs[0], node.outputs
        for mask in masks:  # that nothing reads
            self.types.pop(mask, None)
        if source in self.types and made not in self.source.outputs:
            self.stands_for[made] = source
        else:
            node = replace(node, op="Identity", inputs=(source,), outputs=(made,))
            self.keep(replace(node, attributes=(), version=16))

    def network(self) -> Network:
        for name in self.stands_for:
            del self.types[name]
        nodes = tuple(self.nodes)
        return replace(self.source, nodes=nodes, types=self.types, constants=self.constants)

    def shape(self, tensor: str) -> Sizes:
        known = self.types.get(tensor)
        return known.shape if known is not None else self.source.constants[tensor].type.shape

    def operands(self, node: Node, *labels: str) -> list[tuple[Any, ...]]:
        """The numbers of attributes, or of inputs behind the first; nothing if one is computed."""
        parts = list[tuple[Any, ...]]()
        for place, label in enumerate(labels, 1):
            numbers, constant = node.sizes(label), self.source.constant(node, place)
            known = constant.values if constant is not None else None
            if numbers is None and known is None and "".join(node.inputs[place : place + 1]):
                return []
            parts.append(numbers or known or ())
        return parts

    def add(self, node: Node, label: str, constant: Constant) -> str:
        """A constant under a name that the file has not."""
        name = f"{node.outputs[0]}/{label}"
        while name in self.source.constants or name in self.types:
            name += "_"
        self.constants[name] = constant
        return name

    def put(self, node: Node, label: str, values: Sequence[float], dtype: str = "int64") -> str:
        """A new constant with these values; all but sizes are scalars."""
        type_ = TensorType(dtype, (len(values),) if dtype == "int64" else ())
        number = int if dtype in WHOLE else float
        return self.add(node, label, Constant(type_, tuple(map(number, values))))


def null_network(length: int) -> Network:
    """A chain of ``length`` operators that do next to nothing: what a session costs by itself."""
    builder = NetworkBuilder("null")
    last = builder.input((1, 16))
    for _ in range(length):
        last = builder.op("Relu", [last], (1, 16), 14)
    return builder.network()


def reference_network() -> Network:
    """A CPU's pulse: a 3x3 and a 1x1 convolution that fit the second-level cache."""
    builder = NetworkBuilder("reference")
    for channels, kernel, attributes in ((64, 3, {"pads": (1, 1, 1, 1)}), (128, 1, {})):
        shape = (1, channels, 14, 14)
        weight = builder.constant((channels, channels, kernel, kernel))
        builder.op("Conv", [builder.input(shape), weight], shape, CONV_VERSION, attributes)
    return builder.network()


def gpu_reference_network() -> Network:
    """A GPU's pulse: a 3x3 convolution of some microseconds, far from trivial."""
    builder, shape = NetworkBuilder("reference"), (1, 64, 56, 56)
    operands = [builder.input(shape), builder.constant((64, 64, 3, 3))]
    attributes = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}
    builder.op("Conv", operands, shape, CONV_VERSION, attributes)
    return builder.network()
