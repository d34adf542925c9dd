"""A network while its normal form is written; see ``forms``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hybridlat.graph.network import Constant, Network, Node, TensorType
from hybridlat.graph.operators import WHOLE, Sizes


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
