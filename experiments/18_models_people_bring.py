"""What people really bring: are files of others' exporters read, lowered, right as a sum of cells?

    python experiments/18_models_people_bring.py read    FOLDER ... --journal FILE
    python experiments/18_models_people_bring.py measure FOLDER ... --journal FILE [--budget 300]
    python experiments/18_models_people_bring.py report  --journal FILE [--write]

``read`` reads and lowers every ONNX file of the folders for ONNX Runtime on this machine's CPU and
keeps what became of it, a refusal with its sentence. ``measure`` measures those that were lowered,
cells and whole, until the budget (seconds) is spent, smallest first of each exporter in turn; what
is in the journal (JSON lines) is not measured again. ``report`` prints the table; ``--write`` makes
``experiments/models_people_bring.md`` of it.

A size that a file leaves open is asked for at 224 (images) or 32 (anything else), as the message
that refuses it says.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import onnx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from hybridlat.api import Predictor
from hybridlat.engines import registry
from hybridlat.engines.resolution import resolve
from hybridlat.errors import HybridlatError
from hybridlat.graph.cells import cut
from hybridlat.measuring.schedule import MeasurementConfig
from hybridlat.onnx_io import OnnxFile, load

PAGE = ROOT / "experiments" / "models_people_bring.md"
FAR_SHARE = 0.1
"""The page names networks whose sum is farther off."""
QUICK = MeasurementConfig(
    rounds=2, processes=1, max_processes=1, visit_ms=15.0, network_visit_ms=120.0
)
IMAGE, OTHER = 224, 32
Row = dict[str, Any]


def open_shapes(file: OnnxFile) -> dict[str, tuple[int, ...]]:
    """Sizes for the inputs that leave some open besides the batch."""
    found = {}
    for name, sizes in file.input_sizes.items():
        if None in sizes[1:]:
            usual = IMAGE if len(sizes) == 4 else OTHER
            found[name] = (sizes[0] or 1, *(size or usual for size in sizes[1:]))
    return found


def read(path: Path) -> Row:
    """What becomes of one file up to its cells."""
    row: Row = {"what": "read", "name": path.stem, "exporter": "", "refused": ""}
    started = time.perf_counter()
    try:
        model = onnx.load(str(path), load_external_data=False)
        row["exporter"] = f"{model.producer_name} {model.producer_version}".strip()
        row["opset"] = next((o.version for o in model.opset_import if not o.domain), 0)
        file = load(path)
        row["precision"] = str(file.precision)
        shapes = open_shapes(file)
        row["asked"] = {name: "x".join(map(str, sizes)) for name, sizes in shapes.items()}
        network = file.network(None, shapes)
        row |= {"operators": len(network.nodes), "inputs": len(network.inputs)}
        row["left_out"] = len(network.left_out)
        row["read_s"] = time.perf_counter() - started
        target = registry.at_precision(resolve(None).target, file.precision.name)
        row["target"] = str(target)
        lowered = registry.lower(network, target)
        row |= {"kernels": len(lowered.network.nodes), "cells": len(cut(lowered, network))}
        row["warnings"] = list(lowered.warnings)
        row["lower_s"] = time.perf_counter() - started - row["read_s"]
        row["weight_bytes"] = network.weight_bytes
    except HybridlatError as error:
        row["refused"] = str(error).replace(str(path), path.name)
    return row


def measure(paths: Sequence[Path], budget_s: float, store: str | None) -> Iterator[Row]:
    """Cells and whole of the networks, in turn, until the time is over."""
    ends = time.monotonic() + budget_s
    with (
        tempfile.TemporaryDirectory() as folder,
        Predictor(store=store or f"sqlite:///{folder}/store.db", settings=QUICK) as predictor,
    ):
        for path in paths:
            if time.monotonic() > ends:
                return
            row: Row = {"what": "measured", "name": path.stem}
            try:
                report = predictor.measure(path, shapes=open_shapes(load(path)))
            except HybridlatError as error:
                yield row | {"failure": str(error)}
                continue
            yield row | {
                "target": report.target,
                "whole_us": report.latency_us,
                "sum_us": report.sum_of_cells_us,
                "failures": len(report.failures),
                "failure": next(iter(report.failures.values()), ""),
                "elapsed_s": report.elapsed_s,
            }


def in_turn(rows: Iterable[Row]) -> list[str]:
    """Names of files that were lowered: the smallest of each exporter first, in turn."""
    by: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda r: r.get("kernels", 0)):
        if not row["refused"]:
            by.setdefault(f"{kind_of(row)} {row['precision'][:5]}", []).append(row)
    columns = zip_longest(*by.values())
    return [row["name"] for row in chain.from_iterable(columns) if row is not None]


def kind_of(row: Row) -> str:
    """Who wrote the file: ``pytorch 2.13 dynamo`` and so on."""
    name, _, version = str(row["exporter"]).partition(" ")
    newer = " (new exporter)" if "dynamo" in row["name"] or row.get("opset", 0) >= 18 else ""
    short = ".".join(re.findall(r"\d+", version)[:2])
    return f"{name} {short}{newer if name == 'pytorch' else ''}".strip() or "not stated"


def kept(journal: Path) -> list[Row]:
    """The rows of the journal."""
    lines = journal.read_text().splitlines() if journal.exists() else []
    return [json.loads(line) for line in lines]


def keep(journal: Path, row: Row) -> None:
    """One more row, told on the way."""
    with journal.open("a") as lines:
        lines.write(json.dumps(row) + "\n")
    print(json.dumps(row)[:300], file=sys.stderr, flush=True)


def page(rows: Sequence[Row]) -> str:
    """The table and its figures as Markdown."""
    files = {row["name"]: row for row in rows if row["what"] == "read"}
    measured = {row["name"]: row for row in rows if row["what"] == "measured"}
    lines = [
        f"Those whose sum is more than {100 * FAR_SHARE:.0f} % off:",
        "",
        "| model | written by | precision | inputs | operators | kernels | cells | whole [ms] | "
        "sum of cells [ms] | off by |",
        "|---|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    errors: dict[str, list[float]] = {}
    for name, row in sorted(files.items(), key=lambda item: (kind_of(item[1]), item[0])):
        if row["refused"]:
            continue
        found = measured.get(name, {})
        whole, total = found.get("whole_us"), found.get("sum_us")
        if not (whole and total):
            continue
        off = total / whole - 1
        errors.setdefault(row["precision"].split(":")[0], []).append(off)
        if abs(off) <= FAR_SHARE:
            continue
        tail = f"{whole / 1e3:.2f} | {total / 1e3:.2f} | {100 * off:+.1f} %"
        note = f" ({row['left_out']} operators behind data left out)" if row["left_out"] else ""
        lines.append(
            f"| {name}{note} | {kind_of(row)} | {row['precision']} | {row['inputs']} | "
            f"{row['operators']} | {row['kernels']} | {row['cells']} | {tail} |"
        )
    refused = [row for row in files.values() if row["refused"]]
    lowered = len(files) - len(refused)
    head = [
        f"{len(files)} files: {lowered} read and lowered, {len(refused)} refused, "
        f"{sum(map(len, errors.values()))} measured, cells and whole.",
        "",
        "| precision of the file | networks | RMSPE of the sum | bias | within 10 % |",
        "|---|--:|--:|--:|--:|",
    ]
    everything = [e for one in errors.values() for e in one]
    for precision, offs in [*sorted(errors.items()), ("all", everything)]:
        if offs:
            rmspe = 100 * math.sqrt(sum(e * e for e in offs) / len(offs))
            near = 100 * sum(abs(e) <= 0.1 for e in offs) / len(offs)
            bias = 100 * sum(offs) / len(offs)
            head.append(
                f"| {precision} | {len(offs)} | {rmspe:.1f} % | {bias:+.1f} % | {near:.0f} % |"
            )
    if not everything:
        head = [head[0], "", "No latencies yet: while this was made the machine was never quiet."]
    told = ["", "## Refused", ""]
    told += [f"- `{row['name']}` ({kind_of(row)}): {row['refused']}" for row in refused]
    failed = [r for r in measured.values() if r.get("failure")]
    told += [f"- `{r['name']}` was lowered, but not measured: {r['failure']}" for r in failed]
    return "\n".join([*head, "", *lines, *(told if refused or failed else [])]) + "\n"


INTRODUCTION = """# What people really bring

