"""One run measures at a time; how busy others keep the machine is seen, kept and outweighed."""

import os
import resource
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hybridlat.board.lock import held, hold, let_go
from hybridlat.engines import host
from hybridlat.engines.base import Session
from hybridlat.errors import MeasurementError
from hybridlat.graph.builder import null_network
from hybridlat.graph.network import Network
from hybridlat.graph.signature import sign
from hybridlat.measuring import process
from hybridlat.measuring.machine import constant_us, is_overhead_known
from hybridlat.measuring.replicas import measure
from hybridlat.measuring.schedule import Job, MeasurementConfig
from hybridlat.measuring.visiting import References, VisitTask, visit
from hybridlat.schema.measurement import (
    MachineLoad,
    Measurement,
    busiest,
    load_of,
    mean_load,
    was_busy,
)
from hybridlat.schema.workers import Progress
from hybridlat.store import Store
from tests.fakes.fake_backend import QUICK, FakeBackend
from tests.networks import ROOT, classifier

QUIET, BUSY = MachineLoad(0.4, 0.0, 2), MachineLoad(9.7, 0.0, 2)


def write(proc: Path, running: int, stolen: int, idle: int) -> None:
    (proc / "loadavg").write_text(f"0.10 0.20 0.30 {running}/200 77\n", encoding="utf-8")
    (proc / "stat").write_text(f"cpu  50 0 50 {idle} 0 0 0 {stolen} 0 0\n", encoding="utf-8")


def test_tasks_and_stolen_time_are_counted_but_not_the_process_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(host.PROC_VARIABLE, str(tmp_path))
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    write(tmp_path, 3, 0, 100)
    meter = host.LoadMeter(own_threads=1, cores=4)
    write(tmp_path, 9, 100, 1000)
    meter.sample()
    # (2 + 8) / 2 other tasks on eight cores, of which four may be used.
    assert meter.load() == MachineLoad(2.5, 0.1, 4)
    assert host.LoadMeter(own_threads=9, cores=4).load() == MachineLoad(0.0, 0.0, 4)


