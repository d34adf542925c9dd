"""Broken and odd ONNX files: seeded mutations of real networks."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import onnx

from hybridlat import Predictor
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
        name = SEEDS[number % len(SEEDS)]
        data = (NETS / f"{name}.onnx").read_bytes()
        mutate = mutations[(number // len(SEEDS)) % len(mutations)]
        label = f"{number}-{name}-{mutate.__name__}"
        if mutate in BYTES:
            yield label, mutate(data, rng)
            continue
        model = onnx.load_from_string(data)
        for _ in range(rng.choice((1, 1, 2, 5))):
            mutate(model, rng)
        yield label, model.SerializeToString()


@functools.cache
def _predictor() -> Predictor:
    return Predictor(store="sqlite://", measure="never")


def attempt(label: str, data: bytes, folder: Path) -> str:
    """Predict the file for this machine: no operator of it is in two cells."""
    estimate = _predictor().predict(data, name=label)
    nodes = [node for cell in estimate.cells for node in cell.nodes]
    return "answered" if len(nodes) == len(set(nodes)) else "wrong"


def cut_short(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def flip_bytes(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 3, 30))):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


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


BYTES = (cut_short, flip_bytes, splice)
GRAPH: tuple[Mutation, ...] = (
    drop_node, change_op, change_domain, rewire, drop_input, rename_tensor, change_integers,
    change_input_size, change_weight_size, drop_initializer, change_type, change_opset,
    shuffle_nodes, repeat_node, drop_attributes, no_outputs, symbolic_sizes,
)  # fmt: skip
