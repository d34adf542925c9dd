"""The measuring process starts from wherever Python runs, tells why it died, and leaves with us."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import psutil
import pytest

from hybridlat.engines.ort.session import OnnxRuntimeBackend
from hybridlat.errors import BackendUnavailable
from hybridlat.graph.signature import sign
from hybridlat.measuring import replicas
from hybridlat.measuring.process import MeasuringProcess
from hybridlat.measuring.replicas import measure
from hybridlat.measuring.schedule import Job, MeasurementConfig
from hybridlat.measuring.visiting import VisitTask
from hybridlat.onnx_io import to_onnx
from hybridlat.store import Store
from tests.fakes.fake_backend import DIES_VARIABLE, RUNS_VARIABLE, SLEEP_VARIABLE, FakeBackend
from tests.networks import ROOT, classifier, conv_relu

PLUGIN = ROOT / "tests" / "fakes" / "plugin"
TARGET = "fake/fake-1.0/fp32/1t"
QUICK = "rounds=1, processes=1, max_processes=1, visit_ms=1.0, network_visit_ms=1.0"

MEASURE = f"""\
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(PLUGIN)!r}]
import hybridlat
from hybridlat.measuring.schedule import MeasurementConfig

def measured(store):
    settings = MeasurementConfig({QUICK})
    with hybridlat.Predictor({TARGET!r}, store=store, settings=settings) as predictor:
        return predictor.measure("net.onnx").sum_of_cells_us
"""
DAEMONIC = MEASURE + (
    "import multiprocessing\n"
    "def child(): print(measured('s.db'), flush=True)\n"
    "process = multiprocessing.get_context('fork').Process(target=child, daemon=True)\n"
    "process.start()\n"
    "process.join()\n"
    "sys.exit(process.exitcode)\n"
)
JOBLIB = MEASURE + (
    "import joblib\n"
    "us = joblib.Parallel(4)(joblib.delayed(measured)(f'{i}.db') for i in range(4))\n"
    "print(max(us) < 1.1 * min(us) and us[0])\n"
)


@pytest.fixture(autouse=True)
def _by_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "MeasuringProcess", MeasuringProcess)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "net.onnx").write_bytes(to_onnx(classifier(8), seed=1))
    return tmp_path


def python(folder: Path, *arguments: str, text: str | None = None) -> str:
    """What an isolated interpreter prints; on standard error at most that it waits for another."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command, pipe = [sys.executable, *arguments], subprocess.PIPE
    done = subprocess.run(
        command, input=text, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True
    )
    errors = [line for line in done.stderr.splitlines() if "): waiting for it" not in line]
    assert (done.returncode, errors) == (0, [])
    return done.stdout


@pytest.mark.parametrize(("script", "runs"), [(DAEMONIC, 1), (JOBLIB, 4)])
def test_scripts_without_a_main_guard_measure_one_at_a_time(
    folder: Path, script: str, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUNS_VARIABLE, str(folder / "runs"))
    (folder / "script.py").write_text(script)
    assert float(python(folder, "script.py")) > 0
    turns = [process for process, _ in groupby((folder / "runs").read_text().split())]
    assert len(turns) == runs  # each measures in a process of its own, from first to last


def test_standard_input_measures(folder: Path) -> None:
    assert float(python(folder, "-", text=MEASURE + "print(measured('s.db'))\n")) > 0


def test_a_module_beside_the_script_is_found_and_what_it_prints_is_kept_back(folder: Path) -> None:
    """It is not taken for one of Python's own; the script's folder comes first in sys.path."""
    (folder / "own_backend.py").write_text(
        "import os\nfrom tests.fakes.fake_backend import FakeBackend\n"
        "class Chatty(FakeBackend):\n"
        "    def __init__(self, **options):\n"
        "        os.write(1, b'hello'); os.write(2, b'hello'); super().__init__(**options)\n"
    )
    (folder / "script.py").write_text(
        MEASURE + "from own_backend import Chatty\n"
        "from hybridlat.measuring.process import MeasuringProcess\n"
        "with MeasuringProcess(Chatty.__new__(Chatty)):\n    pass\n"
    )
    assert python(folder, "script.py") == ""


# ---- what does not start, and what dies ------------------------------------------------------


