"""Spaces of networks: every architecture makes sense, and is the one that its words say."""

import random

import numpy as np
import onnx
import pytest

from experiments import nasbench201
from experiments.block_spaces import NONE, SPACES, BlockSpace
from hybridlat.onnx_io import read_network


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


EVERY = pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)


@EVERY
def test_every_choice_of_every_position_makes_a_network(space: BlockSpace) -> None:
    for turn in range(max(map(len, space.choices))):
        architecture = tuple(turn % len(choices) for choices in space.choices)
        model = space.build(architecture, batch=2)
        onnx.checker.check_model(model)
        network = read_network(model)
        assert [network.types[name].shape for name in network.outputs] == [(2, 1000)]


@EVERY
def test_what_is_drawn_is_the_same_for_a_seed_and_smaller_without_a_block(
    space: BlockSpace,
) -> None:
    drawn = [space.sample(random.Random(seed)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(space.words(drawn[0])) == len(space.positions)
    full = tuple(len(choices) - 1 for choices in space.choices)
    place = next(p for p, choices in enumerate(space.choices) if choices[0] == NONE)
    less = (*full[:place], 0, *full[place + 1 :])
    assert len(space.build(less).graph.node) < len(space.build(full).graph.node)
