"""``hybridlat train``: a new model for a target, promoted if it is not worse than the old."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hybridlat.cli import options
from hybridlat.cli.output import console, on_message, print_json

if TYPE_CHECKING:
    from hybridlat.training.train import Trained

REFUSED = 3


@click.command()
@click.option(
    "--target",
    required=True,
    metavar="TARGET",
    shell_complete=options.complete_target,
    help="device/runtime/precision[/threads].",
)
@options.device
@options.store
@options.models_folder
@options.seed
@options.jobs
@options.untracked
@options.as_json
@click.pass_context
def train(
    ctx: click.Context,
    target: str,
    store: str | None,
    out: Path | None,
    seed: int,
    jobs: int,
    no_track: bool,
    as_json: bool,
) -> None:
    """Train a model of a target on its records, and promote it if it is not worse than the old.

    Both are judged on the same held-out networks. A model that is refused is kept in MLflow, and
    the command ends with 3. Where only whole networks are recorded, nothing has to be trained: they
    correct the law of the engine's family at every prediction.

    \b
    hybridlat train --target v100/tensorrt/fp16
    hybridlat train --target v100/tensorrt/fp16 --out models --no-track
    """
    from hybridlat.training.train import NothingToTrain, TrainingOptions, train_target

    chosen = TrainingOptions(out=out, seed=seed, track=not no_track)
    try:
        with options.at_once(jobs):
            trained = train_target(target, chosen, store=store, on_message=on_message(as_json))
    except NothingToTrain as reason:
        if as_json:
            print_json({"format": 1, "target": target, "accepted": False, "reason": str(reason)})
        else:
            console().print(str(reason))
        return
    if as_json:
        print_json(trained_json(trained))
    else:
        print_trained(trained)
    ctx.exit(0 if trained.accepted else REFUSED)


def print_trained(trained: Trained) -> None:
    """What a training came to, for people."""
    out = console()
    out.print(f"{trained.target}: {trained.reason}")
    for regime, score in trained.scores.items():
        coverage = "" if score.coverage is None else f", coverage {100 * score.coverage:.0f} %"
        if score.rmspe is not None:
            out.print(
                f"  {regime:14} RMSPE {score.rmspe:6.2f} %, MAPE {score.mape:6.2f} %{coverage}"
            )
    out.print(f"  model {trained.model_hash}" + (f" in {trained.folder}" if trained.folder else ""))


def trained_json(trained: Trained) -> dict[str, object]:
    """What a training came to, as ``--json`` prints it."""
    return {
        "format": 1,
        "target": str(trained.target),
        "accepted": trained.accepted,
        "reason": trained.reason,
        "rmspe": trained.error,
        "champion_rmspe": trained.champion_error,
        "held_out": trained.held_out,
        "scores": {
            regime: {"rmspe": s.rmspe, "mape": s.mape, "coverage": s.coverage}
            for regime, s in trained.scores.items()
        },
        "model_hash": trained.model_hash,
        "folder": str(trained.folder) if trained.folder else None,
        "version": trained.version,
        "mlflow_run": trained.mlflow_run,
    }
