"""From a Network, cell or kernel to a model file, and arrays to feed it with.

A file holds the architecture only, or seeded random weights. Scales and zero points are such as
engines fuse. Between quantisation and dequantisation they take an operator whose weights have zero
points of zero, and whose bias has the scale of the input times that of the weight.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, external_data_helper, helper, numpy_helper

from hybridlat.errors import NetworkError
from hybridlat.graph.network import ITEM_BYTES, Constant, Network, Node, TensorType
from hybridlat.graph.operators import (
    QUANTISERS,
    SET,
    SIZES,
    SMALL_ELEMENTS,
    WHOLE,
    is_quantised,
    weight_place,
)
from hybridlat.onnx_io.facts import MAX_INLINE_BYTES
from hybridlat.onnx_io.shapes import info_of
from hybridlat.onnx_io.values import attribute_proto, data_type, since_version

HOLE_BYTES = 1 << 16
_POOL_ELEMENTS = 1 << 20
_TYPES_SINCE = {"bfloat16": 22, "float4e2m1": 23, "int2": 25, "uint2": 25}
_TYPES_SINCE |= dict.fromkeys(("int16", "uint16", "int4", "uint4"), 21)
_TYPES_SINCE |= dict.fromkeys([dtype for dtype in ITEM_BYTES if dtype.startswith("float8")], 19)
"""The set in which convolutions and quantisation came to know an element type."""
_SCALES = dict.fromkeys(("float32", "float16", "bfloat16"), 0.01)
_ZERO_POINTS = dict.fromkeys(("int8", "uint8", "int16", "uint16", "int4", "uint4"), 0)
_LEVELS = {"int8": (-100, 101), "uint8": (28, 229)}
"""What weights in 8 bits are drawn from, around a zero point of 0 or 128."""
_GAIN = 2.5 / 58**2
"""Times the fan-in: the squared scale of weights of ``_LEVELS`` whose results fill the range."""
# Operators, and which of their inputs must be positive: a variance, a divisor.
_POSITIVE = {"BatchNormalization": 4, "Div": 1, "Sqrt": 0, "Log": 0, "Pow": 0}


def with_hole(network: Network, hole: Path) -> bytes:
    """As ``to_onnx``, but large weights are read from the file ``hole``, which is all zeros."""
    sizes = [0]

    def external(name: str, type_: TensorType) -> TensorProto | None:
        if type_.bytes < HOLE_BYTES:
            return None
        sizes.append(type_.bytes)
        return external_weight(name, type_, hole.name, 0)

    data = to_onnx(network, 1, external)
    make_hole(hole, max(sizes))
    return data


def make_hole(path: Path, size_bytes: int) -> None:
    """A file of zeros, which takes no room on a disk."""
    with path.open("wb") as file:
        file.truncate(size_bytes)


def external_weight(name: str, type_: TensorType, file: str, offset: int) -> TensorProto:
    """A weight whose values lie in a file beside the model's."""
    weight = TensorProto(name=name, data_type=data_type(type_.dtype), dims=type_.shape)
    weight.raw_data = b""  # the helper asks for it
    external_data_helper.set_external_data(weight, file, offset, type_.bytes)
    weight.ClearField("raw_data")
    return weight


def zeros(type_: TensorType) -> NDArray[Any]:
    """A buffer for a result of this type."""
    return np.zeros(type_.shape, _dtype(type_))


