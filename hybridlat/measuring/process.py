"""The measuring process from its parent's side: start it, ask it, notice its death, stop it.

A plain subprocess in a session of its own, not one of ``multiprocessing``: that would run the
caller's main module again (a script without a guard, a notebook and standard input have none that
can be run twice), may not be started by daemonic processes, and gets the terminal's Ctrl-C.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from types import TracebackType

from hybridlat.errors import BackendUnavailable
from hybridlat.measuring.visiting import VisitResult, VisitTask

JOB_TIMEOUT_S = 240.0
_WORKER = "hybridlat.measuring.worker"
_LAST_WORDS_BYTES = 2000
_LAST_WORDS_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Start:
    """The first message to the process: the backend (``module:Class``) and where modules lie.

    ``pythonpath`` is the parent's PYTHONPATH (None: not set), put back for the backend's processes.
    The answer is why the backend cannot be started, an empty text where it runs.
    """

    backend: str
    options: Mapping[str, int | str] = field(default_factory=dict)
    module_path: tuple[str, ...] = ()
    pythonpath: str | None = None


class MeasuringProcess:
    """One measuring process with one backend, named ``module:Class``, and its ``options``.

    Raises BackendUnavailable when it does not start. Leaving its context stops it, at once where an
    exception (Ctrl-C) is on its way.
    """

    def __init__(self, backend: str, options: Mapping[str, int | str]) -> None:
        _check_importable(backend)
        interpreter = _interpreter()
        here, there = socket.socketpair()
        module_path = tuple(os.path.abspath(entry) for entry in sys.path)  # noqa: PTH100  "" too
        self._words = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the process
        with there:
            descriptor = there.fileno()
            self._process = subprocess.Popen(
                [interpreter, "-P", "-m", _WORKER, str(descriptor), str(os.getpid())],
                stdin=subprocess.DEVNULL, stdout=self._words, stderr=self._words,
                pass_fds=(descriptor,), start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(module_path)},
            )  # fmt: skip
        self._connection = Connection(here.detach())
        self._has_ended = False
        try:
            self._greet(Start(backend, dict(options), module_path, os.environ.get("PYTHONPATH")))
        except BaseException:
            self.kill()
            raise

    def _greet(self, start: Start) -> None:
        with contextlib.suppress(ConnectionError):
            self._connection.send(start)
        answer = self._receive(JOB_TIMEOUT_S)
        if answer != "":
            words = answer if isinstance(answer, str) else self.last_words()
            raise BackendUnavailable(f"the measuring process did not start: {words}")

    def _receive(self, timeout_s: float) -> object:
        try:
            return self._connection.recv() if self._connection.poll(timeout_s) else None
        except (EOFError, ConnectionError):
            self._has_ended = True
            return None

    def ask(self, task: VisitTask) -> VisitResult | None:
        """The result of ``task``; None when the process died over it or gave no answer."""
        try:
            self._connection.send(task)
        except ConnectionError:
            self._has_ended = True
            return None
        answer = self._receive(JOB_TIMEOUT_S)
        return answer if isinstance(answer, VisitResult) else None

    def last_words(self) -> str:
        """Why there was no answer: how the process ended, and what it wrote last."""
        try:
            code = self._process.wait(JOB_TIMEOUT_S if self._has_ended else 0.0)
        except subprocess.TimeoutExpired:
            return f"gave no answer within {JOB_TIMEOUT_S:.0f} s"
        end = f"died of {_signal_name(-code)}" if code < 0 else f"ended with code {code}"
        output = self._last_line()
        return f"the measuring process {end}" + (f", its last words: {output}" if output else "")

    def _last_line(self) -> str:
        """The last line of its output: of a traceback, the one that names the error."""
        size = self._words.seek(0, os.SEEK_END)
        self._words.seek(max(0, size - _LAST_WORDS_BYTES))
        text = self._words.read().decode("utf-8", "replace").strip()
        return " ".join(text.split("\n")[-1].split())[-_LAST_WORDS_SHOWN:]

    def stop(self) -> None:
        """Let it end by itself, within two seconds."""
        self._connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
        self.kill()

    def kill(self) -> None:
        """End it now."""
        self._process.kill()
        self._process.wait()
        self._connection.close()
        self._words.close()

    def __enter__(self) -> MeasuringProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()


def _interpreter() -> str:
    """The Python that runs here; BackendUnavailable for a program that has none."""
    if getattr(sys, "frozen", False) or not sys.executable:
        raise BackendUnavailable(
            "measuring starts a Python process of its own, and this program has no Python "
            f"interpreter to start (sys.executable is {sys.executable!r}): measure with the "
            "command `hybridlat measure` of an installed hybridlat, and predict from its store"
        )
    return sys.executable


def _check_importable(backend: str) -> None:
    module, _, name = backend.partition(":")
    if module == "__main__" or "<locals>" in name:
        raise BackendUnavailable(
            f"the measuring process cannot import the backend {name!r} of {module}: define it at "
            "the top of a module of its own"
        )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
