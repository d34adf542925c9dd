"""``hybridlat measure``: measure networks and their cells on this machine."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from hybridlat.cli import options
from hybridlat.cli.output import aside, console, print_json
from hybridlat.cli.predict import worst
from hybridlat.cli.progress import ProgressShown
from hybridlat.errors import HybridlatError

if TYPE_CHECKING:
    from hybridlat.api import MeasureReport
    from hybridlat.schema.target import Target
    from hybridlat.store import Store

FAILED = 3


@click.command()
@options.networks
@click.option("--cells", "what", flag_value="cells", help="Measure only the cells, one by one.")
@click.option("--network", "what", flag_value="network", help="Measure only whole networks.")
@click.option("--anew", is_flag=True, help="Measure again what the store knows already.")
@options.far
@options.where
@options.sizes
@options.as_json
@click.pass_context
def measure(
    ctx: click.Context,
    networks: Sequence[str],
    what: str | None,
    anew: bool,
    host: str | None,
    runner: str,
    limit: float,
    target: str | None,
    threads: int | None,
    store: str | None,
    batch: int | None,
    shapes: Mapping[str, tuple[int, ...]],
    as_json: bool,
) -> None:
    """Measure networks as a whole and by their cells, and keep the records.

    Cells and networks are measured in one run unless --cells or --network asks for one of them.
    With --host a board is measured over ssh; --target says what it is.
    """
    from hybridlat.api import Predictor

    if host is not None:
        ctx.exit(_far(networks, host, runner, limit, what, anew, target, store, batch, shapes,
                      as_json))  # fmt: skip
    reports: list[MeasureReport] = []
    codes = {0}
    with (
        ProgressShown() as shown,
        Predictor(target, store=store, threads=threads, progress=shown) as predictor,
    ):
        for path in networks:
            try:
                report = predictor.measure(path, what=what or "both", batch=batch,  # type: ignore[arg-type]
                                           shapes=shapes, anew=anew)  # fmt: skip
            except HybridlatError as error:
                if len(networks) == 1:
                    raise
                aside(str(error))
                codes.add(error.exit_code)
                continue
            shown.close()
            reports.append(report)
            for signature, reason in report.failures.items():
                aside(f"{report.network}: {signature[:8]} could not be measured: {reason}")
                codes.add(FAILED)
            if not as_json:
                _print(report)
    if as_json and (reports or len(networks) > 1):
        objects = [as_object(report) for report in reports]
        print_json(objects if len(networks) > 1 else objects[0])
    ctx.exit(worst(codes))


def _far(
    networks: Sequence[str], host: str, runner: str, limit: float, what: str | None, anew: bool,
    target: str | None, store: str | None, batch: int | None,
    shapes: Mapping[str, tuple[int, ...]], as_json: bool,
) -> int:  # fmt: skip
    """Measure on a board over ssh, all networks in one plan; the exit code."""
    from hybridlat import onnx_io
    from hybridlat.api import MeasureReport
    from hybridlat.errors import InputError
    from hybridlat.measuring.plans import execution
    from hybridlat.measuring.ssh import check_target, run_on
    from hybridlat.schema.target import Target
    from hybridlat.store import Store

    if target is None:
        raise InputError(
            f"--host {host} needs --target: device/runtime/precision, such as orin/tensorrt/fp16"
        )
    began = time.perf_counter()
    wanted = Target.parse(target)
    check_target(wanted)
    files = [onnx_io.load(path) for path in networks]
    read = [(file.label, file.network(batch, shapes)) for file in files]
    with Store(store) as opened:
        run = run_on(host, runner, limit, lambda sentence: click.echo(sentence, err=True))

        def unknown(signature: str) -> bool:
            return anew or not opened.latencies(wanted, [signature])

        found = execution.measure_networks(
            read, wanted, opened, run,
            wanted=unknown, whole=what != "cells", cells=what != "network",
        )  # fmt: skip
        there = found.targets[0] if found.targets else wanted
        reports = [
            MeasureReport(
                network=file.name,
                target=str(there),
                records=(own := tuple(
                    r for r in found.records if r.labels.get("network") == file.label
                )),
                known=0,
                latency_us=next((r.latency_us for r in own if r.kind == "network"), None),
                sum_of_cells_us=_sum_of_cells(opened, there, file.label),
                elapsed_s=time.perf_counter() - began,
                failures={r.signature: r.failure for r in own if r.failure is not None},
            )
            for file in files
        ]  # fmt: skip
    for report in reports:
        for signature, reason in report.failures.items():
            aside(f"{report.network}: {signature[:8]} could not be measured: {reason}")
        if not as_json:
            _print(report)
    if as_json:
        objects = [as_object(report) for report in reports]
        print_json(objects if len(networks) > 1 else objects[0])
    return FAILED if any(report.failures for report in reports) else 0


def _sum_of_cells(store: Store, target: Target, network: str) -> float | None:
    """The plain sum over the network's newest breakdown; None where a cell is not known."""
    breakdowns = [b for b in store.breakdowns(target=target) if b.network == network]
    if not breakdowns:
        return None
    cells = breakdowns[-1].cells
    known = store.latencies(target, [signature for signature, _ in cells])
    values = [
        (known[signature].latency_us if signature in known else None, count)
        for signature, count in cells
    ]
    if any(value is None for value, _ in values):
        return None
    return sum(value * count for value, count in values if value is not None)


def as_object(report: MeasureReport) -> dict[str, object]:
    """``measure --json``, one object per network (format 1)."""
    return {
        "format": 1,
        "network": report.network,
        "target": report.target,
        "latency_us": report.latency_us,
        "sum_of_cells_us": report.sum_of_cells_us,
        "elapsed_s": report.elapsed_s,
        "known": report.known,
        "records": [
            {
                "id": record.id,
                "signature": record.signature,
                "kind": record.kind,
                "latency_us": record.latency_us,
                "spread_share": record.spread_share,
                "samples": sum(len(visit.samples_us) for visit in record.visits),
                "failure": record.failure,
            }
            for record in report.records
        ],
        "failures": dict(report.failures),
    }


def _print(report: MeasureReport) -> None:
    from rich.text import Text

    from hybridlat.report.units import count_text, latency_text

    out = console()
    out.print(Text.assemble((report.network, "bold"), f"  on {report.target}"))
    if report.latency_us is not None:
        out.print(
            Text.assemble("  whole network  ", (latency_text(report.latency_us), "bold cyan"))
        )
    if report.sum_of_cells_us is not None:
        line = f"  sum of cells   {latency_text(report.sum_of_cells_us)}"
        if report.latency_us is not None:
            line += f"  ({100 * (report.sum_of_cells_us / report.latency_us - 1):+.1f} %)"
        out.print(Text(line))
    cells = sum(record.kind == "cell" for record in report.records)
    facts = f"  {count_text(cells, 'cell')} measured, {report.known} known before"
    out.print(Text(f"{facts}, in {latency_text(report.elapsed_s * 1e6)}", "dim"))
