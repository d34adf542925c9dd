"""``hybridlat doctor``: what this machine can measure, how steadily, and what is in the way."""

from __future__ import annotations

from collections.abc import Mapping

import click

from hybridlat import __version__
from hybridlat.api.doctor import Facts, check_up
from hybridlat.cli import options
from hybridlat.cli.output import ProgressShown, console, on_message, print_json
from hybridlat.report.table import Cell, Column, Table, titled
from hybridlat.report.units import latency_text, percent_text, plus_minus_text
from hybridlat.schema.progress import Progress

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

        checkup = check_up(__version__, store, seconds, on_message(as_json), left)
    if as_json:
        print_json(checkup)
    else:
        _print(checkup)
    ctx.exit(0 if checkup["can_measure"] else CANNOT)


def _print(checkup: Facts) -> None:
    """For people: what is in the way comes last."""
    out = console()
    engines = sorted(
        checkup["engines"], key=lambda e: (not e["target"], not e["measures"], e["name"])
    )
    tables = [
        _facts(f"hybridlat {checkup['version']} on", checkup["machine"]),
        Table(titled("engine", "version", "measures here as", wraps=True), [
            [e["name"], e["version"] or "–",
             Cell(e["target"], "measured") if e["target"] else Cell(e["why_not"], "hint")]
            for e in engines
        ]),
        Table(titled("package", "version", "for", wraps=True), [
            [p["name"], p["version"] or "–",
             p["purpose"] + ("" if p["version"] else f"; to get it: {p['how']}")]
            for p in checkup["packages"]
        ]),
        Table(titled("held of", "in", "cells", "networks", "wanders", "last", wraps=True), [
            [h["target"], h["source"], f"{h['cells']:,}", f"{h['networks']:,}",
             plus_minus_text(h["wander_share"]), h["last"][:10] or "–"]
            for h in checkup["held"]
        ]),
        _facts("where things lie", checkup["places"]),
    ]  # fmt: skip
    for table in tables:
        if table.rows:
            out.print(table.terminal())
            out.print()
    timed = checkup["steadiness"]
    if timed is not None:
        noise, pace = plus_minus_text(timed["noise_share"]), plus_minus_text(timed["wander_share"])
        out.print(
            f"The reference network took {latency_text(timed['latency_us'])} in {timed['visits']} "
            f"visits over {timed['seconds']:.0f} s: noise {noise} from one to the next, pace "
            f"{pace}, at worst {percent_text(timed['slowest_share'])} slower.\n"
        )
    for problem in checkup["problems"]:
        style = "bold red" if problem["severity"] == "error" else "yellow"
        out.print(f"{problem['severity']}: {problem['what']} – {problem['fix']}", style=style)
    if checkup["can_measure"]:
        out.print("This machine can measure.", style="green")
    else:
        out.print("This machine cannot measure as it is.", style="bold red")


def _facts(title: str, facts: Mapping[str, str]) -> Table:
    rows = [[f"  {name.replace('_', ' ')}", value] for name, value in facts.items()]
    return Table([Column(style="dim"), Column(wraps=True)], rows, title=title)
