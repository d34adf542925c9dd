"""MLflow's own pages on a file or database of runs, for as long as they are looked at."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from hybridlat.evaluation.tracking import QUIET, TrackingError

_ENDS_IN_S = 10.0


def serve(uri: str, on_ready: Callable[[str], None]) -> None:
    """Serve the runs at ``uri`` until the process is interrupted; ``on_ready`` gets the address.

    All that was started ends with it. TrackingError if the server does not start, or ends.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host, port = probe.getsockname()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    given = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_BACKEND_STORE_URI": uri}
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--port", str(port)]
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True,
                                  env={**os.environ, **QUIET, **given, "PATH": path})  # fmt: skip
        try:
            while server.poll() is None and not _answers(f"http://{host}:{port}"):
                time.sleep(0.2)
            if server.poll() is None:
                on_ready(f"http://{host}:{port}")
            server.wait()
            log.seek(0)
            last = log.read().decode(errors="replace").strip().split("\n")[-1]
            raise TrackingError(f"MLflow's server has ended: {last}")
        finally:
            for sent in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(server.pid, sent)
                    server.wait(_ENDS_IN_S)


def _answers(address: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/health", timeout=5):
        return True
    return False
