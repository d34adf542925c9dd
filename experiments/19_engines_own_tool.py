"""Is what the product calls latency what a careful user measures with the engine's own means?

    python experiments/19_engines_own_tool.py measure --journal FILE [--seconds 1.5]
    python experiments/19_engines_own_tool.py report  --journal FILE [--write]

Every third network of ``data/nets`` by name among those of less than 32 MB of weights, then every
third from the second on, twelve in all, with random weights. For each, one after the other in one
run: a plain loop around ``InferenceSession.run`` of ONNX Runtime (one thread, its defaults
otherwise, ten runs to warm up, the median of all runs of ``--seconds``), in a process of its own;
``hybridlat measure NET --network``; ``hybridlat predict NET`` from a store of its own; and the
plain loop again. The loop knows nothing of this package: it is the text ``LOOP`` below. Wheels of
ONNX Runtime bring no ``onnxruntime_perf_test``; where one is on the path, it is run too. ``report``
prints ratios; ``--write`` makes ``experiments/engines_own_tool.md`` of them.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from hybridlat.engines.resolution import resolve
from hybridlat.onnx_io import read_network, to_onnx

NETS = ROOT / "data" / "nets"
PAGE = ROOT / "experiments" / "engines_own_tool.md"
COUNT, EVERY, LIGHT_BYTES = 12, 3, 32_000_000
PERF_TEST = "onnxruntime_perf_test"
LOOP = """
import sys, time, statistics, numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
rng = numpy.random.default_rng(0)
feed = {i.name: rng.standard_normal(i.shape, dtype=numpy.float32) for i in session.get_inputs()}
for _ in range(10):
    session.run(None, feed)
times, ends = [], time.perf_counter() + float(sys.argv[2])
while time.perf_counter() < ends or len(times) < 20:
    start = time.perf_counter()
    session.run(None, feed)
    times.append(time.perf_counter() - start)
print(1e6 * statistics.median(times))
"""
Row = dict[str, Any]


def networks() -> list[Path]:
    """Twelve networks that nobody has picked."""
    every = sorted(NETS.glob("*.onnx"))
    light = [path for path in every if read_network(path).weight_bytes < LIGHT_BYTES]
    return [*light[::EVERY], *light[1::EVERY]][:COUNT]


def plain_loop_us(path: Path, seconds: float) -> float:
    """Median of a loop in a fresh process."""
    words = [sys.executable, "-c", LOOP, str(path), str(seconds)]
    return float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def perf_test_us(path: Path, seconds: float) -> float | None:
    """The median (P50) that ONNX Runtime's own program tells; None where it is not here."""
    program = shutil.which(PERF_TEST)
    if program is None:
        return None
    words = [program, "-I", "-x", "1", "-y", "1", "-t", str(math.ceil(seconds)), str(path)]
    told = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    found = re.search(r"P50 Latency:\\s*([0-9.e-]+)\\s*s", told)
    return float(found[1]) * 1e6 if found else None


def hybridlat(*words: str) -> Row:
    """What a command of this package prints as JSON (exit codes 0 and 3 both come with it)."""
    command = [sys.executable, "-m", "hybridlat", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    found: Row | list[Row] = json.loads(done.stdout)
    return found[0] if isinstance(found, list) else found


def measure(path: Path, folder: Path, seconds: float) -> Row:
    """One network by every means, the plain loop before and after."""
    file = folder / path.name
    file.write_bytes(to_onnx(read_network(path), seed=7))
    store = f"sqlite:///{folder / 'store.db'}"
    before = plain_loop_us(file, seconds)
    own_tool = perf_test_us(file, seconds)
    whole = hybridlat("measure", str(file), "--network", "--store", store)
    told = hybridlat("predict", str(file), "--store", f"sqlite:///{folder / 'cells.db'}")
    after = plain_loop_us(file, seconds)
    return {
        "network": path.stem,
        "target": told["target"],
        "before_us": before,
        "after_us": after,
        "perf_test_us": own_tool,
        "measured_us": whole["latency_us"],
        "predicted_us": told["latency_us"],
        "interval_us": told["interval_us"],
        "measured_share": told["measured_share"],
    }


def kept(journal: Path) -> list[Row]:
    """The rows of the journal."""
    lines = journal.read_text().splitlines() if journal.exists() else []
    return [json.loads(line) for line in lines]


def _errors(ratios: Sequence[float]) -> str:
    errors = [100 * (ratio - 1) for ratio in ratios]
    rmspe = math.sqrt(statistics.fmean(e * e for e in errors))
    return f"RMSPE {rmspe:.1f} %, bias {statistics.fmean(errors):+.1f} %"


def page(rows: Sequence[Row]) -> str:
    """The table, with ratios to the mean of the two loops."""
    lines = [
        "| network | loop [ms] | loop again | `measure --network` | `predict` | inside |",
        "|---|--:|--:|--:|--:|:-:|",
    ]
    again, measured, predicted, inside = [], [], [], 0
    for row in rows:
        loop = (row["before_us"] + row["after_us"]) / 2
        low, high = row["interval_us"]
        holds = low <= loop <= high
        inside += holds
        again.append(row["after_us"] / row["before_us"])
        measured.append(row["measured_us"] / loop)
        predicted.append(row["predicted_us"] / loop)
        lines.append(
            f"| {row['network']} | {row['before_us'] / 1e3:.2f} | {again[-1]:.3f} | "
            f"{measured[-1]:.3f} | {predicted[-1]:.3f} | {'yes' if holds else 'no'} |"
        )
    told = [
        f"- the loop against itself, before and after: {_errors(again)}",
        f"- `measure --network` against the loop: {_errors(measured)}",
        f"- `predict` (cells measured on the spot) against the loop: {_errors(predicted)}; "
        f"{inside} of {len(rows)} loops inside the interval of 90 %",
    ]
    tools = [r["perf_test_us"] / r["before_us"] for r in rows if r["perf_test_us"]]
    if tools:
        told.append(f"- `{PERF_TEST}` against the loop: {_errors(tools)}")
    else:
        told.append(f"- `{PERF_TEST}` was not on this machine: wheels do not bring it")
    return "\n".join([*told, "", *lines]) + "\n"


INTRODUCTION = """# The engine's own means, side by side

Made by `python experiments/19_engines_own_tool.py`, which says what is done, on `{device}` (a
shared virtual machine, two cores), ONNX Runtime {engine}, one thread. Figures of a network are
ratios to the mean of the plain loop before and after it.

"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure into a journal, or report from it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("command", choices=("measure", "report"))
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(arguments)
    rows = kept(given.journal)
    if given.command == "measure":
        done = {row["network"] for row in rows}
        with tempfile.TemporaryDirectory() as folder:
            for path in networks():
                if path.stem not in done:
                    row = measure(path, Path(folder), given.seconds)
                    with given.journal.open("a") as lines:
                        lines.write(json.dumps(row) + "\n")
                    print(json.dumps(row), file=sys.stderr, flush=True)
        return 0
    text = page(rows)
    print(text)
    if given.write:
        device, engine, *_ = str(resolve(None).target).split("/")
        PAGE.write_text(INTRODUCTION.format(device=device, engine=engine.split("-")[-1]) + text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
