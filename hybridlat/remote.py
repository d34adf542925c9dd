"""A board reached over ssh: copy a plan there, run it, fetch what it measured.

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

Report = Callable[[str], None]
_HOST = re.compile(r"[A-Za-z0-9_.@:%\[\]-]+$")
_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15",
            "-o", "ServerAliveCountMax=4")  # fmt: skip
_SHORT_S = 60.0
_COPY_S = 1800.0


class Board:
    """One host and the folder on it that holds a plan."""

    def __init__(self, host: str, plan: str | Path, folder: str | None = None) -> None:
        if not _HOST.match(host) or host.startswith("-"):
            raise InputError(f"{host!r} is no host: write user@board")
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
        the next call goes on from there. Raises BackendUnavailable when the host does not answer,
        MeasurementError when the run fails.
        """
        report(f"{self.host}: connecting")
        self._ssh(f"mkdir -p {shlex.quote(self.folder)}", _SHORT_S)
        self._copy(report)
        if runner == "auto":
            runner = "worker" if self._has_worker() else "trtexec"
        command = {
            "worker": "python3 worker.py run",
            "trtexec": "sh run.sh",
        }.get(runner)
        if command is None:
            raise InputError(f"{runner!r} is no runner: choose auto, worker or trtexec")
        report(f"{self.host}: measuring with {runner}")
        problem = self._run(f"cd {shlex.quote(self.folder)} && {command}", timeout_s, report)
        results = self._fetch(report)
        if problem:
            raise MeasurementError(f"{self.host}: {problem}; what was measured is in {results}")
        return results

    def _copy(self, report: Report) -> None:
        """Send the plan as one archive, unless this very plan is there already."""
        wanted = (self.plan / "plan.txt").read_text().strip()
        there = self._ssh(f"cat {shlex.quote(self.folder)}/plan.txt 2>/dev/null || true", _SHORT_S)
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
        self._ssh(f"cd {shlex.quote(self.folder)} && tar xf plan.tar && rm plan.tar", _COPY_S)

    def _has_worker(self) -> bool:
        try:
            self._ssh(f"cd {shlex.quote(self.folder)} && python3 worker.py check", 3 * _SHORT_S)
        except MeasurementError:
            return False
        return True

    def _run(self, command: str, timeout_s: float, report: Report) -> str:
        """Run while passing on what it says; what went wrong, empty when nothing did."""
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
        timed_out = status < 0 and time.monotonic() >= end
        if timed_out:
            return f"stopped after {timeout_s:.0f} s"
        return "" if status in (0, 4) else f"the run ended with status {status} ({last})"

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
            self._ssh(f"cd {shlex.quote(self.folder)} && tar cf layers.tar layers", _COPY_S)
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
        if done.returncode == 255:  # ssh's own failure, as opposed to the command's
            raise BackendUnavailable(f"{self.host} cannot be reached: {words}")
        if done.returncode:
            raise MeasurementError(f"{self.host}: {command[0]} failed: {words}")
        return done.stdout


def _whole_lines(path: Path) -> bytes:
    data = path.read_bytes()
    return data[: data.rfind(b"\n") + 1]