Files written by others' exporters from others' models, with random weights: read, lowered by ONNX
Runtime {engine} and measured, one thread, on `{device}`. *Whole* and *sum of cells* of a network
were measured together by `python experiments/18_models_people_bring.py`, on a shared virtual
machine, in two rounds, so single rows carry its noise; a dash is for what was not measured. Nothing
is fitted.

"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Read, measure or report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("command", choices=("read", "measure", "report"))
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=300.0, help="seconds")
    parser.add_argument("--store", help="keeps the records; by default nothing does")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(arguments)
    rows = kept(given.journal)
    done = {(row["what"], row["name"]) for row in rows}
    paths = {path.stem: path for folder in given.folders for path in sorted(folder.glob("*.onnx"))}
    if given.command == "read":
        for name, path in paths.items():
            if ("read", name) not in done:
                keep(given.journal, read(path))
    elif given.command == "measure":
        names = in_turn(row for row in rows if row["what"] == "read")
        wanted = [paths[n] for n in names if n in paths and ("measured", n) not in done]
        for row in measure(wanted, given.budget, given.store):
            keep(given.journal, row)
    else:
        text = page(rows)
        print(text)
        if given.write:
            device, engine, *_ = str(resolve(None).target).split("/")
            PAGE.write_text(INTRODUCTION.format(device=device, engine=engine.split("-")[-1]) + text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
