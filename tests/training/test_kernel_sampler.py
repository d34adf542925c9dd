"""Random kernels: always the same for a seed, all different, and accepted by an engine."""

import math
from collections.abc import Mapping

import pytest

from hybridlat import onnx_io
from hybridlat.engines import registry
from hybridlat.graph.signature import sign
from hybridlat.training.kernel_families import COMMON, RARE, Family
from hybridlat.training.kernel_sampler import MOST_BYTES, draw, sweep
from tests.fakes.fake_backend import FakeBackend


@pytest.mark.parametrize("chosen", [COMMON, RARE], ids=["common", "rarer"])
def test_networks_are_sound_and_within_limits(chosen: Mapping[str, Family]) -> None:
    families: set[str] = set()
    for seed in range(300):
        drawn = draw(seed, chosen)
        families.add(drawn.family)
        again = onnx_io.read_network(onnx_io.to_onnx(drawn.network, None))
        assert drawn.kernel <= {node.name for node in again.nodes}
        assert {n: again.types[n] for n in again.outputs} == {
            n: drawn.network.types[n] for n in drawn.network.outputs
        }
        assert drawn.network.weight_bytes < MOST_BYTES
    assert families == set(chosen)


def test_kernels_are_distinct_and_named_by_their_hash() -> None:
    drawn = list(sweep(FakeBackend(fuses=True), 200, seed=1))
    assert len(drawn) == len({h for h, _ in drawn}) == 200
    for hash_, cell in drawn[:50]:
        assert sign(cell).hash == hash_
        assert len(cell.nodes) == 1
    assert [h for h, _ in sweep(FakeBackend(fuses=True), 50, seed=1)] == [h for h, _ in drawn[:50]]


def test_contexts_are_those_that_can_hold_the_kernel() -> None:
    backend = FakeBackend(fuses=True)
    backend.contexts = {"small": 1e6, "": math.inf}
    drawn = [cell for _, cell in sweep(backend, 300)]
    assert {cell.context for cell in drawn} == set(backend.contexts)
    assert all(2 * cell.weight_bytes < backend.contexts[cell.context] for cell in drawn)


def test_onnx_runtime_shows_them_in_its_own_layout() -> None:
    backend = registry.open_backend("onnxruntime", {"threads": 1})
    drawn = [cell for _, cell in sweep(backend, 60)]
    assert len(drawn) == 60
    blocked = sum(cell.nodes[0].domain == "com.microsoft.nchwc" for cell in drawn)
    assert blocked > 30
