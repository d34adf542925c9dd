"""A board reached over ssh: copy a plan there, run it, fetch what it measured.

    run_on("user@board")(folder)        what ``hybridlat measure --host`` and ``plan --host`` do

The system's own ssh and scp are used, so its keys, jump hosts and configuration hold here too.
Nothing is installed on the board.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hybridlat.errors import BackendUnavailable, InputError, MeasurementError
from hybridlat.schema.target import Target

Report = Callable[[str], None]
_HOST = re.compile(r"[A-Za-z0-9_.@:%\[\]-]+")
_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15",
            "-o", "ServerAliveCountMax=4")  # fmt: skip
_SHORT_S = 60.0
_COPY_S = 1800.0
_COMMANDS = {"worker": "python3 worker.py run", "trtexec": "sh run.sh"}
_FINE, _NO_ENGINE, _SSH_FAILED = (0, 4), 3, 255
# A run whose connection was lost may still be going on there: two must not measure at once.
_ALONE = (
    "if [ -s run.pid ] && grep -q -a -e worker.py -e run.sh /proc/$(cat run.pid)/cmdline"
    " 2>/dev/null; then kill $(cat run.pid); sleep 1; fi; echo $$ >run.pid; exec"
)


def run_on(
    host: str, runner: str = "auto", timeout_s: float = 6 * 3600.0, report: Report = lambda _: None
) -> Callable[[Path], None]:
    """Something that measures the plan in a folder on ``host``; see Board.measure."""
    _check(host)  # before anything is written for it

    def run(folder: Path) -> None:
        Board(host, folder).measure(runner, timeout_s, report)

    return run


def check_target(target: Target) -> None:
    """Raise InputError unless boards can measure the target: they have TensorRT."""
    if target.engine != "tensorrt":
        raise InputError(
            f"{target} cannot be measured over ssh: plans are for tensorrt, "
            f"such as {target.device}/tensorrt/fp16"
        )


def _check(host: str) -> None:
    if not _HOST.fullmatch(host) or host.startswith("-"):
        raise InputError(f"{host!r} is no host: write user@board")


class Board:
    """One host and the folder on it that holds a plan."""

    def __init__(self, host: str, plan: str | Path, folder: str | None = None) -> None:
        _check(host)
        self.host = host
        self.plan = Path(plan)
        if not (self.plan / "manifest.json").exists():
            raise InputError(f"{plan} is no plan: write one with `hybridlat plan`")
        name = (self.plan / "plan.txt").read_text().strip()
        self.folder = folder or f"hybridlat-plans/{name}"

    def measure(
        self, runner: str = "auto", timeout_s: float = 6 * 3600.0, report: Report = lambda _: None
    ) -> Path:
        """Copy, run and fetch; the results file in the plan's folder.

        ``runner``: ``worker`` (Python with TensorRT's module), ``trtexec`` (run.sh), or ``auto``,
        which takes the worker where it starts. ``report`` gets a line whenever one is finished.
        What was measured before a lost connection or ``timeout_s`` is fetched all the same, and
        the next call goes on from there. Raises BackendUnavailable when the host does not answer
        or has neither of the runners, MeasurementError when the run fails.
        """
        if runner not in ("auto", *_COMMANDS):
            raise InputError(f"{runner!r} is no runner: choose auto, worker or trtexec")
        report(f"{self.host}: connecting")
        self._ssh(f"mkdir -p {shlex.quote(self.folder)}", _SHORT_S)
        self._copy(report)
        why_not = self._why_no_worker() if runner in ("auto", "worker") else ""
        if why_not and runner == "worker":
            raise BackendUnavailable(f"{self.host} cannot run worker.py: {why_not}")
        chosen = runner if runner != "auto" else "trtexec" if why_not else "worker"
        report(f"{self.host}: measuring with {chosen}")
        where = f"cd {shlex.quote(self.folder)}"
        status, last = self._run(f"{where} && {_ALONE} {_COMMANDS[chosen]}", timeout_s, report)
        if status == _NO_ENGINE:
            reason = f"worker.py: {why_not}; run.sh: {last}" if why_not else last
            raise BackendUnavailable(f"{self.host} has no TensorRT that can be used ({reason})")
        problem = "" if status in _FINE else last
        try:
            results = self._fetch(report)
        except MeasurementError as error:
            raise MeasurementError(f"{self.host}: {problem}" if problem else str(error)) from error
        if problem:
            raise MeasurementError(f"{self.host}: {problem}; what was measured until then is kept")
        return results

    def _copy(self, report: Report) -> None:
        """Send the plan as one archive, unless this very plan is there already."""
        wanted = (self.plan / "plan.txt").read_text().strip()
        there = self._ssh(f"cat {shlex.quote(self.folder)}/copied 2>/dev/null || true", _SHORT_S)
        if there.strip() == wanted:
            return
        with tempfile.TemporaryDirectory() as scratch:
            archive = Path(scratch) / "plan.tar"
            with tarfile.open(archive, "w") as packed:
                for path in sorted(self.plan.iterdir()):
                    if not path.name.startswith("results") and path.name not in ("layers", "logs"):
                        packed.add(path, path.name)
            report(f"{self.host}: copying {archive.stat().st_size / 1e6:.1f} MB")
            self._scp(str(archive), f"{self.host}:{self.folder}/plan.tar")
        unpack = "tar xf plan.tar && rm plan.tar && cp plan.txt copied"
        self._ssh(f"cd {shlex.quote(self.folder)} && {unpack}", _COPY_S)

    def _why_no_worker(self) -> str:
        """Why worker.py cannot start there; empty where it can."""
        try:
            self._ssh(f"cd {shlex.quote(self.folder)} && python3 worker.py check", 3 * _SHORT_S)
        except MeasurementError as error:
            words = str(error).removeprefix(f"{self.host}: ssh failed: ")
            return words.removeprefix("worker.py: ") or "it ended without a word"
        return ""

    def _run(self, command: str, timeout_s: float, report: Report) -> tuple[int, str]:
        """Run while passing on what it says; its status, and its last words or what went wrong."""
        end = time.monotonic() + timeout_s
        last = ""
        with subprocess.Popen(
            ["ssh", *_OPTIONS, self.host, command], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        ) as process:  # fmt: skip
            clock = threading.Timer(timeout_s, process.kill)
            clock.start()
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    last = line.strip() or last
                    report(f"{self.host}: {line.rstrip()}")
                status = process.wait()
            finally:
                clock.cancel()
                process.kill()
        if status < 0 and time.monotonic() >= end:
            return status, f"stopped after {timeout_s:.0f} s"
        if status == _SSH_FAILED:
            return status, f"the connection was lost ({last})"
        if status in (*_FINE, _NO_ENGINE):
            return status, last
        return status, f"the run ended with status {status} ({last})"

    def _fetch(self, report: Report) -> Path:
        report(f"{self.host}: fetching results")
        results = self.plan / "results.jsonl"
        part = self.plan / "results.part"
        self._scp(f"{self.host}:{self.folder}/results.jsonl", str(part))
        if results.exists() and not part.read_bytes().startswith(_whole_lines(results)):
            part.unlink()
            raise MeasurementError(
                f"{self.host} holds other results than {results}: move one of the two away"
            )
        part.replace(results)
        layers = self.plan / "layers"
        layers.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            archive = Path(scratch) / "layers.tar"
            pack = "mkdir -p layers && tar cf layers.tar layers"
            self._ssh(f"cd {shlex.quote(self.folder)} && {pack}", _COPY_S)
            self._scp(f"{self.host}:{self.folder}/layers.tar", str(archive))
            with tarfile.open(archive) as packed:
                packed.extractall(self.plan, filter="data")
        return results

    def _ssh(self, command: str, timeout_s: float) -> str:
        return self._system(["ssh", *_OPTIONS, self.host, command], timeout_s)

    def _scp(self, source: str, target: str) -> None:
        self._system(["scp", "-q", *_OPTIONS, source, target], _COPY_S)

    def _system(self, command: Sequence[str], timeout_s: float) -> str:
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                errors="replace", timeout=timeout_s, check=False,
            )  # fmt: skip
        except FileNotFoundError as error:
            raise BackendUnavailable(f"{command[0]} is not installed on this machine") from error
        except subprocess.TimeoutExpired as error:
            raise BackendUnavailable(f"{self.host} gave no answer in {timeout_s:.0f} s") from error
        words = " ".join(done.stderr.split())[-300:]
        if done.returncode == _SSH_FAILED:  # as opposed to the command's
            raise BackendUnavailable(f"{self.host} cannot be reached: {words}")
        if done.returncode:
            raise MeasurementError(f"{self.host}: {command[0]} failed: {words}")
        return done.stdout


def _whole_lines(path: Path) -> bytes:
    data = path.read_bytes()
    return data[: data.rfind(b"\n") + 1]
