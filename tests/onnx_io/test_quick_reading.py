"""Networks read operator by operator are those that the careful way reads."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from hypothesis import given

from experiments import nasbench201
from experiments.block_spaces import SPACES
from hybridlat.graph.network import Network
from hybridlat.onnx_io import OnnxFile, load, to_onnx
from hybridlat.onnx_io.quick import quick_network
from hybridlat.onnx_io.read import to_network
from tests.strategies import networks

NETS = Path(__file__).resolve().parents[2] / "data" / "nets"
ARCH = "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|avg_pool_3x3~0|nor_conv_1x1~1|skip_connect~2|"


def quickly(file: OnnxFile, batch: int | None = None) -> Network | None:
    return quick_network(file.parsed, file.name, batch, {})


def carefully(file: OnnxFile, batch: int | None = None) -> Network:
    return to_network(file.parsed, file.name, batch, {})


def alike(one: Network, other: Network) -> bool:
    """Whether two networks are the same, down to the order in which they list things."""
    return one == other and all(
        list(a) == list(b) for a, b in ((one.types, other.types), (one.constants, other.constants))
    )


def test_networks_of_search_spaces_are_read_this_way() -> None:
    rng = random.Random(2)
    models = [space.build(space.sample(rng)) for space in SPACES.values()]
    for model in (*models, nasbench201.build(ARCH, cells_per_stage=1)):
        for batch in (None, 4):
            file = load(model)
            quick = quickly(file, batch)
            assert quick is not None
            assert alike(quick, carefully(file, batch))


def test_what_is_read_this_way_is_what_the_careful_way_reads() -> None:
    read = 0
    for path in sorted(NETS.glob("*.onnx")):
        file = load(path)
        quick = quickly(file)
        if quick is not None:
            read += 1
            assert alike(quick, carefully(file)), path.name
    assert read >= 20


@given(networks())
def test_any_network_comes_back(network: Network) -> None:
    file = load(to_onnx(network, seed=None))
    quick = quickly(file)
    assert quick is not None and alike(quick, carefully(file))


def test_constants_that_are_passed_on_are_read_this_way() -> None:
    """PyTorch's older exporter writes a weight that two modules share once, behind Identity."""
    model = nasbench201.build(ARCH, cells_per_stage=1)
    convs = [node for node in model.graph.node if node.op_type == "Conv"]
    shared = "shared"
    for conv in convs[:2]:
        conv.input[2], bias = shared, conv.input[2]
    model.graph.node.insert(0, onnx.helper.make_node("Identity", ["b"], [shared]))
    made = [node for node in model.graph.node if bias in node.output]
    model.graph.node.insert(0, onnx.helper.make_node("Identity", [bias], ["b"]))
    for node in made:
        copy = onnx.NodeProto.FromString(node.SerializeToString())
        model.graph.node.remove(node)
        model.graph.node.insert(0, copy)
    file = load(model)
    quick = quickly(file)
    assert quick is not None and alike(quick, carefully(file))
    assert len(quick.folded) > 2 and not any(node.op == "Identity" for node in quick.nodes)


def _backwards(model: onnx.ModelProto) -> None:
    nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(reversed(nodes))


def _repeated(model: onnx.ModelProto) -> None:
    model.graph.node[-1].output[0] = model.graph.node[-2].output[0]


def _ragged(model: onnx.ModelProto) -> None:
    add = next(node for node in model.graph.node if node.op_type == "Conv")
    add.attribute[3].ints[:] = [0, 0, 3, 3]


def _of_sizes(model: onnx.ModelProto) -> None:
    shape = onnx.helper.make_node("Shape", [model.graph.input[0].name], ["sizes"])
    model.graph.node.insert(0, shape)


def _mistyped(model: onnx.ModelProto) -> None:
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64


def _of_weights(model: onnx.ModelProto) -> None:
    weight = onnx.TensorProto(name="w", dims=[544], data_type=onnx.TensorProto.FLOAT)
    model.graph.initializer.append(weight)
    made = next(node for node in model.graph.node if node.op_type == "ConstantOfShape")
    made.input[0] = "w"


@pytest.mark.parametrize(
    "spoil", [_backwards, _repeated, _ragged, _of_sizes, _mistyped, _of_weights]
)
def test_an_odd_file_is_left_to_the_careful_way(spoil: Callable[[onnx.ModelProto], None]) -> None:
    model = nasbench201.build(ARCH, cells_per_stage=1)
    spoil(model)
    assert quickly(load(model)) is None
