"""Just enough of an ONNX file to give it weights and a precision, without the onnx package."""

import struct
from typing import Dict, List, NamedTuple, Optional, Tuple

from . import wire

FLOAT, INT64, HALF = 1, 7, 10
DTYPES = {FLOAT: "float32", HALF: "float16", INT64: "int64", 6: "int32", 9: "bool", 3: "int8"}
_CODES = {name: code for code, name in DTYPES.items()}
_MAX_IR = 8  # the newest that TensorRT 8.6 reads
# Inputs that must stay float32 whatever the network's type is.
_ALWAYS_FLOAT = {"Resize": (1, 2), "Upsample": (1,)}

# Field numbers of ModelProto, GraphProto, NodeProto, AttributeProto, TensorProto, ValueInfoProto.
_M_IR, _M_GRAPH, _M_OPSET = 1, 7, 8
_G_NODE, _G_INITIALIZER, _G_INPUT, _G_OUTPUT, _G_VALUE_INFO = 1, 5, 11, 12, 13
_N_INPUT, _N_OUTPUT, _N_OP, _N_ATTRIBUTE = 1, 2, 4, 5
_A_NAME, _A_INT, _A_TENSOR = 1, 3, 5
_T_DIMS, _T_TYPE, _T_FLOATS, _T_INT64S, _T_NAME, _T_RAW, _T_EXTERNAL, _T_LOCATION = (
    1, 2, 4, 7, 8, 9, 13, 14,
)  # fmt: skip

Weight = NamedTuple("Weight", [("name", str), ("dtype", str), ("shape", Tuple[int, ...])])


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
        found = self.attributes.get(name)
        return wire.integer(found, _A_INT, default) if found else default

    def text(self, name: str) -> str:
        """A text attribute."""
        found = self.attributes.get(name)
        return wire.text(found, 4) if found else ""

    def tensor(self, name: str) -> Optional[List[wire.Field]]:
        """A tensor attribute, as fields."""
        found = self.attributes.get(name)
        raw = wire.all_bytes(found, _A_TENSOR) if found else []
        return wire.read(raw[-1]) if raw else None

    def replace_attribute(self, name: str, body: List[wire.Field]) -> None:
        """Put ``body`` where the attribute ``name`` was."""
        self.attributes[name] = body
        for place, (number, kind, value) in enumerate(self.fields):
            if number != _N_ATTRIBUTE or not isinstance(value, bytes):
                continue
            if wire.text(wire.read(value), _A_NAME) == name:
                self.fields[place] = (number, kind, wire.write(body))


