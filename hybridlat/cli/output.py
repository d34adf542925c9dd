"""What a command writes: results to standard output, progress and asides to standard error."""

from __future__ import annotations

import json
import math
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import click

from hybridlat.schema.files import write_text
from hybridlat.schema.shown import visible
from hybridlat.schema.workers import OnMessage, Progress, silent

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from hybridlat import Predictor
    from hybridlat.schema.estimate import Estimate
    from hybridlat.schema.target import Target

OVER, BAD_INPUT, UNTRUSTED = 1, 2, 3  # exit codes
_FILES = ("html", "markdown", "csv", "junit")  # options
WORDS = "hybridlat.words"  # where a context keeps the words of the command line
_SILENT_S = 1.0  # what is done by then needs no progress
_LINE_EVERY_S = 5.0


def console() -> Console:
    """The terminal as rich sees it."""
    from hybridlat.report.terminal import plain_console

    return plain_console()


def echo(text: str) -> None:
    """A line on standard output, none of which steers a terminal."""
    click.echo(visible(text))


def aside(sentence: str) -> None:
    """A sentence on standard error."""
    say(f"hybridlat: {sentence}")


def say(sentence: str) -> None:
    """Progress in words, on standard error."""
    sys.stderr.write(f"{visible(sentence)}\n")  # click.echo would write over a line of progress
    sys.stderr.flush()


def worst(codes: set[int]) -> int:
    """The exit code of several networks: bad input before doubt before over the limit."""
    return next(code for code in (BAD_INPUT, UNTRUSTED, OVER, 0) if code in codes)


def print_json(value: object) -> None:
    """One JSON document on standard output, in ASCII; ValueError for NaN and infinities."""
    click.echo(json.dumps(value, allow_nan=False, indent=2))


class Run:
    """One call of a command: its options' values as attributes, and what it writes.

    UsageError for two documents on standard output.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        printed = [values.get(name) for name in _FILES].count("-")
        if printed + bool(values.get("as_json")) > 1:
            raise click.UsageError("Of --json and the files named - only one can be printed.")
        self.prints_document = printed or values.get("as_json")
        """Whether standard output is for a program, and not for people."""
        self._unprinted: BaseException | None = None

    def __getattr__(self, name: str) -> Any:
        return self._values[name]

    def among(self, names: str) -> dict[str, Any]:
        """Those of the named options that the command has, with their values."""
        return {name: self._values[name] for name in names.split() if name in self._values}

    @contextmanager
    def opened(
        self, target: str | Target | None, **more: Any
    ) -> Iterator[tuple[Predictor, ProgressShown]]:
        """The predictor by the options, its arguments in ``more`` first, and its progress."""
        import hybridlat

        how = self.among("store threads measure tolerance confidence") | more
        with (
            ProgressShown().at("reading what is known") as shown,
            hybridlat.Predictor(target, progress=shown, **how) as predictor,
        ):
            yield predictor, shown

    def show(self, document: object, *shown: object) -> None:
        """The JSON document, or what people read in its place: lines, tables, texts of rich.

        Also iterators of these, which are not started where no one reads them.
        """
        if self.as_json:
            print_json(document)
        elif not self.prints_document:
            self._print(shown)

    def _print(self, shown: Iterable[object]) -> None:
        from hybridlat.report.table import Table  # JSON needs none

        for one in shown:
            if isinstance(one, str):
                echo(one)
            elif isinstance(one, Table):
                one.print(console())
            elif isinstance(one, Iterator):
                self._print(one)
            else:
                console().print(one)

    def show_first(self, show: Callable[[], None]) -> None:
        """Let it print for people before files are written; its error waits for ``show_last``."""
        if self.prints_document or self._unprinted:
            return
        try:
            show()
        except (OSError, SystemExit) as error:  # rich ends so where the reader has gone away
            if not any(self._values.get(name) for name in _FILES):
                raise
            self._unprinted = error

    def show_last(self) -> None:
        """Raise what ended the printing, now that all files are written."""
        if self._unprinted is not None:
            raise self._unprinted

    def write_tables(self, **texts: Callable[[], str]) -> None:
        """Write each text to the file of its option (``csv``); ``-``, standard output, is last."""
        files = [(self._values.get(name), text) for name, text in texts.items()]
        for file, text in sorted(files, key=lambda one: one[0] == "-"):
            if file == "-":
                click.echo(text(), nl=False)
            elif file is not None:
                write_text(file, text())

    def write_page(self, estimates: Sequence[Estimate], **more: Any) -> None:
        """Write the page of ``--html``; its foot has the command, less passwords of databases."""
        if self.html is None or not estimates:
            return
        from hybridlat.report.views import page  # few ask for a page
        from hybridlat.store.place import without_password

        words = click.get_current_context().meta.get(WORDS, ())
        command = shlex.join(["hybridlat", *map(without_password, words)])
        write_text(self.html, page(estimates, command=command, **more))

    @property
    def on_message(self) -> OnMessage:
        """Progress as sentences on standard error; none beside JSON."""
        return silent if self.as_json else aside


class ProgressShown(AbstractContextManager["ProgressShown"]):
    """A callback for ``Predictor(progress=...)``; ``doing`` is the verb of what is counted.

    A terminal shows one line once the work has taken a second; elsewhere long work prints lines.
    """

    def __init__(self, doing: str = "measuring") -> None:
        self._doing, self._text = doing, ""
        self._began, self._written = time.monotonic(), -math.inf
        self._live: Status | None = None
        self._timer: threading.Timer | None = None
        self._lock = threading.RLock()

    def at(self, step: str, elsewhere: OnMessage = silent) -> ProgressShown:
        """Name what begins now: in a terminal's line of progress, else by ``elsewhere``."""
        (self._show if sys.stderr.isatty() else elsewhere)(step)
        return self

    def __call__(self, progress: Progress) -> None:
        now, text = time.monotonic(), line(progress, self._doing)
        is_due = now - self._written >= _LINE_EVERY_S or progress.done >= progress.total
        if sys.stderr.isatty():
            self._show(text)
        elif is_due and now - self._began >= _SILENT_S and text != self._text:
            say(text)
            self._written, self._text = now, text

    def count(self, done: int, total: int) -> None:
        """So many of all are done, at a steady pace."""
        left_s = (time.monotonic() - self._began) * (total / done - 1)
        self(Progress(done, total, self._doing, left_s))

    def _show(self, text: str) -> None:
        with self._lock:
            self._text = text
            if self._live is not None:
                self._live.update(visible(text))
            elif self._timer is None:
                self._timer = threading.Timer(_SILENT_S, self._start)
                self._timer.daemon = True
                self._timer.start()

    def _start(self) -> None:
        with self._lock:
            if self._timer is not None:  # else all was closed before its time came
                from rich.console import Console

                console = Console(stderr=True, markup=False, highlight=False)
                self._live = console.status(visible(self._text))
                self._live.start()

    def close(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            if self._live is not None:
                self._live.stop()
            self._live = self._timer = None
        self._began, self._text = time.monotonic(), ""

    def __exit__(self, *_: object) -> None:
        self.close()


def line(progress: Progress, doing: str = "measuring") -> str:
    """``measuring 12/40, about 35 s left``."""
    text, seconds = f"{doing} {progress.done}/{progress.total}", progress.seconds_left
    if seconds is None or progress.done >= progress.total:
        return text
    hours, minutes = divmod(round(seconds / 60), 60)
    left = f"{hours} h {minutes} min" if hours else f"{minutes} min"
    return f"{text}, about {left if seconds >= 60 else f'{max(seconds, 0):.0f} s'} left"
