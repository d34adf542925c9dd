"""Latencies that others measured, as records.

Tables and logs are read here. Another package offers an importer of its own as a module under the
entry point group ``hybridlat.importers``: ``load(name).read(path)`` gives its ``ImportedRecords``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, cast

from hybridlat.errors import InputError
from hybridlat.schema.plugins import Plugins
from hybridlat.store.importers.base import ImportedRecords, Watch

__all__ = ["ImportedRecords", "Importer", "Watch", "load", "names"]


class Importer(Protocol):
    """What the module of a data set offers."""

    def read(self, path: Path, watch: Watch | None = None) -> ImportedRecords:
        """Everything under ``path`` as records; StoreError when it is not this data set."""


TABLES = ("networks", "trtexec")
"""What hybridlat reads itself: tables of whole networks, and logs of trtexec."""
IMPORTERS = Plugins("hybridlat.importers")


def names() -> tuple[str, ...]:
    """What can be imported: tables and logs, then what other packages read."""
    return (*TABLES, *IMPORTERS.names())


def load(name: str) -> Importer:
    """The importer of that name; InputError names the choices."""
    try:
        return cast(Importer, IMPORTERS.load(name))
    except KeyError:
        choices = ", ".join(names())
        raise InputError(f"{name!r} is not an importer: choose one of {choices}") from None
