"""Every backend that can be had here, held to the contract; and how backends are found."""

import importlib.util
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest

from hybridlat.engines import registry
from hybridlat.engines.base import Backend, Method, Session, build_all
from hybridlat.errors import BackendUnavailable, MeasurementError, MissingExtra, TargetError
from hybridlat.graph.cells import cut, kernels
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.signature import sign
from hybridlat.schema.target import Target
from tests.cli.shell import call
from tests.fakes.fake_backend import FakeBackend, FakeDifferentialBackend
from tests.networks import SMALL, Builder, conv_relu, residual_block

THEIRS = registry.EngineEntry(backend="tests.fakes.fake_backend:FakeBackend")


def onnxruntime() -> Backend:
    if importlib.util.find_spec("onnxruntime") is None:
        pytest.skip("ONNX Runtime is not installed")
    from hybridlat.engines.ort.session import OnnxRuntimeBackend

    return OnnxRuntimeBackend(threads=1)


def openvino() -> Backend:
    if "openvino" not in registry.backends() or importlib.util.find_spec("openvino") is None:
        pytest.skip("the OpenVINO backend or its engine is not here")
    try:
        return registry.open_backend("openvino")
    except BackendUnavailable as error:
        pytest.skip(str(error))


def nonsense() -> dict[str, Network]:
    """Networks that no engine can build."""
    b = Builder("channels")
    wrong = b.op("Conv", [b.input((1, 3, 8, 8)), b.weight((4, 5, 1, 1))], (1, 4, 8, 8), 11)
    dangling = conv_relu()
    first = dangling.nodes[0]
    nodes = (replace(first, inputs=("nothing", first.inputs[1])), *dangling.nodes[1:])
    return {
        "channel mismatch": b.network(wrong),
        "reads a tensor that nothing makes": replace(dangling, nodes=nodes),
        "gives out a tensor that nothing makes": replace(dangling, outputs=("nothing",)),
    }


CASES: dict[str, Callable[[], Backend]] = {
    "fake": FakeBackend,
    "fake, fusing": lambda: FakeBackend(fuses=True),
    "fake, differential": FakeDifferentialBackend,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
}


