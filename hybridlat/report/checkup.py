"""What `doctor` found, for a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hybridlat.report.units import latency_text, percent_text, plus_minus_text
from hybridlat.schema.checkup import Checkup, Steadiness


def print_checkup(console: Console, found: Checkup) -> None:
    """Print it, what is in the way last."""
    _print_facts(console, f"hybridlat {found.version} on", dict(found.machine))
    console.print()
    table = _table("engine", "version", "measures here as")
    for engine in sorted(found.engines, key=lambda e: (not e.target, not e.measures, e.name)):
        here = Text(engine.target, "green") if engine.target else Text(engine.why_not, "dim")
        table.add_row(engine.name, engine.version or "–", here)
    console.print(table)
    console.print()
    table = _table("package", "version", "for")
    for package in found.packages:
        missing = "" if package.version else f"; to get it: {package.how}"
        table.add_row(package.name, package.version or "–", f"{package.purpose}{missing}")
    console.print(table)
    console.print()
    if found.steadiness is not None:
        console.print(_steadiness(found.steadiness))
        console.print()
    if found.held:
        table = _table("held of", "in", "cells", "networks", "wanders", "last")
        for held in found.held:
            table.add_row(held.target, held.source, f"{held.cells:,}", f"{held.networks:,}",
                          plus_minus_text(held.wander_share), held.last[:10] or "–")  # fmt: skip
        console.print(table)
        console.print()
    _print_facts(console, "where things lie", dict(found.places))
    console.print()
    for problem in found.problems:
        style = "bold red" if problem.severity == "error" else "yellow"
        console.print(Text(f"{problem.severity}: {problem.what} – {problem.fix}", style))
    if not found.problems:
        console.print(Text("Nothing is in the way.", "green"))
    elif found.can_measure:
        console.print(Text("This machine can measure.", "green"))
    else:
        console.print(Text("This machine cannot measure as it is.", "bold red"))


def _steadiness(found: Steadiness) -> Text:
    return Text(
        f"The reference network took {latency_text(found.latency_us)} in {found.visits} visits "
        f"over {found.seconds:.0f} s: noise {plus_minus_text(found.noise_share)} from one to the "
        f"next, pace {plus_minus_text(found.wander_share)}, at worst "
        f"{percent_text(found.slowest_share)} slower."
    )


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in titles:
        table.add_column(title, overflow="fold")
    return table


def _print_facts(console: Console, title: str, facts: dict[str, str]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    console.print(Text(title, "dim"))
    for name, value in facts.items():
        table.add_row(f"  {name.replace('_', ' ')}", value)
    console.print(table)
