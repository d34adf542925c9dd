"""Tensors and attributes of a file as plain values."""

import base64
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import AttributeProto, NodeProto, SparseTensorProto, TensorProto, numpy_helper

from hybridlat.errors import NetworkError
from hybridlat.graph.network import AttributeValue, Constant, TensorType
from hybridlat.graph.operators import SIZES, SMALL_ELEMENTS, WHOLE

_PLAIN = [getattr(AttributeProto, f"{k}{s}") for k in ("INT", "FLOAT", "STRING") for s in ("", "S")]
_DATA = ("raw", "float", "int32", "int64", "double", "uint64")
_NARROW = ("FLOAT16", "BFLOAT16", "INT8", "UINT8", "INT4", "UINT4")
NARROW = frozenset(map(TensorProto.DataType.Value, _NARROW))
NUMPY_NAMES = {"float": "float32", "double": "float64"}
MOST_BYTES = 2048
"""Of an operator or tensor that is remembered: a convolution without its weights takes 150."""
_MOST_SIZES = 65_536


@functools.cache
def dtype_name(data_type: int) -> str:
    """``float32`` for TensorProto.FLOAT and so on; NetworkError for an undefined type."""
    if not data_type:
        raise NetworkError("a tensor has no element type")
    try:
        name = str(TensorProto.DataType.Name(data_type)).lower()
    except ValueError:
        raise NetworkError(f"{data_type} is not a tensor type of ONNX") from None
    return NUMPY_NAMES.get(name, name)


@functools.cache
def data_type(dtype: str) -> int:
    """The inverse of :func:`dtype_name`."""
    name = {"float32": "FLOAT", "float64": "DOUBLE"}.get(dtype, dtype.upper())
    return int(TensorProto.DataType.Value(name))


_weight = functools.lru_cache(maxsize=16_384)(Constant)
"""A weight of a type: the networks of a search share it."""


