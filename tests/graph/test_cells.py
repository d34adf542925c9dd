"""Cells partition a network: where a single tensor is live, and between blocks in between."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridlat.engines.tensorrt.lowering import lower
from hybridlat.graph.cells import MOST_KERNELS, cut, cut_positions, kernels, run_positions
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.signature import hash_of, sign
from hybridlat.onnx_io import load
from hybridlat.schema.target import Target
from tests.engines.test_backends import assert_whole
from tests.fakes.fake_backend import FakeBackend
from tests.networks import (
    NETS,
    Builder,
    branches,
    classifier,
    conv_relu,
    encoder_decoder,
    in_order,
    residual_block,
)
from tests.strategies import networks, orders

identity = FakeBackend().lower


def ops(network: Network) -> list[tuple[str, ...]]:
    """The labels of each cell where every operator is a kernel."""
    return [cell.ops for cell in cut(identity(network))]


@given(networks())
def test_cells_partition_the_network(network: Network) -> None:
    every = list(range(len(network.nodes)))
    for parts in (cut(identity(network)), kernels(identity(network))):
        assert sorted(p for cell in parts for p in cell.positions) == every
        assert sorted(o for cell in parts for o in cell.origins) == every


@given(networks())
def test_a_cell_is_a_network_that_computes_what_the_others_read(network: Network) -> None:
    for cell in cut(identity(network)):
        assert_whole(cell.network)
        others = [node for i, node in enumerate(network.nodes) if i not in cell.positions]
        outside = {*network.outputs, *(name for node in others for name in node.inputs)}
        made = cell.network.producers.keys()
        assert made & outside <= set(cell.network.outputs) <= made


@given(networks(ends=1))
def test_a_border_of_a_run_has_one_live_tensor(network: Network) -> None:
    runs = run_positions(network)
    for before, after in itertools.pairwise(runs):
        assert before[-1] + 1 == after[0]
        border = after[0]
        made = {o for node in network.nodes[:border] for o in node.outputs} | set(network.inputs)
        read_later = {i for node in network.nodes[border:] for i in node.inputs}
        assert len(made & read_later) <= 1


@given(networks(max_nodes=40))
def test_a_run_of_many_kernels_is_cut_on_and_no_other(network: Network) -> None:
    runs, cells = run_positions(network), cut_positions(network)
    assert all(len(cell) <= MOST_KERNELS for cell in cells)
    assert {run for run in runs if len(run) <= MOST_KERNELS} <= set(cells)
    made = {*network.inputs}
    for cell in cells:  # each can run when those before it have
        part = network.subnetwork(cell)
        assert made.issuperset(part.inputs)
        made.update(part.outputs)


@given(st.data())
def test_cells_do_not_depend_on_the_order_of_nodes(data: st.DataObject) -> None:
    network = data.draw(networks(max_nodes=40, ends=data.draw(st.integers(1, 3))))
    order = data.draw(orders(network))
    moved = replace(network, nodes=tuple(network.nodes[i] for i in order))
    assert _hashes(moved) == _hashes(network)


def _hashes(network: Network) -> list[str]:
    return sorted(sign(network.subnetwork(cell)).hash for cell in cut_positions(network))


def branched(heads: int, blocks: int) -> Network:
    b = Builder("branched")
    x = b.conv(b.input((1, 3, 16, 16)), 4)
    for _ in range(blocks):
        x = b.add(b.conv(b.relu(b.conv(x, 4)), 4), x)
    ends = []
    for head in range(heads):
        y = x
        for _ in range(3):
            y = b.relu(b.conv(y, 4))
        ends.append(b.conv(y, 1 + head))
    return b.network(b.concat(ends))


CHAIN = "Conv Relu MaxPool Conv Relu GlobalAveragePool Flatten Gemm"
BLOCK = ("Conv", "Relu", "Conv", "Add")
HEADS = [*[("Conv",), ("Relu",)] * 3, ("Conv",)] * 3


def test_chains_are_cut_everywhere_and_blocks_are_kept_whole() -> None:
    """Branches that end side by side are cells of their own."""
    assert ops(conv_relu()) == [("Conv",), ("Relu",)]
    assert ops(residual_block(blocks=2)) == [BLOCK, ("Relu",)] * 2
    assert ops(branches())[:2] == [("Conv",), ("Relu",)]
    assert len(ops(branches())) == 4
    assert [labels[0] for labels in ops(classifier())] == CHAIN.split()
    assert ops(branched(heads=3, blocks=2)) == [("Conv",), BLOCK, BLOCK, *HEADS, ("Concat",)]


def test_labels_name_the_operators_of_the_file() -> None:
    network = residual_block()
    lowered = FakeBackend(fuses=True).lower(network)
    assert [cell.ops for cell in cut(lowered, network)] == [("Conv+Relu", "Conv+Add+Relu")]


def test_labels_stand_in_the_order_of_the_file() -> None:
    """However the engine lists the branches of a cell."""
    network = branches()
    other = network.order_by(lambda position: -position)
    assert other != list(range(len(network.nodes)))
    shuffled = Lowered(in_order(network, other), tuple((i,) for i in other), (), "test")
    plain = cut(identity(network), network)
    assert [cell.ops for cell in cut(shuffled, network)] == [cell.ops for cell in plain]


def test_an_encoder_decoder_falls_into_its_layers() -> None:
    """What is parked holds nothing together; what reads it has two inputs."""
    network = encoder_decoder(stages=3)
    cells = cut(identity(network))
    assert len(run_positions(network)) < len(cells) / 2
    wide = [cell for cell in cells if len(cell.network.inputs) > 1]
    assert [cell.ops for cell in wide] == [("Concat",)] * 2
    assert all(len(cell.network.outputs) == 1 for cell in cells)
    assert max(len(cell.ops) for cell in cells) == 5  # of the innermost stage


def test_a_concatenation_that_is_written_in_place_is_one_tensor() -> None:
    """Blocks of branches are cells of one input and one output, as in the file."""
    b = Builder("inception")
    x = b.relu(b.conv(b.input((1, 3, 16, 16)), 8))
    for _ in range(4):
        left = [b.relu(b.conv(x, 4, 1)), b.relu(b.conv(b.relu(b.conv(x, 4, 5)), 4))]
        x = b.concat([*left, b.relu(b.conv(b.relu(b.conv(x, 4)), 4, 1))])
    network = b.network(b.relu(b.conv(x, 8)))
    lowered = lower(network, Target.parse("t4/tensorrt/fp16"))
    assert not any(node.op == "Concat" for node in lowered.network.nodes)
    assert len(run_positions(lowered.network)) < 4
    cells = [set(cell.origins) for cell in cut(lowered, network)]
    fused = [i for i, node in enumerate(network.nodes) if node.op == "Concat"]
    for before, after in itertools.pairwise(fused):
        assert set(range(before + 1, after)) in cells


GOLDEN = Path(__file__).parents[1] / "golden" / "single_tensor_cells.json"


@pytest.mark.parametrize(("name", "hashes"), json.loads(GOLDEN.read_text()).items())
def test_cells_between_single_tensors_keep_their_signatures(name: str, hashes: str) -> None:
    network = load(NETS / f"{name}.onnx").network(None, None)
    lowered = lower(network, Target.parse("t4/tensorrt-8.6/fp16")).network
    runs = set(run_positions(lowered)).intersection(cut_positions(lowered))
    assert hash_of(" ".join(sorted(sign(lowered.subnetwork(r)).hash for r in runs))) == hashes
