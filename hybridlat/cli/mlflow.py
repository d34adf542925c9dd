"""``hybridlat mlflow``: what evaluations and trainings recorded, on MLflow's own pages."""

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

import click

from hybridlat.cli import options
from hybridlat.cli.output import aside
from hybridlat.errors import MissingExtra
from hybridlat.evaluation import tracking
from hybridlat.evaluation.tracking import QUIET, TrackingError
from hybridlat.store.place import default_url

_ENDS_IN_S = 10.0


@click.command()
@options.store
def mlflow(store: str | None) -> None:
    """Show in a browser what evaluate and train recorded, the newest comparison first.

    Starts MLflow on the runs of MLFLOW_TRACKING_URI, else on those of the file beside the store,
    and prints the address of the page to open; Ctrl-C stops it. A server at MLFLOW_TRACKING_URI
    has that page already: its address is printed, and nothing is started.

    \b
    hybridlat mlflow
    """
    aside("opening MLflow")
    tracker = tracking.open_tracker(store or default_url())
    if not tracker.uri:
        raise MissingExtra("mlflow", "track", "hybridlat mlflow")
    run = tracker.newest_comparison()
    if not run:
        aside("there is no comparison yet: hybridlat evaluate --target T makes one")

    def ready(server: str) -> None:
        click.echo(tracker.address(run, server))
        aside("Ctrl-C stops MLflow")

    if tracker.address(run):
        click.echo(tracker.address(run))
        return
    for number in (signal.SIGTERM, signal.SIGHUP):  # they stop it as Ctrl-C does
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    try:
        serve(tracker.uri, ready)
    except KeyboardInterrupt:
        aside("MLflow is stopped")


def serve(uri: str, on_ready: Callable[[str], None]) -> None:
    """Serve the runs at ``uri`` until the process is interrupted; ``on_ready`` gets the address.

    All that was started ends with it. TrackingError if the server does not start, or ends.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host, port = probe.getsockname()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    given = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_BACKEND_STORE_URI": uri}
    command = [sys.executable, "-P", "-m", "mlflow", "server", "--workers", "1"]
    command += ["--port", str(port)]
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
