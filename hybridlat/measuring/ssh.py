"""A host reached over ssh: copy a plan there, run it, fetch what it measured.

The system's own ssh is used, so its keys, jump hosts and configuration hold here too. Everything
goes through its standard streams: the host needs ssh, a shell and tar, and nothing is installed.
"""

import re
import shlex
import subprocess
import tarfile
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from hybridlat.board import BoardError
from hybridlat.board.plan import Plan
from hybridlat.engines.registry import board_target
from hybridlat.errors import BackendUnavailable, InputError, MeasurementError
from hybridlat.schema.target import Target
from hybridlat.schema.workers import OnMessage, silent

FINE, NO_ENGINE = 0, 3
"""Exit codes of the runners: all was measured; there is no engine."""
_SSH_FAILED = 255
_HOST = re.compile(r"([A-Za-z0-9_.@%][A-Za-z0-9_.@%-]*@)?[A-Za-z0-9_.:%\[\]][A-Za-z0-9_.:%\[\]-]*")
_SSH = shlex.split(
    "ssh -o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=15 -o ServerAliveCountMax=4"
)
Runner = Literal["auto", "worker", "trtexec"]
_SHORT_S, _COPY_S = 60.0, 1800.0
_COMMANDS = {"worker": "python3 worker.py run", "trtexec": "sh run.sh"}
_IS_RUN = "grep -q -a -e worker.py -e run.sh /proc/$p/cmdline 2>/dev/null"
# Of a run of this plan that goes on although its connection was lost: sshd gives it a group.
_STOP = (
    f'p=$(cat run.pid 2>/dev/null); if [ -n "$p" ] && {_IS_RUN}; then'
    " kill -TERM -$p 2>/dev/null || kill $p; n=0;"
    f" while {_IS_RUN} && [ $n -lt 20 ]; do sleep 1; n=$((n + 1)); done;"
    " kill -KILL -$p 2>/dev/null || kill -9 $p 2>/dev/null; fi; true"
)
OLD_DAYS = 30  # a plan that no run has gone on with since then is removed
_SWEEP = f"find hybridlat-plans/* -prune -mtime +{OLD_DAYS} -exec rm -rf {{}} + 2>/dev/null; true"


def check_target(target: Target) -> None:
    """Raise InputError unless a plan can measure the target: by TensorRT, of a version it has."""
    if target.engine != "tensorrt":
        raise InputError(
            f"{target} cannot be measured on a board: plans are for tensorrt, "
            f"such as {target.device}/tensorrt/fp16"
        )
    if target != (other := board_target(target)):
        raise InputError(
            f"{target} cannot be measured: {target.version!r} is how published tables name an "
            f"engine, and TensorRT reports a version such as 8.6; measure {other}"
        )


