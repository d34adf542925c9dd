"""Public latency data as records: one file per data set.

``load(name).read(path)`` turns a folder of the data set's files into an ``ImportedRecords``.
Another package offers an importer of its own as a module under the entry point group
``hybridlat.importers``.
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


_OWN = (
    "conv_cdecatapult", "conv_neusight", "edge_networks", "fbnet", "nasbench201",
    "v100_tensorrt_conv",
)  # fmt: skip
IMPORTERS = Plugins("hybridlat.importers", {name: f"{__name__}.{name}" for name in _OWN})


def names() -> tuple[str, ...]:
    """The data sets that can be imported, in alphabetical order."""
    return IMPORTERS.names()


def load(name: str) -> Importer:
    """The importer of that name; InputError names the choices."""
    try:
        return cast(Importer, IMPORTERS.load(name))
    except KeyError:
        choices = IMPORTERS.choices()
        raise InputError(f"{name!r} is not an importer: choose one of {choices}") from None