def test_a_program_without_an_interpreter_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(BackendUnavailable, match="has no Python interpreter to start"):
        MeasuringProcess(FakeBackend())
    monkeypatch.setattr(sys, "executable", "/opt/program")
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(BackendUnavailable, match="'/opt/program'"):
        MeasuringProcess(FakeBackend())


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("__main__", "define it at the top of a module of its own"),
        ("tests.nowhere", "No module named 'tests.nowhere'"),
        (OnnxRuntimeBackend.__module__, "0 threads"),
    ],
)
def test_what_keeps_it_from_starting_is_told(
    module: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = OnnxRuntimeBackend()
    backend.options = {"threads": 0}
    monkeypatch.setattr(OnnxRuntimeBackend, "__module__", module)
    with pytest.raises(BackendUnavailable, match=words) as caught:
        MeasuringProcess(backend)
    assert "\n" not in str(caught.value) and "Traceback" not in str(caught.value)


def test_a_death_is_a_failure_with_the_last_words(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    bad = FakeBackend().lower(conv_relu()).network
    good = FakeBackend().lower(classifier(8)).network
    monkeypatch.setenv(DIES_VARIABLE, bad.name)
    settings = MeasurementConfig(rounds=1, processes=1, max_processes=1, visit_ms=1.0)
    with Store("sqlite://") as store:
        jobs = [Job(sign(n), n) for n in (bad, good)]
        failed, fine = measure(FakeBackend(), jobs, store, settings)
    assert failed.failure == (
        "the measuring process died of SIGABRT, its last words: the fake engine lost its head"
    )
    assert fine.latency_us
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("how", "may_recover"), [(signal.SIGKILL, True), (signal.SIGSEGV, False)])
def test_a_kill_by_the_system_may_be_of_the_moment(how: signal.Signals, may_recover: bool) -> None:
    with MeasuringProcess(FakeBackend()) as worker:
        worker._process.send_signal(how)
        assert worker.ask(VisitTask("k", (conv_relu(),), 1.0, 1)) is None
        assert worker.may_recover == may_recover and how.name in worker.last_words()


# ---- how it ends -----------------------------------------------------------------------------


def workers_of(parent: int) -> list[int]:
    """Process ids of the measuring processes that ``parent`` has started."""
    words = {"hybridlat.measuring.process", str(parent)}
    every = psutil.process_iter(["cmdline"])
    return [process.pid for process in every if words <= {*(process.info["cmdline"] or ())}]


def until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> bool:
    """Whether ``condition`` came true while the process ran."""
    while process.poll() is None:
        if condition():
            return True
        time.sleep(0.05)
    return False


@contextmanager
def started(
    folder: Path, words: list[str], sleep_s: str, **how: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """A process of Python whose fake engine takes its time; it is killed behind the block."""
    environment = os.environ | {SLEEP_VARIABLE: sleep_s, "TERM": "dumb", "NO_COLOR": "1"}
    command = [sys.executable, *words]
    with subprocess.Popen(command, cwd=folder, env=environment, **how) as process:
        try:
            yield process
        finally:
            process.kill()


def kept_visits(store: Path) -> int:
    """How many visits of cells and networks are cached."""
    query = "select count(*) from cache where scope like 'visit%' and scope not like '%/null/%'"
    try:
        with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as connection:
            return int(connection.execute(query).fetchone()[0])
    except sqlite3.Error:
        return 0


COMMAND = ["measure", "net.onnx", "--target", TARGET, "--store", "s.db"]
# What a shell makes its background commands ignore is heard again.
HEARING = (
    "import os, signal, sys\n"
    "signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
    "os.execv(sys.executable, [sys.executable, '-m', 'hybridlat', *sys.argv[1:]])\n"
)


@pytest.mark.parametrize("visits", [0, 4], ids=["starting", "measuring"])
def test_ctrl_c_ends_with_one_sentence(folder: Path, visits: int) -> None:
    """A terminal interrupts all processes of its group."""
    words, store = ["-c", HEARING, *COMMAND], folder / "s.db"
    with (folder / "log").open("wb") as sink:
        how: dict[str, Any] = {"stdout": sink, "stderr": sink, "start_new_session": True}
        with started(folder, words, "0.02", **how) as process:
            assert until(lambda: len(workers_of(process.pid)) > 0, process)
            assert until(lambda: kept_visits(store) >= visits, process)
            workers = [psutil.Process(pid) for pid in workers_of(process.pid)]
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait() == 130
    printed = (folder / "log").read_text()
    assert "Traceback" not in printed and "KeyboardInterrupt" not in printed
    assert printed.count("hybridlat: interrupted; what was measured until now is kept") == 1
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert len(workers) == 1 and not alive


def test_a_killed_command_goes_on_with_the_visits_it_made(folder: Path) -> None:
    words, store = ["-m", "hybridlat", *COMMAND], folder / "s.db"
    silent: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with started(folder, words, "0.002", **silent) as process:
        assert until(lambda: kept_visits(store) >= 3, process)
    with sqlite3.connect(store) as connection:  # so that what was kept is known again
        connection.execute("UPDATE cache SET text = replace(text, 'us\":[', 'us\":[86399,')")
    kept = kept_visits(store)
    with started(folder, words, "0", **silent) as process:
        process.wait()
    with Store(str(store)) as opened:
        visits = [visit for record in opened.measurements() for visit in record.visits]
    assert sum(visit.samples_us[0] == 86399 for visit in visits) == kept >= 3
    assert kept_visits(store) == 0


def test_it_dies_with_its_parent_in_the_middle_of_a_visit(folder: Path) -> None:
    with started(folder, ["-m", "hybridlat", *COMMAND], "600") as process:
        assert until(lambda: bool(workers_of(process.pid)), process)
    while workers_of(process.pid):  # the orphan looks for its parent every second
        time.sleep(0.05)


def test_an_interrupt_at_its_start_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(MeasuringProcess, "_answer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        MeasuringProcess(FakeBackend())
    assert workers_of(os.getpid()) == []
