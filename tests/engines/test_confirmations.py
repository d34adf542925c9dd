"""What one process learned of ONNX Runtime's lowering, the next need not ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from hybridlat.engines.onnxruntime import lowering
from hybridlat.engines.onnxruntime.confirmations import Confirmations
from hybridlat.engines.onnxruntime.quick import QuickLowering
from hybridlat.estimate.partition.partitioner import Partitioner
from hybridlat.graph.network import Lowered, Network
from hybridlat.onnx_io import load, read_network
from hybridlat.schema.target import Target
from hybridlat.store import Store

NETS = Path(__file__).resolve().parents[2] / "data" / "nets"
HERE = Target("here", "onnxruntime", "fp32", 1)
NAMES = ("resnet18", "mobilenetv2_100", "mobilenetv3_small_100")


def never(network: Network) -> Lowered:
    pytest.fail(f"the engine was asked for {network.name}")


def learner(ask: object = None) -> QuickLowering:
    asked = ask or (lambda network: lowering.lower(network, HERE))
    return QuickLowering(
        asked,  # type: ignore[arg-type]
        lowering.context_of,
        "onnxruntime",
        block=lowering.usual_block(),
    )


def test_what_was_confirmed_holds_in_the_next_process() -> None:
    first, next_ = learner(), learner(never)
    passed_on, taken_over = Confirmations(first, "v", "m"), Confirmations(next_, "v", "m")
    networks = [read_network(NETS / f"{name}.onnx") for name in NAMES]
    for network in networks:
        first.lower(network)
        text = passed_on.news()
        assert text
        taken_over.learn(text)
    assert passed_on.news() == taken_over.news() == ""
    assert next_.confirmed == first.confirmed and next_.block == first.block
    for network in networks:
        assert next_.lower(network).network == first.lower(network).network


def test_what_was_taken_back_is_taken_back_everywhere() -> None:
    first, other = learner(), learner()
    one, two = Confirmations(first, "v", "m"), Confirmations(other, "v", "m")
    first.lower(read_network(NETS / "resnet18.onnx"))
    two.learn(one.news())
    gone = set(sorted(first.confirmed, key=repr)[:2])
    first.confirmed -= gone
    first.banned |= gone
    before = other.generation
    two.learn(one.news())
    assert other.banned == gone and not other.confirmed & gone and other.generation > before
    two.learn(Confirmations(first, "v", "m").news())
    assert not other.confirmed & gone


def test_what_speaks_of_other_blocks_teaches_only_those_that_know_nothing() -> None:
    first, other = learner(), learner()
    first.lower(read_network(NETS / "resnet18.onnx"))
    text = Confirmations(first, "v", "m").news()
    other.block, other.confirmed = 4, {("something",)}
    Confirmations(other, "v", "m").learn(text)
    assert other.confirmed == {("something",)} and other.block == 4
    other.confirmed = set()
    Confirmations(other, "v", "m").learn(text)
    assert other.confirmed == first.confirmed and other.block == first.block


def test_processes_share_what_they_learned_through_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    quick = [learner(), learner(), learner(never)]
    partitioners = []
    for one in quick:
        monkeypatch.setattr(lowering, "quick_lowering", lambda _, one=one: one)
        partitioners.append(Partitioner(HERE, store))
        assert partitioners[-1]._learning is not None

    def take_turns(index: int, name: str) -> str:
        monkeypatch.setattr(lowering, "quick_lowering", lambda _: quick[index])
        model = load(NETS / f"{name}.onnx").model
        model.graph.name = f"{name} by {index}"
        model.opset_import.add(domain=f"made.for.{index}", version=1)  # another key in the cache
        return partitioners[index].partition(load(model)).by

    take_turns(0, NAMES[0])
    take_turns(1, NAMES[1])  # asked, behind what the first has learned
    assert quick[1].confirmed > quick[0].confirmed
    take_turns(0, NAMES[2])
    assert quick[0].confirmed > quick[1].confirmed
    for name in NAMES:  # knows all that the two have learned, and asks for nothing
        assert take_turns(2, name)
    assert quick[2].confirmed == quick[0].confirmed


def test_two_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    from hybridlat.estimate.partition.shared_learning import SharedLearning

    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    ones = [learner(), learner()]
    shared = [SharedLearning(Confirmations(one, "v", "m"), store) for one in ones]
    for one, name, learning in zip(ones, NAMES, shared, strict=False):
        one.lower(read_network(NETS / f"{name}.onnx"))
        learning.pass_on()  # the second has not looked, and finds its place taken
    shared[0].take_over()
    assert ones[0].confirmed == ones[1].confirmed
