"""The differential protocol on a machine whose true latencies are known."""

import math

import pytest

from hybridlat.backends.fake import FakeDifferentialBackend, Machine
from hybridlat.core.cells import cut
from hybridlat.core.network import Lowered
from hybridlat.core.signature import sign
from hybridlat.measure_differential import (
    PROTOCOL,
    Effort,
    Part,
    isolated_parts,
    measure_differential,
    parts_of,
    whole,
)
from tests.networks import branches, classifier, residual_block

QUICK = Effort(rounds=3, twins=2, visit_ms=1.0, network_visit_ms=1.0)
BORDERS = Machine(border_us=2.0, noise_share=0.0)


def test_cells_add_up_to_the_network_with_the_cost_of_its_borders():
    backend = FakeDifferentialBackend(BORDERS)
    network = classifier()
    parts = parts_of("net", network, backend.lower(network))
    records = measure_differential(backend, [part for part, _ in parts], QUICK)
    total = math.fsum(r.latency_us * n for r, (_, n) in zip(records, parts, strict=True))
    # The chains that tell the cost of entering have borders too, so it is found one too small.
    assert total == pytest.approx(backend.ideal_us(network) + BORDERS.border_us, rel=0.005)


def test_every_distinct_cell_is_measured_once_behind_the_one_before():
    backend = FakeDifferentialBackend(BORDERS)
    network = residual_block(blocks=4)
    lowered = backend.lower(network)
    parts = parts_of("net", network, lowered)
    cells = [sign(cell.network).hash for cell in cut(lowered)]
    assert {p.signature: n for p, n in parts} == {h: cells.count(h) for h in set(cells)}
    assert parts[0][0].alone is None
    second = parts[1][0]
    assert second.alone is not None
    assert len(second.behind.nodes) > len(second.alone.nodes)


def test_drift_is_divided_out():
    """Every other visit is made while the machine is half as slow again."""
    slowness = [1.0]
    backend = FakeDifferentialBackend(Machine(noise_share=0.0), drift=lambda _: slowness[-1])

    def change(done, total):
        slowness.append(1.5 if done % 2 else 1.0)

    network = branches()
    effort = Effort(rounds=8, network_visit_ms=1.0)
    [record] = measure_differential(backend, [whole("net", network)], effort, change)
    assert len({round(v.samples_us[0], 1) for v in record.visits}) == 2
    levels = [v.samples_us[0] / v.drift for v in record.visits]
    assert max(levels) == pytest.approx(min(levels), rel=1e-3)


def test_a_part_that_cannot_run_is_a_record_with_its_reason():
    backend = FakeDifferentialBackend(Machine(), refused_ops=("Concat",))
    good, bad = residual_block(), branches()
    records = measure_differential(backend, [whole("good", good), whole("bad", bad)], QUICK)
    assert [r.failure is None for r in records] == [True, False]
    assert "no kernel for" in (records[1].failure or "")
    assert not any(problem for record in records for problem in record.problems())


def test_records_say_how_they_were_measured():
    backend = FakeDifferentialBackend()
    network = residual_block()
    [record] = measure_differential(backend, [whole("net", network)], QUICK)
    assert record.protocol == PROTOCOL
    assert record.kind == "network"
    assert record.labels == {"network": "net"}
    assert len(record.visits) == QUICK.rounds
    assert record.environment["engine"] == "fake 1.0"


def test_a_cell_that_costs_nothing_has_the_smallest_latency():
    network = residual_block()
    part = Part(sign(network).hash, "cell", network, network)
    [record] = measure_differential(
        FakeDifferentialBackend(Machine(noise_share=0.0)), [part], QUICK
    )
    assert record.latency_us is not None
    assert 0 < record.latency_us < 0.1


def test_unfused_layers_are_the_kernels_of_the_file():
    network = residual_block(blocks=2)
    file = Lowered(network, tuple((i,) for i in range(len(network.nodes))), (), "file")
    layers = isolated_parts("net", network, file, by="kernels")
    assert sum(count for _, count in layers) == len(network.nodes)
    assert all(len(part.behind.nodes) == 1 for part, _ in layers)
