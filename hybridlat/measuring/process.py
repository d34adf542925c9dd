"""The measuring process as the one who asks sees it: start, ask, notice that it died, stop."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Mapping

from hybridlat.errors import BackendUnavailable
from hybridlat.measuring.worker import Report, Task, serve

JOB_TIMEOUT_S = 240.0


class MeasuringProcess:
    """The measuring process as seen from here."""

    def __init__(self, backend: str, options: Mapping[str, int | str]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(
            target=serve, args=(backend, dict(options), True, other), daemon=True
        )
        self._process.start()
        other.close()
        greeting = self._receive(JOB_TIMEOUT_S)
        if greeting != "ready":
            words = greeting[1] if isinstance(greeting, tuple) else self.last_words()
            self.stop()
            raise BackendUnavailable(f"the measuring process did not start: {words}")

    def _receive(self, timeout_s: float) -> object:
        try:
            return self._pipe.recv() if self._pipe.poll(timeout_s) else None
        except (EOFError, ConnectionError):
            return None

    def ask(self, task: Task) -> Report | None:
        """The report of ``task``; None when the process died over it or gave no answer."""
        try:
            self._pipe.send(task)
        except (BrokenPipeError, ConnectionError):
            return None
        answer = self._receive(JOB_TIMEOUT_S)
        return answer if isinstance(answer, Report) else None

    def last_words(self) -> str:
        self._process.join(1.0)
        code = self._process.exitcode
        if code is None:
            return f"gave no answer within {JOB_TIMEOUT_S:.0f} s"
        return f"the measuring process died of signal {-code}" if code < 0 else (
            f"the measuring process ended with code {code}"
        )  # fmt: skip

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._pipe.send(None)
        self._process.join(2.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._pipe.close()
