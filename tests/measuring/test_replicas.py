"""The protocol on the fake engine: what it takes off, divides out, keeps and takes up again."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from hybridlat.engines.base import Session
from hybridlat.engines.ort.session import OnnxRuntimeBackend
from hybridlat.errors import MeasurementError
from hybridlat.graph.network import Network
from hybridlat.graph.signature import sign
from hybridlat.measuring import replicas, visiting
from hybridlat.measuring.machine import fit_dispatch_overhead_us
from hybridlat.measuring.replicas import measure
from hybridlat.measuring.schedule import Job, MeasurementConfig, replicas_for
from hybridlat.measuring.statistics import level_us
from hybridlat.measuring.visiting import References, VisitResult, VisitTask, visit
from hybridlat.schema.workers import Progress
from hybridlat.store import Store
from tests.fakes.fake_backend import FakeBackend, Machine
from tests.networks import Builder

QUICK = MeasurementConfig(
    rounds=2, processes=2, max_processes=2, visit_ms=2.0, network_visit_ms=4.0
)


def conv(channels: int) -> Network:
    net = Builder(f"conv{channels}")
    return net.network(net.conv(net.input((1, channels, 14, 14)), channels))


def bad_conv() -> Network:
    """One that ONNX Runtime refuses."""
    net = Builder("odd")
    inputs = [net.input((1, 4, 8, 8)), net.weight((4, 9, 3, 3))]
    return net.network(net.op("Conv", inputs, (1, 4, 8, 8), 11))


def job(network: Network) -> Job:
    return Job(sign(network), network)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(f"sqlite:///{tmp_path / 'store.db'}")


def test_a_record_keeps_its_raw_samples_and_how_it_was_measured(store: Store) -> None:
    free = FakeBackend(Machine(session_us=0.0, noise_share=0.0))
    with free.build(conv(16), seed=1, lowered=True) as session:
        true_us = min(session.run_us(5))
    backend = FakeBackend()
    seen: list[Progress] = []
    [record] = measure(backend, [job(conv(16))], store, QUICK, seen.append)
    assert record.failure is None
    assert len(record.visits) == 4 and {v.process for v in record.visits} == {0, 1}
    assert all(v.samples_us for v in record.visits)
    assert record.protocol and record.environment["engine"].startswith("fake")
    # The dispatch overhead is taken off.
    assert record.overhead_us == pytest.approx(Machine().session_us, rel=0.03)
    assert record.latency_us == pytest.approx(true_us, rel=0.03)
    assert store.latencies(backend.target, [record.signature])[record.signature].latency_us
    assert seen[-1].done == seen[-1].total
    assert "null" not in {progress.label for progress in seen}


def test_a_refused_cell_is_a_record_with_its_reason_and_progress_goes_on(store: Store) -> None:
    backend = OnnxRuntimeBackend(threads=1)
    seen: list[Progress] = []
    jobs = [job(conv(8)), job(bad_conv())]  # refused at once, and left out by the second process
    good, bad = measure(backend, jobs, store, QUICK, seen.append)
    assert good.latency_us and bad.latency_us is None
    assert bad.failure is not None and "ONNX Runtime cannot run" in bad.failure
    assert store.latencies(backend.target, [bad.signature])[bad.signature].failure == bad.failure
    assert [progress.done for progress in seen] == list(range(1, len(seen) + 1))
    assert all(progress.done <= progress.total for progress in seen)


class Processes:
    """Measuring processes that answer by a script, one list of answers a process.

    An answer is a level in µs and the reference's, or why there is none.
    """

    def __init__(self, *processes: Sequence[tuple[float, float] | str]) -> None:
        self.left = [list(answers) for answers in processes]
        self.tasks = [0] * len(processes)
        self.last = ""

    def __call__(self, *_: object) -> "AbstractContextManager[Processes]":
        return nullcontext(self)

    def ask(self, task: VisitTask) -> VisitResult | None:
        if task.key.startswith("null"):
            return VisitResult((7.0,) * 5, 20.0)
        place = next(n for n, answers in enumerate(self.left) if answers)
        self.tasks[place] += 1
        answer = self.left[place].pop(0)
        if isinstance(answer, tuple):
            return VisitResult((answer[0],) * 5, answer[1])
        self.last = answer
        return VisitResult(failure=answer) if answer == "refused" else None

    def last_words(self) -> str:
        return self.last

    @property
    def may_recover(self) -> bool:
        return self.last == "silent"

    def kill(self) -> None:
        pass


ONCE = MeasurementConfig(rounds=1, processes=2, max_processes=3, spread_share=0.1)
GOOD = (107.0, 20.0)


@pytest.mark.parametrize(
    ("answers", "latencies", "failure"),
    [
        (["silent", GOOD], [100.0], None),
        ([GOOD, "silent"], [100.0], None),
        ([GOOD, "crash"], [100.0], None),
        (["silent", "silent"], [], None),  # unknown as before: the next call tries again
        (["crash", "silent"], [], None),
        (["crash", "crash"], [None], "crash"),
        (["refused", "refused"], [None], "refused"),
    ],
)
def test_only_what_no_process_can_run_has_failed(
    answers: list[tuple[float, float] | str],
    latencies: list[float | None],
    failure: str | None,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(replicas, "MeasuringProcess", Processes(*([answer] for answer in answers)))
    records = measure(FakeBackend(), [job(conv(8))], store, ONCE)
    assert [(r.latency_us, r.failure) for r in records] == [(us, failure) for us in latencies]
    assert bool(records) != ("may be another time: silent" in caplog.text)


def test_a_run_that_was_cut_off_says_what_a_run_in_one_piece_says(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How unsteady the machine was in the first part counts too."""
    settings = MeasurementConfig(rounds=4, processes=1, max_processes=1)
    answers = [(100.0 * pace, 20.0 * pace) for pace in (1.0, 1.4, 0.8, 1.2)]

    def cut_off(progress: Progress) -> None:
        if progress.done == progress.total:
            raise KeyboardInterrupt

    jobs, in_one_piece = [job(conv(8))], Store("sqlite://")
    monkeypatch.setattr(replicas, "MeasuringProcess", Processes(answers, answers))
    with pytest.raises(KeyboardInterrupt):
        measure(FakeBackend(), jobs, store, settings, cut_off)
    assert not store.latencies(FakeBackend().target, [jobs[0].signature.hash])
    after: list[Progress] = []
    with monkeypatch.context() as other:  # a machine of the same name takes none of its visits
        other.setattr("platform.node", lambda: "other")
        with pytest.raises(KeyboardInterrupt):
            measure(FakeBackend(), jobs, store, settings, cut_off)
    [resumed] = measure(FakeBackend(), jobs, store, settings, after.append)
    assert not after  # visits of the overhead's probes are kept too
    monkeypatch.setattr(replicas, "MeasuringProcess", Processes(answers))
    [whole] = measure(FakeBackend(), jobs, in_one_piece, settings)
    assert resumed.visits == whole.visits and resumed.spread_share == whole.spread_share


