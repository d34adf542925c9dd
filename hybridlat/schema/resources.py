"""The files that come with hybridlat: inside an installed wheel, else in the repository."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def shipped(*parts: str) -> Path:
    """``models``, or ``data`` and ``packs`` …: a folder or file that is shipped with the package.

    An editable install has no ``_shipped`` and reads the repository's own folders. What is not
    there is a path that does not exist.
    """
    wheel = _PACKAGE / "_shipped"
    return (wheel if wheel.is_dir() else _PACKAGE.parent).joinpath(*parts)
