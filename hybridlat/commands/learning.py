"""``hybridlat train``, ``evaluate`` and ``onboard``: models, how good they are, new devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hybridlat.commands import options
from hybridlat.commands.printing import aside, console, print_json
from hybridlat.commands.progress import ProgressShown
from hybridlat.commands.values import DURATION, SHARE

if TYPE_CHECKING:
    from hybridlat.onboard import Onboarded
    from hybridlat.train import Trained

REFUSED = 3
_untracked = click.option("--no-track", is_flag=True, help="Keep nothing in MLflow.")
_out = click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of models to write to; the user's own unless given.",
)
_seed = click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Same records and seed, same result.",
)


@click.command()
@click.option(
    "--target",
    required=True,
    metavar="TARGET",
    shell_complete=options.complete_target,
    help="device/runtime/precision[/threads].",
)
@options.store
@_out
@_seed
@_untracked
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
    """Train a target on its records; the new model is used if it is not worse than the old.

    Both are judged on the same held-out networks. A model that is refused is kept in MLflow, and
    the command ends with 3.
    """
    from hybridlat import train as training

    found = training.run(
        target, store=store, out=out, seed=seed, track=not no_track, tell=_tell(as_json)
    )
    if as_json:
        print_json(_trained(found))
    else:
        _print_trained(found)
    ctx.exit(0 if found.accepted else REFUSED)


@click.command()
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="TARGET",
    shell_complete=options.complete_target,
    help="May be repeated; every target with cells unless given.",
)
@click.option(
    "--nets",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Judge only the networks named as the ONNX files of DIR.",
)
@click.option(
    "--regime",
    "regimes",
    multiple=True,
    metavar="NAME",
    help="Show only this regime; may be repeated.",
)
@click.option(
    "--tolerance",
    "tolerances",
    type=SHARE,
    multiple=True,
    default=("5%",),
    metavar="SHARE",
    show_default=True,
    help="For the gate; may be repeated.",
)
@click.option(
    "--baseline",
    "baselines",
    multiple=True,
    metavar="NAME",
    help="Judge beside this baseline only; may be repeated; all of them unless given, `no`: none.",
)
@click.option(
    "--where",
    multiple=True,
    metavar="NAME=VALUE",
    help="Only cells with this size (batch=1, groups=1, has_add=0) or label.",
)
@click.option(
    "--markdown",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write the leaderboard to FILE.",
)
@options.store
@_seed
@_untracked
@options.as_json
def evaluate(
    targets: Sequence[str],
    nets: Path | None,
    regimes: Sequence[str],
    tolerances: Sequence[float],
    baselines: Sequence[str],
    where: Sequence[str],
    markdown: Path | None,
    store: str | None,
    seed: int,
    no_track: bool,
    as_json: bool,
) -> None:
    """Judge predictions on held-out networks, beside every baseline, from the records alone.

    Targets of which whole networks were measured are judged by network: `measured` (all cells
    known), `unseen` (none), `gated@T` (the gate asks for cells until the tolerance is met). Others
    are judged by cell: `cells@N` (learned from N of them). Everything is kept in MLflow.

    \b
    hybridlat evaluate --target v100/tensorrt/fp16 --where batch=1 --where groups=1
    hybridlat evaluate --regime unseen --baseline no --json
    """
    from hybridlat import evaluate as judging
    from hybridlat.evaluation import leaderboard

    found = judging.run(
        targets,
        store=store,
        regimes=regimes,
        tolerances=tolerances,
        baselines=None if not baselines else [b for b in baselines if b != "no"],
        networks=None if nets is None else [path.stem for path in sorted(nets.glob("*.onnx"))],
        where=_pairs(where),
        seed=seed,
        track=not no_track,
        tell=_tell(as_json),
    )
    if markdown is not None:
        markdown.write_text(found.markdown() + "\n", encoding="utf-8")
    if as_json:
        print_json(found.to_json())
        return
    out = console()
    leaderboard.show(found.rows, out)
    for report in found.reports:
        for regime, share in report.device_time_share.items():
            out.print(
                f"{report.target} {regime}: {100 * share:.0f} % of the device time that "
                "measuring everything takes"
            )
        if report.noise_within_5 is not None:
            out.print(
                f"{report.target}: the same network measured again is within 5 % in "
                f"{100 * report.noise_within_5:.0f} % of cases"
            )
        for note in report.notes:
            aside(note)


@click.command()
@click.option(
    "--budget",
    type=DURATION,
    required=True,
    metavar="10m",
    help="How long to measure, training included: 10m, 1h30m.",
)
@click.option(
    "--nets",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="ONNX files to measure; those that come along unless given.",
)
@options.where
@_out
@_seed
@_untracked
@options.as_json
@click.pass_context
def onboard(
    ctx: click.Context,
    budget: float,
    nets: Path | None,
    target: str | None,
    threads: int | None,
    store: str | None,
    out: Path | None,
    seed: int,
    no_track: bool,
    as_json: bool,
) -> None:
    """Measure networks, their cells and random kernels on this machine, then train.

    Run again it goes on where it stopped: nothing is measured twice.
    """
    from hybridlat import api
    from hybridlat import onboard as onboarding
    from hybridlat.errors import BackendUnavailable

    backend, started_with, _, why = api._resolve(target, threads)
    if backend is None:
        raise BackendUnavailable(why)
    with ProgressShown() as shown:
        found = onboarding.run(
            backend,
            started_with,
            budget,
            store=store,
            nets=nets,
            out=out,
            seed=seed,
            track=not no_track,
            progress=shown,
            tell=_tell(as_json),
        )
    for note in found.notes:
        aside(note)
    if as_json:
        print_json(_onboarded(found))
    else:
        console().print(
            f"{found.target}: {found.networks} networks and {found.cells} cells known, "
            f"{found.kernels} random kernels measured now, in {found.elapsed_s:.0f} s"
        )
        if found.trained is not None:
            _print_trained(found.trained)
    ctx.exit(0 if found.trained is not None and found.trained.accepted else REFUSED)


def _tell(as_json: bool) -> Callable[[str], None]:
    """Progress as sentences on standard error; none beside JSON."""
    return _silent if as_json else aside


def _silent(_: str) -> None:
    """Progress that nobody asked for."""


def _pairs(texts: Sequence[str]) -> Mapping[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise click.BadParameter(f"{text!r} is not NAME=VALUE, for example batch=1")
        found[name.strip()] = value.strip()
    return found


def _print_trained(found: Trained) -> None:
    out = console()
    out.print(f"{found.target}: {found.reason}")
    for regime, score in found.scores.items():
        coverage = "" if score.coverage is None else f", coverage {100 * score.coverage:.0f} %"
        if score.rmspe is not None:
            out.print(
                f"  {regime:14} RMSPE {score.rmspe:6.2f} %, MAPE {score.mape:6.2f} %{coverage}"
            )
    out.print(f"  model {found.model_hash}" + (f" in {found.folder}" if found.folder else ""))


def _trained(found: Trained) -> dict[str, object]:
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


def _onboarded(found: Onboarded) -> dict[str, object]:
    return {
        "format": 1,
        "target": str(found.target),
        "networks": found.networks,
        "cells": found.cells,
        "kernels": found.kernels,
        "elapsed_s": found.elapsed_s,
        "notes": list(found.notes),
        "trained": None if found.trained is None else _trained(found.trained),
    }
