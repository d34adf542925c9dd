"""Networks put together from stretches that were seen: cell for cell what the whole gives."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import onnx
import pytest
from hypothesis import given, settings
from onnx import parser

from experiments import nasbench201
from experiments.block_spaces import SPACES, BlockSpace
from hybridlat.engines.onnxruntime import lowering
from hybridlat.engines.onnxruntime.patterns import Pattern
from hybridlat.engines.onnxruntime.quick import QuickLowering
from hybridlat.engines.onnxruntime.rules import draft
from hybridlat.engines.onnxruntime.stretches import StretchRules
from hybridlat.estimate.partition import partition_network
from hybridlat.estimate.stretches import StretchMemory
from hybridlat.estimate.whole_networks import outline
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.signature import sign
from hybridlat.onnx_io import OnnxFile, load, to_onnx
from hybridlat.onnx_io.stretches import chain_of
from tests.strategies import networks

NETS = Path(__file__).resolve().parents[2] / "data" / "nets"
WIDTHS = (3, 8, 12, 16, 18, 20, 32)


def never(network: Network) -> Lowered:
    raise AssertionError(f"the engine is asked for {network.name}")


@dataclass
class Trusting(QuickLowering):
    """Takes every draft for right, and keeps the patterns that it was asked about."""

    asked: set[Pattern] = field(default_factory=set)

    def has_confirmed(self, patterns: frozenset[Pattern]) -> bool:
        self.asked |= patterns
        return True


def trusting(block: int = 16) -> Trusting:
    return Trusting(never, lowering.context_of, "rules", confirmed={("anything",)}, block=block)


def memory(quick: QuickLowering) -> StretchMemory:
    return StretchMemory(StretchRules(quick, lowering.context_for))


def assert_alike(file: OnnxFile, found: StretchMemory, quick: Trusting) -> bool:
    """Whether a file is answered for by stretches; if it is, as the draft of the whole says."""
    quick.asked.clear()
    network = file.network()
    outlines: list[tuple[int, str]] = []

    def needs_whole(weight_bytes: int, outlined: object) -> bool:
        assert callable(outlined)
        outlines.append((weight_bytes, outlined()))
        return len(outlines) % 2 == 0

    partition = found.partition(file, None, {}, needs_whole)
    if partition is None:
        return False
    drawn = draft(network, quick.block, lowering.context_of(network), quick.by)
    assert drawn is not None
    names = file.node_names
    assert partition.constants == file.constant_nodes
    whole = partition_network(network, drawn.lowered, names, whole=False)
    assert partition.to_text() == whole.to_text() and partition.texts == whole.texts
    assert outlines == [(network.weight_bytes, outline(network))]
    # Of a stretch known from another network, those behind the border before it alone are asked.
    assert quick.asked <= drawn.patterns
    return True


@pytest.mark.parametrize("block", [8, 16])
def test_real_networks_are_the_sum_of_their_stretches(block: int) -> None:
    quick = trusting(block)
    found = memory(quick)
    paths = sorted(NETS.glob("*.onnx"))
    answered = [path.stem for path in paths if assert_alike(load(path), found, quick)]
    assert {"resnet18", "mobilenetv2_100", "densenet169", "inception_v4"} <= set(answered)
    assert len(answered) >= 25
    for name in answered[:3]:  # and all of the patterns of a network are asked about at first
        fresh = trusting(block)
        file = load(NETS / f"{name}.onnx")
        assert assert_alike(file, memory(fresh), fresh)
        network = file.network()
        drawn = draft(network, block, lowering.context_of(network), "rules")
        assert drawn is not None and fresh.asked == drawn.patterns


def test_a_search_space_is_made_of_few_stretches() -> None:
    quick = trusting()
    found = memory(quick)
    drawn = [a for a in nasbench201.sample(40, 3) if nasbench201.live_edges(a)]
    assert all(assert_alike(load(nasbench201.build(arch)), found, quick) for arch in drawn)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_block_spaces(space: BlockSpace) -> None:
    rng, quick = random.Random(5), trusting()
    found = memory(quick)
    for _ in range(12):
        assert assert_alike(load(space.build(space.sample(rng))), found, quick)


FOUND_BY = {block: (memory(quick), quick) for block in (8, 16) for quick in [trusting(block)]}


@settings(max_examples=150, deadline=None)
@given(networks(widths=WIDTHS))
def test_any_network_is_the_sum_of_its_stretches(made: Network) -> None:
    for found, quick in FOUND_BY.values():
        assert_alike(load(to_onnx(made, seed=None)), found, quick)


TWINS = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[1, 16, 8, 8] x) => (float[1, 16, 8, 8] y)
<int64[4] sizes = {16, 16, 1, 1}>
{
  w1 = ConstantOfShape(sizes)
  w2 = ConstantOfShape(sizes)
  w3 = ConstantOfShape(sizes)
  w4 = ConstantOfShape(sizes)
  a = Conv(x, w1)
  r1 = Relu(a)
  b = Conv(r1, w2)
  r2 = Relu(a)
  c = Conv(r2, w3)
  r3 = Relu(a)
  s = Add(b, c)
  t = Add(s, r3)
  y = Conv(t, w4)
}
"""


