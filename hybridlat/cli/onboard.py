"""``hybridlat onboard``: a new device measured within a budget, and trained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hybridlat.cli import fleets, options
from hybridlat.cli.output import aside, console, on_message, print_json
from hybridlat.cli.param_types import DURATION
from hybridlat.cli.predict import worst
from hybridlat.cli.progress import ProgressShown
from hybridlat.cli.train import REFUSED, print_trained, trained_json

if TYPE_CHECKING:
    from hybridlat.training.onboarding import Onboarded
    from hybridlat.training.train import TrainingOptions


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
@options.fleet
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
    fleet: Path | None,
    target: str | None,
    threads: int | None,
    store: str | None,
    out: Path | None,
    seed: int,
    no_track: bool,
    as_json: bool,
) -> None:
    """Learn this machine within a budget: measure what there is time for, then train.

    Networks with their cells and random kernels are measured once each, in the order they are
    drawn. The start is the model of another device with the same engine, where there is one. One
    network in five is held out, and judges the model at the end. Run it again and it goes on where
    it stopped: nothing is measured twice. With --fleet many devices are learned at once, those of
    one target together, each target within the budget.

    \b
    hybridlat onboard --budget 30m
    hybridlat onboard --budget 1h30m --nets DIR --threads 4
    hybridlat onboard --budget 1h --fleet fleet.toml
    """
    from hybridlat.training.train import TrainingOptions

    training = TrainingOptions(out=out, seed=seed, track=not no_track)
    if fleet is not None:
        fleets.refuse_beside(ctx, ("target", target), ("threads", threads))
        ctx.exit(_onboard_fleet(fleet, budget, training, store, nets, as_json))
    from hybridlat.engines.resolution import resolve
    from hybridlat.errors import BackendUnavailable
    from hybridlat.training.onboarding import OnboardingOptions, onboard_target

    engine = resolve(target, threads)
    if engine.backend is None:
        raise BackendUnavailable(engine.why_not)
    with ProgressShown() as shown:
        onboarded = onboard_target(
            engine.backend,
            engine.options,
            OnboardingOptions(budget, store, nets, seed=seed),
            training,
            shown,
            on_message(as_json),
        )
    code = _tell(onboarded, as_json)
    if as_json:
        print_json(_onboarded(onboarded))
    ctx.exit(code)


def _onboard_fleet(
    file: Path, budget: float, chosen: TrainingOptions, store: str | None, nets: Path | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Onboard all targets of a fleet, and print what came of them; the exit code."""
    from hybridlat.training.fleet_onboarding import onboard_fleet

    with fleets.opened(file) as fleet:
        lessons = onboard_fleet(fleet, budget, chosen, store=store, nets=nets, on_message=aside)
        devices = fleet.reports
    codes = {0}
    for lesson in lessons:
        if lesson.onboarded is not None:
            codes.add(_tell(lesson.onboarded, as_json))
        if lesson.problem is not None:
            aside(f"{lesson.target}: {lesson.problem}")
            codes.add(lesson.problem.exit_code)
    if as_json:
        document = {
            "format": 1,
            "targets": [_onboarded(one.onboarded) for one in lessons if one.onboarded is not None],
            "devices": fleets.devices_json(devices),
            "problems": [f"{one.target}: {one.problem}" for one in lessons if one.problem],
        }
        print_json(document)
    else:
        fleets.print_devices(devices)
    return worst(codes)


def _tell(onboarded: Onboarded, as_json: bool) -> int:
    """Print an onboarding, its notes on standard error; the exit code that it asks for."""
    for note in onboarded.notes:
        aside(note)
    if not as_json:
        from hybridlat.report.units import count_text

        console().print(
            f"{onboarded.target}: {count_text(onboarded.networks, 'network')} and "
            f"{count_text(onboarded.cells, 'cell')} known, "
            f"{count_text(onboarded.kernels, 'random kernel')} measured now, "
            f"in {onboarded.elapsed_s:.0f} s"
        )
        if onboarded.trained is not None:
            print_trained(onboarded.trained)
    return 0 if onboarded.trained is not None and onboarded.trained.accepted else REFUSED


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
