"""An H200 under TensorRT 8.6, measured by us: sums of cells, and answers beside it.

    python experiments/own_gpu.py [--records experiments/h200/campaign.tar.gz] [--packs DIR]

Prints the tables of experiments/own_gpu.md. ``--packs`` writes the whole networks as a pack, with
the cells that today's rules cut.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from experiments import nasbench201
from hybridlat import Estimate, Predictor
from hybridlat.engines import registry
from hybridlat.evaluation.metrics import rmspe
from hybridlat.measuring import plan_results
from hybridlat.measuring.plans import Draft
from hybridlat.model.family import shipped
from hybridlat.onnx_io import read_network
from hybridlat.schema.measurement import Breakdown, Measurement
from hybridlat.schema.target import Target
from hybridlat.store import Store, packs
from hybridlat.store.importers import ImportedRecords

TARGET = "h200/tensorrt-8.6/fp16"
FORETOLD = ROOT / "experiments/foretold/h200_tensorrt-8.6_fp16.csv"
SOURCE = "measured by this project, experiments/own_gpu.md"


def model(name: str) -> Path | ModelProto:
    """A shipped network's file, or a network of NAS-Bench-201."""
    if name.startswith("nas"):
        return nasbench201.build(nasbench201.arch_from_index(int(name[3:])))
    return ROOT / "data/nets" / f"{name}.onnx"


class Records:
    """What a campaign left: whole networks in order of time, and cells by how they were timed."""

    def __init__(self, folder: Path) -> None:
        methods = ("whole", "differential", "isolated")
        self.results = plan_results.read_results(folder, methods=methods)
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
        draft = Draft(target.device, target.runtime)
        for name in names:
            network = read_network(model(name), name=name)
            draft.add_breakdown(name, network, registry.lower(network, target), target.precision)
        manifest = draft.manifest()
        breakdowns = [
            Breakdown(target, b["network"], b["signature"], _pairs(b["cells"]), _pairs(b["layers"]))
            for b in manifest["breakdowns"]
        ]
        measured = [record for name in names for record in self.whole[name]]
        texts = {record.signature: self.results.signatures[record.signature] for record in measured}
        return ImportedRecords(manifest["signatures"] | texts, measured, breakdowns)

    def predicted(self, known: Sequence[str]) -> dict[str, Estimate]:
        """Every network by the shipped family model, where only some are known and no pack is.

        As measured: kernels replayed from a CUDA graph. The family takes that for the target's way
        where all known networks ran so; here it does with nothing known as well.
        """
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/known.db"
            with Store(path) as store:
                store.add_all(self.known_networks(known))
            with replayed(), Predictor(TARGET, store=path, measure="never") as predictor:
                return {name: predictor.predict(model(name)) for name in self.whole}


def _pairs(uses: Sequence[Sequence[Any]]) -> tuple[tuple[str, int], ...]:
    return tuple((str(key), int(count)) for key, count in uses)


@contextmanager
def replayed() -> Iterator[None]:
    """While it lasts, families answer for kernels replayed from a CUDA graph, without packs."""
    usual, there = shipped.task_of, packs.shipped_packs
    shipped.task_of = lambda target, tasks: replace(usual(target, tasks), graphs=True)
    packs.shipped_packs = lambda *_: []
    try:
        yield
    finally:
        shipped.task_of, packs.shipped_packs = usual, there


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


def answers(records: Records) -> Iterator[str]:
    """What was foretold, what the model says with nothing and with the other networks known."""
    with FORETOLD.open() as lines:
        foretold = {row["network"]: row for row in csv.DictReader(lines)}
    names = list(records.whole)
    nothing = records.predicted([])
    yield "| network | us | foretold | nothing known | one known, median | the others known |"
    yield "|---|--:|---|---|--:|---|"
    single = {name: records.predicted([name]) for name in names}
    for name in names:
        us, row = records.us(name), foretold[name]
        ones = [abs((e[name].latency_us or 0) / us - 1) for k, e in single.items() if k != name]
        others = records.predicted([each for each in names if each != name])[name]
        first = _off(us, *(float(row[key]) for key in ("latency_us", "low_us", "high_us")))
        yield (
            f"| {name} | {us:.1f} | {first} | {_answer(us, nothing[name])} "
            f"| {100 * float(np.median(ones)):.0f} % | {_answer(us, others)} |"
        )


def _off(us: float, latency_us: float, low_us: float, high_us: float) -> str:
    held = "held" if low_us <= us <= high_us else "missed"
    return f"{100 * (latency_us / us - 1):+.0f} %, {held}"


def _answer(us: float, estimate: Estimate) -> str:
    return _off(us, estimate.latency_us or math.nan, *(estimate.interval_us or (0.0, math.inf)))


def layouts(folder: Path, manifest: Mapping[str, object]) -> Iterator[str]:
    """How many convolutions read channels last, in networks and in cells built alone."""
    yield "| engines | convolutions | read channels last % | engines with a reformat % |"
    yield "|---|--:|--:|--:|"
    items = manifest["items"]
    assert isinstance(items, dict)
    for title, is_part in (("whole networks", False), ("cells and pairs", True)):
        convolutions, last, reformats, engines = 0, 0, 0, 0
        for path in (folder / "layers").glob("*.json"):
            if (path.stem in items and bool(items[path.stem].get("alone"))) != is_part:
                continue
            layers = json.loads(path.read_text())["engine"]["Layers"]
            engines += 1
            reformats += any(layer["LayerType"] == "Reformat" for layer in layers)
            for layer in layers:
                if "Convolution" in layer["LayerType"]:
                    convolutions += 1
                    last += layer["Inputs"][0]["Format/Datatype"].startswith("Channel major")
        shares = f"{100 * last / convolutions:.0f} | {100 * reformats / engines:.0f}"
        yield f"| {title} ({engines}) | {convolutions} | {shares} |"


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
        folder = Path(scratch) / "campaign"
        records = Records(folder)
        if options.packs:
            with Store(f"{scratch}/pack.db") as store:
                store.add_all(records.known_networks(list(records.whole)))
                store.export(options.packs, source=SOURCE, licence="Apache-2.0")
            return
        manifest = json.loads((folder / "manifest.json").read_text())
        for table in (sums(records), answers(records), layouts(folder, manifest)):
            print(*table, "", sep="\n")


if __name__ == "__main__":
    main()
