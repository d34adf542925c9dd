"""An importer as another package would offer it: convolutions of one line each."""

from __future__ import annotations

from pathlib import Path

from hybridlat.errors import StoreError
from hybridlat.graph.signature import sign
from hybridlat.schema.target import Target
from hybridlat.store.importers import ImportedRecords, Watch
from tests.networks import conv_relu

TARGET = Target("fake", "fake-1.0", "fp32")


def read(path: Path, watch: Watch | None = None) -> ImportedRecords:
    """Latencies of one cell, a line each; a line that is no number has no shape either."""
    if not path.exists():
        raise StoreError(f"{path} does not exist")
    imported = ImportedRecords()
    lines = path.read_text(encoding="utf-8").split()
    for number, line in enumerate(lines):
        if watch is not None:
            watch(number, len(lines))
        signature = None if line == "?" else sign(conv_relu())
        latency_us = 1.0 if line == "?" else float(line)
        imported.add(TARGET, signature, latency_us, protocol="fake lines")
    return imported
