"""Cells behind their predecessors and by plans: the same latencies, each measured once."""

import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from hybridlat.errors import MeasurementError
from hybridlat.graph.builder import null_network
from hybridlat.graph.cells import cut
from hybridlat.graph.network import Network
from hybridlat.graph.signature import sign
from hybridlat.measuring.measurer import Measurer, MeasureRequest, import_results, measure_draft
from hybridlat.measuring.plans import draft_for
from hybridlat.measuring.replicas import PROTOCOLS, measure
from hybridlat.measuring.schedule import MeasurementConfig, pairs_of, working_bytes
from hybridlat.measuring.statistics import FLOOR_US
from hybridlat.schema.measurement import Measurement
from hybridlat.schema.target import Target
from hybridlat.schema.workers import Progress
from hybridlat.store import Store
from tests.board.conftest import add_fake_engine, lower
from tests.fakes.fake_backend import FakeBackend, FakeDifferentialBackend, Machine
from tests.fakes.plan_backend import LayoutBackend, PlanBackend
from tests.networks import classifier, encoder_decoder, residual_block, stem

NETWORK = stem(8)
TARGET = Target("board", "fake-1.0", "fp32")


def work(folder: Path) -> None:
    add_fake_engine(folder)
    command = [sys.executable, str(folder / "worker.py"), "run", "--engine", "fake"]
    subprocess.run(command, check=True, capture_output=True)


