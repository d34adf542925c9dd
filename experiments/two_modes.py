"""Both modes of a convolution's latency on a CPU, measured at fine steps of channels and size.

    python experiments/two_modes.py                # the table and the picture of two_modes.md
    python experiments/two_modes.py measure        # the sweep anew on this machine, minutes

The staircase: a kernel computes its output block by block. The jumps: another kernel is chosen
where channels are not aligned. Three lines with a constant part explain each series: in the work;
in the work rounded up to whole blocks, and to several of them (the staircase); and in that with a
line of its own for what is not aligned or too little for a block (the jumps). Trying tells widths.

``measure`` times each convolution as a network of its own, since the engine rounds channels up.
Of each visit at most ``KEPT`` samples are written, evenly spread over it.
"""

from __future__ import annotations

import argparse
import math
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from hybridlat import onnx_io
from hybridlat.engines import registry
from hybridlat.graph.builder import NetworkBuilder
from hybridlat.graph.signature import sign
from hybridlat.measuring.replicas import measure
from hybridlat.measuring.schedule import Job, MeasurementConfig
from hybridlat.model.geometry import COLUMN, geometry
from hybridlat.schema.measurement import Visit
from hybridlat.store import Store
from hybridlat.store.packs import PackLookup

FOLDER = Path(__file__).resolve().parent
SWEEP = FOLDER / "two_modes_sweep"
KEPT = 12
Array = np.ndarray[Any, np.dtype[Any]]
BLOCKS = (1, 2, 4, 6, 8, 12, 16, 24, 32)
TOGETHER = (32, 48, 64, 96)
FEW = (0, 8, 16, 24)
ALIGNMENTS = (1, 2, 4, 8, 16)
LEAST = 5  # points that a staircase is fitted to
SWEPT = {"c_out": "output channels", "c_in": "input channels", "size": "height and width"}


@dataclass(frozen=True)
class Series:
    """Latency along one quantity, in its order."""

    title: str
    along: Array
    latency_us: Array

    @property
    def quantity(self) -> str:
        return self.title.split(" ")[0]


@dataclass(frozen=True)
class Explained:
    """Residuals (root mean square, percent) of the three lines, and what made them least."""

    plain: float
    steps: float
    both: float
    blocks: tuple[int, int]
    few: int
    alignment: int
    made: Array


def read(folder: Path) -> list[Series]:
    """The series of a pack."""
    pack = PackLookup(folder)
    texts = dict(pack.all_signature_texts())
    grouped: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for record in pack.measurements():
        title = record.labels.get("series")
        if title is None or record.latency_us is None:
            continue
        row = geometry([texts[record.signature]]).values[0]
        name = {"size": "h_in"}.get(title.split(" ")[0], title.split(" ")[0])
        grouped[title].append((float(row[COLUMN[name]]), record.latency_us))
    series = []
    for title, points in sorted(grouped.items()):
        along, latency = np.array(sorted(points)).T
        series.append(Series(title, along, latency))
    return series


def work(series: Series, block: int) -> Array:
    """What grows along the series, its quantity rounded up to whole blocks.

    Channels count once; of a size, rows count as they are and columns in blocks.
    """
    rounded = np.ceil(series.along / block) * block
    return rounded * series.along if series.quantity == "size" else rounded


def line(latency: Array, *drivers: Array) -> Array:
    """a + Σ b·driver with the least relative error."""
    columns = np.stack([np.ones(len(latency)), *drivers], axis=1)
    scaled = columns / latency[:, None]
    return np.asarray(columns @ np.linalg.lstsq(scaled, np.ones(len(latency)), rcond=None)[0])


def residual(made: Array, latency: Array) -> float:
    """Root mean square of relative errors, in percent."""
    return 100 * math.sqrt(float(np.mean((made / latency - 1) ** 2)))


def staircase(series: Series, mine: Array, blocks: tuple[int, int]) -> Array:
    """Steps of one block, and of several blocks that are worked on together."""
    drivers = [work(series, block)[mine] for block in blocks if block]
    return line(series.latency_us[mine], *drivers)


def classes(series: Series, few: int, alignment: int) -> tuple[Array, Array, Array]:
    """Who is aligned, who is not, and who is too few for the blocked kernels."""
    small = series.along <= few
    aligned = (series.along % alignment == 0) & ~small
    return aligned, ~aligned & ~small, small


def with_jumps(series: Series, blocks: tuple[int, int], few: int, alignment: int) -> Array:
    """The staircase for what is aligned; lines of their own in the plain work for the others."""
    aligned, odd, small = classes(series, few, alignment)
    made = np.full(len(series.along), np.inf)
    if aligned.sum() > LEAST:
        made[aligned] = staircase(series, aligned, blocks)
    for mine in (odd, small):
        if mine.sum() > 2:
            made[mine] = line(series.latency_us[mine], work(series, 1)[mine])
    return np.where(np.isfinite(made), made, np.inf)


