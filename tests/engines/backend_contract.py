"""What every backend must hold. A new backend is added to ``CASES`` in test_backends.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from hybridlat.engines.base import Backend, Method, Session
from hybridlat.errors import MeasurementError
from hybridlat.graph.cells import cut, kernels
from hybridlat.graph.network import Lowered, Network
from hybridlat.schema.target import Target
from tests.networks import SMALL, Builder, conv_relu, residual_block


@dataclass(frozen=True)
class Case:
    """A backend to hold to the contract.

    ``make`` gives a new backend. ``repeats`` says that it gives the same samples for the same seed
    and others for another (an engine's times never repeat exactly).
    """

    name: str
    make: Callable[[], Backend]
    repeats: bool


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


class BackendContract:
    """The tests; a subclass provides the fixture ``case``."""

    @pytest.fixture
    def backend(self, case: Case) -> Backend:
        return case.make()

    def test_the_target_parses_back(self, backend: Backend) -> None:
        assert Target.parse(str(backend.target)) == backend.target

    def test_the_environment_is_text(self, backend: Backend) -> None:
        environment = backend.environment()
        assert environment["engine"]
        assert all(isinstance(k, str) and isinstance(v, str) for k, v in environment.items())

    def test_it_is_named_and_has_a_method(self, backend: Backend) -> None:
        assert backend.name
        assert isinstance(backend.method, Method)

    @pytest.mark.parametrize("make", SMALL)
    def test_lowering_accounts_for_every_node_once(
        self, backend: Backend, make: Callable[[], Network]
    ) -> None:
        network = make()
        lowered = backend.lower(network)
        result = [*(i for origin in lowered.origins for i in origin), *lowered.removed]
        assert sorted(result) == list(range(len(network.nodes)))
        assert len(lowered.origins) == len(lowered.network.nodes)
        assert lowered.by
        assert_whole(lowered)

    @pytest.mark.parametrize("make", SMALL)
    def test_lowering_is_the_same_each_time(
        self, backend: Backend, make: Callable[[], Network]
    ) -> None:
        from hybridlat.graph.signature import sign

        hashes = [
            [sign(cell.network).hash for cell in cut(backend.lower(make()))] for _ in range(2)
        ]
        assert hashes[0] == hashes[1]

    @pytest.mark.parametrize("make", SMALL)
    def test_networks_run(self, backend: Backend, make: Callable[[], Network]) -> None:
        with backend.build(make(), seed=1, lowered=False) as session:
            assert_positive(samples(session, 3))

    @pytest.mark.parametrize("make", SMALL)
    def test_cells_and_kernels_run(self, backend: Backend, make: Callable[[], Network]) -> None:
        lowered = backend.lower(make())
        for cell in (*cut(lowered), *kernels(lowered)):
            with backend.build(cell.network, seed=1, lowered=True) as session:
                assert_positive(samples(session, 3))

    def test_two_sessions_live_side_by_side(self, backend: Backend) -> None:
        network = residual_block()
        first = backend.build(network, seed=1, lowered=False)
        second = backend.build(network, seed=2, lowered=False)
        assert_positive(samples(first, 2))
        assert_positive(samples(second, 2))
        first.close()
        assert_positive(samples(second, 2))
        second.close()

    def test_the_same_seed_is_the_same_build_and_another_is_another(self, case: Case) -> None:
        if not case.repeats:
            pytest.skip("times of a real engine do not repeat exactly")
        runs = [
            case.make().build(residual_block(), seed=seed, lowered=False).run_us(5)
            for seed in (3, 3, 4)
        ]
        assert runs[0] == runs[1]
        assert runs[2] != runs[0]

    @pytest.mark.parametrize("what", sorted(nonsense()))
    def test_nonsense_is_refused(self, backend: Backend, what: str) -> None:
        with pytest.raises(MeasurementError) as caught:
            backend.build(nonsense()[what], seed=1, lowered=False)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("what", sorted(nonsense()))
    def test_nonsense_cells_are_refused(self, backend: Backend, what: str) -> None:
        with pytest.raises(MeasurementError):
            backend.build(nonsense()[what], seed=1, lowered=True)

    def test_closing_twice_does_no_harm(self, backend: Backend) -> None:
        session = backend.build(conv_relu(), seed=1, lowered=False)
        session.run_us(1)
        session.close()
        session.close()


def samples(session: Session, count: int) -> list[float]:
    """``count`` samples; a backend may drop disturbed ones, but not all of them for ever."""
    result: list[float] = []
    for _ in range(200):
        result += session.run_us(count - len(result))
        if len(result) >= count:
            break
    assert len(result) == count
    return result


def assert_positive(times_us: list[float]) -> None:
    """Microseconds that a machine could have taken."""
    assert all(isinstance(t, float) and 0 < t < 60e6 and math.isfinite(t) for t in times_us)


def assert_whole(lowered: Lowered) -> None:
    """Every tensor of the lowered graph is typed and made before it is read."""
    network = lowered.network
    ready = {*network.inputs, *network.constants}
    for node in network.nodes:
        assert all(name in ready for name in node.inputs if name)
        assert all(name in network.types for name in node.outputs if name)
        ready.update(node.outputs)
    assert set(network.outputs) <= ready
