"""Broken and odd ONNX files: mutations of real networks and of their fields, and odd operators."""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx

from hybridlat import Predictor
from tests.fuzz.mutations import cut_short, flip_bytes
from tests.fuzz.operators import INTEGERS, TEXTS, odd_attribute, odd_operator
from tests.networks import NETS

SEEDS = ("squeezenet", "shufflenet", "resnet18", "mobilenetv3_small_100", "bvlc_alexnet")
Mutation = Callable[[onnx.ModelProto, random.Random], None]

ODD_SIZES = (0, -1, 1, 2, 3, 7, 1 << 20, 1 << 40, -(1 << 62))
OPS = ("Conv", "Relu", "Add", "Concat", "MaxPool", "Gemm", "Reshape", "Softmax", "Identity",
       "Split", "Transpose", "NoSuchOp", "If", "LSTM", "BatchNormalization", "Resize")  # fmt: skip


def corpus(numbers: Iterable[int], seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """The files of these numbers with a name each: mutations take turns, and networks do."""
    mutations = (*BYTES, *GRAPH)
    for number in numbers:
        rng = random.Random(f"{seed}/{number}")
        if number % 2:
            label, model = odd_operator(rng)
            yield f"{number}-{label}", model.SerializeToString()
            continue
        name = SEEDS[number // 2 % len(SEEDS)]
        data = (NETS / f"{name}.onnx").read_bytes()
        mutate = mutations[(number // 2 // len(SEEDS)) % len(mutations)]
        label = f"{number}-{name}-{mutate.__name__}"
        if mutate in BYTES:
            yield label, mutate(data, rng)
            continue
        model = onnx.load_from_string(data)
        for _ in range(rng.choice((1, 1, 2, 5))):
            mutate(model, rng)
        yield label, model.SerializeToString()


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


def splice(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    return data[:start] + data[start + rng.randrange(1, 400) :]


def _node(model: onnx.ModelProto, rng: random.Random) -> onnx.NodeProto:
    node: onnx.NodeProto = rng.choice(model.graph.node)
    return node


def drop_node(model: onnx.ModelProto, rng: random.Random) -> None:
    del model.graph.node[rng.randrange(len(model.graph.node))]


def change_op(model: onnx.ModelProto, rng: random.Random) -> None:
    _node(model, rng).op_type = rng.choice(OPS)


def change_domain(model: onnx.ModelProto, rng: random.Random) -> None:
    _node(model, rng).domain = rng.choice(("my.domain", "com.microsoft", "ai.onnx.ml"))


def rewire(model: onnx.ModelProto, rng: random.Random) -> None:
    node, other = _node(model, rng), _node(model, rng)
    if node.input and other.output:
        node.input[rng.randrange(len(node.input))] = other.output[0]


def drop_input(model: onnx.ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    if node.input:
        del node.input[rng.randrange(len(node.input))]


def rename_tensor(model: onnx.ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    if node.output:
        node.output[0] = rng.choice(("", "ghost", node.output[0] + "'"))


def change_integers(model: onnx.ModelProto, rng: random.Random) -> None:
    attributes = [a for n in model.graph.node for a in n.attribute if a.ints]
    if attributes:
        attribute = rng.choice(attributes)
        attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(ODD_SIZES)


def change_input_size(model: onnx.ModelProto, rng: random.Random) -> None:
    dims = rng.choice(model.graph.input).type.tensor_type.shape.dim
    if dims:
        rng.choice(dims).dim_value = rng.choice(ODD_SIZES)


def change_weight_size(model: onnx.ModelProto, rng: random.Random) -> None:
    tensors = [t for t in model.graph.initializer if t.int64_data or len(t.raw_data) >= 8]
    if tensors:
        tensor = rng.choice(tensors)
        if tensor.int64_data:
            tensor.int64_data[0] = rng.choice(ODD_SIZES)
        else:
            tensor.raw_data = (rng.choice(ODD_SIZES) % (1 << 63)).to_bytes(
                8, "little"
            ) + tensor.raw_data[8:]


def drop_initializer(model: onnx.ModelProto, rng: random.Random) -> None:
    if model.graph.initializer:
        del model.graph.initializer[rng.randrange(len(model.graph.initializer))]


def change_type(model: onnx.ModelProto, rng: random.Random) -> None:
    value = rng.choice(model.graph.input)
    value.type.tensor_type.elem_type = rng.choice((0, 1, 2, 7, 8, 10, 11, 16, 99))


def change_opset(model: onnx.ModelProto, rng: random.Random) -> None:
    model.opset_import[0].version = rng.choice((-1, 0, 1, 6, 8, 11, 22, 999))


def shuffle_nodes(model: onnx.ModelProto, rng: random.Random) -> None:
    copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in model.graph.node]
    rng.shuffle(copies)
    del model.graph.node[:]
    model.graph.node.extend(copies)


def repeat_node(model: onnx.ModelProto, rng: random.Random) -> None:
    model.graph.node.add().CopyFrom(_node(model, rng))


def drop_attributes(model: onnx.ModelProto, rng: random.Random) -> None:
    del _node(model, rng).attribute[:]


def no_outputs(model: onnx.ModelProto, rng: random.Random) -> None:
    del model.graph.output[rng.randrange(len(model.graph.output) or 1) :]


def symbolic_sizes(model: onnx.ModelProto, rng: random.Random) -> None:
    dims = rng.choice(model.graph.input).type.tensor_type.shape.dim
    if dims:
        rng.choice(dims).dim_param = "n"


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
        choices = [*TEXTS[:7], *map(str.encode, names)]
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


def surplus_attribute(model: onnx.ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    names = [a.name for a in node.attribute] + ["axis", "mode", "auto_pad", "group", "nonsense"]
    name = rng.choice(names)
    for index in reversed(range(len(node.attribute))):
        if node.attribute[index].name == name:
            del node.attribute[index]
    node.attribute.append(odd_attribute(name, rng.choice((1, 2, 3, 4, 5, 6, 7, 8)), 4, rng))


def surplus_output(model: onnx.ModelProto, rng: random.Random) -> None:
    _node(model, rng).output.extend(["more", ""][: rng.randint(1, 2)])


def surplus_input(model: onnx.ModelProto, rng: random.Random) -> None:
    _node(model, rng).input.append(rng.choice(("", model.graph.input[0].name, "ghost")))


def external_weights(model: onnx.ModelProto, rng: random.Random) -> None:
    if model.graph.initializer:
        tensor = rng.choice(model.graph.initializer)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        place = rng.choice(("/etc/passwd", "../x", "", "no.bin"))
        tensor.external_data.add(key="location", value=place)


def sparse_weights(model: onnx.ModelProto, rng: random.Random) -> None:
    if model.graph.initializer:
        tensor = model.graph.initializer.pop(rng.randrange(len(model.graph.initializer)))
        sparse = model.graph.sparse_initializer.add(dims=tensor.dims)
        sparse.values.CopyFrom(tensor)


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


BYTES = (cut_short, flip_bytes, splice)
GRAPH: tuple[Mutation, ...] = (
    drop_node, change_op, change_domain, rewire, drop_input, rename_tensor, change_integers,
    change_input_size, change_weight_size, drop_initializer, change_type, change_opset,
    shuffle_nodes, repeat_node, drop_attributes, no_outputs, symbolic_sizes,
    change_field, surplus_attribute, surplus_output, surplus_input, external_weights,
    sparse_weights, add_function, change_field, change_field,
)  # fmt: skip
