"""The backend that needs no engine, and how backends are found."""

from __future__ import annotations

import statistics
from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest
from hypothesis import given

from hybridlat.engines import registry
from hybridlat.errors import BackendUnavailable, MeasurementError, TargetError
from hybridlat.graph.network import Network
from hybridlat.graph.signature import sign
from hybridlat.schema.target import Target
from tests.fakes.fake_backend import FakeBackend, Machine, flop
from tests.networks import Builder, classifier, conv_relu, residual_block
from tests.strategies import networks

MINE = registry.EngineEntry(backend="tests.fakes.fake_backend:FakeBackend")
QUIET = Machine(noise_share=0.0)


def test_backends_are_found_by_name() -> None:
    assert {"fake", "onnxruntime", "openvino", "tensorrt"} == set(registry.backends())
    with pytest.raises(BackendUnavailable, match=r"'no': choose one of .*onnxruntime"):
        registry.load_backend("no")


def test_another_package_offers_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "importlib.metadata.entry_points",
        lambda group: [EntryPoint("mine", f"{__name__}:MINE", group)],
    )
    offered = replace(registry.ENGINES)  # a registry that has not looked yet
    monkeypatch.setattr(registry, "ENGINES", offered)
    assert "mine" in registry.backends() and "mine" not in registry.lowerings()
    assert isinstance(registry.open_backend("mine"), FakeBackend)
    with pytest.raises(TargetError, match="unknown engine 'mine'"):
        registry.lower(conv_relu(), Target.parse("here/mine/fp32"))


def test_flop_of_known_operators() -> None:
    b = Builder()
    x = b.input((2, 4, 8, 8))
    b.conv(x, 6)
    b.conv(x, 4, group=4)
    b.gemm(b.flatten(x), 10)
    b.relu(x)
    network = b.network()
    result = [flop(network, n) for n in network.nodes if n.op != "Flatten"]
    assert result == [
        2 * (2 * 6 * 8 * 8) * 4 * 9, 2 * (2 * 4 * 8 * 8) * 9, 2 * (2 * 10) * 256, 2 * 512,
    ]  # fmt: skip


def test_a_kernel_takes_launch_and_roofline() -> None:
    network = conv_relu()
    slow_memory = FakeBackend(Machine(flop_per_us=1e30, bytes_per_us=1.0, launch_us=5.0))
    relu = network.nodes[1]
    moved = network.types[relu.inputs[0]].bytes + network.types[relu.outputs[0]].bytes
    assert slow_memory.kernel_us(network, relu) == 5.0 + moved


def test_samples_scatter_above_the_ideal_and_repeat() -> None:
    backend = FakeBackend(Machine(noise_share=0.1, session_us=3.0))
    network = classifier()
    ideal = backend.ideal_us(network) + 3.0
    first = backend.build(network, seed=1, lowered=True).run_us(200)
    assert min(first) >= ideal
    assert statistics.median(first) == pytest.approx(ideal * 1.067, rel=0.03)
    assert backend.build(network, seed=1, lowered=True).run_us(200) == first
    assert backend.build(network, seed=2, lowered=True).run_us(200) != first


def test_drift_slows_all_sessions_down() -> None:
    backend = FakeBackend(QUIET, drift=lambda run: 1.0 if run < 3 else 2.0)
    session = backend.build(conv_relu(), seed=1, lowered=False)
    times = session.run_us(3) + backend.build(conv_relu(), seed=1, lowered=False).run_us(1)
    assert [t / times[0] for t in times] == pytest.approx([1, 1, 1, 2])


def test_configured_failures() -> None:
    backend = FakeBackend(refused_ops=["Gemm"], crashing=[sign(conv_relu()).hash])
    with pytest.raises(MeasurementError, match="no kernel for Gemm"):
        backend.lower(classifier())
    session = backend.build(conv_relu(), seed=1, lowered=True)
    with pytest.raises(MeasurementError, match="crashed"):
        session.run_us(1)
    assert backend.build(residual_block(), seed=1, lowered=True).run_us(1)


@given(networks())
def test_fusing_accounts_for_every_node(network: Network) -> None:
    lowered = FakeBackend(fuses=True).lower(network)
    assert sorted(i for o in lowered.origins for i in o) == list(range(len(network.nodes)))
    ready = {*network.inputs, *network.constants}
    for node in lowered.network.nodes:
        assert set(node.inputs) <= ready
        ready.update(node.outputs)
    assert set(network.outputs) <= ready
    assert FakeBackend(QUIET).ideal_us(lowered.network) <= FakeBackend(QUIET).ideal_us(network)


def test_fusing_stops_at_tensors_that_others_read() -> None:
    b = Builder()
    x = b.conv(b.input((1, 4, 8, 8)), 4)
    network = b.network(b.relu(x), x)
    assert len(FakeBackend(fuses=True).lower(network).network.nodes) == 2