def integers_of(tensor: List[wire.Field]) -> List[int]:
    """The values of an int64 tensor."""
    raw = wire.all_bytes(tensor, _T_RAW)
    if raw:
        return list(struct.unpack("<%dq" % (len(raw[-1]) // 8), raw[-1]))
    return wire.integers(tensor, _T_INT64S)


def _to_half(tensor: List[wire.Field]) -> List[wire.Field]:
    """A float32 tensor's fields with the values in half precision (out of range: the largest)."""
    raw = wire.all_bytes(tensor, _T_RAW)
    values = (
        list(struct.unpack("<%df" % (len(raw[-1]) // 4), raw[-1]))
        if raw
        else wire.floats(tensor, _T_FLOATS)
    )
    packed = struct.pack("<%de" % len(values), *[min(65504.0, max(-65504.0, v)) for v in values])
    kept = [f for f in tensor if f[0] not in (_T_TYPE, _T_FLOATS, _T_RAW)]
    return kept + [(_T_TYPE, wire.VARINT, HALF), (_T_RAW, wire.BYTES, packed)]


class Model(object):
    """A model file: its nodes and initializers can be looked at and replaced."""

    def __init__(self, data: bytes) -> None:
        self._model = wire.read(data)
        graphs = wire.all_bytes(self._model, _M_GRAPH)
        if not graphs:
            raise ValueError("the file holds no graph")
        self._graph = wire.read(graphs[-1])
        self.opset = max(
            (wire.integer(o, 2) for o in self._opsets() if not wire.text(o, 1)), default=1
        )
        self.nodes = [Node(wire.read(raw)) for raw in wire.all_bytes(self._graph, _G_NODE)]
        self.initializers: Dict[str, List[wire.Field]] = {}
        for raw in wire.all_bytes(self._graph, _G_INITIALIZER):
            tensor = wire.read(raw)
            self.initializers[wire.text(tensor, _T_NAME)] = tensor

    def _opsets(self) -> List[List[wire.Field]]:
        return [wire.read(raw) for raw in wire.all_bytes(self._model, _M_OPSET)]

    def add_scalar(self, name: str, raw: bytes) -> str:
        """A float32 initializer without dimensions; its name."""
        tensor: List[wire.Field] = [(_T_TYPE, wire.VARINT, FLOAT)]
        tensor += [(_T_NAME, wire.BYTES, name.encode("utf-8")), (_T_RAW, wire.BYTES, raw)]
        self.initializers[name] = tensor
        return name

    def blank_weights(self) -> List[Weight]:
        """What stands as ``ConstantOfShape`` of a known shape."""
        found = []
        for node in self.nodes:
            if node.op != "ConstantOfShape" or node.inputs[0] not in self.initializers:
                continue
            shape = tuple(integers_of(self.initializers[node.inputs[0]]))
            value = node.tensor("value")
            code = wire.integer(value, _T_TYPE, FLOAT) if value else FLOAT
            found.append(Weight(node.outputs[0], DTYPES.get(code, str(code)), shape))
        return found

    def set_external(self, weight: Weight, location: str, offset: int, size: int) -> None:
        """Make ``weight`` an initializer whose bytes lie in the file ``location``."""
        self.nodes = [n for n in self.nodes if n.outputs[:1] != [weight.name]]
        entries = (("location", location), ("offset", str(offset)), ("length", str(size)))
        tensor: List[wire.Field] = [(_T_DIMS, wire.VARINT, dim) for dim in weight.shape]
        tensor.append((_T_TYPE, wire.VARINT, _CODES[weight.dtype]))
        tensor.append((_T_NAME, wire.BYTES, weight.name.encode("utf-8")))
        for key, value in entries:
            entry = [(1, wire.BYTES, key.encode()), (2, wire.BYTES, value.encode())]
            tensor.append((_T_EXTERNAL, wire.BYTES, wire.write(list(entry))))
        tensor.append((_T_LOCATION, wire.VARINT, 1))
        self.initializers[weight.name] = tensor

    def retype(self, dtype: str) -> None:
        """Turn every float32 of the model into ``dtype`` (float16)."""
        if dtype != "float16":
            raise ValueError("a typed model can be made in float16, not %s" % dtype)
        kept_float = {
            node.inputs[place]
            for node in self.nodes
            for place in _ALWAYS_FLOAT.get(node.op, ())
            if place < len(node.inputs)
        }
        for name, tensor in self.initializers.items():
            if wire.integer(tensor, _T_TYPE) == FLOAT and name not in kept_float:
                self.initializers[name] = _to_half(tensor)
        for node in self.nodes:
            if set(node.outputs) & kept_float:
                continue
            for name in list(node.attributes):
                tensor_of = node.tensor(name)
                if tensor_of is not None and wire.integer(tensor_of, _T_TYPE) == FLOAT:
                    body = [f for f in node.attributes[name] if f[0] != _A_TENSOR]
                    body.append((_A_TENSOR, wire.BYTES, wire.write(_to_half(tensor_of))))
                    node.replace_attribute(name, body)
            if node.op == "Cast" and node.integer("to") == FLOAT:
                body = [f for f in node.attributes["to"] if f[0] != _A_INT]
                node.replace_attribute("to", body + [(_A_INT, wire.VARINT, HALF)])
        self._graph = [
            (n, k, _half_value_info(v) if n in (_G_INPUT, _G_OUTPUT, _G_VALUE_INFO) else v)
            for n, k, v in self._graph
        ]

    def to_bytes(self) -> bytes:
        """The file, nodes in their order; initializers that nobody reads are left out."""
        read = {name for node in self.nodes for name in node.inputs}
        read |= {_value_name(v) for v in wire.all_bytes(self._graph, _G_OUTPUT)}
        graph: List[wire.Field] = []
        for node in self.nodes:
            graph.append((_G_NODE, wire.BYTES, wire.write(node.fields)))
        for name, tensor in self.initializers.items():
            if name in read:
                graph.append((_G_INITIALIZER, wire.BYTES, wire.write(tensor)))
        graph.extend(f for f in self._graph if f[0] not in (_G_NODE, _G_INITIALIZER))
        model: List[wire.Field] = []
        for number, kind, value in self._model:
            if number == _M_GRAPH:
                value = wire.write(graph)
            elif number == _M_IR and isinstance(value, int):
                value = min(value, _MAX_IR)
            elif number == _M_OPSET and isinstance(value, bytes):
                value = self._opset_bytes(value)
            model.append((number, kind, value))
        return wire.write(model)

    def _opset_bytes(self, raw: bytes) -> bytes:
        fields = wire.read(raw)
        if wire.text(fields, 1):
            return raw
        return wire.write([f for f in fields if f[0] != 2] + [(2, wire.VARINT, self.opset)])

    def inputs(self) -> List[Tuple[str, List[int]]]:
        """Names and static shapes of the inputs that are no initializers."""
        found = []
        for raw in wire.all_bytes(self._graph, _G_INPUT):
            info = wire.read(raw)
            name = wire.text(info, 1)
            if name in self.initializers:
                continue
            tensor = wire.read(wire.all_bytes(wire.read(wire.all_bytes(info, 2)[-1]), 1)[-1])
            shape = wire.read(wire.all_bytes(tensor, 2)[-1]) if wire.all_bytes(tensor, 2) else []
            dims = [wire.integer(wire.read(dim), 1) for dim in wire.all_bytes(shape, 1)]
            found.append((name, dims))
        return found

    def described_nodes(self) -> List[Tuple[str, List[Tuple[int, ...]]]]:
        """Every operator with the shapes of the weights it reads."""
        found = []
        for node in self.nodes:
            shapes = []
            for name in node.inputs:
                tensor = self.initializers.get(name)
                if tensor is not None:
                    shapes.append(tuple(wire.integers(tensor, _T_DIMS)))
            found.append((node.op, shapes))
        return found


def _value_name(raw: bytes) -> str:
    return wire.text(wire.read(raw), 1)


def _half_value_info(raw: wire.Value) -> wire.Value:
    assert isinstance(raw, bytes)
    out: List[wire.Field] = []
    for number, kind, value in wire.read(raw):
        if number == 2 and isinstance(value, bytes):  # TypeProto, whose field 1 is a tensor type
            type_out: List[wire.Field] = []
            for n, k, v in wire.read(value):
                if n == 1 and isinstance(v, bytes):
                    v = wire.write([_half_code(f) for f in wire.read(v)])
                type_out.append((n, k, v))
            value = wire.write(type_out)
        out.append((number, kind, value))
    return wire.write(out)


def _half_code(field: wire.Field) -> wire.Field:
    return (1, wire.VARINT, HALF) if field[0] == 1 and field[2] == FLOAT else field
