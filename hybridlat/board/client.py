"""The worker process from its parent's side: start it, ask with a time-out, end a lost one."""

import json
import os
import select
import subprocess
import sys
from contextlib import suppress
from typing import Any, Dict, Optional

from . import EngineError, NoDevice, WorkerLost

START_S = 120.0


class Worker(object):
    """One worker process with one engine.

    ``python`` is the interpreter that has the engine, ``hello`` its first answer. Raises NoDevice
    when the engine cannot be had, WorkerLost when the process is gone: a new one must be made.
    """

    def __init__(
        self, launcher: str, engine: str, options: Optional[Dict[str, str]] = None,
        python: str = "", log: str = "",
    ) -> None:  # fmt: skip
        command = [python or sys.executable, launcher, "serve", "--engine", engine]
        for key, value in sorted((options or {}).items()):
            command += ["--option", "%s=%s" % (key, value)]
        self._log = open(log or os.devnull, "ab")
        try:
            self._process: Any = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
                universal_newlines=True, close_fds=False,  # it holds the board's lock as well
            )  # fmt: skip
        except OSError as error:
            self._log.close()
            raise NoDevice("%s cannot be started: %s" % (command[0], error))
        self._answers = select.poll()
        self._answers.register(self._process.stdout, select.POLLIN)  # type: ignore[arg-type]
        self.hello = self._wait(START_S, "start")

    def _wait(self, seconds: float, what: str) -> Dict[str, Any]:
        if not self._answers.poll(max(10.0, 1e3 * seconds)):
            self.kill()
            lost = WorkerLost("no answer in %.0f s (%s)" % (seconds, what))
            lost.timed_out = True
            raise lost
        line = self._process.stdout.readline()
        if not line.endswith("\n"):
            code = self._process.wait()
            self.kill()
            raise WorkerLost("the worker process ended with status %s (%s)" % (code, what))
        answer = json.loads(line)  # type: Dict[str, Any]
        if not answer.pop("ok"):
            kinds = {"NoDevice": NoDevice, "DeviceLost": WorkerLost}
            kind = kinds.get(answer.get("kind", ""), EngineError)
            if kind is not EngineError:
                self.kill()
            raise kind(str(answer.get("error")))
        return answer

    def ask(self, seconds: float, do: str, **request: Any) -> Dict[str, Any]:
        """One request and its answer; EngineError when the engine refuses."""
        request["do"] = do
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
        except (OSError, ValueError):
            self.kill()
            raise WorkerLost("the worker process is gone (%s)" % do)
        return self._wait(seconds, do)

    def close(self) -> None:
        with suppress(OSError, ValueError, subprocess.TimeoutExpired):
            self._process.stdin.write('{"do": "quit"}\n')
            self._process.stdin.close()
            self._process.wait(timeout=10)
        self.kill()

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            with suppress(OSError):
                pipe.close()
