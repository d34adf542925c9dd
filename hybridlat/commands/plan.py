"""``hybridlat plan`` and ``import``: measure on another device, with or without this one's help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from hybridlat.commands import options
from hybridlat.commands.printing import print_json


@click.command()
@options.networks
@click.option("-o", "--output", "folder", required=True, metavar="DIR",
              type=click.Path(file_okay=False), help="Folder to write the plan to.")  # fmt: skip
@click.option("--target", required=True, metavar="TARGET", shell_complete=options.complete_target,
              help="What the other device is: device/runtime/precision.")  # fmt: skip
@click.option("--cells", "what", flag_value="cells", help="Only the cells.")
@click.option("--network", "what", flag_value="network", help="Only whole networks.")
@click.option("--anew", is_flag=True, help="Also what the store knows already.")
@options.store
@options.sizes
@options.as_json
def plan(
    networks: Sequence[str],
    folder: str,
    target: str,
    what: str | None,
    anew: bool,
    store: str | None,
    batch: int | None,
    shapes: Mapping[str, tuple[int, ...]],
    as_json: bool,
) -> None:
    """Write a folder that measures networks on another device: there, sh DIR/run.sh."""
    from hybridlat import plan as plans
    from hybridlat.core.target import Target
    from hybridlat.onnx_io import read_network
    from hybridlat.store import Store

    wanted = Target.parse(target)
    read = [(path, read_network(path, batch, shapes)) for path in networks]
    with Store(store) as opened:

        def unknown(signature: str) -> bool:
            return anew or not opened.latencies(wanted, [signature])

        draft = plans.write(
            read, wanted, folder, wanted=unknown, whole=what != "cells", cells=what != "network"
        )
    tasks = len(draft.manifest()["tasks"])
    if as_json:
        print_json({"folder": folder, "target": target, "tasks": tasks})
        return
    click.echo(f"{tasks} measurements planned in {folder} for {target}")
    click.echo(f"On the device:  sh {folder}/run.sh   (or python3 {folder}/worker.py run)")
    click.echo(f"Back here:      hybridlat import {folder}")


@click.command(name="import")
@click.argument("folder", metavar="DIR", type=click.Path())
@click.option("--board", "board_id", metavar="ID", help="Only take results of this board.")
@options.store
@options.as_json
def import_(folder: str, board_id: str | None, store: str | None, as_json: bool) -> None:
    """Check what was measured by the plan in DIR, and keep it."""
    from hybridlat.plan import read_breakdowns, read_results
    from hybridlat.store import Store

    signatures, measurements = read_results(folder, board_id=board_id)
    with Store(store) as opened:
        opened.add_signatures(signatures)
        new = opened.add(measurements)
        opened.add_breakdowns(read_breakdowns(folder))
    failures = sum(record.failure is not None for record in measurements)
    targets = sorted({str(record.target) for record in measurements})
    if as_json:
        print_json({"targets": targets, "records": len(measurements), "new": new,
                    "failures": failures})  # fmt: skip
        return
    failed = f", {failures} of them failures" if failures else ""
    click.echo(f"{new} of {len(measurements)} records are new{failed}: {', '.join(targets)}")
