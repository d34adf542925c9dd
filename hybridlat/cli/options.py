"""Options that several commands share, so that they read and mean the same everywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import reduce, wraps
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import click

from hybridlat.cli.param_types import (
    BATCHES,
    BUDGET,
    CURVE,
    DURATION,
    KNOWN,
    MEASURED,
    SHAPE,
    SHARE,
    OutputFile,
    complete_target,
    whole,
)
from hybridlat.engines import device_sheets
from hybridlat.estimate.lookup.named_target import named_target
from hybridlat.schema.files import write_text
from hybridlat.store import Store

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
F = TypeVar("F", bound=Callable[..., Any])
_GROUPS = ("What to measure", "Where", "Input", "How sure", "Output", "Other")
WHAT, WHERE, INPUT, SURE, OUTPUT, OTHER = _GROUPS


class Option(click.Option):
    """An option of a group of the help."""

    def __init__(self, names: Sequence[str], *, group: str = OTHER, **more: Any) -> None:
        super().__init__(names, **more)
        self.group = group


def option(*names: str, **more: Any) -> Callable[[F], F]:
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
            raise click.BadParameter(f"{name!r} is given two {parameter.name}")
    return named


def at_once(count: int) -> AbstractContextManager[object]:
    """What is fitted meanwhile is fitted by so many processes; see ``--jobs``."""
    if count == 1:
        return nullcontext()
    import joblib

    configured: AbstractContextManager[object] = joblib.parallel_config(n_jobs=count)
    return configured


@dataclass(frozen=True)
class Documents:
    """What a command writes besides what people read; UsageError for two on standard output."""

    as_json: bool
    markdown: str | None = None
    csv: str | None = None

    def __post_init__(self) -> None:
        if [self.markdown, self.csv].count("-") + self.as_json > 1:
            raise click.UsageError(
                "Only one of --json, --markdown - and --csv - can be on standard output."
            )

    @property
    def fill_standard_output(self) -> bool:
        return self.as_json or "-" in (self.markdown, self.csv)

    def write_tables(self, markdown: Callable[[], str] = str, csv: Callable[[], str] = str) -> None:
        """Write the Markdown and the CSV to their files; ``-`` is standard output."""
        for file, text in ((self.markdown, markdown), (self.csv, csv)):
            if file == "-":
                click.echo(text(), nl=False)
            elif file is not None:
                write_text(file, text())


def _all_of(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    return lambda function: reduce(lambda made, one: one(made), reversed(decorators), function)


def device(function: F) -> F:
    """The option ``--device-sheet``: it stands for the targets' device in this command."""

    sheet = "Data sheet of the target's device, for this command."

    @option("--device-sheet", group=WHERE, metavar="FILE.toml", type=click.Path(), help=sheet)
    @wraps(function)
    def command(*arguments: Any, device_sheet: str | None, **options: Any) -> Any:
        if device_sheet is not None:
            ctx = click.get_current_context()
            sheet = device_sheets.read(device_sheet, _device_of(ctx, options))
            ctx.with_resource(device_sheets.with_sheet(sheet))
        return function(*arguments, **options)

    return cast(F, command)


def _device_of(ctx: click.Context, options: Mapping[str, Any]) -> str | None:
    targets = options.get("targets")
    if "target" in options:
        targets = () if options["target"] is None else (options["target"],)
    if targets is None:
        return None
    with Store(options.get("store")) as store:
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


def target_option(words: str, *names: str, **more: Any) -> Callable[[F], F]:
    """``--target``, with these words of help."""
    more |= {"metavar": "TARGET", "shell_complete": complete_target}
    return option("--target", *names, group=WHERE, help=words, **more)


def time_limit(words: str, *names: str, **more: Any) -> Callable[[F], F]:
    """``--time-limit``, with these words of help."""
    return option(
        "--time-limit", *names, help=words, **{"type": DURATION, "metavar": "10m", **more}
    )


