"""``hybridlat measure`` and ``plan``: networks and their cells, here or on a board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from hybridlat import onnx_io
from hybridlat.api.measure import measure_on_host
from hybridlat.api.predictor import Predictor
from hybridlat.cli import options
from hybridlat.cli.options import Grouped
from hybridlat.cli.output import ProgressShown, aside, console, print_json, say, show
from hybridlat.cli.predict import worst
from hybridlat.errors import HybridlatError, InputError
from hybridlat.estimate.lookup.named_target import named_target
from hybridlat.measuring.measurer import MeasureReport, What, unknown_to
from hybridlat.measuring.plans import draft_for
from hybridlat.measuring.ssh import RemoteHost, Runner, check_target
from hybridlat.report.units import count_text, latency_text
from hybridlat.schema.measurement import busiest
from hybridlat.schema.shown import visible
from hybridlat.store import Store

FAILED = 3


@click.command(cls=Grouped)
@options.use("networks cells whole remeasure host runner time_limit target device threads store")
@options.use("batch shape json")
@click.pass_context
def measure(
    ctx: click.Context,
    batch: int | None,
    shapes: options.Shapes,
    networks: Sequence[str],
    what: What | None,
    remeasure: bool,
    host: str | None,
    runner: Runner,
    time_limit: float,
    target: str | None,
    threads: int | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Measure networks as a whole and by their cells, and keep the records.

    Cells and networks are measured in one run unless --cells or --network asks for one of them.
    With --host a board is measured over ssh; --target says what it is.

    \b
    hybridlat measure a.onnx b.onnx --cells
    hybridlat measure a.onnx --host user@board --target orin-nano/tensorrt/fp16
    """
    for name, option in (("runner", "--runner"), ("time_limit", "--time-limit")):
        if host is None and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{option} goes with --host: it is for a run there.", ctx)
    chosen: dict[str, Any] = {"what": what or "both", "remeasure": remeasure}
    sizes: dict[str, Any] = {"batch": batch, "shapes": shapes}
    codes, objects = {0}, list[dict[str, object]]()
    if host is not None:
        if target is None:
            raise InputError(
                f"--host {host} needs --target: device/runtime/precision, such as "
                "orin-agx/tensorrt/fp16"
            )
        files = [onnx_io.load(path) for path in networks]
        read = [(file.label, file.network(**sizes)) for file in files]
        remote = RemoteHost(host, runner, time_limit, say)
        with Store(store) as opened:
            far = measure_on_host(read, named_target(target, opened), opened, remote, **chosen)
        reports = [replace(one, network=file.name) for one, file in zip(far, files, strict=True)]
        codes |= {_print(report, as_json) for report in reports}
        objects = [*map(as_object, reports)]
    else:
        with (
            ProgressShown() as shown,
            Predictor(target, store=store, threads=threads, progress=shown) as predictor,
        ):
            for path in networks:
                try:
                    report = predictor.measure(path, **chosen, **sizes)
                except HybridlatError as error:
                    if len(networks) == 1:
                        raise
                    aside(str(error))
                    codes.add(error.exit_code)
                    objects.append({"network": path, "latency_us": None, "error": str(error)})
                    continue
                shown.close()
                objects.append(as_object(report))
                codes.add(_print(report, as_json))
    if as_json:
        print_json(objects if len(networks) > 1 else objects[0])
    ctx.exit(worst(codes))


_OF_REPORT = ("network", "target", "latency_us", "sum_of_cells_us", "elapsed_s", "known")
_OF_RECORD = ("id", "signature", "kind", "latency_us", "spread_share", "failure")


def as_object(report: MeasureReport) -> dict[str, object]:
    """``measure --json``, one object per network (format 1)."""
    records = [
        {name: getattr(record, name) for name in _OF_RECORD}
        | {"samples": sum(len(visit.samples_us) for visit in record.visits)}
        for record in report.records
    ]
    return {
        "format": 1,
        **{name: getattr(report, name) for name in _OF_REPORT},
        "records": records,
        "failures": dict(report.failures),
        "warnings": list(report.warnings),
    }


def _print(report: MeasureReport, as_json: bool) -> int:
    for signature, reason in report.failures.items():
        aside(f"{report.network}: {signature[:8]} could not be measured: {reason}")
    is_busy = busiest(record.environment for record in report.records) is not None
    code = FAILED if report.failures or is_busy else 0
    if as_json:
        return code
    from rich.text import Text

    out = console()
    out.print(Text.assemble((visible(report.network), "bold"), f"  on {report.target}"))
    whole_us, sum_us = report.latency_us, report.sum_of_cells_us
    if whole_us is not None:
        out.print(Text.assemble("  whole network  ", (latency_text(whole_us), "bold cyan")))
    if sum_us is not None:
        apart = "" if whole_us is None else f"  ({100 * (sum_us / whole_us - 1):+.1f} %)"
        out.print(f"  sum of cells   {latency_text(sum_us)}{apart}")
    cells = sum(record.kind == "cell" for record in report.records)
    facts = f"  {count_text(cells, 'cell')} measured, {report.known} known before"
    out.print(f"{facts}, in {latency_text(report.elapsed_s * 1e6)}", style="dim")
    for warning in report.warnings:
        out.print(f"  Note: {visible(str(warning))}", style="yellow")
    return code


@click.command(cls=Grouped)
@options.use("networks")
@options.option(
    "-o",
    "--output",
    "folder",
    group=options.OUTPUT,
    required=True,
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Folder to write the plan to.",
)
@options.target_option("What the other device is: device/runtime/precision.", required=True)
@options.use("cells whole remeasure device store batch shape json")
def plan(
    batch: int | None,
    shapes: options.Shapes,
    networks: Sequence[str],
    folder: str,
    target: str,
    what: What | None,
    remeasure: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Write a folder that measures networks on another device: there, sh DIR/run.sh.

    \b
    hybridlat plan a.onnx b.onnx --target orin-nano/tensorrt/fp16 -o a-plan
    hybridlat import a-plan
    """
    with Store(store) as opened:
        named = named_target(target, opened)
        check_target(named)
        files = [onnx_io.load(path) for path in networks]
        read = [(file.label, file.network(batch, shapes)) for file in files]
        draft = draft_for(read, named, unknown_to(opened, named, what or "both", remeasure))
        draft.write(Path(folder))
    tasks = len(draft.manifest()["tasks"])
    show(
        as_json,
        {"folder": folder, "target": str(named), "tasks": tasks},
        f"{tasks} measurements planned in {folder} for {named}",
        f"On the device:  sh {folder}/run.sh   (or python3 {folder}/worker.py run)",
        f"Back here:      hybridlat import {folder}",
    )
