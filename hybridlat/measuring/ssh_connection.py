"""Commands on another machine by the system's ssh: their words, their streams, how they end."""

from __future__ import annotations

import re
import subprocess
import tempfile
import threading
import time
from typing import IO

from hybridlat.errors import BackendUnavailable, HostUnreachable, InputError, MeasurementError
from hybridlat.schema.progress import OnMessage

FINE, NO_ENGINE = (0, 4), 3
"""Exit codes of the runners: all or all in time was measured; there is no engine."""
_SSH_FAILED = 255
_HOST = re.compile(r"[A-Za-z0-9_.@:%\[\]][A-Za-z0-9_.@:%\[\]-]*")
_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15",
            "-o", "ServerAliveCountMax=4")  # fmt: skip


def check_host(host: str) -> None:
    """Raise InputError for what ssh would not take for a host: an option, a sentence."""
    if not _HOST.fullmatch(host):
        raise InputError(f"{host!r} is no host: write user@board")


class Connection:
    """One host. Every call is an ssh of its own; ssh's configuration may let them share one.

    Calls raise HostUnreachable when the host does not answer (in time) and MeasurementError when
    the command fails there.
    """

    def __init__(self, host: str) -> None:
        check_host(host)
        self.host = host

    def ask(self, command: str, timeout_s: float) -> str:
        """What the command prints."""
        with tempfile.TemporaryFile() as sink:
            self._run(command, subprocess.DEVNULL, sink, timeout_s)
            sink.seek(0)
            return sink.read().decode("utf-8", "replace")

    def send(self, command: str, source: IO[bytes], timeout_s: float) -> None:
        """Run the command with ``source`` for its standard input."""
        self._run(command, source, subprocess.DEVNULL, timeout_s)

    def receive(self, command: str, sink: IO[bytes], timeout_s: float) -> None:
        """Run the command, its standard output into ``sink``."""
        self._run(command, subprocess.DEVNULL, sink, timeout_s)

    def _run(
        self, command: str, source: IO[bytes] | int, sink: IO[bytes] | int, timeout_s: float
    ) -> None:
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
