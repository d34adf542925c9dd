"""Broken and odd ONNX files: mutations of real networks and of their fields, and odd operators."""

import contextlib
import functools
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx

from hybridlat import Predictor
from tests.fuzz.mutations import damaged
from tests.fuzz.operators import INTEGERS, TEXTS, odd_attribute, odd_operator
from tests.networks import NETS

SEEDS = ("squeezenet", "shufflenet", "resnet18", "mobilenetv3_small_100", "bvlc_alexnet")
Mutation = Callable[[onnx.ModelProto, random.Random], None]


def made(number: int, rng: random.Random) -> tuple[str, bytes]:
    """Odd operators and mutated networks take turns."""
    if number % 2:
        label, model = odd_operator(rng)
        return f"{number}-{label}", model.SerializeToString()
    name = SEEDS[number // 2 % len(SEEDS)]
    data = (NETS / f"{name}.onnx").read_bytes()
    if rng.random() < 0.1:
        return f"{number}-{name}-damaged", damaged(data, rng)
    model, mutate = onnx.load_from_string(data), rng.choice(GRAPH)
    for _ in range(rng.choice((1, 1, 1, 3))):
        mutate(model, rng)
    return f"{number}-{name}-{mutate.__name__}", model.SerializeToString()


TARGETS = (None, "t4/tensorrt-10/fp16", "rtx-4090/torch/amp", "orin-nano/tensorrt-8.6/int8")


@functools.cache
def _predictor(target: str | None) -> Predictor:
    return Predictor(target, store="sqlite://", measure="never")


def attempt(label: str, data: bytes, folder: Path) -> str:
    """Predict the file for one target after the other: no operator of it is in two cells."""
    target = TARGETS[int(label.partition("-")[0]) % 7 % len(TARGETS)]
    estimate = _predictor(target).predict(data, name=label)
    nodes = [node for cell in estimate.cells for node in cell.nodes]
    return "answered" if len(nodes) == len(set(nodes)) else "wrong"


def _node(model: onnx.ModelProto, rng: random.Random) -> onnx.NodeProto:
    node: onnx.NodeProto = rng.choice(model.graph.node)
    return node


def rewire(model: onnx.ModelProto, rng: random.Random) -> None:
    node, other = _node(model, rng), _node(model, rng)
    if node.input and other.output:
        node.input[rng.randrange(len(node.input))] = other.output[0]


def rename_tensor(model: onnx.ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    if node.output:
        node.output[0] = rng.choice(("", "ghost", node.output[0] + "'"))


def shuffle_nodes(model: onnx.ModelProto, rng: random.Random) -> None:
    model.graph.node.sort(key=lambda _: rng.random())


def change_field(model: onnx.ModelProto, rng: random.Random) -> None:
    """Any field of any message below, by protobuf's own description: set, repeated or left out."""
    message: Any = model
    for _ in range(rng.randint(1, 7)):
        inner = [value for field, value in message.ListFields() if field.type == field.TYPE_MESSAGE]
        chosen = rng.choice(inner) if inner else None
        if chosen is None or (hasattr(chosen, "__len__") and not len(chosen)):
            break
        message = rng.choice(chosen) if hasattr(chosen, "__len__") else chosen
    field = rng.choice(message.DESCRIPTOR.fields)
    if rng.random() < 0.3:
        message.ClearField(field.name)
        return
    if field.type == field.TYPE_MESSAGE:
        value = getattr(message, field.name)
        if hasattr(value, "add"):
            value.add().CopyFrom(
                rng.choice(value) if len(value) else field.message_type._concrete_class()
            )
        else:
            value.SetInParent()
        return
    choices: Sequence[Any] = INTEGERS
    if field.type in (field.TYPE_STRING, field.TYPE_BYTES):
        names = [name for node in model.graph.node[:3] for name in (node.name, *node.input)]
        choices = [*TEXTS[:6], *map(str.encode, names)]
        choices = choices if field.type == field.TYPE_BYTES else [c.decode() for c in choices]
    elif field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        choices = (0.0, -1.0, 1e30, float("nan"), float("inf"))
    elif field.enum_type is not None:
        choices = [value.number for value in field.enum_type.values]
    with contextlib.suppress(ValueError):  # a number too large for its field
        try:
            setattr(message, field.name, rng.choice(choices))
        except AttributeError:
            getattr(message, field.name).append(rng.choice(choices))


def surplus(model: onnx.ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    names = [a.name for a in node.attribute] + ["axis", "mode", "auto_pad", "group", "nonsense"]
    name = rng.choice(names)
    for index in reversed(range(len(node.attribute))):
        if node.attribute[index].name == name:
            del node.attribute[index]
    node.attribute.append(odd_attribute(name, rng.randint(1, 8), 4, rng))
    node.input.extend(rng.choice(((), (), ("",), (model.graph.input[0].name,), ("ghost",))))
    node.output.extend(rng.choice(((), (), ("more",), ("more", ""))))


def odd_weights(model: onnx.ModelProto, rng: random.Random) -> None:
    """One in a file that is not there, or sparse."""
    if not model.graph.initializer:
        return
    tensor = model.graph.initializer.pop(rng.randrange(len(model.graph.initializer)))
    if rng.random() < 0.5:
        model.graph.sparse_initializer.add(dims=tensor.dims).values.CopyFrom(tensor)
        return
    tensor.data_location = onnx.TensorProto.EXTERNAL
    place = rng.choice(("/etc/passwd", "../x", "", "no.bin"))
    tensor.external_data.add(key="location", value=place)
    model.graph.initializer.append(tensor)


def add_function(model: onnx.ModelProto, rng: random.Random) -> None:
    """An operator becomes a call of a function that holds it, or itself."""
    node = _node(model, rng)
    body = onnx.NodeProto.FromString(node.SerializeToString())
    node.domain, node.op_type = "local", rng.choice(("f", node.op_type))
    function = model.functions.add(domain="local", name=node.op_type)
    function.input.extend(name for name in node.input if rng.random() < 0.95)
    function.output.extend(node.output)
    function.node.append(node if rng.random() < 0.1 else body)
    function.opset_import.extend(model.opset_import)
    model.opset_import.add(domain="local", version=1)
    if rng.random() < 0.5:
        del node.attribute[:]


GRAPH: tuple[Mutation, ...] = (
    *[change_field] * 4, rewire, rename_tensor, shuffle_nodes, surplus, odd_weights, add_function,
)  # fmt: skip
