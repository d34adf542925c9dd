"""``hybridlat plan`` and ``import``: measure on another device, with or without this one's help."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from hybridlat.cli import options
from hybridlat.cli.output import print_json, say
from hybridlat.measuring.plan_runs import import_results, unknown_to
from hybridlat.measuring.plans import PlanRequest, draft_for
from hybridlat.measuring.report import What
from hybridlat.measuring.ssh import Board, Runner, check_target
from hybridlat.onnx_io import load
from hybridlat.schema.measurement import Measurement
from hybridlat.schema.target import Target
from hybridlat.store import Store


@click.command()
@options.networks
@click.option("-o", "--output", "folder", required=True, metavar="DIR",
              type=click.Path(file_okay=False), help="Folder to write the plan to.")  # fmt: skip
@options.target_option("What the other device is: device/runtime/precision.", required=True)
@options.what
@options.far
@options.device
@options.store
@options.sizes
@options.as_json
def plan(
    batch: int | None,
    shapes: options.Shapes,
    networks: Sequence[str],
    folder: str,
    target: str,
    what: What | None,
    remeasure: bool,
    host: str | None,
    runner: Runner,
    limit: float,
    store: str | None,
    as_json: bool,
) -> None:
    """Write a folder that measures networks on another device: there, sh DIR/run.sh.

    With --host the folder is copied there over ssh, measured, fetched back and imported.

    \b
    hybridlat plan a.onnx b.onnx --target orin-nano/tensorrt/fp16 -o a-plan
    hybridlat import a-plan
    """
    wanted = Target.parse(target)
    board = None if host is None else Board(host, runner, limit, say)
    if board is not None:
        check_target(wanted)
    files = [load(path) for path in networks]
    read = [(file.label, file.network(batch, shapes)) for file in files]
    with Store(store) as opened:
        unknown = unknown_to(opened, wanted, what or "both", remeasure)
        draft = draft_for(PlanRequest(read, wanted, unknown))
        draft.write(Path(folder))
        if board is not None:
            board.measure(Path(folder))
            _print_imported(*import_results(Path(folder), opened), as_json)
            return
    tasks = len(draft.manifest()["tasks"])
    if as_json:
        print_json({"folder": folder, "target": target, "tasks": tasks})
        return
    click.echo(f"{tasks} measurements planned in {folder} for {target}")
    click.echo(f"On the device:  sh {folder}/run.sh   (or python3 {folder}/worker.py run)")
    click.echo(f"Back here:      hybridlat import {folder}")


@click.command(name="import")
@click.argument("folder", metavar="DIR", type=click.Path())
@click.option("--board", "board_id", metavar="ID", help="Import only the results of this board.")
@options.store
@options.as_json
def import_(folder: str, board_id: str | None, store: str | None, as_json: bool) -> None:
    """Check what the plan in DIR has measured, and add it to the store.

    \b
    hybridlat import a-plan
    hybridlat import a-plan --store team.db
    """
    with Store(store) as opened:
        _print_imported(*import_results(Path(folder), opened, board_id), as_json)


def _print_imported(records: Sequence[Measurement], new: int, as_json: bool) -> None:
    """The number of records of a plan, and of those that are new."""
    failures = sum(record.failure is not None for record in records)
    targets = sorted({str(record.target) for record in records})
    if as_json:
        print_json({"targets": targets, "records": len(records), "new": new, "failures": failures})
        return
    failed = f", {failures} of them failures" if failures else ""
    click.echo(f"{new} of {len(records)} records are new{failed}: {', '.join(targets)}")
