"""Public latency data as records: one file per data set, found by its file name.

``load(name).read(path)`` turns a folder of the data set's files into an ``Imported``.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Protocol, cast

from hybridlat.errors import InputError
from hybridlat.store.importers.base import Imported, Watch

__all__ = ["Imported", "Importer", "Watch", "load", "names"]


_PARTS = ("base", "network_rows", "networks_table", "table_columns", "trtexec_times")
"""What is no data set of its own: shared reading, and tables whose networks are still to lower."""


class Importer(Protocol):
    """What a module of this package offers."""

    def read(self, path: Path, watch: Watch | None = None) -> Imported:
        """Everything under ``path`` as records; StoreError when it is not this data set."""


def names() -> tuple[str, ...]:
    """The data sets that can be imported, in alphabetical order."""
    found = (m.name for m in pkgutil.iter_modules(__path__))
    return tuple(sorted(n for n in found if n not in _PARTS and not n.startswith("_")))


def load(name: str) -> Importer:
    """The importer of that name; InputError names the choices."""
    if name not in names():
        raise InputError(f"{name!r} is not an importer: choose one of {', '.join(names())}")
    return cast(Importer, importlib.import_module(f"{__name__}.{name}"))
