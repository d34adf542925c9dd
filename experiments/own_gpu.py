"""An H200 under TensorRT 8.6, measured by us: do cells add up to their networks?

    python experiments/own_gpu.py [--records experiments/h200/campaign.tar.gz] [--packs DIR]

Prints the first table of experiments/own_gpu.md. ``--packs`` writes the whole networks as a pack,
with the cells that today's rules cut.
"""

import argparse
import math
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from experiments import nasbench201
from hybridlat.engines import registry
from hybridlat.evaluation.metrics import rmspe
from hybridlat.measuring import plan_results
from hybridlat.measuring.plans import Draft
from hybridlat.onnx_io import read_network
from hybridlat.schema.measurement import Breakdown, Measurement
from hybridlat.schema.target import Target
from hybridlat.store import Store
from hybridlat.store.importers import ImportedRecords

TARGET = "h200/tensorrt-8.6/fp16"
SOURCE = "measured by this project, experiments/own_gpu.md"


def model(name: str) -> Path | ModelProto:
    """A shipped network's file, or a network of NAS-Bench-201."""
    if name.startswith("nas"):
        return nasbench201.build(nasbench201.arch_from_index(int(name[3:])))
    return ROOT / "data/nets" / f"{name}.onnx"


class Records:
    """What a campaign left: whole networks in order of time, and cells by how they were timed."""

    def __init__(self, folder: Path) -> None:
        self.results = plan_results.read_results(folder)
        self.whole: dict[str, list[Measurement]] = {}
        self.cells: dict[str, dict[str, float]] = {"differential": {}, "isolated": {}}
        for record in self.results.measurements:
            if record.kind == "network":
                self.whole.setdefault(record.labels["network"], []).append(record)
            else:
                method = record.protocol.rpartition(" ")[2]
                self.cells[method][record.signature] = record.latency_us or math.nan

    def us(self, name: str) -> float:
        return self.whole[name][0].latency_us or math.nan

    def sum_us(self, breakdown: Breakdown, method: str) -> float:
        known = self.cells[method]
        return math.fsum(known.get(cell, math.nan) * uses for cell, uses in breakdown.cells)

    def known_networks(self, names: Sequence[str]) -> ImportedRecords:
        """Networks as a pack holds them: measured, and cut as today's rules cut."""
        target = Target.parse(TARGET)
        draft = Draft(target, rounds=1)
        for name in names:
            network = read_network(model(name), name=name)
            draft.add_breakdown(name, network, registry.lower(network, target))
        manifest = draft.manifest()
        breakdowns = [
            Breakdown(target, b["network"], b["signature"], _pairs(b["cells"]), _pairs(b["layers"]))
            for b in manifest["breakdowns"]
        ]
        measured = [record for name in names for record in self.whole[name]]
        texts = {record.signature: self.results.signatures[record.signature] for record in measured}
        return ImportedRecords(manifest["signatures"] | texts, measured, breakdowns)


def _pairs(uses: Sequence[Sequence[Any]]) -> tuple[tuple[str, int], ...]:
    return tuple((str(key), int(count)) for key, count in uses)


def sums(records: Records) -> Iterator[str]:
    """Whole networks, measured twice, beside the sums of their cells."""
    yield "| network | us | again % | cells behind their predecessors % | cells alone % |"
    yield "|---|--:|--:|--:|--:|"
    off: dict[str, list[float]] = {"again": [], "differential": [], "isolated": []}
    for breakdown in records.results.breakdowns:
        name, us = breakdown.network, records.us(breakdown.network)
        again = records.whole[name][-1].latency_us if len(records.whole[name]) > 1 else math.nan
        row = {"again": again or math.nan}
        row |= {method: records.sum_us(breakdown, method) for method in records.cells}
        for method, value in row.items():
            off[method].append(value / us - 1)
        yield (
            f"| {name} | {us:.1f} | " + " | ".join(_signed(v / us - 1) for v in row.values()) + " |"
        )
    scores = [f"{rmspe(np.array([v for v in row if v == v])):.2f}" for row in off.values()]
    yield "| RMSPE | | " + " | ".join(scores) + " |"


def _signed(share: float) -> str:
    return "" if math.isnan(share) else f"{100 * share:+.1f}"


def main() -> None:
    """Judge; see the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    own = ROOT / "experiments/h200/campaign.tar.gz"
    parser.add_argument("--records", type=Path, default=own)
    parser.add_argument("--packs", type=Path, help="folder to write the pack into")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(options.records) as archive:
            archive.extractall(scratch, filter="data")
        records = Records(Path(scratch) / "campaign")
        if options.packs:
            with Store(f"{scratch}/pack.db") as store:
                store.add_all(records.known_networks(list(records.whole)))
                store.export(options.packs, source=SOURCE, licence="Apache-2.0")
        else:
            print(*sums(records), sep="\n")


if __name__ == "__main__":
    main()
