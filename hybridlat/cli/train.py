"""``hybridlat train``: a new model for a target, promoted if it is not worse than the old."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hybridlat.cli import options
from hybridlat.cli.output import console, print_json, tell

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
@options.untracked
@options.as_json
@click.pass_context
def train(
    ctx: click.Context,
    target: str,
    store: str | None,
    out: Path | None,
    seed: int,
    no_track: bool,
    as_json: bool,
) -> None:
    """Train a model of a target on its records, and promote it if it is not worse than the old.

    Both are judged on the same held-out networks. A model that is refused is kept in MLflow, and
    the command ends with 3. Where only whole networks are recorded, nothing has to be trained: they
    correct the law of the engine's family at every prediction.
    """
    from hybridlat.training.train import NothingToTrain, TrainingOptions, train_target

    chosen = TrainingOptions(out=out, seed=seed, track=not no_track)
    try:
        found = train_target(target, chosen, store=store, tell=tell(as_json))
    except NothingToTrain as reason:
        if as_json:
            print_json({"format": 1, "target": target, "accepted": False, "reason": str(reason)})
        else:
            console().print(str(reason))
        return
    if as_json:
        print_json(trained_json(found))
    else:
        print_trained(found)
    ctx.exit(0 if found.accepted else REFUSED)


def print_trained(found: Trained) -> None:
    """What a training came to, for people."""
    out = console()
    out.print(f"{found.target}: {found.reason}")
    for regime, score in found.scores.items():
        coverage = "" if score.coverage is None else f", coverage {100 * score.coverage:.0f} %"
        if score.rmspe is not None:
            out.print(
                f"  {regime:14} RMSPE {score.rmspe:6.2f} %, MAPE {score.mape:6.2f} %{coverage}"
            )
    out.print(f"  model {found.model_hash}" + (f" in {found.folder}" if found.folder else ""))


def trained_json(found: Trained) -> dict[str, object]:
    """What a training came to, as ``--json`` prints it."""
    return {
        "format": 1,
        "target": str(found.target),
        "accepted": found.accepted,
        "reason": found.reason,
        "rmspe": found.error,
        "champion_rmspe": found.champion_error,
        "held_out": found.held_out,
        "scores": {
            regime: {"rmspe": s.rmspe, "mape": s.mape, "coverage": s.coverage}
            for regime, s in found.scores.items()
        },
        "model_hash": found.model_hash,
        "folder": str(found.folder) if found.folder else None,
        "version": found.version,
        "mlflow_run": found.mlflow_run,
    }