class Value(NamedTuple):
    """A constant tensor: its type, and its protobuf without a name and without weights."""

    type: TensorType
    data: bytes

    @classmethod
    def of_tensor(cls, tensor: TensorProto) -> "Value":
        """NetworkError for an element type that ONNX does not have, and for damaged values."""
        type_ = TensorType(dtype_name(tensor.data_type), tuple(tensor.dims))
        if min(type_.shape, default=0) < 0:
            size = f"a negative size: {type_}"
            raise NetworkError(f"the constant {tensor.name!r} has {size}; export it again")
        most = _MOST_SIZES if type_.dtype in SIZES else SMALL_ELEMENTS
        lies_here = tensor.data_location != TensorProto.EXTERNAL
        is_table = type_.dtype in SIZES and type_.elements > most and lies_here
        if is_table and type_.elements > tensor.ByteSize():
            why = f"is damaged: {type_.elements} numbers without data"
            raise NetworkError(f"the constant {tensor.name!r} {why}; export it again")
        lean = TensorProto(dims=tensor.dims, data_type=tensor.data_type)
        if type_.elements <= most and lies_here:
            lean.CopyFrom(tensor)
            for field in ("name", "doc_string"):
                lean.ClearField(field)
        value = cls(type_, lean.SerializeToString(deterministic=True))
        try:
            value.array  # noqa: B018  what is damaged is named while the name is known
        except (ValueError, TypeError) as error:
            raise NetworkError(f"the constant {tensor.name!r} is damaged: {error}") from error
        return value

    @classmethod
    def of_array(cls, array: NDArray[Any]) -> "Value":
        """All of it, as it is computed while a file is read."""
        dtype = dtype_name(onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
        tensor = numpy_helper.from_array(np.asarray(array, order="C"))
        return cls(TensorType(dtype, array.shape), tensor.SerializeToString(deterministic=True))

    @classmethod
    def of_type(cls, type_: TensorType) -> "Value":
        """A weight."""
        tensor = TensorProto(dims=type_.shape, data_type=data_type(type_.dtype))
        return cls(type_, tensor.SerializeToString(deterministic=True))

    @property
    def array(self) -> NDArray[Any] | None:
        """Its values; None for a weight, for text, and for what lies in another file."""
        tensor = TensorProto.FromString(self.data)
        has_data = any(getattr(tensor, f"{kind}_data") for kind in _DATA)
        if (not has_data and self.type.elements) or self.type.dtype == "string":
            return None
        if not self.type.elements and max(self.type.shape) > SMALL_ELEMENTS:
            return None  # numpy counts the other sizes, which may be any
        return numpy_helper.to_array(tensor)

    def tensor(self, name: str) -> TensorProto:
        tensor: TensorProto = TensorProto.FromString(self.data)
        if name:
            tensor.name = name
        return tensor


Known = TensorType | Value | None
"""What is known of a tensor: its type, or all of it."""


def type_of(known: Known) -> TensorType | None:
    """The type of a tensor; None where it is not known."""
    return known.type if isinstance(known, Value) else known


def constant_of(value: Value, keep_float: bool) -> Constant:
    """The constant as networks have it: values where they decide what is computed."""
    dtype, number = value.type.dtype, int if value.type.dtype in WHOLE else float
    is_kept = keep_float if number is float else dtype in SIZES or value.type.elements <= 1
    array = value.array if is_kept else None
    if array is None:
        return _weight(value.type)
    return Constant(value.type, tuple(map(number, array.reshape(-1))))


def dense(sparse: SparseTensorProto) -> TensorProto:
    """A sparse tensor's name and type: engines hold it as any other."""
    values = sparse.values
    return TensorProto(name=values.name, dims=sparse.dims, data_type=values.data_type)


@functools.cache
def schema_of(op: str, domain: str, opset: int) -> onnx.defs.OpSchema | None:
    """What onnx knows of an operator; None where it knows nothing."""
    try:
        return onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError:
        return None


def since_version(op: str, domain: str, opset: int) -> int:
    """Opset version in which ``op`` last changed, as its file means it; 1 for unknown domains."""
    schema = schema_of(op, domain, opset)
    return schema.since_version if schema else 1


@functools.cache
def defaults_of(op: str, domain: str, opset: int) -> Mapping[str, AttributeValue | None]:
    """The attributes that an operator may have, with their defaults.

    Engines write a LayerNormalization into older operator sets too, where the newest one tells.
    """
    newest = onnx.defs.onnx_opset_version()
    schema = schema_of(op, domain, opset) or schema_of(op, domain, newest)
    attributes = schema.attributes if schema else {}
    return {name: attribute_value(a.default_value) for name, a in attributes.items()}


def attributes_of(
    node: NodeProto, domain: str, opset: int
) -> tuple[tuple[str, AttributeValue], ...]:
    """Attributes sorted by name, without those that only spell out a default."""
    defaults = defaults_of(node.op_type, domain, opset)
    attributes: dict[str, AttributeValue] = {}
    for attribute in node.attribute:
        value = attribute_value(attribute)
        if value is None:
            raise NetworkError(
                f"{node.op_type} {node.name!r} has the attribute {attribute.name!r} of a kind "
                "that cannot be read (a graph or a sparse tensor)"
            )
        if defaults.get(attribute.name) != value:
            attributes[attribute.name] = value
    return tuple(sorted(attributes.items()))


def attribute_value(attribute: AttributeProto) -> AttributeValue | None:
    """A plain value; tensors become ``tensor:<base64>`` text; None for graphs."""
    if attribute.type == AttributeProto.TENSOR:
        lean = TensorProto()
        lean.CopyFrom(attribute.t)
        lean.ClearField("name")
        return "tensor:" + base64.b64encode(lean.SerializeToString(deterministic=True)).decode()
    if attribute.type not in _PLAIN or attribute.ref_attr_name:
        return None
    value = onnx.helper.get_attribute_value(attribute)
    made: AttributeValue = tuple(map(_text, value)) if isinstance(value, list) else _text(value)
    return made


def _text(value: Any) -> Any:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def attribute_proto(name: str, value: AttributeValue) -> AttributeProto:
    """The inverse of :func:`attribute_value`."""
    if isinstance(value, str) and value.startswith("tensor:"):
        tensor = TensorProto.FromString(base64.b64decode(value.removeprefix("tensor:")))
        return onnx.helper.make_attribute(name, tensor)
    if isinstance(value, tuple) and not value:
        return onnx.helper.make_attribute(name, [], attr_type=AttributeProto.INTS)
    return onnx.helper.make_attribute(name, list(value) if isinstance(value, tuple) else value)
