"""``hybridlat plan``: a folder that measures on another device."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from hybridlat.cli import options
from hybridlat.cli.options import OUTPUT, Grouped, option
from hybridlat.cli.output import echo, print_json
from hybridlat.estimate.lookup.asked_target import asked_target
from hybridlat.measuring.plan_runs import unknown_to
from hybridlat.measuring.plans import draft_for
from hybridlat.measuring.report import What
from hybridlat.measuring.ssh import check_target
from hybridlat.onnx_io import load
from hybridlat.store import Store


@click.command(cls=Grouped)
@options.networks
@option("-o", "--output", "folder", group=OUTPUT, required=True, metavar="DIR",
        type=click.Path(file_okay=False), help="Folder to write the plan to.")  # fmt: skip
@options.target_option("What the other device is: device/runtime/precision.", required=True)
@options.what
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
    store: str | None,
    as_json: bool,
) -> None:
    """Write a folder that measures networks on another device: there, sh DIR/run.sh.

    \b
    hybridlat plan a.onnx b.onnx --target orin-nano/tensorrt/fp16 -o a-plan
    hybridlat import a-plan
    """
    with Store(store) as opened:
        wanted = asked_target(target, opened)
        check_target(wanted)
        files = [load(path) for path in networks]
        read = [(file.label, file.network(batch, shapes)) for file in files]
        draft = draft_for(read, wanted, unknown_to(opened, wanted, what or "both", remeasure))
        draft.write(Path(folder))
    tasks = len(draft.manifest()["tasks"])
    if as_json:
        print_json({"folder": folder, "target": str(wanted), "tasks": tasks})
        return
    echo(f"{tasks} measurements planned in {folder} for {wanted}")
    echo(f"On the device:  sh {folder}/run.sh   (or python3 {folder}/worker.py run)")
    echo(f"Back here:      hybridlat import {folder}")