@pytest.fixture(autouse=True)
def _undisturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that never switches a process out: a loaded one would leave every sample out."""
    usage = SimpleNamespace(ru_nivcsw=0)
    monkeypatch.setattr("hybridlat.engines.host.resource.getrusage", lambda _who: usage)


@pytest.fixture(params=CASES.values(), ids=list(CASES))
def backend(request: pytest.FixtureRequest) -> Backend:
    made = request.param()
    assert isinstance(made, Backend)
    return made


def test_its_target_parses_back_and_its_environment_is_text(backend: Backend) -> None:
    assert backend.name and isinstance(backend.method, Method)
    assert Target.parse(str(backend.target)) == backend.target
    environment = backend.environment()
    assert environment["engine"]
    assert all(isinstance(k, str) and isinstance(v, str) for k, v in environment.items())


@pytest.mark.parametrize("make", SMALL)
def test_networks_cells_and_kernels_run(backend: Backend, make: Callable[[], Network]) -> None:
    with backend.build(make(), seed=1, lowered=False) as session:
        assert_positive(samples(session, 3))
    lowered = backend.lower(make())
    assert_accounted(make(), lowered)
    parts = (*cut(lowered), *kernels(lowered)) if backend.method is Method.REPLICAS else ()
    for cell in parts:
        with backend.build(cell.network, seed=1, lowered=True) as session:
            assert_positive(samples(session, 3))


def test_two_sessions_live_side_by_side(backend: Backend) -> None:
    network = residual_block()
    first = backend.build(network, seed=1, lowered=False)
    second = backend.build(network, seed=2, lowered=False)
    assert_positive(samples(first, 2))
    assert_positive(samples(second, 2))
    first.close()
    assert_positive(samples(second, 2))
    second.close()
    second.close()  # does no harm


@pytest.mark.parametrize("lowered", [False, True])
@pytest.mark.parametrize("what", sorted(nonsense()))
def test_nonsense_is_refused(backend: Backend, what: str, lowered: bool) -> None:
    with pytest.raises(MeasurementError) as caught:
        backend.build(nonsense()[what], seed=1, lowered=lowered)
    assert lowered or "\n" not in str(caught.value)


def test_sessions_built_before_a_failure_are_closed() -> None:
    closed: list[int] = []

    def build(place: int) -> Session:
        if place == 2:
            raise MeasurementError("no memory is left")
        session = FakeBackend().build(conv_relu(), seed=1, lowered=False)
        session.close = partial(closed.append, place)  # type: ignore[method-assign]
        return session

    with pytest.raises(MeasurementError, match="no memory is left"):
        build_all(partial(build, place) for place in range(4))
    assert sorted(closed) == [0, 1]


def test_backends_go_by_name() -> None:
    assert {"fake", "onnxruntime", "openvino", "tensorrt"} == set(registry.backends())
    with pytest.raises(BackendUnavailable, match=r"'no': choose one of .*onnxruntime"):
        registry.load_backend("no")


@pytest.mark.parametrize("engine", registry.lowerings())
def test_every_lowering_accounts_for_every_node_once(engine: str) -> None:
    target = Target.parse(f"t4/{engine}/fp32")
    for make in SMALL:
        network = make()
        try:
            lowered, again = registry.lower(network, target), registry.lower(make(), target)
        except MissingExtra as error:
            pytest.skip(str(error))
        assert_accounted(network, lowered)
        assert lowered.by
        assert [sign(c.network) for c in cut(lowered)] == [sign(c.network) for c in cut(again)]
    assert registry.lowering_identity(target) == registry.lowering_identity(target)


def test_another_package_offers_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "importlib.metadata.entry_points",
        lambda group: [EntryPoint("theirs", f"{__name__}:THEIRS", group)],
    )
    offered = replace(registry.ENGINES)  # a registry that has not looked yet
    monkeypatch.setattr(registry, "ENGINES", offered)
    assert "theirs" in registry.backends() and "theirs" not in registry.lowerings()
    assert isinstance(registry.open_backend("theirs"), FakeBackend)
    with pytest.raises(TargetError, match=r"unknown engine 'theirs'.*engines: .*tensorrt"):
        registry.lower(conv_relu(), Target.parse("here/theirs/fp32"))


@pytest.mark.parametrize("value", ["nothing.there", f"{__name__}:nothing", f"{__name__}:samples"])
def test_a_broken_engine_of_another_package_costs_its_own_name(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: [EntryPoint("theirs", value, group)]
    )
    monkeypatch.setattr(registry, "ENGINES", replace(registry.ENGINES))
    assert "tensorrt" in registry.lowerings() and "theirs" not in registry.backends()
    words = ("predict", "resnet18", "--measure", "never", "--target")
    assert "unknown engine 'other'" in call(*words, "l4/other/fp16", code=2).err
    err = call(*words, "l4/theirs/fp16", code=3).err
    assert f"theirs of the package {value.partition(':')[0]} cannot be loaded" in err


def samples(session: Session, count: int) -> list[float]:
    """``count`` samples: nothing disturbs them here."""
    result = session.run_us(count)
    assert len(result) == count
    return result


def assert_positive(times_us: list[float]) -> None:
    """Microseconds that a machine could have taken."""
    assert all(isinstance(t, float) and 0 < t < 60e6 and math.isfinite(t) for t in times_us)


def assert_accounted(network: Network, lowered: Lowered) -> None:
    """Every operator of the file is in one place, and the kernels are a network."""
    placed = [*(i for origin in lowered.origins for i in origin), *lowered.removed]
    assert sorted(placed) == list(range(len(network.nodes)))
    assert len(lowered.origins) == len(lowered.network.nodes)
    assert_whole(lowered.network)


def assert_whole(network: Network) -> None:
    """Every tensor is typed, and made before it is read."""
    ready = {*network.inputs, *network.constants}
    for node in network.nodes:
        assert all(name in ready for name in node.inputs if name)
        assert all(name in network.types for name in node.outputs if name)
        ready.update(node.outputs)
    assert set(network.outputs) <= ready
