"""Options that several commands share, so that they read and mean the same everywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeAlias

import click

from hybridlat.cli.output import Run
from hybridlat.cli.param_types import (
    BATCHES,
    BUDGET,
    CURVE,
    DURATION,
    FPS,
    KNOWN,
    MEASURED,
    SHAPE,
    SHARE,
    OutputFile,
    Place,
    check_outputs,
    complete_target,
    whole,
)
from hybridlat.engines import device_sheets
from hybridlat.estimate.lookup.named_target import named_target
from hybridlat.schema.target import PRECISIONS
from hybridlat.store import Store

Declared: TypeAlias = Callable[[Any], Any]
"""What declares an argument or an option of a command."""
_GROUPS = ("What to measure", "Where", "Input", "How sure", "Output", "Other")
WHAT, WHERE, INPUT, SURE, OUTPUT, OTHER = _GROUPS


class Option(click.Option):
    """An option of a group of the help."""

    def __init__(self, names: Sequence[str], *, group: str = OTHER, **more: Any) -> None:
        super().__init__(names, **more)
        self.group = group


def option(*names: str, **more: Any) -> Declared:
    """``click.option`` with a ``group``."""
    return click.option(*names, cls=Option, **more)


class Grouped(click.Command):
    """A command whose help has its options in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        for group in _GROUPS:
            own = [one for one in options if getattr(one, "group", OTHER) == group]
            if records := [*filter(None, (one.get_help_record(ctx) for one in own))]:
                with formatter.section(group):
                    formatter.write_dl(records)


def _by_name(
    _context: click.Context, parameter: click.Parameter, pairs: Sequence[tuple[str, Any]]
) -> Mapping[str, Any]:
    named: dict[str, Any] = {}
    for name, value in pairs:
        if named.setdefault(name, value) != value:
            raise click.BadParameter(f"{name!r} is given two {parameter.name}: give one")
    return named


def command(
    *declared: str | Declared, name: str | None = None, group: click.Group | None = None
) -> Callable[[Callable[[Run], int | None]], click.Command]:
    """Makes a command of a function that has a ``Run`` and gives the exit code, None for 0.

    What is ``declared`` are the names of shared arguments and options, and others beside them, in
    the order of the help. The data sheet of ``--device-sheet`` counts while the command runs.
    """

    def decorated(function: Callable[[Run], int | None]) -> click.Command:
        @wraps(function)
        def call(**values: Any) -> None:
            ctx = click.get_current_context()
            check_outputs(ctx)
            run = Run(values)
            if (file := values.get("device_sheet")) is not None:
                sheet = device_sheets.read(file, _device_of(ctx, values))
                ctx.with_resource(device_sheets.with_sheet(sheet))
            ctx.exit(function(run) or 0)

        each: list[Declared] = []
        for one in declared:
            each += map(_NAMED.__getitem__, one.split()) if isinstance(one, str) else [one]
        for declare in reversed(each):
            call = declare(call)
        of: Any = group or click
        made: click.Command = of.command(name=name, cls=Grouped)(call)
        return made

    return decorated


def _device_of(ctx: click.Context, values: Mapping[str, Any]) -> str | None:
    """The device of the targets; None for a command that takes no target."""
    if not {"target", "targets"} & values.keys():
        return None
    targets = values.get("targets") or [*filter(None, [values.get("target")])]
    with Store(values.get("store")) as store:
        devices = sorted({named_target(target, store).device for target in targets})
    if not devices:
        raise click.UsageError(
            "--device-sheet describes the device of --target: give --target as well.", ctx
        )
    if len(devices) > 1:
        raise click.UsageError(
            f"--device-sheet is one device, but --target names {' and '.join(devices)}.", ctx
        )
    return devices[0]


def target_option(words: str, *names: str, **more: Any) -> Declared:
    """``--target``, with these words of help."""
    more |= {"metavar": "TARGET", "shell_complete": complete_target}
    return option("--target", *names, group=WHERE, help=words, **more)


def time_limit(words: str, *names: str, **more: Any) -> Declared:
    """``--time-limit``, with these words of help."""
    more = {"type": DURATION, "metavar": "10m", **more}
    return option("--time-limit", *names, help=words, **more)