def test_a_visit_counts_once_in_copies_of_a_results_file(tmp_path: Path) -> None:
    (folder := tmp_path / "plan").mkdir()
    draft_for([(NETWORK.name, NETWORK)], TARGET, lower=lower, rounds=2).write(folder)
    work(folder)
    (results,) = folder.glob("results*.jsonl")
    lines = results.read_bytes().splitlines(keepends=True)
    with Store("sqlite://") as store:
        once, new = import_results(folder, store)
        results.write_bytes(b"".join([*lines, *lines[1:]]))  # appended to itself
        (folder / "results (1).jsonl").write_bytes(b"".join(lines[: len(lines) // 2]))
        again, newer = import_results(folder, store)
    assert new == len(once) and newer == 0
    assert [(m.signature, m.visits) for m in again] == [(m.signature, m.visits) for m in once]


def both(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, first_run: Callable[[Path], None]
) -> tuple[list[Future[list[Measurement]]], int]:
    """Measured twice, the second time while the first still runs; how often there was a run."""
    running, go = threading.Event(), threading.Event()
    runs: list[Path] = []

    def run(folder: Path) -> None:
        locks = tmp_path / "cache" / "hybridlat" / "locks"  # each plan has one of its own
        assert [lock.name for lock in locks.iterdir()] == [folder.name.rpartition("-")[2]]
        runs.append(folder)
        running.set()
        go.wait()
        (work if len(runs) > 1 else first_run)(folder)

    def measure() -> list[Measurement]:
        draft = draft_for([(NETWORK.name, NETWORK)], TARGET, lower=lower, rounds=1)
        with Store(tmp_path / "s.db") as store:
            return measure_draft(draft, TARGET, store, run)

    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(measure)]
        running.wait()
        futures.append(pool.submit(measure))
        while f"another run measures {NETWORK.name} on board/fake-1.0/fp32" not in caplog.text:
            time.sleep(0.02)
        go.set()
    assert not list((tmp_path / "cache" / "hybridlat" / "plans").iterdir())
    return futures, len(runs)


def test_the_second_waits_for_the_first(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (one, two), runs = both(tmp_path, caplog, work)
    ids = {record.id for record in one.result()}
    assert runs == 1 and len(ids) > 3
    assert {record.id for record in two.result()} == ids


def test_behind_a_failure_the_second_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fails(_: Path) -> None:
        raise MeasurementError("cut off")

    (one, two), runs = both(tmp_path, caplog, fails)
    assert runs == 2 and str(one.exception()) == "cut off"
    assert len(two.result()) > 3


SETTINGS = MeasurementConfig(
    rounds=2, processes=1, max_processes=1, visit_ms=1.0, network_visit_ms=1.0, network_visits=1
)


class NoGemm(FakeDifferentialBackend):
    """An engine that refuses the last operator of a classifier."""

    def __init__(self) -> None:
        super().__init__(Machine(noise_share=0.0), refused_ops=("Gemm",))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def store() -> Iterator[Store]:
    with Store("sqlite://") as opened:
        yield opened


def measured(backend: FakeBackend, network: Network, store: Store) -> list[Measurement]:
    """The records of a network, whole and with its cells."""
    cells = {sign(cell.network).hash: cell.network for cell in cut(backend.lower(network), network)}
    request = MeasureRequest("net", network, cells, whole=True)
    return Measurer(backend).measure([request], store, SETTINGS)


def test_every_distinct_cell_stands_behind_the_one_before() -> None:
    network = residual_block(blocks=4)
    lowered = FakeDifferentialBackend().lower(network)
    jobs = pairs_of("net", network, lowered)
    assert {job.signature.hash for job in jobs} == {sign(c.network).hash for c in cut(lowered)}
    first, *others = jobs
    assert first.predecessor is None and others
    for job in others:
        assert job.predecessor is not None and len(job.network.nodes) > len(job.predecessor.nodes)
        assert job.rest_bytes is not None and 0 <= job.rest_bytes < working_bytes(network)


@pytest.mark.parametrize("kind", [LayoutBackend, PlanBackend])
@pytest.mark.parametrize("network", [classifier(16), encoder_decoder(8)], ids=lambda n: n.name)
def test_no_cell_pays_for_its_borders_and_all_add_up_to_the_network(
    kind: type[LayoutBackend], network: Network, store: Store
) -> None:
    backend = kind()
    lowered = backend.lower(network)
    ideal_us = {}  # with the taps in place of feature maps that are handed out
    for job in pairs_of("net", network, lowered):
        timed_us, *taken_off_us = map(backend.ideal_us, job.networks)
        ideal_us[job.signature.hash] = timed_us - sum(taken_off_us)
    conversions_us = [t.elements / backend.elements_per_us for t in network.types.values()]
    assert max(conversions_us) > 5 * max(ideal_us.values())  # it would be seen
    records = measured(backend, network, store)
    cells = {r.signature: r.latency_us or math.nan for r in records if r.kind == "cell"}
    assert cells.keys() == ideal_us.keys()
    for hash_, latency_us in cells.items():
        assert latency_us == pytest.approx(max(ideal_us[hash_], FLOOR_US), rel=0.005, abs=0.01)
    assert all(len(record.visits) == SETTINGS.rounds for record in records)
    [whole_us] = [r.latency_us for r in records if r.kind == "network"]
    uses = [sign(cell.network).hash for cell in cut(lowered, network)]
    assert math.fsum(cells[hash_] for hash_ in uses) == pytest.approx(whole_us, rel=0.01)


def test_drift_between_the_rounds_of_a_plan_is_divided_out_of_pairs() -> None:
    steady, drifting = PlanBackend(), PlanBackend()
    drifting.slowness_of = lambda round_: 1.0 + 0.2 * round_
    network = residual_block(blocks=2)
    usual = {r.signature: r.latency_us for r in measured(steady, network, Store("sqlite://"))}
    for record in measured(drifting, network, Store("sqlite://")):
        slow = {visit.drift for visit in record.visits}
        assert max(slow) / min(slow) == pytest.approx(1.2, rel=0.01)
        assert record.spread_share < 0.015
        # The run's usual speed is the quicker round's, or next to it.
        assert record.latency_us == pytest.approx(usual[record.signature], rel=0.005)


def test_the_entry_cost_is_kept_apart_and_only_what_is_requested_is_measured(store: Store) -> None:
    backend = FakeDifferentialBackend()
    network = classifier()
    seen: list[Progress] = []
    hashes = [sign(cell.network).hash for cell in cut(backend.lower(network))]
    request = MeasureRequest("net", network, dict.fromkeys(hashes[:1], network), whole=True)
    nothing = MeasureRequest("other", residual_block())
    records = Measurer(backend).measure([request, nothing], store, SETTINGS, seen.append)
    things = [("cell", hashes[0]), ("network", sign(network).hash)]
    assert [(r.kind, r.signature) for r in records] == things
    assert {r.protocol for r in records} == {PROTOCOLS[backend.method]}
    assert not any(problem for record in records for problem in record.problems())
    entry = sign(null_network(1)).hash
    entry_us = store.latencies(backend.target, [entry])[entry].latency_us
    assert entry_us == pytest.approx(Machine().session_us, rel=0.05)
    assert records[0].overhead_us == entry_us and records[1].overhead_us == 0.0
    assert seen and seen[-1].done == seen[-1].total


def test_a_part_that_cannot_run_costs_only_the_cells_that_need_it(store: Store) -> None:
    network = classifier()
    jobs = pairs_of("net", network, FakeDifferentialBackend().lower(network))
    records = measure(NoGemm(), jobs, store, SETTINGS)
    reasons = [record.failure for record in records if record.failure is not None]
    assert 0 < len(reasons) < len(records)
    assert all("no kernel for" in reason for reason in reasons)
