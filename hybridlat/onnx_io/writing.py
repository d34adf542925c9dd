"""From a Network, cell or kernel to a model: architecture only, or with seeded random weights."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from hybridlat.graph.network import Constant, Network, TensorType
from hybridlat.onnx_io.quantisation import quantisation_constants
from hybridlat.onnx_io.values import INTEGERS, attribute_proto, data_type, since_version

_POOL_ELEMENTS = 1 << 20
SMALL_ELEMENTS = 16


def build(network: Network, seed: int | None, ir_version: int) -> ModelProto:
    """A model that computes ``network``; see :func:`hybridlat.onnx_io.to_onnx`."""
    opsets: dict[str, int] = {}
    for node in network.nodes:
        opsets[node.domain] = max(opsets.get(node.domain, 1), node.version)
    opsets[""] = _opset(frozenset((n.op, n.version) for n in network.nodes if not n.domain))
    nodes: list[NodeProto] = []
    tensors: list[TensorProto] = []
    positive, given = _positive_constants(network), quantisation_constants(network)
    for index, (name, constant) in enumerate(network.constants.items()):
        if seed is None and constant.values is None and constant.type.elements > SMALL_ELEMENTS:
            shape = np.array(constant.type.shape, dtype=np.int64)
            tensors.append(numpy_helper.from_array(shape, f"{name}__shape"))
            value = TensorProto(dims=[1], data_type=data_type(constant.type.dtype))
            value.raw_data = b"\0" * max(1, constant.type.bytes // constant.type.elements)
            if constant.type.dtype == "float32":
                value = numpy_helper.from_array(np.array([0.01], dtype=np.float32))
            nodes.append(
                helper.make_node("ConstantOfShape", [f"{name}__shape"], [name], value=value)
            )
        else:
            number = (seed or 0) * 1009 + index
            tensors.append(_tensor(name, given.get(name, constant), number, name in positive))
    for node in network.nodes:
        proto = NodeProto(name=node.name, op_type=node.op, domain=node.domain)
        proto.input.extend(node.inputs)
        proto.output.extend(node.outputs)
        proto.attribute.extend(attribute_proto(key, value) for key, value in node.attributes)
        nodes.append(proto)
    graph = helper.make_graph(
        nodes,
        network.name or "network",
        [_info(name, network.types[name]) for name in network.inputs],
        [_info(name, network.types[name]) for name in network.outputs],
        initializer=tensors,
    )
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    model: ModelProto = helper.make_model(
        graph, opset_imports=imports, producer_name="hybridlat", ir_version=ir_version
    )
    return model


@functools.lru_cache(maxsize=65536)
def _opset(operators: frozenset[tuple[str, int]]) -> int:
    """An opset in which every operator has the version that it had in the file.

    The newest up to 13 if there is one, else the oldest; from 9 on where possible, since weights of
    architecture-only models are made by ConstantOfShape.
    """
    least: int = max((version for _, version in operators), default=1)
    usual = range(13, max(least, 9) - 1, -1)
    for opset in (*usual, *range(max(least, 14), least + 12), *range(8, 0, -1)):
        fits = (since_version(op, "", {"": opset}) == version for op, version in operators)
        if opset >= least and all(fits):
            return int(opset)
    return least


def _info(name: str, type_: TensorType) -> onnx.ValueInfoProto:
    info: onnx.ValueInfoProto = helper.make_tensor_value_info(
        name, data_type(type_.dtype), list(type_.shape)
    )
    return info


def _positive_constants(network: Network) -> set[str]:
    """Constants that must be positive: variances, and what is divided by or taken a root of."""
    positive: set[str] = set()
    for node in network.nodes:
        if node.op == "BatchNormalization":
            positive.add(node.inputs[4])
        elif node.op == "Div":
            positive.update(node.inputs[1:2])
        elif node.op in ("Sqrt", "Log", "Pow"):
            positive.update(node.inputs[:1])
    return positive


def _tensor(name: str, constant: Constant, seed: int, positive: bool) -> TensorProto:
    type_ = constant.type
    if constant.values is not None:
        return helper.make_tensor(
            name, data_type(type_.dtype), list(type_.shape), list(constant.values)
        )
    tensor = TensorProto(name=name, dims=type_.shape, data_type=data_type(type_.dtype))
    tensor.raw_data = random_array(type_, seed, positive).tobytes()
    return tensor


@functools.cache
def _pool() -> NDArray[np.float32]:
    """Standard normal numbers kept off zero, shared by all weights: drawing them anew is slow."""
    rng = np.random.default_rng(20240229)
    numbers = rng.standard_normal(_POOL_ELEMENTS, dtype=np.float32)
    return np.where(np.abs(numbers) < 1e-3, np.float32(1e-3), numbers).astype(np.float32)


def random_array(type_: TensorType, seed: int, positive: bool = False) -> NDArray[Any]:
    """Seeded values for a weight or an input.

    Matrices and filters are scaled by sqrt(2 / fan-in), so that activations neither overflow nor
    fade into denormals; vectors lie around one if they must be positive, else around zero.
    """
    count = type_.elements
    if type_.dtype in INTEGERS:
        rng = np.random.default_rng(seed)
        high = 2 if type_.dtype in ("int64", "int32", "bool") else 100
        item = np.dtype("bool" if type_.dtype == "bool" else type_.dtype)
        drawn: NDArray[Any] = rng.integers(0, high, size=type_.shape).astype(item)
        return drawn * 0 if high == 2 else drawn
    values = _drawn(seed, count)
    if positive:
        values = np.float32(0.5) + np.abs(values)
    elif len(type_.shape) >= 2:
        fan_in = math.prod(type_.shape[1:]) if len(type_.shape) > 2 else type_.shape[0]
        values = values * np.float32(math.sqrt(2.0 / max(1, fan_in)))
    else:
        values = values * np.float32(0.1)
    return _cast(values, type_.dtype).reshape(type_.shape)


def random_input(type_: TensorType, seed: int) -> NDArray[Any]:
    """Seeded values of unit scale for an input: what comes out of a normalised layer."""
    if type_.dtype in INTEGERS:
        return random_array(type_, seed)
    return _cast(_drawn(seed, type_.elements), type_.dtype).reshape(type_.shape)


def _drawn(seed: int, count: int) -> NDArray[np.float32]:
    """So many of the pool's numbers, round and round, from where the seed says."""
    pool, start = _pool(), (seed * 7919) % _POOL_ELEMENTS
    values = np.empty(count, np.float32)
    done = 0
    while done < count:
        length = min(count - done, _POOL_ELEMENTS - start)
        values[done : done + length] = pool[start : start + length]
        done, start = done + length, 0
    return values


def _cast(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    if dtype in ("float32", "float64", "float16"):
        return values.astype(dtype)
    wide = helper.tensor_dtype_to_np_dtype(data_type(dtype))
    return values.astype(wide)
