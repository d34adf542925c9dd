"""A board reached over ssh: copy a plan there, run it, fetch what it measured.

The system's own ssh is used, so its keys, jump hosts and configuration hold here too. Everything
goes through its standard streams: the board needs ssh, a shell and tar, and nothing is installed.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from hybridlat.errors import BackendUnavailable, HostUnreachable, InputError, MeasurementError
from hybridlat.schema.progress import OnMessage, silent
from hybridlat.schema.target import Target

FINE, NO_ENGINE = (0, 4), 3
"""Exit codes of the runners: all or all in time was measured; there is no engine."""
_SSH_FAILED = 255
_HOST = re.compile(r"[A-Za-z0-9_.@:%\[\]][A-Za-z0-9_.@:%\[\]-]*")
_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15",
            "-o", "ServerAliveCountMax=4")  # fmt: skip
LIMIT_S = 6 * 3600.0
"""How long a run may take."""
_SHORT_S = 60.0
_COPY_S = 1800.0
_COMMANDS = {"worker": "python3 worker.py run", "trtexec": "sh run.sh"}
RUNNERS = ("auto", *_COMMANDS)
_PLAN = re.compile(r"[0-9a-f]{16}")
_LAYERS = re.compile(r"(?:\./)?layers/([A-Za-z0-9_]+\.json)")
_MOST_LAYERS_BYTES = 64_000_000
# A run whose connection was lost may still be going on there: two must not measure at once.
_ALONE = (
    "if [ -s run.pid ] && grep -q -a -e worker.py -e run.sh /proc/$(cat run.pid)/cmdline"
    " 2>/dev/null; then kill $(cat run.pid); sleep 1; fi; echo $$ >run.pid; exec"
)


def run_on(
    host: str,
    runner: str = "auto",
    timeout_s: float = LIMIT_S,
    on_message: OnMessage = silent,
    results: str = "results.jsonl",
) -> Callable[[Path], None]:
    """Something that measures the plan in a folder on ``host``; see Board.measure."""
    check_host(host)  # before anything is written for it

    def run(folder: Path) -> None:
        Board(host, folder, results).measure(runner, timeout_s, on_message)

    return run


def check_target(target: Target) -> None:
    """Raise InputError unless boards can measure the target: they have TensorRT."""
    if target.engine != "tensorrt":
        raise InputError(
            f"{target} cannot be measured over ssh: plans are for tensorrt, "
            f"such as {target.device}/tensorrt/fp16"
        )


def check_host(host: str) -> None:
    """Raise InputError for what ssh would not take for a host: an option, a sentence."""
    if not _HOST.fullmatch(host):
        raise InputError(f"{host!r} is no host: write user@board")


class Connection:
    """One host; every call is an ssh of its own.

    Calls raise HostUnreachable when the host does not answer (in time) and MeasurementError when
    the command fails there.
    """

    def __init__(self, host: str) -> None:
        check_host(host)
        self.host = host

    def run(
        self, command: str, timeout_s: float, *,
        source: IO[bytes] | int = subprocess.DEVNULL, sink: IO[bytes] | int = subprocess.PIPE,
    ) -> str:  # fmt: skip
        """Run the command on ``source``; what it prints, unless that goes to ``sink``."""
        try:
            done = subprocess.run(
                ["ssh", *_OPTIONS, self.host, command], stdin=source, stdout=sink,
                stderr=subprocess.PIPE, timeout=timeout_s, check=False,
            )  # fmt: skip
        except FileNotFoundError as error:
            raise BackendUnavailable("ssh is not installed on this machine") from error
        except subprocess.TimeoutExpired as error:
            raise HostUnreachable(f"{self.host} gave no answer in {timeout_s:.0f} s") from error
        words = " ".join(done.stderr.decode("utf-8", "replace").split())[-300:]
        if done.returncode == _SSH_FAILED:  # as opposed to the command's
            raise HostUnreachable(f"{self.host} cannot be reached: {words}")
        if done.returncode:
            raise MeasurementError(f"{self.host}: ssh failed: {words}")
        return (done.stdout or b"").decode("utf-8", "replace")

    def follow(self, command: str, timeout_s: float, on_message: OnMessage) -> tuple[int, str]:
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
                    on_message(f"{self.host}: {line.rstrip()}")
                status = process.wait()
            finally:
                clock.cancel()
                process.kill()
        if status < 0 and time.monotonic() >= end:
            return status, f"stopped after {timeout_s:.0f} s"
        if status == _SSH_FAILED:
            return status, f"the connection was lost ({last})"
        if status in (*FINE, NO_ENGINE):
            return status, last
        return status, f"the run ended with status {status} ({last})"


class Board:
    """One host and the folder on it that holds a plan; ``results`` is fetched, a file a board."""

    def __init__(self, host: str, plan: str | Path, results: str = "results.jsonl") -> None:
        self._connection = Connection(host)
        self.host = host
        self.plan = Path(plan)
        self._results = self.plan / results
        if not (self.plan / "manifest.json").exists():
            raise InputError(f"{plan} is no plan: write one with `hybridlat plan`")
        self._name = (self.plan / "plan.txt").read_text().strip()
        if not _PLAN.fullmatch(self._name):
            raise InputError(f"{self.plan / 'plan.txt'} does not hold a plan's name")
        self.folder = f"hybridlat-plans/{self._name}"

    def measure(
        self, runner: str = "auto", timeout_s: float = LIMIT_S, on_message: OnMessage = silent
    ) -> Path:
        """Copy, run and fetch; the results file in the plan's folder.

        ``runner``: ``worker`` (Python with TensorRT's module), ``trtexec`` (run.sh), or ``auto``:
        the worker where it starts. What was measured before a lost connection or ``timeout_s`` is
        fetched all the same; the next call goes on from there. Raises BackendUnavailable when the
        host does not answer or has no runner, MeasurementError when the run fails.
        """
        if runner not in RUNNERS:
            raise InputError(f"{runner!r} is no runner: choose auto, worker or trtexec")
        on_message(f"{self.host}: connecting")
        self._connection.run(f"mkdir -p {shlex.quote(self.folder)}", _SHORT_S)
        self._copy(on_message)
        why_not = self._why_no_worker() if runner in ("auto", "worker") else ""
        if why_not and runner == "worker":
            raise BackendUnavailable(f"{self.host} cannot run worker.py: {why_not}")
        chosen = runner if runner != "auto" else "trtexec" if why_not else "worker"
        on_message(f"{self.host}: measuring with {chosen}")
        command = self._there(f"{_ALONE} {_COMMANDS[chosen]}")
        status, last = self._connection.follow(command, timeout_s, on_message)
        if status == NO_ENGINE:
            reason = f"worker.py: {why_not}; run.sh: {last}" if why_not else last
            raise BackendUnavailable(f"{self.host} has no TensorRT that can be used ({reason})")
        problem = "" if status in FINE else last
        try:
            results = self._fetch(on_message)
        except MeasurementError as error:
            raise MeasurementError(f"{self.host}: {problem}" if problem else str(error)) from error
        if problem:
            raise MeasurementError(f"{self.host}: {problem}; what was measured until then is kept")
        return results

    def _there(self, command: str) -> str:
        return f"cd {shlex.quote(self.folder)} && {command}"

    def _copy(self, on_message: OnMessage) -> None:
        """Send the plan as one archive, unless this very plan is there already."""
        there = self._connection.run(self._there("cat copied 2>/dev/null || true"), _SHORT_S)
        if there.strip() == self._name:
            return
        with tempfile.TemporaryFile() as archive:
            with tarfile.open(fileobj=archive, mode="w") as packed:
                for path in sorted(self.plan.iterdir()):
                    if not path.name.startswith("results") and path.name not in ("layers", "logs"):
                        packed.add(path, path.name)
            on_message(f"{self.host}: copying {archive.tell() / 1e6:.1f} MB")
            archive.seek(0)
            unpack = self._there("tar xf - && cp plan.txt copied")
            self._connection.run(unpack, _COPY_S, source=archive)

    def _why_no_worker(self) -> str:
        """Why worker.py cannot start there; empty where it can."""
        try:
            self._connection.run(self._there("python3 worker.py check"), 3 * _SHORT_S)
        except MeasurementError as error:
            words = str(error).removeprefix(f"{self.host}: ssh failed: ")
            return words.removeprefix("worker.py: ") or "it ended without a word"
        return ""

    def _fetch(self, on_message: OnMessage) -> Path:
        on_message(f"{self.host}: fetching results")
        results = self._results
        part = results.with_suffix(".part")
        with part.open("wb") as sink:
            self._connection.run(self._there("cat results.jsonl"), _COPY_S, sink=sink)
        before = results.read_bytes() if results.exists() else b""
        if not part.read_bytes().startswith(before[: before.rfind(b"\n") + 1]):
            part.unlink()
            raise MeasurementError(
                f"{self.host} holds other results than {results}: move one of the two away"
            )
        part.replace(results)
        with tempfile.TemporaryFile() as archive:
            command = self._there("mkdir -p layers && tar cf - layers")
            self._connection.run(command, _COPY_S, sink=archive)
            archive.seek(0)
            try:
                unpack_layers(archive, self.plan / "layers")
            except tarfile.TarError as error:
                raise MeasurementError(f"{self.host} sent no archive: {error}") from error
        return results


def unpack_layers(archive: IO[bytes], folder: Path) -> None:
    """Write the regular files ``layers/NAME.json`` of an archive; whatever else is in it is not.

    The archive comes from another machine: a name in it never decides where is written.
    """
    folder.mkdir(exist_ok=True)
    with tarfile.open(fileobj=archive) as packed:
        for member in packed:
            named = _LAYERS.fullmatch(member.name)
            content = packed.extractfile(member) if named and member.isreg() else None
            if named and content is not None and member.size <= _MOST_LAYERS_BYTES:
                (folder / named[1]).write_bytes(content.read())