@dataclass(frozen=True)
class RemoteHost:
    """``host`` as ssh takes it, what runs there, and the time that a run may take.

    ``runner``: ``worker`` (Python with TensorRT's module), ``trtexec`` (run.sh), or ``auto``: the
    worker where it starts. InputError for what is no host.
    """

    host: str
    runner: Runner = "auto"
    timeout_s: float = 6 * 3600.0
    on_message: OnMessage = silent

    def __post_init__(self) -> None:
        if not _HOST.fullmatch(self.host):
            raise InputError(f"{self.host!r} is no host: write user@board")

    @property
    def _results(self) -> str:
        """This host's file in a plan's folder: another board of the target may go on with it."""
        return f"results-{re.sub('[^A-Za-z0-9._-]', '_', self.host)}.jsonl"

    def measure(self, plan: Path) -> None:
        """Copy the plan, run it and fetch what it measured, even of a run that was cut off.

        The next call goes on from there. BackendUnavailable when the host does not answer or has no
        runner, MeasurementError when the run fails.
        """
        read = _read(plan)
        name, there = read.name, f"cd hybridlat-plans/{read.name} && "
        self._say("connecting")
        self._run(f"{_SWEEP}; mkdir -p hybridlat-plans/{name}", _SHORT_S)
        if self._run(f"{there}cat copied 2>/dev/null || true", _SHORT_S).strip() != name:
            self._copy(plan, read.files, f"{there}tar xf - && cp plan.txt copied")
        why_not = "" if self.runner == "trtexec" else self._why_no_worker(there)
        if why_not and self.runner == "worker":
            raise BackendUnavailable(f"{self.host} cannot run worker.py: {why_not}")
        chosen = "trtexec" if why_not or self.runner == "trtexec" else "worker"
        self._say(f"measuring with {chosen}")
        command = f"{there}{{ {_STOP}; echo $$ >run.pid; exec {_COMMANDS[chosen]}; }}"
        status, last = self._follow(command)
        if status < 0:  # only this end of it was stopped
            self._run(f"{there}{{ {_STOP}; }}", _SHORT_S)
        if status == NO_ENGINE:
            reason = f"worker.py: {why_not}; run.sh: {last}" if why_not else last
            raise BackendUnavailable(f"{self.host} has no TensorRT that can be used ({reason})")
        problem = "" if status == FINE else last
        try:
            self._fetch(f"{there}cat results.jsonl", plan / self._results)
        except MeasurementError as error:
            raise MeasurementError(f"{self.host}: {problem}" if problem else str(error)) from error
        if problem:
            raise MeasurementError(f"{self.host}: {problem}; what was measured until then is kept")

    def forget(self, plan: Path) -> None:
        """Remove the plan from the host: all that it measured is here."""
        self._run(f"rm -rf hybridlat-plans/{_read(plan).name}", _SHORT_S)

    def _run(
        self,
        command: str,
        timeout_s: float,
        source: IO[bytes] | int = subprocess.DEVNULL,
        sink: IO[bytes] | int = subprocess.PIPE,
    ) -> str:
        """What the command prints; BackendUnavailable where the host does not answer."""
        try:
            done = subprocess.run(
                [*_SSH, self.host, command],
                stdin=source,
                stdout=sink,
                stderr=subprocess.PIPE,
                timeout=timeout_s,
                check=False,
            )
        except FileNotFoundError as error:
            raise BackendUnavailable("ssh is not installed on this machine: use a plan") from error
        except subprocess.TimeoutExpired as error:
            why = f"{self.host} gave no answer in {timeout_s:.0f} s: try `ssh {self.host}`"
            raise BackendUnavailable(why) from error
        words = " ".join(done.stderr.decode("utf-8", "replace").split())[-300:]
        if done.returncode == _SSH_FAILED:  # as opposed to the command's
            raise BackendUnavailable(f"{self.host} cannot be reached: {words}")
        if done.returncode:
            raise MeasurementError(f"{self.host}: ssh failed: {words}")
        return (done.stdout or b"").decode("utf-8", "replace")

    def _say(self, words: str) -> None:
        self.on_message(f"{self.host}: {words}")

    def _follow(self, command: str) -> tuple[int, str]:
        """Run while passing on what it says; its status, and its last words or what went wrong."""
        end, last = time.monotonic() + self.timeout_s, ""
        with subprocess.Popen(
            [*_SSH, self.host, command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            clock = threading.Timer(self.timeout_s, process.kill)
            clock.start()
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    last = line.strip() or last
                    self._say(line.rstrip())
                status = process.wait()
            finally:
                clock.cancel()
                process.kill()
        if status < 0 and time.monotonic() >= end:
            return status, f"stopped after {self.timeout_s:.0f} s ({last})"
        if status == _SSH_FAILED:
            return status, f"the connection was lost ({last})"
        if status in (FINE, NO_ENGINE):
            return status, last
        return status, f"the run ended with status {status} ({last})"

    def _copy(self, plan: Path, files: Sequence[str], unpack: str) -> None:
        code = [str(path.relative_to(plan)) for path in sorted(plan.glob("hybridlat_board/*.py"))]
        with tempfile.TemporaryFile() as archive:
            with tarfile.open(fileobj=archive, mode="w") as packed:
                for name in (*files, "files.txt", "run.sh", "worker.py", *code, "manifest.json"):
                    packed.add(plan / name, name, recursive=False)
                if (plan / self._results).exists():  # the board goes on from there
                    packed.add(plan / self._results, "results.jsonl")
            self._say(f"copying {archive.tell() / 1e6:.1f} MB")
            archive.seek(0)
            self._run(unpack, _COPY_S, source=archive)

    def _why_no_worker(self, there: str) -> str:
        """Why worker.py cannot start there; empty where it can."""
        try:
            self._run(f"{there}python3 worker.py check", 3 * _SHORT_S)
        except MeasurementError as error:
            words = str(error).removeprefix(f"{self.host}: ssh failed: ")
            return words.removeprefix("worker.py: ") or "it ended without a word"
        return ""

    def _fetch(self, command: str, results: Path) -> None:
        self._say("fetching results")
        part = results.with_suffix(".part")
        with part.open("wb") as sink:
            self._run(command, _COPY_S, sink=sink)
        before = results.read_bytes() if results.exists() else b""
        if not part.read_bytes().startswith(before[: before.rfind(b"\n") + 1]):
            part.unlink()
            fix = "move one of the two away"
            raise MeasurementError(f"{self.host} holds other results than {results}: {fix}")
        part.replace(results)


def _read(plan: Path) -> Plan:
    """The plan in a folder, whose name is part of commands; InputError where it is damaged."""
    try:
        return Plan(str(plan))
    except BoardError as error:
        raise InputError(str(error)) from error
