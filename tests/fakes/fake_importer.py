"""An importer as another package would offer it: convolutions of one line each."""

from pathlib import Path

from hybridlat.errors import StoreError
from hybridlat.graph.signature import sign
from hybridlat.schema.measurement import Measurement
from hybridlat.schema.target import Target
from hybridlat.store.importers import ImportedRecords
from tests.networks import conv_relu

TARGET = Target("fake", "fake-1.0", "fp32")


def read(path: Path) -> ImportedRecords:
    """Latencies of one cell, a line each."""
    if not path.exists():
        raise StoreError(f"{path} does not exist")
    imported, cell = ImportedRecords(), sign(conv_relu())
    imported.signatures[cell.hash] = cell.text
    for line in path.read_text(encoding="utf-8").split():
        if float(line) > 0:
            record = Measurement(TARGET, cell.hash, "cell", float(line), protocol="fake lines")
            imported.measurements.append(record)
        else:
            imported.skipped["latency is not a positive number"] += 1
    return imported
