"""The NAS-Bench-201 generator: every string, and networks that an engine accepts and runs."""

import numpy as np
import onnx
import pytest

from experiments import nasbench201


def uniform(operator: str) -> str:
    """The architecture with one operator on all edges."""
    return f"|{operator}~0|+|{operator}~0|{operator}~1|+|{operator}~0|{operator}~1|{operator}~2|"


def test_every_index_and_string_round_trips() -> None:
    archs = list(nasbench201.all_archs())
    assert len(set(archs)) == len(archs) == nasbench201.ARCHITECTURES == 15_625
    assert [nasbench201.index_from_arch(arch) for arch in archs] == list(range(15_625))
    # Networks without a path from input to output compute a constant.
    assert sum(not nasbench201.live_edges(arch) for arch in archs) == 341


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
