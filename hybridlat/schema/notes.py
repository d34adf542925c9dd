"""The words that count in the note of a figure, whoever wrote it."""

from __future__ import annotations

_SUSPECT = "suspect"
_WITH_COPIES, _WITHOUT_COPIES = "including IO", "not including IO"


def is_suspect(note: str) -> bool:
    """Whether the figure is doubted: it neither teaches nor counts."""
    return _SUSPECT in note


def holds_copies(note: str) -> bool | None:
    """Whether moving inputs and outputs between host and device is in it; None where unsaid."""
    if _WITHOUT_COPIES in note:
        return False
    return True if _WITH_COPIES in note else None