def onnx_text(text: str) -> OnnxFile:
    return load(parser.parse_model(text))


def test_equal_operators_belong_to_the_stretch_of_the_first() -> None:
    file = onnx_text(TWINS)
    chain = chain_of(file, None, {}, frozenset({"Relu", "Add"}))
    assert chain is not None
    assert [stretch.positions for stretch in chain.stretches] == [
        (4, 5, 7, 9),
        (6, 8, 10, 11),
        (12,),
    ]
    assert [stretch.entry for stretch in chain.stretches] == ["x", "r1", "t"]
    assert chain.removed == (0, 1, 2, 3)
    quick = trusting()
    assert assert_alike(file, memory(quick), quick)


def test_a_stretch_is_another_under_another_opset() -> None:
    quick = trusting()
    found = memory(quick)
    newer = onnx_text(TWINS)
    older = onnx_text(TWINS.replace('"" : 17', '"" : 12'))
    assert assert_alike(newer, found, quick) and assert_alike(older, found, quick)


@pytest.mark.parametrize(
    "change",
    [
        ("y = Conv(t, w4)", "y = Conv(t, w4)\n z = Relu(y)"),  # nobody reads z
        ("y = Conv(t, w4)", "y = Conv(t, absent)"),
        ("y = Conv(t, w4)", "u = Shape(t)\n y = Reshape(t, u)"),
        ("(float[1, 16, 8, 8] y)", "(float[1, 16, 8, 8] y, float[1, 16, 8, 8] s)"),
        ("(float[1, 16, 8, 8] x)", "(float[1, 16, 8, 8] x, float[1, 16, 8, 8] x2)"),
    ],
    ids=["dead end", "unknown tensor", "computes with sizes", "two outputs", "two inputs"],
)
def test_what_is_no_chain_is_left_to_the_careful_way(change: tuple[str, str]) -> None:
    model = parser.parse_model(TWINS.replace(*change))
    assert chain_of(load(model), None, {}, frozenset()) is None


def test_weights_that_no_machine_holds_are_left_to_the_careful_way() -> None:
    huge = TWINS.replace("{16, 16, 1, 1}", "{16, 16, 100000, 100000}")
    assert chain_of(load(parser.parse_model(huge)), None, {}, frozenset()) is None


def test_it_says_nothing_that_the_engine_has_not_confirmed() -> None:
    quick = QuickLowering(never, lowering.context_of, "rules", check_every=3)
    found, file = memory(quick), onnx_text(TWINS)
    assert found.partition(file, None, {}, lambda *_: False) is None
    network = file.network()
    drawn = draft(network, quick.block, lowering.context_of(network), "rules")
    assert drawn is not None
    left_out, *others = drawn.patterns
    quick.confirmed = set(others)
    assert found.partition(file, None, {}, lambda *_: False) is None
    quick.confirmed.add(left_out)
    for _ in range(2):
        assert found.partition(file, None, {}, lambda *_: False) is not None
    assert quick.tally.foretold == 2
    assert found.partition(file, None, {}, lambda *_: False) is None  # time to ask again
    quick.generation += 1
    quick.confirmed.discard(left_out)
    assert found.partition(file, None, {}, lambda *_: False) is None


def test_a_network_that_may_be_on_record_is_signed() -> None:
    quick = trusting()
    file = onnx_text(TWINS)
    partition = memory(quick).partition(file, None, {}, lambda *_: True)
    assert partition is not None and partition.whole == sign(file.network()).hash


def test_heavy_weights_are_not_written_out_to_find_the_operators() -> None:
    model = parser.parse_model(TWINS)
    light = load(model)
    huge = onnx.TensorProto(name="unused", data_type=1, dims=(1000, 1000))
    model.graph.initializer.append(huge)
    assert [n.op for n in load(model).nodes] == [n.op for n in light.nodes]