def nets(words: str) -> Declared:
    """``--nets``, with these words of help."""
    folder = Place(exists=True, file_okay=False, path_type=Path)
    return option("--nets", group=INPUT, type=folder, metavar="DIR", help=words)


_FILE, _OUTPUT = {"metavar": "FILE"}, OutputFile(allow_dash=True)
_FILES: Any = {"nargs": -1, "required": True, "metavar": "NET.onnx...", "type": Place()}
_FLAG: Any = {"is_flag": True}
_MANY: Any = {"multiple": True, "callback": _by_name}
_SHOWN: Any = {"show_default": True}
_JOBS: Any = {"type": whole(1, also=-1), "metavar": "N", **_SHOWN}
_JOBS |= {"help": "Processes that work at once; -1: one a core."}
_TARGET = (
    "device/runtime/precision[/threads], such as l4/tensorrt/fp16: `hybridlat targets` lists "
    "them. This machine's CPU under ONNX Runtime unless given."
)
_BATCH = "Size of a free batch dimension (1 unless given)."
_NAMED: Mapping[str, Declared] = {
    "network": click.argument("network", metavar="NET.onnx", type=Place()),
    "networks": click.argument("networks", **_FILES),
    "target": target_option(_TARGET),
    "targets": target_option(f"{_TARGET} Several give a table.", "targets", multiple=True),
    "device": option(
        "--device-sheet", group=WHERE, metavar="FILE.toml", type=Place(),
        help="Data sheet of the target's device, for this command."),
    "threads": option(
        "--threads", group=WHERE, type=whole(1, 1024), metavar="N",
        help="Threads that the engine computes with (1 unless given)."),
    "store": option(
        "--store", group=WHERE, metavar="URL",
        help="Where measurements are kept: a file or a PostgreSQL URL; HYBRIDLAT_STORE unless "
        "given, else a file in the user's data folder."),
    "host": option(
        "--host", group=WHERE, metavar="USER@BOARD",
        help="Measure there, over ssh. The board needs TensorRT and trtexec or Python 3.6, "
        "nothing else."),
    "runner": option(
        "--runner", group=WHERE, type=click.Choice(["auto", "worker", "trtexec"]), default="auto",
        help="With --host: Python with TensorRT's module, or a shell with trtexec; auto takes the "
        "first that starts.", **_SHOWN),
    "time_limit": time_limit(
        "With --host: how long the run may take; the next one goes on from there.",
        group=WHERE, default="6h", **_SHOWN),
    "json": option(
        "--json", "as_json", group=OUTPUT, help="Print one JSON document and nothing else.",
        **_FLAG),
    "html": option(
        "--html", group=OUTPUT, type=OutputFile(),
        help="Also write a page to look at: one file, no network.", **_FILE),
    "markdown": option(
        "--markdown", group=OUTPUT, type=_OUTPUT,
        help="Also write a Markdown table; - for standard output.", **_FILE),
    "csv": option(
        "--csv", group=OUTPUT, type=_OUTPUT,
        help="Also write its rows as CSV; - for standard output.", **_FILE),
    "junit": option(
        "--junit", group=OUTPUT, type=_OUTPUT,
        help="Also write JUnit's XML: over --max-latency is a failure, not sure enough is skipped.",
        **_FILE),
    "every_cell": option(
        "--all", "every_cell", group=OUTPUT,
        help="Show every cell, how to check it, every operator that is not run; predict: memory.",
        **_FLAG),
    "every_row": option("--all", "every_row", group=OUTPUT, help="Show every row.", **_FLAG),
    "cells": option(
        "--cells", "what", group=WHAT, flag_value="cells",
        help="Measure only the cells, one by one."),
    "whole": option(
        "--network", "what", group=WHAT, flag_value="network", help="Measure only whole networks."),
    "folder": option(
        "-o", "--output", "folder", group=OUTPUT, required=True, metavar="DIR",
        type=Place(file_okay=False), help="Folder to write the plan to."),
    "remeasure": option(
        "--remeasure", group=WHAT, help="Measure cells again that the store knows.", **_FLAG),
    "batch": option("--batch", group=INPUT, type=whole(1), metavar="N", help=_BATCH),
    "batches": option(
        "--batch", "batches", group=INPUT, type=BATCHES, metavar="N[,N...]",
        help=f"{_BATCH} Several, as in 1,2,4,8, give latency and throughput of each."),
    "shape": option(
        "--shape", "shapes", group=INPUT, type=SHAPE, metavar="NAME:1x3x224x224",
        help="Shape of an input; may be repeated. N as its first size is --batch.", **_MANY),
    "jobs": option("--jobs", default=1, **_JOBS),
    "two_jobs": option("--jobs", default=2, **_JOBS),
    "tolerance": option(
        "--tolerance", group=SURE, type=SHARE, metavar="SHARE",
        help="Accept intervals up to ± this; narrower means more measuring, and exit code 3 if it "
        "cannot be reached. 5% is tried for unless given."),
    "confidence": option(
        "--confidence", group=SURE, type=SHARE, metavar="SHARE", default="90%",
        help="Probability that an interval holds the true latency.", **_SHOWN),
    "measure": option(
        "--measure", group=SURE, type=click.Choice(["auto", "never", "always"]), default="auto",
        help="auto: what the tolerance needs, if the target is this machine; never: look up and "
        "predict only; always: every cell and the network again.", **_SHOWN),
    "known": option(
        "--known", "latencies", group=SURE, type=KNOWN, metavar="NET.onnx[@N]=1.21ms",
        help="What another network takes on the target (at batch N, else that of --batch), to "
        "correct a prediction for a GPU; may be repeated.", **_MANY),
    "max_latency": option(
        "--max-latency", "budget", group=SURE, type=BUDGET, metavar="8ms|30fps",
        help="The budget of one batch: its time, or images a second (batch over latency). Exit "
        "code 1 if not kept, 3 if that is open."),
    "max_slower": option(
        "--max-slower", group=SURE, type=SHARE, metavar="SHARE",
        help="End with 1 if a network is slower than the first by more than this, 3 if it may be."),
    "fps": option(
        "--fps", group=SURE, type=FPS, metavar="N",
        help="The budget in images a second (batch over latency)."),
    "measured": option(
        "--measured", group=INPUT, type=MEASURED, metavar="10ms|30fps|FILE.log", required=True,
        help="The latency that was measured, of one batch, images a second, or trtexec's log."),
    "layers": option(
        "--layers", group=INPUT, type=Place(), metavar="FILE.json",
        help="What trtexec --exportProfile wrote: its layers beside our cells."),
    "size": option(
        "--size", group=INPUT, type=CURVE, metavar="320:640:64",
        help="Longer sides of the input images, with steps, or a list as in 320,416."),
    "width": option(
        "--width", group=INPUT, type=CURVE, metavar="0.25:1:0.125",
        help="Factors of all channels. Those that depend on each other are scaled together and "
        "rounded to multiples of 8; inputs and outputs keep theirs."),
    "batch_curve": option(
        "--batch", group=INPUT, type=CURVE, metavar="1,2,4",
        help="Batch sizes; beside --size or --width the one of all."),
    "precision": option(
        "--precision", group=WHERE, type=click.Choice(PRECISIONS, case_sensitive=False),
        help="Only this precision."),
    "baseline": option(
        "--baseline", "baselines", metavar="NAME", multiple=True,
        help="Evaluate this baseline too; may be repeated. All unless given; `no` for none."),
    "tolerances": option(
        "--tolerance", "tolerances", type=SHARE, multiple=True, default=("5%",), metavar="SHARE",
        help="Tolerance that the gate works towards; may be repeated.", **_SHOWN),
    "everything": option(
        "--all", "everything", help="Show every regime, method and figure.", **_FLAG),
    "draws": option(
        "--draws", type=whole(1), metavar="N", default=1,
        help="Draw the folds of GPU families N times: figures are the mean, ± their standard "
        "deviation.", **_SHOWN),
    "no_track": option("--no-track", help="Do not record this in MLflow.", **_FLAG),
    "out": option(
        "--out", type=Place(path_type=Path), metavar="DIR",
        help="Folder that models are written to; the user's own unless given."),
    "seed": option(
        "--seed", type=whole(0), metavar="N", default=0,
        help="Seed of all that is random: the same records and seed give the same result.",
        **_SHOWN),
}  # fmt: skip
"""What commands take, by its name."""