def to_onnx(
    network: Network,
    seed: int | None,
    external: Callable[[str, TensorType], TensorProto | None] | None = None,
) -> bytes:
    """The network, cell or kernel as a model file.

    ``seed`` None leaves weights out (ConstantOfShape nodes make them); a number fills them with
    random values of a scale that keeps activations finite and clear of denormals. ``external``
    makes weights that lie elsewhere, None where one does not. Raises NetworkError when the weights
    do not fit into one file.
    """
    if seed is not None and external is None and network.weight_bytes > MAX_INLINE_BYTES:
        raise NetworkError(
            f"{network.name} has {network.weight_bytes / 1e9:.1f} GB of weights, more than the "
            "2 GB of one ONNX file"
        )
    opsets: dict[str, int] = {}
    for node in network.nodes:
        opsets[node.domain] = max(opsets.get(node.domain, 1), node.version)
    opset = _opset(frozenset((n.op, n.version) for n in network.nodes if not n.domain))
    constant_types = [constant.type for constant in network.constants.values()]
    every = {type_.dtype for type_ in (*network.types.values(), *constant_types)}
    scales = {network.type_of(n.inputs[1]).dtype for n in network.nodes if n.op in QUANTISERS}
    opset = max([opset, *[_TYPES_SINCE.get(dtype, 1) for dtype in every]])
    opsets[""] = opset = max(opset, 19 if "float16" in scales else 1)
    nodes, tensors, weights = list[NodeProto](), list[TensorProto](), list[TensorProto]()
    quantised, known = _quantisation_constants(network), network.constants
    large = [n for n, c in known.items() if c.type.elements > SMALL_ELEMENTS]
    held = {name: network.held_as[name] for name in large if name not in quantised}
    at_risk = ((node.inputs, _POSITIVE[node.op]) for node in network.nodes if node.op in _POSITIVE)
    risky = [name for names, place in at_risk for name in names[place : place + 1]]
    positive = {held.get(name, name) for name in risky}
    for index, (name, constant) in enumerate(known.items()):
        if held.get(name, name) != name:
            continue  # one weight for several operators
        type_ = constant.type
        is_weight = constant.values is None and type_.elements > SMALL_ELEMENTS
        weight = external(name, type_) if is_weight and external else None
        if weight is not None:
            weights.append(weight)
        elif seed is None and is_weight:
            sizes = np.array(type_.shape, dtype=np.int64)
            tensors.append(numpy_helper.from_array(sizes, f"{name}__shape"))
            value = TensorProto(dims=[1], data_type=data_type(type_.dtype))
            value.raw_data = b"\0" * max(1, type_.bytes // type_.elements)
            if type_.dtype == "float32":
                value = numpy_helper.from_array(np.array([0.01], dtype=np.float32))
            made = helper.make_node("ConstantOfShape", [f"{name}__shape"], [name], value=value)
            nodes.append(made)
        else:
            number = (seed or 0) * 1009 + index
            tensors.append(_tensor(name, quantised.get(name, constant), number, name in positive))
    for node in network.nodes:
        if opset > SET:
            node, axes = _later(node)
            tensors += axes
        if node.op in QUANTISERS and len(network.type_of(node.inputs[0]).shape) == 1:
            node = node.with_attributes(axis=0)  # a vector has no second axis, the usual one
        proto = NodeProto(name=node.name, op_type=node.op, domain=node.domain)
        proto.input.extend([held.get(name, name) for name in node.inputs])
        proto.output.extend(node.outputs)
        proto.attribute.extend(attribute_proto(key, value) for key, value in node.attributes)
        nodes.append(proto)
    # An engine may not know what operators make that ONNX does not define.
    foreign = {out for node in network.nodes if node.domain for out in node.outputs}
    foreign.difference_update(network.outputs)
    inputs = [info_of(name, network.types[name]) for name in network.inputs]
    outputs = [info_of(name, network.types[name]) for name in network.outputs]
    others = [info_of(name, network.types[name]) for name in sorted(foreign) if name]
    graph = helper.make_graph(
        nodes, network.name or "network", inputs, outputs, [*tensors, *weights], value_info=others
    )
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    model = helper.make_model(graph, opset_imports=imports, producer_name="hybridlat", ir_version=8)
    return bytes(model.SerializeToString())


@functools.lru_cache(maxsize=65536)
def _opset(operators: frozenset[tuple[str, int]]) -> int:
    """An opset in which every operator has the version that it had in the file."""
    least: int = max((version for _, version in operators), default=1)
    # The newest up to 13, else the oldest; from 9 on where possible, which has ConstantOfShape.
    usual = range(13, max(least, 9) - 1, -1)
    for opset in (*usual, *range(max(least, 14), least + 12), *range(8, 0, -1)):
        fits = (since_version(op, "", opset) == version for op, version in operators)
        if opset >= least and all(fits):
            return int(opset)
    return least


def _later(node: Node) -> tuple[Node, list[TensorProto]]:
    """The operator in the words of the sets behind 17, and the constants that it then reads."""
    axes, inputs, made = node.attribute("axes"), [*node.inputs], list[TensorProto]()
    attributes = dict(node.attributes)
    if node.op.startswith("Reduce") and isinstance(axes, tuple) and not node.domain:
        del attributes["axes"]
        inputs.append(f"{node.outputs[0]}__axes")
        made = [numpy_helper.from_array(np.array(axes, np.int64), inputs[-1])]
    if node.op == "GridSample" and attributes.get("mode") == "bicubic":
        attributes["mode"] = "cubic"
    return replace(node, inputs=tuple(inputs), attributes=tuple(attributes.items())), made


def _tensor(name: str, constant: Constant, seed: int, positive: bool) -> TensorProto:
    type_, values = constant.type, constant.values
    if type_.dtype == "string":
        kind, texts = TensorProto.STRING, [b""] * type_.elements
        return TensorProto(name=name, dims=type_.shape, data_type=kind, string_data=texts)
    if values is not None:
        return helper.make_tensor(name, data_type(type_.dtype), type_.shape, values)
    return numpy_helper.from_array(_weight(type_, seed, positive), name)


@functools.cache
def _pool() -> NDArray[np.float32]:
    """Standard normal numbers kept off zero, shared by all weights: drawing them anew is slow."""
    drawn = np.random.default_rng(20240229).standard_normal(_POOL_ELEMENTS, dtype=np.float32)
    return np.tile(np.where(np.abs(drawn) < 1e-3, np.float32(1e-3), drawn), 2)


def random_array(type_: TensorType, seed: int) -> NDArray[Any]:
    """Seeded values of unit scale for an input: what comes out of a normalised layer."""
    if type_.dtype in WHOLE:
        return _weight(type_, seed)
    return _drawn(seed, type_.elements).astype(_dtype(type_)).reshape(type_.shape)


def _weight(type_: TensorType, seed: int, positive: bool = False) -> NDArray[Any]:
    """Seeded values: matrices and filters scaled by sqrt(2 / fan-in), so that nothing fades."""
    if type_.dtype in WHOLE:
        if type_.dtype in SIZES:
            return zeros(type_)
        levels = _LEVELS.get(type_.dtype, (0, 100))
        drawn = np.random.default_rng(seed).integers(*levels, size=type_.shape)
        return drawn.astype(_dtype(type_))
    values = _drawn(seed, type_.elements)
    if positive:
        values = np.float32(0.5) + np.abs(values)
    elif len(type_.shape) >= 2:
        values = values * np.float32(math.sqrt(2.0 / _fan_in(type_)))
    else:
        values = values * np.float32(0.1)
    return values.astype(_dtype(type_)).reshape(type_.shape)


def _fan_in(type_: TensorType) -> int:
    """How many weights of a matrix or filter one result sums over."""
    return max(math.prod(type_.shape[1:]) if len(type_.shape) > 2 else type_.shape[0], 1)


def _drawn(seed: int, count: int) -> NDArray[np.float32]:
    start = (seed * 7919) % _POOL_ELEMENTS
    return np.resize(_pool()[start : start + min(count, _POOL_ELEMENTS)], count)


def _dtype(type_: TensorType) -> Any:
    return helper.tensor_dtype_to_np_dtype(data_type(type_.dtype))


def _quantisation_constants(network: Network) -> dict[str, Constant]:
    """Scales and zero points by name: those of weights keep activations within 8 bits.

    Some kernels, a MaxPool among them, are quicker where all values are the largest.
    """
    made, numbers = dict[str, Constant](), _SCALES | _ZERO_POINTS
    quantised = [node for node in network.nodes if node.op in QUANTISERS or is_quantised(node.op)]
    for name in [name for node in quantised for name in node.inputs[1:]]:
        constant = network.constants.get(name)
        if constant is None or constant.values is not None or len(constant.type.shape) > 1:
            continue
        type_ = constant.type
        if type_.dtype in numbers:
            made[name] = Constant(type_, (numbers[type_.dtype],) * type_.elements)
    for node in quantised:
        place = 0 if node.op in QUANTISERS else weight_place(node.op)
        weight = network.constant(node, place)
        if place == 1 or weight is None:  # it has no scale of its own right behind it
            continue
        if weight.type.dtype not in _LEVELS or len(weight.type.shape) < 2:
            continue
        filled: list[int | float] = [math.sqrt(_GAIN / _fan_in(weight.type))]
        filled.append(128 * (weight.type.dtype == "uint8"))
        for name, number in zip(node.inputs[place + 1 : place + 3], filled, strict=False):
            if name in made:
                made[name] = Constant(made[name].type, (number,) * made[name].type.elements)
    makers = {out: node for node in network.nodes for out in node.outputs if out}
    for node in network.nodes:  # a bias in 32 bits, where input, weight and bias are dequantised
        reads = [makers[name] for name in node.inputs[:3] if name in makers]
        if len(reads) < 3 or any(read.op != "DequantizeLinear" for read in reads):
            continue
        *names, name = [read.inputs[1] for read in reads]
        x, weight = (made.get(each, network.constants.get(each)) for each in names)
        bias = made[name].type if name in made else None
        if x and weight and bias and x.values and weight.values and bias.dtype in _SCALES:
            scale = float(x.values[0]) * float(weight.values[0])
            made[name] = Constant(bias, (scale,) * bias.elements)
    return made
