"""Cells timed alone on an engine that should time them behind their predecessor are told apart."""

from __future__ import annotations

from typing import ClassVar

from hybridlat.graph.signature import sign
from hybridlat.measuring.isolated import Job, Settings, measure
from hybridlat.store import Store
from tests.fakes.fake_backend import FakeBackend, FakeDifferentialBackend
from tests.networks import conv_relu

QUICK = Settings(rounds=1, processes=1, max_processes=1, visit_ms=2.0, network_visit_ms=2.0)


class GraphsOnly(FakeDifferentialBackend):
    """An engine whose sessions replay graphs of many inferences."""

    has_entry_cost: ClassVar[bool] = False


def jobs(backend: FakeBackend) -> list[Job]:
    network = conv_relu()
    cell = backend.lower(network).network
    return [Job(sign(cell).hash, cell), Job(sign(network).hash, network, "network")]


def test_the_protocol_says_that_a_cell_was_alone():
    backend = FakeDifferentialBackend()
    with Store("sqlite://") as store:
        records = measure(backend, {}, jobs(backend), store, QUICK)
    assert {r.kind: r.protocol for r in records} == {"cell": "isolated", "network": "differential"}


def test_nothing_is_taken_off_where_entering_costs_nothing():
    for backend, costs in ((FakeDifferentialBackend(), True), (GraphsOnly(), False)):
        with Store("sqlite://") as store:
            records = measure(backend, {}, jobs(backend), store, QUICK)
        cell = next(r for r in records if r.kind == "cell")
        assert (cell.overhead_us > 0) is costs
