"""How quick a prediction is: a process, a warm predictor, thousands of candidates.

    python tests/benchmarks/bench_predict.py [--networks 1000] [--requests 1000000 [--jobs 2]]
        [--model FOLDER]

Prints CPU seconds of ``hybridlat predict`` as a process for ResNet-50, asked a second time: known
from a store of one's own, from the shipped pack, and by the shipped model of a GPU; milliseconds of
a warm Predictor for ResNet-18 read from bytes, and networks a second for NAS-Bench-201
architectures given as ModelProtos: never seen, and then again with every cell known. With
``--requests`` it prints instead how quick so many stay, drawn from all NAS-Bench-201 architectures
as the bytes of files, and the memory that this process held at most. With ``--model`` it prints
how long 300 and 100,000 cells take a model.
"""

import argparse
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Sequence
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from experiments import nasbench201  # noqa: E402
from hybridlat import Predictor  # noqa: E402
from hybridlat.estimate.partition import Partitioner  # noqa: E402
from hybridlat.model.geometry import geometry  # noqa: E402
from hybridlat.model.model_files import load_model  # noqa: E402
from hybridlat.onnx_io import ModelSource, load, read_network, to_onnx  # noqa: E402
from hybridlat.schema.measurement import Measurement  # noqa: E402
from tests.model.rows import texts  # noqa: E402

TARGET = "epyc-26-2/onnxruntime-1.31/fp32/1t"
GPU = "v100/tensorrt/fp16"
RESNET = ROOT / "data" / "nets" / "resnet18.onnx"
LARGER = ROOT / "data" / "nets" / "resnet50.onnx"


def know(predictor: Predictor, models: Sequence[ModelSource], *, whole: bool = False) -> None:
    """Put made-up records of all their cells into the store: this measures no latency.

    With ``whole`` those of the networks too, at the sum of their cells.
    """
    hashes: set[str] = set()
    sums: dict[str, float] = {}
    partitioner = Partitioner(predictor.target, predictor.store)
    for model in models:
        partition = partitioner.partition(load(model))
        hashes.update(use.signature for use in partition.uses)
        sums[partition.whole] = 100.0 * sum(use.count for use in partition.uses)
    partitioner.keep()
    target = predictor.target
    predictor.store.add(
        Measurement(target, h, "cell", 100.0, 0.01, protocol="made-up", measured_at="0")
        for h in hashes
    )
    predictor.store.add(
        Measurement(target, h, "network", us, 0.01, protocol="made-up")
        for h, us in (sums if whole else {}).items()
    )
    print(f"{len(hashes)} distinct cells in {len(models)} networks")


def process_seconds(*words: str) -> str:
    """CPU seconds of ``predict`` for a network that was asked about before: least and median."""
    # Users have the bytecode of what they use; what answers first makes it, and keeps what it read.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    seconds = []
    for _ in range(8):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "hybridlat", "predict", str(LARGER), *words],
            cwd=ROOT, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**environment, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    known = seconds[3:]
    return f"{min(known):.2f} s of CPU, {statistics.median(known):.2f} in the median"


def without_end(requests: int, jobs: int, store: str) -> None:
    """Known and new networks mix as in a search; the files are made before the clock starts."""
    archs = [arch for arch in nasbench201.all_archs() if nasbench201.live_edges(arch)]
    files = [nasbench201.build(arch).SerializeToString() for arch in archs]
    rng = random.Random(7)
    drawn = (rng.choice(files) for _ in range(requests))
    with Predictor(TARGET, store=store, measure="never") as predictor:
        began = time.perf_counter()
        for done, _ in enumerate(predictor.predict_many(drawn, jobs=jobs), start=1):
            if done % 50_000 == 0 or done == requests:
                rate = done / (time.perf_counter() - began)
                held_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
                print(f"{done:,}: {rate:.0f} a second, {held_mb:.0f} MB", flush=True)


def print_rate(what: str, predictor: Predictor, models: Sequence[ModelSource]) -> None:
    """Networks a second of CPU of one process."""
    started = time.process_time()
    done = sum(1 for _ in predictor.predict_many(models))
    print(f"{what}: {done / (time.process_time() - started):.0f} networks a second")


def cells_alone(folder: Path) -> None:
    """The shortest of several predictions of cells, given as geometry, by the model in a folder."""
    model = load_model(folder)
    for count, repeats in ((300, 30), (100_000, 3)):
        predict = partial(model.predict_geometry, geometry(texts(count, top=512)))
        each_s = timeit.repeat(predict, number=1, repeat=repeats)
        print(f"{count:,} cells: {1e3 * min(each_s):.2f} ms")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description="How quick a prediction is.")
    parser.add_argument("--networks", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--model", type=Path)
    options = parser.parse_args()
    if options.model:
        cells_alone(options.model)
        return
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/store.db"
        if options.requests:
            without_end(options.requests, options.jobs, store)
            return
        drawn = nasbench201.sample(2 * options.networks, 11)
        live = [arch for arch in drawn if nasbench201.live_edges(arch)]
        models: list[ModelSource] = [nasbench201.build(a) for a in live[: options.networks]]
        with Predictor(store=store, measure="never") as predictor:
            know(predictor, [LARGER], whole=True)
            print(f"process, known from the store: {process_seconds('--store', store)}")
            for what, target in (("from the pack", TARGET), ("by a GPU's model", GPU)):
                seconds = process_seconds("--store", f"{store}.other", "--target", target)
                print(f"process, known {what}: {seconds}")
            know(predictor, [RESNET, *models])
            data = to_onnx(read_network(RESNET), seed=1)
            warm_s = min(timeit.repeat(lambda: predictor.predict(data), number=1, repeat=20))
            print(f"ResNet-18 from {len(data) / 1e6:.0f} MB: {1e3 * warm_s:.1f} ms warm")
        half = len(models) // 2
        with Predictor(TARGET, store=f"{store}.new", measure="never") as predictor:
            print_rate(f"never seen, the first {half}", predictor, models[:half])
            print_rate("never seen, the others", predictor, models[half:])
        with Predictor(store=store, measure="never") as predictor:
            print_rate("known cells, structures from the store", predictor, models)


if __name__ == "__main__":
    main()
