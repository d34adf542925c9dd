"""Just enough of an ONNX file to run it, read without the onnx package."""

from typing import Dict, List, Optional, Tuple

from . import wire

# Field numbers of ModelProto, GraphProto, NodeProto, AttributeProto and TensorProto.
_M_GRAPH = 7
_G_NODE, _G_INITIALIZER, _G_INPUT = 1, 5, 11
_N_INPUT, _N_OUTPUT, _N_OP, _N_ATTRIBUTE = 1, 2, 4, 5
_A_NAME, _A_INT, _A_TENSOR = 1, 3, 5
_T_NAME = 8


class Node(object):
    """One operator, with its attributes still as fields."""

    def __init__(self, fields: List[wire.Field]) -> None:
        self.fields = fields
        self.op = wire.text(fields, _N_OP)
        self.name = wire.text(fields, 3)
        self.inputs = [v.decode("utf-8") for v in wire.all_bytes(fields, _N_INPUT)]
        self.outputs = [v.decode("utf-8") for v in wire.all_bytes(fields, _N_OUTPUT)]
        self.attributes: Dict[str, List[wire.Field]] = {}
        for raw in wire.all_bytes(fields, _N_ATTRIBUTE):
            body = wire.read(raw)
            self.attributes[wire.text(body, _A_NAME)] = body

    def integer(self, name: str, default: int = 0) -> int:
        """An integer attribute."""
        value = self.attributes.get(name)
        return wire.integer(value, _A_INT, default) if value else default

    def text(self, name: str) -> str:
        """A text attribute."""
        value = self.attributes.get(name)
        return wire.text(value, 4) if value else ""

    def tensor(self, name: str) -> Optional[List[wire.Field]]:
        """A tensor attribute, as fields."""
        value = self.attributes.get(name)
        raw = wire.all_bytes(value, _A_TENSOR) if value else []
        return wire.read(raw[-1]) if raw else None


class Model(object):
    """A model file: its nodes and initializers by name."""

    def __init__(self, data: bytes) -> None:
        graphs = wire.all_bytes(wire.read(data), _M_GRAPH)
        if not graphs:
            raise ValueError("the file holds no graph")
        self._graph = wire.read(graphs[-1])
        self.nodes = [Node(wire.read(raw)) for raw in wire.all_bytes(self._graph, _G_NODE)]
        self.initializers: Dict[str, List[wire.Field]] = {}
        for raw in wire.all_bytes(self._graph, _G_INITIALIZER):
            tensor = wire.read(raw)
            self.initializers[wire.text(tensor, _T_NAME)] = tensor

    def inputs(self) -> List[Tuple[str, List[int]]]:
        """Names and static shapes of the inputs that are no initializers."""
        result = []
        for raw in wire.all_bytes(self._graph, _G_INPUT):
            info = wire.read(raw)
            name = wire.text(info, 1)
            if name in self.initializers:
                continue
            tensor = wire.read(wire.all_bytes(wire.read(wire.all_bytes(info, 2)[-1]), 1)[-1])
            shape = wire.read(wire.all_bytes(tensor, 2)[-1]) if wire.all_bytes(tensor, 2) else []
            dims = [wire.integer(wire.read(dim), 1) for dim in wire.all_bytes(shape, 1)]
            result.append((name, dims))
        return result
