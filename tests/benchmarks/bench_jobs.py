"""What a second process is worth: networks a second by one worker and by several.

    python tests/benchmarks/bench_jobs.py [--networks 600] [--jobs 2]

NAS-Bench-201 architectures as ModelProtos, predicted for and never measured: at first sight, with
an empty store, and again from it. Workers are started before the clock is.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from experiments import nasbench201  # noqa: E402
from hybridlat.api import Predictor  # noqa: E402
from hybridlat.onnx_io import ModelSource  # noqa: E402

TARGET = "epyc-26-2/onnxruntime-1.31/fp32/1t"


def rate(store: str, models: Sequence[ModelSource], jobs: int) -> float:
    """Networks a second."""
    with Predictor(TARGET, store=store, measure="never") as predictor:
        started = time.perf_counter()
        count = sum(1 for _ in predictor.predict_many(models, jobs=jobs))
        return count / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description="What a second process is worth.")
    parser.add_argument("--networks", type=int, default=600)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    count = options.networks
    drawn = [a for a in nasbench201.sample(3 * count, 11) if nasbench201.live_edges(a)]
    models: list[ModelSource] = [nasbench201.build(a) for a in drawn[: count + 40]]
    with tempfile.TemporaryDirectory() as folder:
        rates: dict[tuple[int, str], float] = {}
        for jobs in (1, options.jobs):
            rate(f"sqlite:///{folder}/warm-{jobs}.db", models[count:], jobs)
            for sight in ("first sight", "again"):
                store = f"sqlite:///{folder}/store-{jobs}.db"
                rates[jobs, sight] = rate(store, models[:count], jobs)
                print(f"{jobs} at once, {sight}: {rates[jobs, sight]:.0f} networks a second")
        for sight in ("first sight", "again"):
            gain = rates[options.jobs, sight] / rates[1, sight]
            print(f"{sight}: {gain:.2f} times one")


if __name__ == "__main__":
    main()
