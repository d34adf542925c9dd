"""``hybridlat mlflow``: what evaluations and trainings recorded, on MLflow's own pages."""

from __future__ import annotations

import signal

import click

from hybridlat.cli import options
from hybridlat.cli.output import aside
from hybridlat.errors import MissingExtra
from hybridlat.evaluation import tracking
from hybridlat.evaluation.tracking_page import serve
from hybridlat.store.place import default_url


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
