"""Cells partition a network, and their borders are where a single tensor is live."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hybridlat.graph.cells import Cell, cut, cut_positions, kernels
from hybridlat.graph.network import Lowered, Network
from tests.fakes.fake_backend import FakeBackend
from tests.networks import branches, classifier, conv_relu, in_order, residual_block
from tests.strategies import networks, orders


def identity(network: Network) -> Lowered:
    return Lowered(network, tuple((i,) for i in range(len(network.nodes))), (), "test")


def ops(cells: tuple[Cell, ...]) -> list[tuple[str, ...]]:
    return [cell.ops for cell in cells]


@given(networks())
def test_cells_partition_the_network(network: Network) -> None:
    for parts in (cut(identity(network)), kernels(identity(network))):
        assert sorted(p for cell in parts for p in cell.positions) == list(
            range(len(network.nodes))
        )
        assert sorted(o for cell in parts for o in cell.origins) == list(range(len(network.nodes)))


@given(networks())
def test_a_cell_is_a_network_that_computes_what_the_others_read(network: Network) -> None:
    for cell in cut(identity(network)):
        sub = cell.network
        made = {o for node in sub.nodes for o in node.outputs}
        for node in sub.nodes:
            assert all(n in made or n in sub.inputs or n in sub.constants for n in node.inputs)
        outside = {
            name
            for i, node in enumerate(network.nodes)
            if i not in cell.positions
            for name in node.inputs
        } | set(network.outputs)
        assert made & outside <= set(sub.outputs) <= made


@given(networks(ends=1))
def test_a_border_has_one_live_tensor(network: Network) -> None:
    cells = cut_positions(network)
    for before, after in itertools.pairwise(cells):
        assert before[-1] + 1 == after[0]
        border = after[0]
        made = {o for node in network.nodes[:border] for o in node.outputs} | set(network.inputs)
        read_later = {i for node in network.nodes[border:] for i in node.inputs}
        assert len(made & read_later) <= 1


@given(st.data())
def test_cells_do_not_depend_on_the_order_of_nodes(data: st.DataObject) -> None:
    network = data.draw(networks(ends=1))
    order = data.draw(orders(network))
    moved = replace(network, nodes=tuple(network.nodes[i] for i in order))
    groups = {frozenset(c) for c in cut_positions(network)}
    assert {frozenset(order[p] for p in c) for c in cut_positions(moved)} == groups


def test_chains_are_cut_everywhere_and_blocks_are_kept_whole() -> None:
    assert ops(cut(identity(conv_relu()))) == [("Conv",), ("Relu",)]
    block = ("Conv", "Relu", "Conv", "Add")
    assert ops(cut(identity(residual_block(blocks=2)))) == [block, ("Relu",)] * 2
    assert ops(cut(identity(branches())))[:2] == [("Conv",), ("Relu",)]
    assert len(cut(identity(branches()))) == 4
    assert [c.ops[0] for c in cut(identity(classifier()))] == [
        "Conv", "Relu", "MaxPool", "Conv", "Relu", "GlobalAveragePool", "Flatten", "Gemm",
    ]  # fmt: skip


def test_labels_name_the_operators_of_the_file() -> None:
    network = residual_block()
    lowered = FakeBackend(fuses=True).lower(network)
    assert ops(cut(lowered, network)) == [("Conv+Relu", "Conv+Add+Relu")]


def test_kernels_are_told_in_the_order_of_the_file() -> None:
    """However the engine lists the branches of a cell."""
    network = branches()
    other = network.order_by(lambda position: -position)
    assert other != list(range(len(network.nodes)))
    shuffled = Lowered(in_order(network, other), tuple((i,) for i in other), (), "test")
    plain = cut(identity(network), network)
    assert [cell.ops for cell in cut(shuffled, network)] == [cell.ops for cell in plain]