def explain(series: Series) -> Explained:
    """The three explanations of one series; a mode counts if it takes a fifth off the residual."""
    latency, every = series.latency_us, np.ones(len(series.along), bool)
    plain = residual(line(latency, work(series, 1)), latency)
    pairs = [(b, together) for b in BLOCKS for together in (0, *TOGETHER) if together % b == 0]
    steps = {blocks: residual(staircase(series, every, blocks), latency) for blocks in pairs}
    best = min(steps.values())
    blocks = next(p for p in pairs if steps[p] <= 1.1 * best + 0.01)  # the simplest that is as good
    result = {
        (p, few, a): residual(with_jumps(series, p, few, a), latency)
        for p in pairs for few in FEW for a in ALIGNMENTS
    }  # fmt: skip
    least = min(result.values())
    chosen = next(k for k, v in result.items() if v <= 1.1 * least + 0.01)
    if result[chosen] > 0.8 * steps[blocks]:
        chosen = (blocks, 0, 1)
    made = with_jumps(series, *chosen)
    return Explained(plain, steps[blocks], residual(made, latency), *chosen, made)


def table(every: list[Series]) -> str:
    """One line a series, in Markdown."""
    lines = [
        "| series | kernels | line in the work | staircase | and jumps | blocks | jumps |",
        "|---|---:|---:|---:|---:|---|---|",
    ]
    for series in every:
        e = explain(series)
        blocks = " and ".join(str(b) for b in e.blocks if b)
        jumps = [f"not a multiple of {e.alignment}"] if e.alignment > 1 else []
        jumps += [f"up to {e.few}"] if e.few else []
        lines.append(
            f"| {series.title} | {len(series.along)} | {e.plain:.1f} % | {e.steps:.1f} % | "
            f"{e.both:.1f} % | {blocks} | {', '.join(jumps) or 'none'} |"
        )
    return "\n".join(lines)


def draw(every: list[Series], title: str, path: Path) -> None:
    """A panel per series: what was measured, the line, and the modes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(every), figsize=(3.6 * len(every), 3.4),
                                   layout="constrained")  # fmt: skip
    for axis, series in zip(np.atleast_1d(axes), every, strict=True):
        e = explain(series)
        axis.plot(series.along, series.latency_us, ".", color="#1f4e79", markersize=4,
                  label="measured")  # fmt: skip
        axis.plot(series.along, line(series.latency_us, work(series, 1)), "--", color="#999999",
                  linewidth=1, label=f"line in the work ({e.plain:.1f} %)")  # fmt: skip
        blocks = " and ".join(str(b) for b in e.blocks if b)
        parts = zip(
            classes(series, e.few, e.alignment), ("#d1495b", "#edae49", "#66a182"),
            (f"blocks of {blocks} ({e.both:.1f} %)", f"not a multiple of {e.alignment}",
             f"up to {e.few}"), strict=True,
        )  # fmt: skip
        for mine, colour, label in parts:
            if mine.any():
                axis.step(series.along[mine], e.made[mine], where="mid", color=colour,
                          linewidth=1.2, label=label)  # fmt: skip
        axis.set(xlabel=SWEPT[series.quantity], title=series.title.split(" of ", 1)[1])
        axis.set_ylim(bottom=0)
        axis.legend(fontsize=7, loc="upper left")
    np.atleast_1d(axes)[0].set_ylabel("latency (µs)")
    figure.suptitle(title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=95)
    pyplot.close(figure)


@dataclass(frozen=True)
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
    return Job(sign(network), network, "network", {"series": shape.series})


def thinned(visit: Visit) -> Visit:
    """At most ``KEPT`` of the samples: order statistics at even steps."""
    ordered = sorted(visit.samples_us)
    steps = min(KEPT, len(ordered))
    kept = tuple(ordered[round(i * (len(ordered) - 1) / max(steps - 1, 1))] for i in range(steps))
    return structs.replace(visit, samples_us=kept)


def sweep(budget_s: float) -> None:
    """Measure the convolutions of all series, and write them as a pack."""
    backend = registry.open_backend("onnxruntime", {"threads": 1})
    jobs = {result.signature.hash: result for shape in shapes() for result in [job(shape)]}
    order = list(jobs.values())
    random.Random(0).shuffle(order)
    print(f"{len(order)} kernels", flush=True)

    settings = MeasurementConfig(
        rounds=2, processes=2, max_processes=2, network_visit_ms=15, network_visits=1,
        budget_s=budget_s,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        with Store(Path(folder) / "measured.db") as store:
            records = measure(backend, order, store, settings)
        with Store(Path(folder) / "kept.db") as store:
            store.add_signatures({j.signature.hash: j.signature.text for j in order})
            store.add(structs.replace(r, visits=tuple(map(thinned, r.visits))) for r in records)
            failed = sum(r.latency_us is None for r in records)
            print(f"{len(records)} records, {failed} failures")
            for pack in store.export(SWEEP, source="two_modes.py measure"):
                print(pack)


def main() -> None:
    """Measure the sweep, or print the table and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("command", nargs="?", choices=("report", "measure"), default="report")
    parser.add_argument("--budget", type=float, default=200.0, help="seconds of measuring")
    given = parser.parse_args()
    if given.command == "measure":
        sweep(given.budget)
        return
    every = read(SWEEP)
    print(table(every))
    draw(every, str(PackLookup(SWEEP).target), FOLDER / "figures" / "two_modes_fine.png")


if __name__ == "__main__":
    main()
