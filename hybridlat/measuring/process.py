"""The measuring process: it builds networks, times them between reference runs, and reports.

    python -m hybridlat.measuring.process FD PARENT     FD: a socket to the parent, PARENT its id

So a crash or a hang costs one job, and addresses and cores, which a process keeps for its life,
differ between visits of the same thing. It is a plain subprocess in a session of its own.
``multiprocessing`` would run the caller's main module again (a script without a guard, a notebook).
Daemonic processes may not start it, and it gets the terminal's Ctrl-C.
"""

import contextlib
import logging
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing.connection import Connection

from hybridlat.board import BoardError
from hybridlat.board.lock import held, machine_lock
from hybridlat.engines.base import Backend
from hybridlat.engines.host import pin, usable_cores
from hybridlat.errors import BackendUnavailable, HybridlatError
from hybridlat.measuring.visiting import References, VisitResult, VisitTask, visit
from hybridlat.schema.workers import end_with

JOB_TIMEOUT_S = 240.0
_log = logging.getLogger(__name__)


@contextlib.contextmanager
def alone(lock: str = "", what: str = "on this machine") -> Iterator[list[str]]:
    """Measure while no other run on this machine, or with the same ``lock``, does.

    Yields the holder that was waited for, if any. Where nothing can be locked, as in a container
    with a root that is read-only, it goes on with a warning.
    """
    waits: list[str] = []

    def on_wait(holder: str) -> None:
        waits.append(holder)
        _log.warning("another run measures %s (%s): waiting for it", what, holder)

    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(held(lock or machine_lock(), on_wait))
        except BoardError as error:
            _log.warning("two runs that measure at once are not noticed: %s", error)
        yield waits


class MeasuringProcess(contextlib.AbstractContextManager["MeasuringProcess"]):
    """One measuring process, where a backend of the same class is started with its options.

    BackendUnavailable when it does not start. Leaving its context stops it, at once on Ctrl-C.
    """

    def __init__(self, backend: Backend) -> None:
        module, name = type(backend).__module__, type(backend).__qualname__
        _refuse_what_cannot_start(module, name)
        here, there = socket.socketpair()
        module_path = [os.path.abspath(entry) for entry in sys.path]  # noqa: PTH100  "" too
        self._words = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the process
        with there:
            descriptor = there.fileno()
            command = [sys.executable, "-P", "-m", "hybridlat.measuring.process"]
            self._process = subprocess.Popen(
                [*command, str(descriptor), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=self._words,
                stderr=self._words,
                pass_fds=(descriptor,),
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(module_path)},
            )
        self._connection = Connection(here.detach())
        self._has_ended = False
        try:
            before = os.environ.get("PYTHONPATH")  # put back for the backend's processes
            # Why the backend cannot be started, an empty text where it runs.
            answer = self._answer((f"{module}:{name}", dict(backend.options), module_path, before))
            if answer != "":
                words = answer if isinstance(answer, str) else self.last_words()
                raise BackendUnavailable(f"the measuring process did not start: {words}")
        except BaseException:
            self.kill()
            raise

    def _answer(self, message: object) -> object:
        """What the process answers; None where it died over the message or was silent."""
        try:
            self._connection.send(message)
            return self._connection.recv() if self._connection.poll(JOB_TIMEOUT_S) else None
        except (EOFError, ConnectionError):
            self._has_ended = True
            return None

    @property
    def may_recover(self) -> bool:
        """Whether it may answer another time: it was silent, or the system killed it."""
        return not self._has_ended or self._process.wait(JOB_TIMEOUT_S) == -signal.SIGKILL

    def ask(self, task: VisitTask) -> VisitResult | None:
        """The result of ``task``; None when the process died over it or gave no answer."""
        answer = self._answer(task)
        return answer if isinstance(answer, VisitResult) else None

    def last_words(self) -> str:
        """Why there was no answer: how the process ended, and what it wrote last."""
        try:
            code = self._process.wait(JOB_TIMEOUT_S if self._has_ended else 0.0)
        except subprocess.TimeoutExpired:
            return f"gave no answer within {JOB_TIMEOUT_S:.0f} s"
        signals = {int(number): number.name for number in signal.Signals}
        died = f"died of {signals.get(-code, f'signal {-code}')}"
        end = died if code < 0 else f"ended with code {code}"
        self._words.seek(max(0, self._words.seek(0, os.SEEK_END) - 2000))
        text = self._words.read().decode("utf-8", "replace").strip()
        # The last line: of a traceback, the one that names the error.
        output = " ".join(text.split("\n")[-1].split())[-300:]
        return f"the measuring process {end}" + (f", its last words: {output}" if output else "")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._connection.close()
        self._words.close()

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:  # let it end by itself
            self._connection.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(2.0)
        self.kill()


def _refuse_what_cannot_start(module: str, name: str) -> None:
    """BackendUnavailable for a program without a Python, and for a class that no module has."""
    if getattr(sys, "frozen", False) or not sys.executable:
        raise BackendUnavailable(
            "measuring starts a Python process of its own, and this program has no Python "
            f"interpreter to start (sys.executable is {sys.executable!r}): measure with the "
            "command `hybridlat measure` of an installed hybridlat, and predict from its store"
        )
    if module == "__main__" or "<locals>" in name:
        raise BackendUnavailable(
            f"the measuring process cannot import the backend {name!r} of {module}: define it at "
            "the top of a module of its own"
        )


def main(arguments: list[str]) -> None:
    """In the process: serve the parent until it closes the socket or dies."""
    # Ctrl-C is the parent's to answer: it ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    descriptor, parent = map(int, arguments)
    end_with(parent)
    with Connection(descriptor) as parent_side, contextlib.suppress(EOFError, ConnectionError):
        _serve(parent_side)


def _serve(parent_side: Connection) -> None:
    """Answer tasks; EOFError or ConnectionError when the parent is gone."""
    place, options, sys.path[:], pythonpath = parent_side.recv()
    os.environ.pop("PYTHONPATH", None)
    if pythonpath is not None:
        os.environ["PYTHONPATH"] = pythonpath
    try:
        backend: Backend = pkgutil.resolve_name(place)(**options)
        cores = usable_cores()
        pin(backend.target.threads or 1)
        references = References(backend)
    except HybridlatError as error:
        parent_side.send(str(error))
        return
    parent_side.send("")
    while isinstance(task := parent_side.recv(), VisitTask):
        parent_side.send(visit(backend, references, task, cores))


if __name__ == "__main__":
    main(sys.argv[1:])
