"""What a second process is worth: networks a second by one worker and by several.

    python tests/benchmarks/bench_jobs.py [--networks 2000] [--jobs 2] [--rounds 3]

Different NAS-Bench-201 networks as ModelProtos, predicted for and never measured: at first sight,
with an empty store, and again from it. Workers are started before the clock is. One and several
take turns, each in a process of its own, for the pace of a machine may change within minutes;
beside them stands what several copies of a plain loop are worth, which share nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from experiments import nasbench201  # noqa: E402
from hybridlat.api import Predictor  # noqa: E402
from hybridlat.onnx_io import ModelSource  # noqa: E402

TARGET = "epyc-26-2/onnxruntime-1.31/fp32/1t"
LOOP, FIRST, AGAIN = "a plain loop", "networks at first sight", "networks again"
_PLAIN = "d = {}\nfor i in range(5_000_000): d[i & 1023] = (i, i * i & 7)"


def rate(store: str, models: Sequence[ModelSource], jobs: int) -> float:
    """Networks a second."""
    with Predictor(TARGET, store=store, measure="never") as predictor:
        started = time.perf_counter()
        count = sum(1 for _ in predictor.predict_many(models, jobs=jobs))
        return count / (time.perf_counter() - started)


def plain_rate(jobs: int) -> float:
    """Loops a second of so many processes at once."""
    started = time.perf_counter()
    copies = [subprocess.Popen([sys.executable, "-c", _PLAIN]) for _ in range(jobs)]
    for copy in copies:
        copy.wait()
    return jobs / (time.perf_counter() - started)


def turn(count: int, jobs: int) -> dict[str, float]:
    """All rates of one turn, in this process and its workers."""
    drawn = [a for a in nasbench201.sample(3 * count, 11) if nasbench201.live_edges(a)]
    built = {nasbench201.build(arch).SerializeToString(): arch for arch in drawn}
    models: list[ModelSource] = [nasbench201.build(a) for a in list(built.values())[: count + 40]]
    with tempfile.TemporaryDirectory() as folder:
        rate(f"sqlite:///{folder}/warm.db", models[count:], jobs)
        store = f"sqlite:///{folder}/store.db"
        first = rate(store, models[:count], jobs)
        return {LOOP: plain_rate(jobs), FIRST: first, AGAIN: rate(store, models[:count], jobs)}


def main() -> None:
    parser = argparse.ArgumentParser(description="What a second process is worth.")
    parser.add_argument("--networks", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turn", type=int, help="one turn with so many workers, as JSON")
    options = parser.parse_args()
    if options.turn:
        print(json.dumps(turn(options.networks, options.turn)))
        return
    gains: dict[str, list[float]] = {LOOP: [], FIRST: [], AGAIN: []}
    for number in range(options.rounds):
        rates: dict[int, dict[str, float]] = {}
        for jobs in (1, options.jobs)[:: 1 if number % 2 == 0 else -1]:
            told = [f"--networks={options.networks}", f"--turn={jobs}"]
            run = subprocess.run([sys.executable, __file__, *told], stdout=-1, check=True)
            rates[jobs] = json.loads(run.stdout)
            print(jobs, "at once:", ", ".join(f"{k} {v:.3g}/s" for k, v in rates[jobs].items()))
        for kind, found in gains.items():
            found.append(rates[options.jobs][kind] / rates[1][kind])
    for kind, found in gains.items():
        each = " ".join(f"{gain:.2f}" for gain in found)
        print(f"{kind}: {median(found):.2f} times one (turn by turn {each})")


if __name__ == "__main__":
    main()
