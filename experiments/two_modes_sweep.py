"""Measure convolutions at fine steps of channels and size on this machine: 300 kernels, minutes.

    python experiments/two_modes_sweep.py [--budget 200] [-o experiments/two_modes_sweep]

Four series that differ in one thing only, under ONNX Runtime on one thread, with the protocol that
whole networks are measured by: a convolution is a network of its own, as the user writes it. (The
engine's own graph would not do: it rounds channels up, so that nine and sixteen channels are one
and the same kernel there. That rounding is what this sweep is to show.) The result is a pack; of
each visit at most `KEPT` samples are written, evenly spread over it.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

from msgspec import structs

from hybridlat import onnx_io
from hybridlat.engines import registry
from hybridlat.graph.builder import NetworkBuilder
from hybridlat.graph.signature import sign
from hybridlat.measuring.replicas import measure
from hybridlat.measuring.schedule import Job, MeasurementConfig
from hybridlat.schema.measurement import Visit
from hybridlat.schema.progress import Progress
from hybridlat.store import Store

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "experiments" / "two_modes_sweep"
KEPT = 12


@dataclasses.dataclass(frozen=True)
class Shape:
    """One convolution of one series."""

    series: str
    c_in: int
    c_out: int
    size: int
    kernel: int


def shapes() -> Iterator[Shape]:
    """All four series."""
    for c_out in range(8, 137):
        yield Shape("c_out of 3x3, 64 channels in, 28x28", 64, c_out, 28, 3)
    for c_out in range(8, 138, 2):
        yield Shape("c_out of 1x1, 128 channels in, 14x14", 128, c_out, 14, 1)
    for c_in in range(4, 102, 2):
        yield Shape("c_in of 3x3, 64 channels out, 28x28", c_in, 64, 28, 3)
    for size in range(4, 61):
        yield Shape("size of 3x3, 64 channels in and out", 64, 64, size, 3)


def job(shape: Shape) -> Job:
    """A file with this convolution and nothing else."""
    builder = NetworkBuilder("fine sweep")
    image = builder.input((1, shape.c_in, shape.size, shape.size), "x")
    drawn = builder.network(builder.conv(image, shape.c_out, shape.kernel, bias=True))
    network = onnx_io.read_network(onnx_io.to_onnx(drawn, None), name="fine sweep")
    return Job(sign(network).hash, network, "network", {"series": shape.series})


def thinned(visit: Visit) -> Visit:
    """At most ``KEPT`` of the samples: order statistics at even steps."""
    ordered = sorted(visit.samples_us)
    steps = min(KEPT, len(ordered))
    kept = tuple(ordered[round(i * (len(ordered) - 1) / max(steps - 1, 1))] for i in range(steps))
    return structs.replace(visit, samples_us=kept)


def main() -> None:
    """Measure, and write the pack."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--budget", type=float, default=200.0, help="seconds")
    parser.add_argument("-o", "--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    backend, options = registry.load("onnxruntime")(threads=1), {"threads": 1}
    jobs = {result.signature: result for shape in shapes() for result in [job(shape)]}
    order = list(jobs.values())
    random.Random(0).shuffle(order)
    print(f"{len(order)} kernels", flush=True)

    def tell(progress: Progress) -> None:
        if progress.done % 100 == 0:
            print(f"{progress.done}/{progress.total}, {progress.seconds_left:.0f} s left")

    settings = MeasurementConfig(
        rounds=2, processes=2, max_processes=2, network_visit_ms=15, network_visits=1,
        budget_s=arguments.budget,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        with Store(Path(folder) / "measured.db") as store:
            records = measure(backend, options, order, store, settings, tell)
        with Store(Path(folder) / "kept.db") as store:
            store.add_signatures({j.signature: sign(j.network).text for j in order})
            store.add(structs.replace(r, visits=tuple(map(thinned, r.visits))) for r in records)
            failed = sum(r.latency_us is None for r in records)
            print(f"{len(records)} records, {failed} failures")
            for pack in store.export(arguments.out, source="two_modes_sweep.py"):
                print(pack)


if __name__ == "__main__":
    main()