_DEFAULT = (
    "device/runtime/precision[/threads], such as l4/tensorrt/fp16: `hybridlat targets` lists "
    "them. This machine's CPU under ONNX Runtime unless given."
)
_BATCH = "Size of a free batch dimension (1 unless given)."
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_ROWS: Mapping[str, tuple[str, click.ParamType[Any] | None, str | None, str]] = {
    "--store": (WHERE, None, "URL", "Where measurements are kept: a file or a PostgreSQL URL; "
                "HYBRIDLAT_STORE unless given, else a file in the user's data folder."),
    "--threads": (WHERE, whole(1, 1024), "N", "Threads that the engine computes with (1 unless "
                  "given)."),
    "--json": (OUTPUT, None, None, "Print one JSON document and nothing else."),
    "--html": (OUTPUT, OutputFile(), "FILE", "Also write a page to look at: one file, no network."),
    "--markdown": (OUTPUT, OutputFile(allow_dash=True), "FILE", "Also write a Markdown table; - "
                   "for standard output."),
    "--csv": (OUTPUT, OutputFile(allow_dash=True), "FILE", "Also write its rows as CSV; - for "
              "standard output."),
    "--cells": (WHAT, None, None, "Measure only the cells, one by one."),
    "--network": (WHAT, None, None, "Measure only whole networks."),
    "--remeasure": (WHAT, None, None, "Measure again what the store knows already."),
    "--batch": (INPUT, whole(1), "N", _BATCH),
    "--shape": (INPUT, SHAPE, "NAME:1x3x224x224", "Shape of an input; may be repeated."),
    "--jobs": (OTHER, whole(1, also=-1), "N", "Processes that work at once; -1: one a core."),
    "--tolerance": (SURE, SHARE, "SHARE", "Accept intervals up to ± this; narrower means more "
                    "measuring, and exit code 3 if it cannot be reached. 5% is tried for unless "
                    "given."),
    "--confidence": (SURE, SHARE, "SHARE", "Probability that an interval holds the true latency."),
    "--measure": (SURE, click.Choice(["auto", "never", "always"]), None, "auto: what the tolerance "
                  "needs, if the target is this machine; never: look up and predict only; always: "
                  "every cell and the network again."),
    "--known": (SURE, KNOWN, "NET.onnx[@N]=1.21ms", "What another network takes on the target (at "
                "batch N), to correct a prediction for a GPU; may be repeated."),
    "--max-latency": (SURE, BUDGET, "8ms|30fps", "The budget of one batch: its time, or images a "
                      "second (batch over latency). Exit code 1 if not kept, 3 if that is open."),
    "--fps": (SURE, click.FloatRange(0, min_open=True), "N", "The budget in images a second (batch "
              "over latency)."),
    "--measured": (INPUT, MEASURED, "10ms|FILE.log", "The latency that was measured, of one batch, "
                   "or trtexec's log."),
    "--layers": (INPUT, click.Path(), "FILE.json", "What trtexec --exportProfile wrote: its layers "
                 "beside our cells."),
    "--size": (INPUT, CURVE, "320:640:64", "Longer sides of the input images, with steps, or a "
               "list as in 320,416."),
    "--width": (INPUT, CURVE, "0.25:1:0.125", "Factors of all channels. Those that depend on each "
                "other are scaled together and rounded to multiples of 8; inputs and outputs keep "
                "theirs."),
    "--baseline": (OTHER, None, "NAME", "Evaluate this baseline too; may be repeated. All unless "
                   "given; `no` for none."),
    "--draws": (OTHER, whole(1), "N", "Draw the folds of GPU families N times: figures are the "
                "mean, ± their standard deviation."),
    "--no-track": (OTHER, None, None, "Do not record this in MLflow."),
    "--out": (OTHER, click.Path(path_type=Path), "DIR", "Folder that models are written to; the "
              "user's own unless given."),
    "--seed": (OTHER, whole(0), "N", "Seed of all that is random: the same records and seed give "
               "the same result."),
}  # fmt: skip
"""Of options their group, type, metavar and help."""


def shared(name: str, *names: str, **more: Any) -> Callable[[F], F]:
    """The option of a row, with its other names and what is particular to a command."""
    group, kind, metavar, words = _ROWS[name]
    return option(name, *names, group=group, type=kind, metavar=metavar, help=words, **more)


network = click.argument("network", metavar="NET.onnx", type=click.Path())
networks = click.argument(
    "networks", nargs=-1, required=True, metavar="NET.onnx...", type=click.Path()
)
target = target_option(_DEFAULT)
store, threads = shared("--store"), shared("--threads")
as_json = shared("--json", "as_json", is_flag=True)
as_page, as_markdown, as_csv = shared("--html"), shared("--markdown"), shared("--csv")
_CELLS = "Show every cell, the memory, how to check it, and every operator that is not run."
every_cell = option("--all", "every_cell", group=OUTPUT, is_flag=True, help=_CELLS)
every_row = option("--all", "every_row", group=OUTPUT, is_flag=True, help="Show every row.")

far = _all_of(
    option("--host", group=WHERE, metavar="USER@BOARD", help="Measure there, over ssh. The board "
           "needs TensorRT and trtexec or Python 3.6, nothing else."),
    option("--runner", group=WHERE, type=click.Choice(["auto", "worker", "trtexec"]),
           default="auto", show_default=True, help="With --host: Python with TensorRT's module, or "
           "a shell with trtexec; auto takes the first that starts."),
    time_limit("With --host: how long the run may take; the next one goes on from there.",
               group=WHERE, default="6h", show_default=True),
)  # fmt: skip
targets = target_option(f"{_DEFAULT} Several give a table.", "targets", multiple=True)
what = _all_of(
    shared("--cells", "what", flag_value="cells"),
    shared("--network", "what", flag_value="network"),
    shared("--remeasure", is_flag=True),
)


def nets(words: str) -> Callable[[F], F]:
    """``--nets``, with these words of help."""
    return option("--nets", type=_FOLDER, metavar="DIR", help=words)


where = _all_of(target, device, threads, store)
anywhere = _all_of(targets, device, threads, store)
_CURVE = f"{_BATCH} Several, as in 1,2,4,8, give latency and throughput of each."
batch = shared("--batch")
batches = option("--batch", "batches", group=INPUT, type=BATCHES, metavar="N[,N...]", help=_CURVE)
shape = shared("--shape", "shapes", multiple=True, callback=_by_name)
sizes = _all_of(batch, shape)
jobs = shared("--jobs", default=1, show_default=True)
confidence = shared("--confidence", default="90%", show_default=True)
measuring = shared("--measure", default="auto", show_default=True)
trust = _all_of(shared("--tolerance"), confidence, measuring)
known = shared("--known", "latencies", multiple=True, callback=_by_name)
max_latency = shared("--max-latency", "budget")
untracked = shared("--no-track", is_flag=True)
models_folder = shared("--out")
seed = shared("--seed", default=0, show_default=True)
