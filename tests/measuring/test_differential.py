"""The differential protocol on a machine whose true latencies are known."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hybridlat.engines.base import Backend, Session
from hybridlat.graph.cells import cut
from hybridlat.graph.network import Network
from hybridlat.graph.signature import sign
from hybridlat.measuring.differential import (
    LEAST_UNDISTURBED,
    Differential,
    DifferentialConfig,
)
from hybridlat.measuring.pairs import Part, parts_of, rotations, tapped, whole, working_bytes
from hybridlat.onnx_io import read_network, to_onnx
from hybridlat.schema.measurement import Measurement
from tests.fakes.fake_backend import FakeDifferentialBackend, Machine
from tests.networks import branches, classifier, residual_block

QUICK = DifferentialConfig(rounds=3, max_rounds=3, session_ms=0.2, network_visit_ms=1.0)
BORDERS = Machine(border_us=2.0, noise_share=0.0)


def measured(
    backend: Backend,
    parts: Sequence[Part],
    config: DifferentialConfig = QUICK,
    progress: Callable[[int, int], None] | None = None,
) -> list[Measurement]:
    """The records of one whole run."""
    run = Differential(backend, parts, config)
    run.visit(progress)
    return run.records()


def test_every_distinct_cell_is_measured_once_behind_the_one_before() -> None:
    backend = FakeDifferentialBackend(BORDERS)
    network = residual_block(blocks=4)
    lowered = backend.lower(network)
    parts = parts_of("net", network, lowered)
    cells = [sign(cell.network).hash for cell in cut(lowered)]
    assert {p.signature.hash: n for p, n in parts} == {h: cells.count(h) for h in set(cells)}
    assert parts[0][0].predecessor is None
    second = parts[1][0]
    assert second.predecessor is not None
    assert len(second.with_predecessor.nodes) > len(second.predecessor.nodes)


def test_what_is_not_the_networks_own_result_ends_in_a_tap() -> None:
    network = residual_block(blocks=2)
    parts = [part for part, _ in parts_of("net", network, FakeDifferentialBackend().lower(network))]
    networks = (parts[0].with_predecessor, *(q.predecessor for q in parts))
    for part in (p for p in networks if p is not None):
        [out] = part.outputs
        if out in network.outputs:
            continue
        tap = part.nodes[-1]
        assert tap.op == "MaxPool" and tap.outputs == (out,)
        assert part.types[out].shape[2:] == (1, 1)
        read = read_network(to_onnx(part, seed=1))
        assert read.types[read.outputs[0]].shape == part.types[out].shape
    assert tapped(network, frozenset(network.outputs)) == network
    assert tapped(classifier(), frozenset()).outputs == classifier().outputs  # no feature map


def test_a_rotation_holds_as_much_as_the_network_works_in() -> None:
    network = residual_block(blocks=4)
    plan = parts_of("net", network, FakeDifferentialBackend().lower(network))
    parts = [whole("net", network), *(part for part, _ in plan)]
    made = rotations(parts)
    assert [part for rotation in made for part in rotation.parts] == parts
    assert len({rotation.name for rotation in made}) == len(made)
    assert made[0].parts == parts[:1]
    for rotation in made:
        wanted = {sign(n).hash for p in rotation.parts for n in p.networks}
        assert set(rotation.networks) == wanted
        assert len(rotation.parts) == 1 or rotation.held_bytes <= working_bytes(network)


def test_drift_is_divided_out() -> None:
    """Every other visit is made while the machine is a twentieth slower."""
    slowness = [1.0]
    backend = FakeDifferentialBackend(Machine(noise_share=0.0), drift=lambda _: slowness[-1])

    def change(done: int, total: int) -> None:
        slowness.append(1.05 if done % 2 else 1.0)

    network = branches()
    effort = DifferentialConfig(rounds=8, max_rounds=8, network_visit_ms=1.0)
    [record] = measured(backend, [whole("net", network)], effort, change)
    assert len(record.visits) == 8
    assert len({round(v.samples_us[0], 1) for v in record.visits}) == 2
    levels = [v.samples_us[0] / v.drift for v in record.visits]
    assert max(levels) == pytest.approx(min(levels), rel=1e-3)


def test_visits_of_slow_times_are_made_again_and_left_out() -> None:
    slowness = [1.0]
    backend = FakeDifferentialBackend(Machine(noise_share=0.0), drift=lambda _: slowness[-1])

    def change(done: int, total: int) -> None:
        slowness.append(1.5 if done == 1 else 1.0)

    network = branches()
    effort = DifferentialConfig(rounds=3, max_rounds=5, network_visit_ms=1.0)
    [record] = measured(backend, [whole("net", network)], effort, change)
    assert len(record.visits) == 3
    assert record.latency_us == pytest.approx(backend.ideal_us(network) + 3.0, rel=1e-3)


def test_where_every_visit_was_disturbed_the_least_disturbed_count() -> None:
    """The reference of the whole run is quicker than that of any visit of one part."""
    backend = FakeDifferentialBackend(Machine(noise_share=0.0))
    network = branches()
    journal: dict[str, Any] = {}
    run = Differential(backend, [whole("net", network)], QUICK, journal)
    run.visit()
    for place, key in enumerate(k for k in journal if k.startswith("visit/")):
        journal[key] = {**journal[key], "reference_us": 200.0 + place}
    journal |= {f"visit/other/{i}": {"reference_us": 100.0} for i in range(10)}
    [record] = run.records()
    assert [round(v.drift, 2) for v in record.visits] == [2.0, 2.01]
    assert len(record.visits) == LEAST_UNDISTURBED


def test_a_run_that_is_cut_off_goes_on_where_it_was() -> None:
    network = residual_block(blocks=4)
    journal: dict[str, Any] = {}

    class Counting(FakeDifferentialBackend):
        built = 0

        def build(self, network: Network, *, seed: int, lowered: bool) -> Session:
            Counting.built += "null" not in network.name and network.name != "reference"
            return super().build(network, seed=seed, lowered=lowered)

    backend = Counting(Machine(noise_share=0.0))
    parts = [
        whole("net", network),
        *(p for p, _ in parts_of("net", network, backend.lower(network))),
    ]
    stops = iter(range(3))

    def stop(done: int, total: int) -> None:
        if next(stops, None) is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Differential(backend, parts, QUICK, journal).visit(stop)
    journal = json.loads(json.dumps(journal))
    again = Differential(backend, parts, QUICK, journal)
    again.visit()
    sessions = sum(len(rotation.networks) for rotation in rotations(parts))
    assert Counting.built == QUICK.rounds * sessions
    assert all(len(record.visits) == QUICK.rounds for record in again.records())


def test_a_part_that_cannot_run_is_a_record_with_its_reason() -> None:
    backend = FakeDifferentialBackend(Machine(), refused_ops=("Concat",))
    good, bad = residual_block(), branches()
    records = measured(backend, [whole("good", good), whole("bad", bad)], QUICK)
    assert [r.failure is None for r in records] == [True, False]
    assert "no kernel for" in (records[1].failure or "")
    assert not any(problem for record in records for problem in record.problems())


def test_a_part_that_cannot_run_costs_only_the_cells_that_need_it() -> None:
    network = classifier()
    plan = parts_of("net", network, FakeDifferentialBackend().lower(network))
    backend = FakeDifferentialBackend(Machine(), refused_ops=("Gemm",))
    records = measured(backend, [part for part, _ in plan], QUICK)
    refused = [r.failure is not None for r in records]
    assert any(refused) and not all(refused)


def test_a_cell_that_costs_nothing_has_the_smallest_latency() -> None:
    network = residual_block()
    part = Part(sign(network), "cell", network, network)
    [record] = measured(FakeDifferentialBackend(Machine(noise_share=0.0)), [part], QUICK)
    assert record.latency_us is not None
    assert 0 < record.latency_us < 0.1
