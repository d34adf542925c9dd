"""``hybridlat evaluate`` and ``mlflow``: how good predictions are, beside the baselines."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Sequence

import click

from hybridlat.cli.options import command, nets, target_option
from hybridlat.cli.output import Run, aside, console
from hybridlat.evaluation import evaluate as evaluation
from hybridlat.evaluation import leaderboard, tracking
from hybridlat.evaluation.metrics import ResultRow, TargetReport
from hybridlat.schema.workers import fitted_by
from hybridlat.store import default_url
from hybridlat.store.place import without_password

_LISTENING = re.compile(r"UVICORN_|MLFLOW_(HOST|STATIC_PREFIX|SERVER_\w+|\w+_OPTS)$")
"""Variables by which the environment would have MLflow's server listen elsewhere, or to others."""
_TARGETS = "Evaluate this target; may be repeated. Every target with records unless given."


@command(
    target_option(_TARGETS, "targets", multiple=True),
    nets("Evaluate only the networks named as the ONNX files of DIR."),
    "tolerances baseline everything draws markdown device store seed two_jobs no_track json",
)
def evaluate(run: Run) -> None:
    """Evaluate predictions on held-out networks, beside other methods, from the records alone.

    Each regime says what is known of the networks that are tested: `measured` (all cells),
    `unseen` (none), `gated@T` (what the gate measures until the interval is within T). With fewer
    than ten whole networks, single cells are tested: `cells@N` (learned from N of them). Where only
    whole networks are recorded, all targets of the engine's family are learned together: `unseen`
    (neither the architecture nor one of much the same kernels), `unseen_family` (nor any variant
    of the architecture), `zero_shot` (nothing of the device).
    All figures are logged in MLflow, which `hybridlat mlflow` opens.

    \b
    hybridlat evaluate --target epyc-26-2/onnxruntime-1.31/fp32/1t --nets DIR
    hybridlat evaluate --all
    """
    names = None if run.nets is None else [path.stem for path in sorted(run.nets.glob("*.onnx"))]
    chosen = evaluation.EvaluationOptions(
        baselines=[b for b in run.baselines if b != "no"] if run.baselines else None,
        networks=names,
        track=not run.no_track,
        **run.among("tolerances seed draws"),
    )
    rows: list[ResultRow] = []

    def judged(new: Sequence[ResultRow], report: TargetReport | None) -> None:
        rows.extend(new)
        if not run.prints_document:
            show(new, report, run.everything)

    try:
        with fitted_by(run.jobs):
            evaluation.evaluate_targets(
                run.targets,
                chosen,
                store=run.store,
                on_message=run.on_message,
                on_evaluated=judged,
            )
    finally:
        # What was judged before an interruption or a failure is not lost.
        if any(not row.reason for row in rows) and not run.everything and not run.prints_document:
            console().print(leaderboard.legend(rows), style="dim")
        if rows:
            run.write_tables(markdown=lambda: leaderboard.markdown(rows) + "\n")
            run.show([row.to_json() for row in rows])


def show(rows: Sequence[ResultRow], report: TargetReport | None, everything: bool) -> None:
    """Print the rows of a target, or why it was not judged."""
    out = console()
    for row in rows:
        if row.reason:
            out.print(f"{row.target} · not judged: {row.reason}\n")
    for table in leaderboard.tables(rows, leaderboard.NARROW if everything else 0):
        table.print(out)
        out.print()
    for note in () if report is None else report.notes:
        aside(note)


@command("store")
def mlflow(run: Run) -> None:
    """Show in a browser what evaluate and train recorded, the newest run first.

    Becomes MLflow's server of the runs of MLFLOW_TRACKING_URI, else of those of the file beside the
    store, for this machine alone. It prints the address of the page to open; Ctrl-C stops it. A
    server at MLFLOW_TRACKING_URI has that page already: its address is printed, nothing is started.

    \b
    hybridlat mlflow
    """
    aside("opening MLflow")
    url = run.store or default_url()
    uri = tracking.tracking_uri(url)
    with tracking.opened(url, reads=True) as experiment:
        page = f"/#/experiments/{experiment}/runs?viewStateShareKey={tracking.VIEW}"
        # Where MLflow knows the last word, what stands beside the page is not for language models.
        page = f"{page}&workflowType=machine_learning"
    if uri.startswith(("http://", "https://")):
        click.echo(without_password(uri).rstrip("/") + page)
        return
    host = "127.0.0.1"
    with socket.create_server((host, 0)) as probe:
        port = probe.getsockname()[1]
    click.echo(f"http://{host}:{port}{page}")
    aside("the page is there once MLflow has started, in some seconds; Ctrl-C stops it")
    kept = {name: text for name, text in os.environ.items() if not _LISTENING.match(name)}
    registry = os.environ.get("MLFLOW_REGISTRY_URI", "").strip()
    if not registry or registry.startswith("http"):  # no server shows what another one keeps
        registry = uri
    own = {"MLFLOW_BACKEND_STORE_URI": uri, "MLFLOW_REGISTRY_STORE_URI": registry}
    own |= {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "PYTHONWARNINGS": "ignore"}
    words = f"-m mlflow server --host {host} --port {port} --workers 1 --uvicorn-opts".split()
    command = [sys.executable, *words, "--log-level warning"]
    os.execve(sys.executable, command, {**kept, **tracking.QUIET, **own})
