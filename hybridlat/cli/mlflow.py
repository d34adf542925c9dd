"""``hybridlat mlflow``: what evaluations and trainings recorded, on MLflow's own pages."""

from __future__ import annotations

import os
import re
import socket
import sys
from pathlib import Path

import click

from hybridlat.cli import options
from hybridlat.cli.output import aside
from hybridlat.errors import MissingExtra
from hybridlat.evaluation import tracking
from hybridlat.evaluation.tracking import QUIET
from hybridlat.store.place import default_url

_HOST = "127.0.0.1"
_LISTENING = re.compile(r"UVICORN_|MLFLOW_(HOST|STATIC_PREFIX|SERVER_\w+|\w+_OPTS)$")
"""Variables by which the environment would have the server listen elsewhere, or to others."""


@click.command()
@options.store
def mlflow(store: str | None) -> None:
    """Show in a browser what evaluate and train recorded, the newest comparison first.

    Becomes MLflow's server of the runs of MLFLOW_TRACKING_URI, else of those of the file beside the
    store, for this machine alone, and prints the address of the page to open; Ctrl-C stops it. A
    server at MLFLOW_TRACKING_URI has that page already: its address is printed, nothing is started.

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
    if tracker.address(run):
        click.echo(tracker.address(run))
        return
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port = probe.getsockname()[1]
    click.echo(tracker.address(run, f"http://{_HOST}:{port}"))
    aside("the page is there once MLflow has started, in some seconds; Ctrl-C stops it")
    os.execve(sys.executable, command(port), environment(tracker.uri))


def command(port: int) -> list[str]:
    """MLflow's server on a port of this machine; it passes signals on to what it starts."""
    return [
        sys.executable, "-m", "mlflow", "server", "--host", _HOST, "--port", str(port),
        "--workers", "1", "--uvicorn-opts", "--log-level warning",
    ]  # fmt: skip


def environment(uri: str) -> dict[str, str]:
    """The variables of the server of the runs at ``uri``: no option but those of ``command``."""
    kept = {name: text for name, text in os.environ.items() if not _LISTENING.match(name)}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {
        **kept, **QUIET, "PATH": path, "PYTHONSAFEPATH": "1", "PYTHONWARNINGS": "ignore",
        "MLFLOW_BACKEND_STORE_URI": uri, "MLFLOW_REGISTRY_STORE_URI": uri,
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }  # fmt: skip
