"""The NAS-Bench-201 generator: every string, and networks that an engine accepts and runs."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from experiments import nasbench201

NOTHING = nasbench201.arch_from_index(0)


def uniform(operator: str) -> str:
    """The architecture with one operator on all edges."""
    return f"|{operator}~0|+|{operator}~0|{operator}~1|+|{operator}~0|{operator}~1|{operator}~2|"


def test_every_index_and_string_round_trips() -> None:
    archs = list(nasbench201.all_archs())
    assert len(set(archs)) == len(archs) == nasbench201.ARCHITECTURES == 15_625
    assert [nasbench201.index_from_arch(arch) for arch in archs] == list(range(15_625))


def test_live_edges_are_those_on_a_path_found_by_search() -> None:
    """Compare with an exhaustive walk over all paths, on every architecture."""

    def walk(node: int, path: tuple[int, ...], present: set[int], live: set[int]) -> None:
        if node == 3:
            live.update(path)
        for number, (source, target) in enumerate(nasbench201.EDGES):
            if source == node and number in present:
                walk(target, (*path, number), present, live)

    disconnected = 0
    for arch in nasbench201.all_archs():
        operators = nasbench201.parse(arch)
        live: set[int] = set()
        walk(0, (), {n for n, operator in enumerate(operators) if operator != "none"}, live)
        expected = [(*nasbench201.EDGES[n], operators[n]) for n in sorted(live)]
        assert nasbench201.live_edges(arch) == expected
        disconnected += not expected
    assert disconnected == 341


@pytest.mark.parametrize(
    ("operator", "published"), [("nor_conv_3x3", 1_531_546), ("avg_pool_3x3", 73_306)]
)
def test_parameters_are_those_of_the_published_table(operator: str, published: int) -> None:
    """The table counts scale and shift of a BN: a bias stands for both where one is folded."""
    model = nasbench201.build(uniform(operator))
    shapes = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    parameters = 0
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape" and ".running_" not in node.output[0]:
            name, size = node.output[0], int(np.prod(shapes[node.input[0]]))
            parameters += size * (2 if name.endswith(".bias") and "tail" not in name else 1)
    assert parameters == published
