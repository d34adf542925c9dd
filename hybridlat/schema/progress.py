"""How far a long call is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Progress:
    """How far a long call is; ``seconds_left`` None while it is unknown."""

    done: int
    total: int
    label: str
    seconds_left: float | None


class Continued:
    """One count for calls that each count from one: the next goes on where the last ended."""

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self._before = self._done = 0

    def begin(self) -> None:
        """Another call counts from one."""
        self._before += self._done
        self._done = 0

    def __call__(self, progress: Progress) -> None:
        self._done = progress.done
        self._on_progress(
            replace(
                progress, done=self._before + progress.done, total=self._before + progress.total
            )
        )


OnProgress = Callable[[Progress], None]
OnMessage = Callable[[str], None]
"""Hears in sentences what a long call is at."""


def silent(_: str) -> None:
    """A receiver that drops messages."""
