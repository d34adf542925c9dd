"""Spaces of blocks: every architecture is a network that makes sense."""

import random

import onnx
import pytest

from experiments.block_spaces import NONE, SPACES, BlockSpace
from hybridlat.onnx_io import read_network

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
def test_what_is_drawn_is_in_the_space_and_the_same_for_the_same_seed(space: BlockSpace) -> None:
    drawn = [space.sample(random.Random(seed)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(space.words(drawn[0])) == len(space.positions)


@EVERY
def test_a_block_left_out_makes_a_smaller_network(space: BlockSpace) -> None:
    full = tuple(len(choices) - 1 for choices in space.choices)
    place = next(p for p, choices in enumerate(space.choices) if choices[0] == NONE)
    less = (*full[:place], 0, *full[place + 1 :])
    assert len(space.build(less).graph.node) < len(space.build(full).graph.node)
