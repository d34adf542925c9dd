"""``hybridlat doctor``: what this machine can measure, how steadily, and what is in the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from hybridlat import __version__
from hybridlat.api.doctor import Checkup, check_up
from hybridlat.cli import options
from hybridlat.cli.output import ProgressShown, console, on_message, print_json
from hybridlat.report.table import Column, Table, titled
from hybridlat.report.units import latency_text, percent_text, plus_minus_text
from hybridlat.schema.progress import Progress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

CANNOT = 3


@click.command()
@click.option("--seconds", type=click.FloatRange(min=0, max=3600), default=20.0, show_default=True,
              metavar="N", help="How long to time the machine; 0 leaves that out.")  # fmt: skip
@options.store
@options.as_json
@click.pass_context
def doctor(ctx: click.Context, seconds: float, store: str | None, as_json: bool) -> None:
    """Say what this machine can measure, how steadily, what is held where, and what is wrong.

    \b
    hybridlat doctor
    hybridlat doctor --seconds 0 --json

    Exit codes: 0 it can measure, 3 something keeps it from measuring.
    """
    with ProgressShown() as shown:

        def left(seconds_left: float) -> None:
            done = round(seconds - seconds_left)
            shown(Progress(done, round(seconds), "timing the reference network", seconds_left))

        found = check_up(__version__, store, seconds, on_message(as_json), left)
    if as_json:
        print_json(found.to_json())
    else:
        _print(console(), found)
    ctx.exit(0 if found.can_measure else CANNOT)


def _print(out: Console, checkup: Checkup) -> None:
    """For people: what is in the way comes last."""
    from rich.text import Text

    _print_facts(out, f"hybridlat {checkup.version} on", checkup.machine)
    engines = sorted(checkup.engines, key=lambda e: (not e.target, not e.measures, e.name))
    _print_rows(out, ["engine", "version", "measures here as"], [
        [e.name, e.version or "–", Text(e.target, "green") if e.target else Text(e.why_not, "dim")]
        for e in engines
    ])  # fmt: skip
    _print_rows(out, ["package", "version", "for"], [
        [p.name, p.version or "–", p.purpose + ("" if p.version else f"; to get it: {p.how}")]
        for p in checkup.packages
    ])  # fmt: skip
    timed = checkup.steadiness
    if timed is not None:
        out.print(
            f"The reference network took {latency_text(timed.latency_us)} in {timed.visits} visits "
            f"over {timed.seconds:.0f} s: noise {plus_minus_text(timed.noise_share)} from one to "
            f"the next, pace {plus_minus_text(timed.wander_share)}, at worst "
            f"{percent_text(timed.slowest_share)} slower.\n"
        )
    if checkup.held:
        _print_rows(out, ["held of", "in", "cells", "networks", "wanders", "last"], [
            [h.target, h.source, f"{h.cells:,}", f"{h.networks:,}",
             plus_minus_text(h.wander_share), h.last[:10] or "–"]
            for h in checkup.held
        ])  # fmt: skip
    _print_facts(out, "where things lie", checkup.places)
    for problem in checkup.problems:
        style = "bold red" if problem.severity == "error" else "yellow"
        out.print(Text(f"{problem.severity}: {problem.what} – {problem.fix}", style))
    if not checkup.problems:
        out.print(Text("Nothing is in the way.", "green"))
    elif checkup.can_measure:
        out.print(Text("This machine can measure.", "green"))
    else:
        out.print(Text("This machine cannot measure as it is.", "bold red"))


def _print_rows(out: Console, titles: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> None:
    out.print(Table(titled(*titles, wraps=True), rows).terminal())
    out.print()


def _print_facts(out: Console, title: str, facts: Mapping[str, str]) -> None:
    from rich.text import Text

    out.print(Text(title, "dim"))
    rows = [[f"  {name.replace('_', ' ')}", value] for name, value in facts.items()]
    out.print(Table([Column(style="dim"), Column(wraps=True)], rows).terminal())
    out.print()
