"""Networks lowered by rules: as the engine lowers them, or the engine is asked."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from experiments import nasbench201
from experiments.block_spaces import NONE, SPACES, Architecture, BlockSpace
from hybridlat.engines.onnxruntime import lowering, quick
from hybridlat.engines.onnxruntime.quick import QuickLowering, agree
from hybridlat.engines.onnxruntime.rules import draft
from hybridlat.estimate.partition.partition import partition_network
from hybridlat.graph.network import Lowered, Network
from hybridlat.onnx_io import OnnxFile, load, to_onnx
from hybridlat.schema.target import Target
from tests.networks import Builder
from tests.strategies import networks

NETS = Path(__file__).resolve().parents[2] / "data" / "nets"
HERE = Target("here", "onnxruntime", "fp32", 1)
WIDTHS = (3, 8, 12, 16, 18, 20, 32)


def ask(network: Network) -> Lowered:
    return lowering.lower(network, HERE)


def new(check_every: int = 1000) -> QuickLowering:
    return QuickLowering(ask, lowering.context_of, lowering.identity(HERE), check_every)


def cells(file: OnnxFile, network: Network, lowered: Lowered) -> object:
    found = partition_network(network, lowered, file.node_names)
    return found.uses, found.removed, found.texts


def nas(count: int) -> list[OnnxFile]:
    drawn = [a for a in nasbench201.sample(2 * count, 3) if nasbench201.live_edges(a)]
    return [load(nasbench201.build(arch, cells_per_stage=1)) for arch in drawn[:count]]


def test_the_answers_are_the_engines_and_most_are_given_without_it() -> None:
    lowered = new()
    for file in nas(24):
        network = file.network()
        assert cells(file, network, lowered.lower(network)) == cells(file, network, ask(network))
    assert lowered.tally.foretold >= 6
    assert not lowered.tally.disagreed and not lowered.tally.uncovered


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_networks_of_block_spaces_are_lowered_as_the_engine_does(space: BlockSpace) -> None:
    rng, lowered = random.Random(5), new()
    for _ in range(3):
        file = load(space.build(smallest(space, space.sample(rng))))
        network = file.network()
        assert cells(file, network, lowered.lower(network)) == cells(file, network, ask(network))
    assert lowered.confirmed and not lowered.tally.disagreed


SUM = "|skip_connect~0|skip_connect~1|"
TWICE = f"|nor_conv_1x1~0|+{SUM}+{SUM}avg_pool_3x3~2|"


def test_a_sum_that_a_file_writes_twice_belongs_to_the_kernel_that_makes_it() -> None:
    """The engine takes it into the convolution; both of the file's additions are that one's."""
    network = load(nasbench201.build(TWICE, cells_per_stage=1)).network()
    told = ask(network)
    made = [tuple(network.nodes[i].op for i in origin) for origin in told.origins]
    assert ("Conv", "Add", "Add") in made
    found = draft(network, lowering.usual_block(), lowering.context_of(network), "")
    assert found is not None and agree(found.lowered, told)


def smallest(space: BlockSpace, architecture: Architecture) -> Architecture:
    """The same blocks on the smallest image, as few and as narrow as there are: the engine reads
    weights."""
    return tuple(
        0 if choices[0] == NONE or "width" in place or place == "image" else number
        for number, choices, place in zip(architecture, space.choices, space.positions, strict=True)
    )


@pytest.mark.parametrize("name", ["resnet18", "mobilenetv2_100"])
def test_drafts_of_real_networks_are_the_engines_answer(name: str) -> None:
    network = load(NETS / f"{name}.onnx").network()
    told = ask(network)
    drafts = [draft(network, b, lowering.context_of(network), "") for b in quick.BLOCKS]
    assert any(made is not None and agree(made.lowered, told) for made in drafts)


LEARNING = new()  # what it learns stays from draw to draw


@settings(max_examples=60, deadline=None)
@given(networks(widths=WIDTHS))
def test_any_network_is_lowered_as_the_engine_does(made: Network) -> None:
    network = load(to_onnx(made, seed=None)).network()
    assert agree(LEARNING.lower(network), ask(network))
    assert not LEARNING.tally.disagreed  # no draft was wrong, used or not


def test_what_the_engine_contradicts_is_never_confirmed() -> None:
    lowered = new()
    lowered.ask = _otherwise
    for file in nas(4) * 2:
        network = file.network()
        assert lowered.lower(network) == _otherwise(network)
    assert lowered.tally.disagreed == 8 and not lowered.confirmed


def test_a_sample_that_disagrees_bans_what_was_relied_on(caplog: pytest.LogCaptureFixture) -> None:
    file = nas(1)[0]
    network = file.network()
    lowered = new(check_every=2)
    while not lowered.tally.foretold:
        lowered.lower(network)
    lowered.ask = _otherwise
    assert lowered.lower(network) == _otherwise(network)
    assert "otherwise" in caplog.text
    assert lowered.banned and not lowered.confirmed
    lowered.ask = ask
    for _ in range(3):
        assert lowered.lower(network) == ask(network)
    assert lowered.tally.foretold == 1 and not lowered.confirmed & lowered.banned


def test_a_sample_that_agrees_is_not_kept_and_the_next_comes_later() -> None:
    network = nas(1)[0].network()
    lowered = new(check_every=2)
    told = [lowered.lower(network) for _ in range(8)]
    assert lowered.tally.sampled == 2 and not lowered.tally.disagreed
    assert lowered.check_every == 8
    assert [one.is_quick for one in told] == [False] + 7 * [True]
    assert all(agree(one, told[0]) for one in told)


def _otherwise(network: Network) -> Lowered:
    """An engine of another version: it gives its first kernel another attribute."""
    told = ask(network)
    first, *others = told.network.nodes
    changed = replace(first, attributes=(*first.attributes, ("turned", 1)))
    return replace(told, network=replace(told.network, nodes=(changed, *others)))


def test_what_no_rule_covers_is_asked_for_and_counted() -> None:
    b = Builder("strange")
    made = b.op("Erf", [b.conv(b.input((1, 16, 8, 8)), 16)], (1, 16, 8, 8), 13)
    network = b.network(made)
    lowered = new()
    assert lowered.lower(network) == ask(network)
    assert lowered.tally.uncovered == 1
