"""Options that know their group of the help, and other names of theirs that work unseen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
WHAT, WHERE, INPUT, SURE, OUTPUT, OTHER = (
    "What to measure", "Where", "Input", "How sure", "Output", "Other",
)  # fmt: skip
_GROUPS = (WHAT, WHERE, INPUT, SURE, OUTPUT, OTHER)


class Option(click.Option):
    """An option of a group; ``also`` are names that are understood, and stand in no help."""

    def __init__(
        self, names: Sequence[str], *, group: str = OTHER, also: Sequence[str] = (), **more: Any
    ) -> None:
        super().__init__(names, **more)
        self.group, self._also = group, also

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Register all names; messages and help use those that are shown."""
        shown, self.opts = self.opts, [*self.opts, *self._also]
        super().add_to_parser(parser, ctx)
        self.opts = shown


def option(*names: str, **more: Any) -> Callable[[F], F]:
    """``click.option`` with ``group`` and ``also``."""
    return click.option(*names, cls=Option, **more)


class Grouped(click.Command):
    """A command whose help has its options in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each group that has options."""
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        for group in _GROUPS:
            own = [one for one in options if getattr(one, "group", OTHER) == group]
            if records := [*filter(None, (one.get_help_record(ctx) for one in own))]:
                with formatter.section(group):
                    formatter.write_dl(records)
