"""A board reached over ssh: copy a plan there, run it, fetch what it measured.

    run_on("user@board")(folder)        what ``hybridlat measure --host`` and ``plan --host`` do

The system's own ssh is used, so its keys, jump hosts and configuration hold here too. Everything
goes through its standard streams: nothing is installed on the board, and it needs no file transfer
service beside ssh, a shell and tar.
"""

from __future__ import annotations

import re
import shlex
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

from hybridlat.errors import BackendUnavailable, InputError, MeasurementError
from hybridlat.measuring.ssh_connection import FINE, NO_ENGINE, Connection, check_host
from hybridlat.schema.progress import OnMessage, silent
from hybridlat.schema.target import Target

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
    host: str, runner: str = "auto", timeout_s: float = 6 * 3600.0, on_message: OnMessage = silent
) -> Callable[[Path], None]:
    """Something that measures the plan in a folder on ``host``; see Board.measure."""
    check_host(host)  # before anything is written for it

    def run(folder: Path) -> None:
        Board(host, folder).measure(runner, timeout_s, on_message)

    return run


def check_target(target: Target) -> None:
    """Raise InputError unless boards can measure the target: they have TensorRT."""
    if target.engine != "tensorrt":
        raise InputError(
            f"{target} cannot be measured over ssh: plans are for tensorrt, "
            f"such as {target.device}/tensorrt/fp16"
        )


class Board:
    """One host and the folder on it that holds a plan.

    ``results`` is the file in the plan's folder here that what is fetched goes to: one for each
    board that measures the plan.
    """

    def __init__(
        self, host: str, plan: str | Path, folder: str | None = None, *,
        results: str = "results.jsonl",
    ) -> None:  # fmt: skip
        self._connection = Connection(host)
        self.host = host
        self.plan = Path(plan)
        self._results = self.plan / results
        if not (self.plan / "manifest.json").exists():
            raise InputError(f"{plan} is no plan: write one with `hybridlat plan`")
        self._name = (self.plan / "plan.txt").read_text().strip()
        if not _PLAN.fullmatch(self._name):
            raise InputError(f"{self.plan / 'plan.txt'} does not hold a plan's name")
        self.folder = folder or f"hybridlat-plans/{self._name}"

    def measure(
        self, runner: str = "auto", timeout_s: float = 6 * 3600.0, on_message: OnMessage = silent
    ) -> Path:
        """Copy, run and fetch; the results file in the plan's folder.

        ``runner``: ``worker`` (Python with TensorRT's module), ``trtexec`` (run.sh), or ``auto``,
        which takes the worker where it starts. ``on_message`` gets a line whenever one is finished.
        What was measured before a lost connection or ``timeout_s`` is fetched all the same, and
        the next call goes on from there. Raises BackendUnavailable when the host does not answer
        or has neither of the runners, MeasurementError when the run fails.
        """
        if runner not in RUNNERS:
            raise InputError(f"{runner!r} is no runner: choose auto, worker or trtexec")
        on_message(f"{self.host}: connecting")
        self._connection.ask(f"mkdir -p {shlex.quote(self.folder)}", _SHORT_S)
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
        there = self._connection.ask(self._there("cat copied 2>/dev/null || true"), _SHORT_S)
        if there.strip() == self._name:
            return
        with tempfile.TemporaryFile() as archive:
            with tarfile.open(fileobj=archive, mode="w") as packed:
                for path in sorted(self.plan.iterdir()):
                    if not path.name.startswith("results") and path.name not in ("layers", "logs"):
                        packed.add(path, path.name)
            on_message(f"{self.host}: copying {archive.tell() / 1e6:.1f} MB")
            archive.seek(0)
            self._connection.send(self._there("tar xf - && cp plan.txt copied"), archive, _COPY_S)

    def _why_no_worker(self) -> str:
        """Why worker.py cannot start there; empty where it can."""
        try:
            self._connection.ask(self._there("python3 worker.py check"), 3 * _SHORT_S)
        except MeasurementError as error:
            words = str(error).removeprefix(f"{self.host}: ssh failed: ")
            return words.removeprefix("worker.py: ") or "it ended without a word"
        return ""

    def _fetch(self, on_message: OnMessage) -> Path:
        on_message(f"{self.host}: fetching results")
        results = self._results
        part = results.with_suffix(".part")
        with part.open("wb") as sink:
            self._connection.receive(self._there("cat results.jsonl"), sink, _COPY_S)
        if results.exists() and not part.read_bytes().startswith(_whole_lines(results)):
            part.unlink()
            raise MeasurementError(
                f"{self.host} holds other results than {results}: move one of the two away"
            )
        part.replace(results)
        with tempfile.TemporaryFile() as archive:
            command = self._there("mkdir -p layers && tar cf - layers")
            self._connection.receive(command, archive, _COPY_S)
            archive.seek(0)
            try:
                with tarfile.open(fileobj=archive) as packed:
                    unpack_layers(packed, self.plan / "layers")
            except tarfile.TarError as error:
                raise MeasurementError(f"{self.host} sent no archive: {error}") from error
        return results


def unpack_layers(packed: tarfile.TarFile, folder: Path) -> None:
    """Write the regular files ``layers/NAME.json`` of an archive; whatever else is in it is not.

    The archive comes from another machine: a name in it never decides where is written.
    """
    folder.mkdir(exist_ok=True)
    for member in _regular(packed):
        named = _LAYERS.fullmatch(member.name)
        content = packed.extractfile(member) if named else None
        if named and content is not None and member.size <= _MOST_LAYERS_BYTES:
            (folder / named[1]).write_bytes(_read(content))


def _regular(packed: Iterable[tarfile.TarInfo]) -> Iterable[tarfile.TarInfo]:
    return (member for member in packed if member.isreg())


def _read(content: IO[bytes]) -> bytes:
    with content:
        return content.read()


def _whole_lines(path: Path) -> bytes:
    data = path.read_bytes()
    return data[: data.rfind(b"\n") + 1]
