"""``--fleet`` of several commands: the devices at work, and what each did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hybridlat.cli.output import ProgressShown, aside, console
from hybridlat.report.table import Column, Table, titled
from hybridlat.report.units import latency_text

if TYPE_CHECKING:
    from hybridlat.measuring.fleet import DeviceReport, Fleet


def refuse_beside(ctx: click.Context, *pairs: tuple[str, object]) -> None:
    """A usage error where an option that the fleet's file answers is given as well."""
    for name, value in pairs:
        if value is not None:
            raise click.UsageError(
                f"--{name} does not go with --fleet: its file names every device and its target.",
                ctx,
            )


@contextmanager
def opened(file: Path) -> Iterator[Fleet]:
    """The devices of a fleet's file at work; progress and who comes and goes on standard error."""
    from hybridlat.measuring.fleet import Fleet
    from hybridlat.measuring.fleet_file import read_fleet

    read = read_fleet(file)
    with ProgressShown() as shown, Fleet(read, shown, aside) as fleet:
        yield fleet


def devices_json(devices: Sequence[DeviceReport]) -> list[dict[str, object]]:
    """What each device did, as ``--json`` prints it."""
    return [asdict(device) for device in devices]


def print_devices(devices: Sequence[DeviceReport]) -> None:
    """What each device did, for people."""
    rows = [
        [device.name, str(device.cells), str(device.networks), str(device.failures),
         latency_text(device.busy_s * 1e6 or None), f"{device.lost} ×" if device.lost else "",
         device.problem or "there"]
        for device in devices
    ]  # fmt: skip
    figures = titled("cells", "networks", "failures", "busy", "away", right=True)
    console().print(
        Table([Column("device", wraps=True), *figures, Column(wraps=True)], rows).terminal()
    )
