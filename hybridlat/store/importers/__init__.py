"""Latencies that others measured, as records.

Tables and logs are read here. Another package offers an importer of its own as a module under the
entry point group ``hybridlat.importers``; its ``read(path)`` gives ``ImportedRecords``.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hybridlat.errors import HybridlatError, InputError, StoreError
from hybridlat.schema.measurement import Breakdown, Measurement
from hybridlat.schema.plugins import Plugins


@dataclass
class ImportedRecords:
    """Records ready for a store.

    ``signatures`` maps hash to text of everything measured; ``skipped`` counts the rows that were
    left out, by reason: a row is never left out silently.
    """

    signatures: dict[str, str] = field(default_factory=dict)
    measurements: list[Measurement] = field(default_factory=list)
    breakdowns: list[Breakdown] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)


TABLES = ("networks", "trtexec")
"""What hybridlat reads itself: tables of whole networks, and logs of trtexec."""
IMPORTERS = Plugins("hybridlat.importers")


def read(name: str, path: Path) -> ImportedRecords:
    """Everything under ``path`` as another package's importer reads it."""
    if name not in IMPORTERS:
        choices = ", ".join([*TABLES, *IMPORTERS.names()])
        raise InputError(f"{name!r} is not an importer: choose one of {choices}")
    try:
        reader: Any = IMPORTERS.load(name, object)
        imported: ImportedRecords = reader.read(path)
        return imported
    except (HybridlatError, OSError):
        raise
    except Exception as error:
        whose, kind = f"importer {name} of {IMPORTERS.owner(name)}", type(error).__name__
        raise StoreError(f"the {whose} failed over {path}: {kind}: {error}") from error
