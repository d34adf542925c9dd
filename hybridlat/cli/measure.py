"""``hybridlat measure`` and ``plan``: networks and their cells, here or on a board."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from hybridlat import onnx_io
from hybridlat.api.measure import measure_on_host
from hybridlat.cli.options import command, target_option
from hybridlat.cli.output import UNTRUSTED, Run, aside, console, say, worst
from hybridlat.errors import HybridlatError, InputError
from hybridlat.estimate.lookup.named_target import named_target
from hybridlat.measuring.measurer import MeasureReport, unknown_to
from hybridlat.measuring.plans import draft_for
from hybridlat.measuring.ssh import RemoteHost, check_target
from hybridlat.report.units import count_text, latency_text
from hybridlat.schema.measurement import busiest
from hybridlat.schema.shown import visible
from hybridlat.store import Store


@command(
    "networks cells whole remeasure host runner time_limit target device threads store",
    "batch shape json",
)
def measure(run: Run) -> int:
    """Measure networks as a whole and by their cells, and keep the records.

    Cells and networks are measured in one run unless --cells or --network asks for one of them.
    With --host a board is measured over ssh; --target says what it is.

    \b
    hybridlat measure a.onnx b.onnx --cells
    hybridlat measure a.onnx --host user@board --target orin-nano/tensorrt/fp16
    """
    ctx, host, networks = click.get_current_context(), run.host, run.networks
    for name, option in (("runner", "--runner"), ("time_limit", "--time-limit")):
        if host is None and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{option} goes with --host: it is for a run there.", ctx)
    chosen: dict[str, Any] = {"what": run.what or "both", "remeasure": run.remeasure}
    sizes = run.among("batch shapes")
    codes, objects = {0}, list[dict[str, object]]()
    if host is not None:
        if run.target is None:
            raise InputError(
                f"--host {host} needs --target: device/runtime/precision, such as "
                "orin-agx/tensorrt/fp16"
            )
        files = [onnx_io.load(path) for path in networks]
        read = [(file.label, file.network(**sizes)) for file in files]
        remote = RemoteHost(host, run.runner, run.time_limit, say)
        with Store(run.store) as opened:
            far = measure_on_host(read, named_target(run.target, opened), opened, remote, **chosen)
        reports = [replace(one, network=file.name) for one, file in zip(far, files, strict=True)]
        codes |= {_print(report, run.as_json) for report in reports}
        objects = [*map(as_object, reports)]
    else:
        with run.opened(run.target) as (predictor, shown):
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
                codes.add(_print(report, run.as_json))
    run.show(objects if len(networks) > 1 else objects[0])
    return worst(codes)


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
    code = UNTRUSTED if report.failures or is_busy else 0
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


@command(
    "networks folder",
    target_option("What the other device is: device/runtime/precision.", required=True),
    "cells whole remeasure device store batch shape json",
)
def plan(run: Run) -> None:
    """Write a folder that measures networks on another device: there, sh DIR/run.sh.

    \b
    hybridlat plan a.onnx b.onnx --target orin-nano/tensorrt/fp16 -o a-plan
    hybridlat import a-plan
    """
    with Store(run.store) as opened:
        named = named_target(run.target, opened)
        check_target(named)
        files = [onnx_io.load(path) for path in run.networks]
        read = [(file.label, file.network(run.batch, run.shapes)) for file in files]
        draft = draft_for(read, named, unknown_to(opened, named, run.what or "both", run.remeasure))
        draft.write(Path(run.folder))
    folder, tasks = shlex.quote(run.folder), len(draft.manifest()["tasks"])
    run.show(
        {"folder": run.folder, "target": str(named), "tasks": tasks},
        f"{count_text(tasks, 'measurement')} planned in {folder} for {named}",
        f"On the device:  sh {folder}/run.sh   (or python3 {folder}/worker.py run)",
        f"Back here:      hybridlat import {folder}",
    )
