"""How far a long call is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """How far a long call is: ``done`` of ``total`` steps; ``label`` says what runs now.

    ``seconds_left`` is None while it is unknown.
    """

    done: int
    total: int
    label: str
    seconds_left: float | None


OnProgress = Callable[[Progress], None]
OnMessage = Callable[[str], None]
"""Hears in sentences what a long call is at."""


def silent(_: str) -> None:
    """A receiver that drops messages."""
