"""``hybridlat onboard``: a new device measured within a budget, and trained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hybridlat.cli import options
from hybridlat.cli.output import aside, console, on_message, print_json
from hybridlat.cli.param_types import DURATION
from hybridlat.cli.progress import ProgressShown
from hybridlat.cli.train import REFUSED, print_trained, trained_json

if TYPE_CHECKING:
    from hybridlat.training.onboarding import Onboarded


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
    help="ONNX files to measure; those shipped with hybridlat unless given.",
)
@options.where
@options.models_folder
@options.seed
@options.untracked
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
    """Learn this machine within a budget: measure what teaches most, then train.

    Networks with their cells and random kernels are measured once each, in portions that are
    chosen by what the model cannot know yet. The start is the model of another device with the
    same engine, where there is one. One network in five is held out, and judges the model at the
    end. Run it again and it goes on where it stopped: nothing is measured twice.

    \b
    hybridlat onboard --budget 30m
    hybridlat onboard --budget 1h30m --nets DIR --threads 4
    """
    from hybridlat.engines.resolution import resolve
    from hybridlat.errors import BackendUnavailable
    from hybridlat.training.onboarding import onboard_target

    engine = resolve(target, threads)
    if engine.backend is None:
        raise BackendUnavailable(engine.why_not)
    with ProgressShown() as shown:
        onboarded = onboard_target(
            engine.backend,
            engine.options,
            budget,
            store=store,
            nets=nets,
            out=out,
            seed=seed,
            track=not no_track,
            progress=shown,
            on_message=on_message(as_json),
        )
    for note in onboarded.notes:
        aside(note)
    if as_json:
        print_json(_onboarded(onboarded))
    else:
        from hybridlat.report.units import count_text

        console().print(
            f"{onboarded.target}: {count_text(onboarded.networks, 'network')} and "
            f"{count_text(onboarded.cells, 'cell')} known, "
            f"{count_text(onboarded.kernels, 'random kernel')} measured now, "
            f"in {onboarded.elapsed_s:.0f} s"
        )
        if onboarded.trained is not None:
            print_trained(onboarded.trained)
    ctx.exit(0 if onboarded.trained is not None and onboarded.trained.accepted else REFUSED)


def _onboarded(onboarded: Onboarded) -> dict[str, object]:
    return {
        "format": 1,
        "target": str(onboarded.target),
        "networks": onboarded.networks,
        "cells": onboarded.cells,
        "kernels": onboarded.kernels,
        "elapsed_s": onboarded.elapsed_s,
        "notes": list(onboarded.notes),
        "trained": None if onboarded.trained is None else trained_json(onboarded.trained),
    }
