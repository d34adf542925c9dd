"""A network while its normal form is written, and small changes of operators; see ``normal``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hybridlat.graph.network import AttributeValue, Constant, Network, Node, TensorType
from hybridlat.graph.operators import WHOLE

Sizes = tuple[int, ...]


@dataclass
class Writing:
    """A network while its normal form is written.

    ``stands_for`` maps the results of operators that are gone to what their readers read instead,
    ``views`` those of Reshapes to their positions.
    """

    source: Network
    nodes: list[Node] = field(default_factory=list)
    types: dict[str, TensorType] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    stands_for: dict[str, str] = field(default_factory=dict)
    views: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.types.update(self.source.types)

    def keep(self, node: Node) -> None:
        """The operator stands; constants that another one has read already are copied for it."""
        for place, name in enumerate(node.inputs):
            constant = self.source.constants.get(name)
            if constant is None:
                continue
            if name in self.constants:
                name = f"{node.outputs[0]}/{place}"
                inputs = (*node.inputs[:place], name, *node.inputs[place + 1 :])
                node = replace(node, inputs=inputs)
            self.constants[name] = constant
        self.nodes.append(node)

    def stand(self, node: Node) -> None:
        """The operator stands, with constants of its own put in already."""
        for name in node.inputs:
            constant = self.source.constants.get(name)
            if constant is not None:
                self.constants.setdefault(name, constant)
        self.nodes.append(node)

    def drop(self, node: Node) -> None:
        """Its readers read what it reads; an Identity stays where it gives a result out."""
        source, made = node.inputs[0], node.outputs[0]
        if source in self.types and made not in self.source.outputs:
            self.stands_for[made] = source
        else:
            node = replace(node, op="Identity", inputs=(source,), outputs=(made,))
            self.keep(replace(node, attributes=(), version=16))

    def join_views(self) -> None:
        """Several Reshapes in a row are the last of them, where nothing else reads the others."""
        readers = Counter(name for node in self.nodes for name in dict.fromkeys(node.inputs))
        readers.update(self.source.outputs)
        gone = set[int]()
        for position in self.views.values():
            view = self.nodes[position]
            before = self.views.get(view.inputs[0])
            if before is not None and readers[view.inputs[0]] == 1:
                source, shape = self.nodes[before].inputs
                gone.add(before)
                del self.types[view.inputs[0]], self.constants[shape]
                self.nodes[position] = replace(view, inputs=(source, view.inputs[1]))
        self.nodes = [node for i, node in enumerate(self.nodes) if i not in gone]

    def shape(self, tensor: str) -> Sizes:
        known = self.types.get(tensor)
        return (known if known is not None else self.constant(tensor).type).shape

    def constant(self, tensor: str) -> Constant:
        """A constant of the source, or one that was put in."""
        known = self.source.constants.get(tensor)
        return known if known is not None else self.constants[tensor]

    def numbers(self, tensor: str) -> Sizes | None:
        """The whole numbers of a constant; None where they are not known."""
        constant = self.source.constants.get(tensor)
        if constant is None or constant.values is None:
            return None
        return tuple(map(int, constant.values))

    def put(self, node: Node, label: str, values: Sequence[float], dtype: str = "int64") -> str:
        """A constant of the operator with these values; all but sizes are scalars."""
        name = f"{node.outputs[0]}/{label}"
        shape = (len(values),) if dtype == "int64" else ()
        number = int if dtype in WHOLE else float
        self.constants[name] = Constant(TensorType(dtype, shape), tuple(map(number, values)))
        return name


def with_attributes(node: Node, drop: Sequence[str], **put: AttributeValue) -> Node:
    """The operator without some attributes and with others."""
    attributes = {k: v for k, v in node.attributes if k not in drop} | put
    return replace(node, attributes=tuple(sorted(attributes.items())))


def sizes_of(node: Node, name: str) -> Sizes | None:
    """An attribute of several whole numbers; None where it is not there."""
    value = node.attribute(name)
    return tuple(map(int, value)) if isinstance(value, tuple) else None