@pytest.mark.parametrize(
    ("second", "third"),
    [
        ((214.0, 40.0), 0),  # the machine was half as quick, and so was the reference
        ((120.0, 20.0), 0),  # 13 % apart
        ((180.0, 20.0), 1),
        ((10.4, 20.0), 1),
    ],
)
def test_a_third_process_goes_by_the_drift_and_without_the_overhead(
    second: tuple[float, float], third: int, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = GOOD if second[0] > 100 else (9.0, 20.0)  # 2 µs behind an overhead of 7
    processes = Processes([first], [second], [first])
    monkeypatch.setattr(replicas, "MeasuringProcess", processes)
    assert len(measure(FakeBackend(), [job(conv(8))], store, ONCE)) == 1
    assert processes.tasks[2] == third


def test_a_budget_ends_early(store: Store) -> None:
    jobs = [job(conv(c)) for c in range(32, 64)]
    assert len(measure(FakeBackend(), jobs, store, replace(QUICK, budget_s=0.0))) < len(jobs)


def test_a_visit_stands_between_references() -> None:
    backend = FakeBackend()
    report = visit(backend, References(backend), VisitTask("k", (conv(8),), 1.0, 1, 4))
    assert report.failure is None and report.reference_us > 0
    assert len(report.samples_us) % 3 == 0  # three of four replicas, the first left out


class DisturbedAtFirst(Session):
    """One whose first runs are all disturbed."""

    def __init__(self, disturbed: int) -> None:
        self.disturbed = disturbed

    def run_us(self, count: int) -> list[float]:
        self.disturbed -= count
        return [] if self.disturbed >= 0 else [7.0] * count

    def close(self) -> None:
        pass


def test_on_a_busy_machine_the_last_reference_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visiting, "PATIENCE_S", 0.0)
    references, task = References(FakeBackend()), VisitTask("k", (conv(8),), 1.0, 1, 4)
    last_us = references.run_us()
    references._session = DisturbedAtFirst(10**9)
    assert references.run_us() == last_us > 0
    references._last_us = 0.0
    with pytest.raises(MeasurementError, match="too busy to measure"):
        references.run_us()
    assert visit(FakeBackend(), references, task) == VisitResult()  # no failure of the cell


class Gives(FakeBackend):
    """Sessions of other networks than the reference are of one kind."""

    def build_replicas(self, network: Network, count: int, **_: object) -> list[Session]:
        return [DisturbedAtFirst(50) for _ in range(count)]


@pytest.mark.parametrize(("patience_s", "samples"), [(2.0, visiting.MIN_SAMPLES), (0.0, 0)])
def test_a_visit_goes_on_for_a_while_until_some_runs_were_left_undisturbed(
    monkeypatch: pytest.MonkeyPatch, patience_s: float, samples: int
) -> None:
    references = References(Gives())
    monkeypatch.setattr(visiting, "PATIENCE_S", patience_s)
    report = visit(Gives(), references, VisitTask("k", (conv(8),), 1e-6, 1, 4))
    assert report.failure is None and len(report.samples_us) == samples


def test_levels_the_dispatch_overhead_and_fewer_replicas_of_heavier_cells() -> None:
    assert level_us([5.0]) == 5.0 and level_us([4.0, 1.0, 2.0, 3.0], 0.2) == 1.0
    assert fit_dispatch_overhead_us({1: [3.5], 2: [4.0], 4: [5.0], 8: [7.0]}) == pytest.approx(3.0)
    counts = [replicas_for(conv(c)) for c in (64, 256, 1024)]
    assert counts == sorted(counts, reverse=True) and counts[-1] >= 2
