"""Standard output for results, standard error for what is said beside them."""

from __future__ import annotations

import json
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
    click.echo(json_text(value))


def json_text(value: object) -> str:
    """Any JSON value as it is printed, in ASCII so that no terminal can spoil it.

    NaN and infinities are no JSON: ValueError.
    """
    return json.dumps(value, allow_nan=False, indent=2)


def on_message(as_json: bool) -> OnMessage:
    """Progress as sentences on standard error; none beside JSON."""
    return silent if as_json else aside
