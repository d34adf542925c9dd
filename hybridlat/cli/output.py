"""Standard output for results, standard error for what is said beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hybridlat.schema.progress import OnMessage, silent

if TYPE_CHECKING:
    from rich.console import Console


def console() -> Console:
    """The terminal as rich sees it; text is printed as it is, without markup or guesses."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False, soft_wrap=False)


def aside(sentence: str) -> None:
    """A sentence on standard error."""
    click.echo(f"hybridlat: {sentence}", err=True)


def print_json(value: object) -> None:
    """One JSON document on standard output."""
    from hybridlat.report.json import document

    click.echo(document(value))


def on_message(as_json: bool) -> OnMessage:
    """Progress as sentences on standard error; none beside JSON."""
    return silent if as_json else aside