@pytest.mark.parametrize("text", ["", "0.00 0.00 0.00 0/0 0\n", "nonsense\n"])
def test_a_system_that_does_not_tell_counts_as_unknown(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(host.PROC_VARIABLE, str(tmp_path))
    assert host.LoadMeter().load() is None
    (tmp_path / "loadavg").write_text(text, encoding="utf-8")
    assert host.LoadMeter().load() is None


def test_the_load_stands_in_an_environment_and_says_who_was_busy() -> None:
    for load in (QUIET, BUSY, MachineLoad(0.0, 0.12, 1)):
        assert load_of(load.environment()) == load
    busy = (BUSY, replace(QUIET, steal_share=0.06), *(MachineLoad(1.0, 0.0, n) for n in (1, 2)))
    assert all(load.is_busy for load in busy)
    assert not (QUIET.is_busy or MachineLoad(1.0, 0.0, 8).is_busy)
    assert load_of({}) is None and not was_busy({"load": "many", "load_cores": "2"})
    assert mean_load([]) is None and mean_load([None, QUIET, BUSY]) == MachineLoad(5.05, 0.0, 2)
    assert busiest([QUIET.environment(), {}]) is None
    assert busiest([QUIET.environment(), BUSY.environment()]) == BUSY
    assert "(9.7 other tasks on 2 cores)" in BUSY.sentence
    assert "12 % of the CPU time taken by others" in MachineLoad(0.0, 0.12, 1).sentence


def test_what_a_busy_machine_recorded_of_itself_holds_until_it_is_quiet(tmp_path: Path) -> None:
    store, backend = Store(tmp_path / "store.db"), FakeBackend()
    overhead_us = partial(constant_us, store, backend, "entry cost")
    # What a network holds that is alike has its overhead taken off.
    store.add([Measurement(backend.target, sign(null_network(1)).hash, "cell", 0.2)])
    assert overhead_us(9.0, BUSY) == 9.0
    assert not is_overhead_known(store, backend)
    assert overhead_us(8.0, BUSY) == 9.0
    assert overhead_us(3.0, QUIET) == 3.0
    assert is_overhead_known(store, backend)
    assert overhead_us(7.0, BUSY) == 3.0


JOBS = [Job(sign(network), network) for network in [classifier(8)]]


@pytest.fixture(autouse=True)
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HYBRIDLAT_LOCK", str(tmp_path / "lock"))
    return tmp_path / "lock"


@pytest.mark.parametrize("budget_s", [None, 0.0])
def test_a_run_waits_for_another_and_names_it(
    lock: Path, budget_s: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Threads of one process too; a limit that the wait used up is what the error names."""
    settings = MeasurementConfig(rounds=1, processes=1, max_processes=1, budget_s=budget_s)
    outcome: list[object] = []

    def run() -> None:
        try:
            with Store("sqlite://") as store:
                outcome.extend(measure(FakeBackend(), JOBS, store, settings))
        except MeasurementError as error:
            outcome.append(error)

    with held(str(lock), pytest.fail):
        other = threading.Thread(target=run)
        other.start()
        while "another run measures on this machine" not in caplog.text:
            assert other.is_alive()
        assert f"(process {os.getpid()} in {Path.cwd()}): waiting" in caplog.text and not outcome
    other.join()
    assert len(outcome) == 1
    ended = "the time limit (0 s) ended while another run measured on this machine (process"
    assert isinstance(outcome[0], MeasurementError) == (budget_s is not None)
    assert budget_s is None or str(outcome[0]).startswith(ended)


def test_what_hears_of_progress_may_measure() -> None:
    inner: list[int] = []

    def nested(_: Progress) -> None:
        if not inner:
            inner.append(len(measure(FakeBackend(), JOBS, store, QUICK)))

    with Store("sqlite://") as store:
        assert measure(FakeBackend(), JOBS, store, QUICK, nested)
    assert inner == [1]


@pytest.mark.parametrize("kind", ["link", "no folder", "folder"])
def test_where_nothing_can_be_locked_it_measures_and_says_so(
    lock: Path, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    target = lock.with_name("precious")
    target.write_text("precious")
    if kind == "link":
        lock.symlink_to(target)
    elif kind == "no folder":
        monkeypatch.setenv("HYBRIDLAT_LOCK", str(target / "lock"))
    else:
        lock.mkdir()
    with process.alone() as waits:
        assert waits == []
    assert "lock cannot be locked (" in caplog.text and target.read_text() == "precious"


def test_another_users_lock_is_locked_and_a_pipe_is_not_waited_for(lock: Path) -> None:
    os.mkfifo(lock)
    let_go(hold(str(lock), pytest.fail))
    lock.unlink()
    lock.write_text("")
    lock.chmod(0o444)
    let_go(hold(str(lock), pytest.fail))


HOLDER = """\
import os, sys, time
from hybridlat.board.lock import held
with held(os.environ["HYBRIDLAT_LOCK"], sys.exit):
    if sys.argv[1] == "killed" or os.fork() == 0:
        print("held", os.getpid(), flush=True)
        time.sleep(600)
time.sleep(600)
"""


@pytest.mark.parametrize("how", ["killed", "forks"])
def test_a_holder_that_died_or_left_a_fork_behind_keeps_nobody_out(lock: Path, how: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, how], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline().split()[1])
        try:
            if how == "killed":
                holder.kill()
            waits: list[str] = []
            let_go(hold(str(lock), waits.append))
            assert all(str(holder.pid) in who for who in waits)  # it had not let go yet
        finally:
            os.kill(child, signal.SIGKILL)
            holder.kill()


class Clocks(SimpleNamespace):
    """Clocks that move when a run is made: for each a wall and a CPU time in milliseconds."""

    def __init__(self, runs: list[tuple[float, float]]) -> None:
        self.left, self.wall, self.cpu = list(runs), 0, 0
        self.perf_counter_ns = lambda: self.wall
        self.thread_time_ns = self.process_time_ns = lambda: self.cpu

    def run(self) -> None:
        wall_ms, cpu_ms = self.left.pop(0)
        self.wall += int(1e6 * wall_ms)
        self.cpu += int(1e6 * cpu_ms)


class LongRuns(host.CpuSession):
    watched, long_run_us, engine = resource.RUSAGE_THREAD, 5e3, "x"


@pytest.mark.parametrize(
    ("threads", "runs", "lost"),
    [
        (1, [(35, 35), (36, 35)], 0.0),
        (1, [(70, 35), (66, 34), (73, 34)], 0.49),  # one competitor for the core, in every run
        (1, [(35, 35), (34.9, 34.9), (70, 35)], 0.0),  # the quicker ones count
        (1, [(35, 30), (35, 40), (35, 30), (35, 40)], 0.0),  # a clock of ticks
        (2, [(20, 34), (21, 34), (20, 33)], 0.01),  # the rest is waiting for each other
        (2, [(80, 40), (81, 40)], 0.5),  # from the first run on
        (2, [(20, 34), (40, 34), (41, 34), (41, 34)], 0.33),
        (1, [(4, 1), (3, 1)], 0.0),  # those are left out where they were switched out
    ],
)
def test_what_competitors_took_from_long_runs_is_known(
    monkeypatch: pytest.MonkeyPatch, threads: int, runs: list[tuple[float, float]], lost: float
) -> None:
    clocks, session = Clocks(runs), LongRuns("net", threads)
    monkeypatch.setattr(host, "time", clocks)
    session._run = clocks.run
    session.run_us(len(runs))
    assert session.lost_share == pytest.approx(lost, abs=0.02)


def test_a_short_run_that_stands_still_is_no_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause of half a second was the reference's latency, and the store took no such drift."""
    clocks, session, switches = Clocks([(480, 0.2), (35, 20)]), LongRuns("net", 1), count()
    usage = lambda _who: SimpleNamespace(ru_nivcsw=next(switches))  # noqa: E731
    monkeypatch.setattr(host, "time", clocks)
    monkeypatch.setattr(resource, "getrusage", usage)
    session._run = clocks.run
    assert session.run_us(2) == [35e3]


class RobbedBackend(FakeBackend):
    """Every run loses two fifths of its CPU time, which no load average shows."""

    def build(self, network: Network, **options: Any) -> Session:
        session = super().build(network, **options)
        session.lost_share = 0.4
        return session


@pytest.mark.parametrize("proc", ["", "0.1 0.1 0.1 1/9 9\n"])
def test_what_lost_cpu_time_is_a_record_of_a_busy_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proc: str
) -> None:
    monkeypatch.setenv(host.PROC_VARIABLE, str(tmp_path))
    (tmp_path / "loadavg").write_text(proc)
    backend = RobbedBackend()
    result = visit(backend, References(backend), VisitTask("k", (classifier(8),), 1.0, 1, 4), 2)
    assert result.load is not None and result.load.is_busy
    assert "40 % of the CPU time taken by others" in result.load.sentence
