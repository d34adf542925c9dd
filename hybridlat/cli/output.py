"""What a command writes: results to standard output, progress and asides to standard error."""

from __future__ import annotations

import json
import shlex
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from hybridlat.schema.progress import OnMessage, Progress, silent

if TYPE_CHECKING:
    from rich.console import Console

WORDS = "hybridlat.words"
"""Where a context keeps the words of the command line."""
_SILENT_S = 1.0  # what is done by then needs no progress
_LINE_EVERY_S = 5.0


def console() -> Console:
    """The terminal as rich sees it; text is printed as it is, without markup or guesses."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False, soft_wrap=False)


def aside(sentence: str) -> None:
    """A sentence on standard error."""
    click.echo(f"hybridlat: {sentence}", err=True)


def say(sentence: str) -> None:
    """Progress in words, on standard error."""
    click.echo(sentence, err=True)


def command_line() -> str:
    """The command that runs, ready to copy; passwords of databases are left out."""
    from hybridlat.store.place import without_password

    words = click.get_current_context().meta.get(WORDS, ())
    return shlex.join(["hybridlat", *map(without_password, words)])


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


class ProgressShown:
    """A callback for ``Predictor(progress=...)``; a context manager that clears up after itself."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._told = 0.0
        self._line = ""
        self._live: Any = None

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._began < _SILENT_S:
            return
        if sys.stderr.isatty():
            self._draw(progress)
        elif now - self._told >= _LINE_EVERY_S or progress.done >= progress.total:
            text = line(progress)
            if text != self._line:
                click.echo(text, err=True)
            self._told, self._line = now, text

    def _draw(self, progress: Progress) -> None:
        if self._live is None:
            from rich.console import Console

            self._live = Console(stderr=True, markup=False, highlight=False).status("")
            self._live.start()
        self._live.update(line(progress))

    def close(self) -> None:
        """Take the line off the terminal."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        self._began, self._line = time.monotonic(), ""

    def __enter__(self) -> ProgressShown:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def line(progress: Progress) -> str:
    """``12/40, 35 s left: Conv+Relu``."""
    seconds, left = progress.seconds_left, ""
    if seconds is not None:
        minutes = round(seconds / 60)
        left = f", {minutes // 60} h {minutes % 60} min left"
        if seconds < 60:
            left = f", {max(seconds, 0):.0f} s left"
        elif minutes < 60:
            left = f", {minutes} min left"
    return f"{progress.done}/{progress.total}{left}: {progress.label}"
