"""Few measured networks of a GPU left out, in two search spaces: experiments/few_shot_nas.md.

    python experiments/few_shot_nas.py [--data DIR] [--space NAME ...] [--known]

``--data`` holds the tables of NAS-Bench-201 and FBNet latencies that the authors of HELP published
(``../shared/data``: ``nasbench201/networks.parquet``, ``fbnet/networks.parquet``). The law of
kernels is learned from 100 networks on every other GPU of the table, corrected by k networks of the
GPU left out, and judged on 300 networks that neither saw. Every draw has a fixed seed. ``--known``
gives the shipped law 0, 10 and 200 latencies of ``nas_gtx1660`` instead, and judges 200 others.
"""

import argparse
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from experiments.public_data.networks import fbnet, nasbench201
from experiments.whole_networks_few_shot import choose
from hybridlat import Predictor
from hybridlat.engines import device_sheets
from hybridlat.evaluation.metrics import spearman
from hybridlat.model.baselines import Problem, Sums
from hybridlat.model.baselines.methods import FlopsLinear
from hybridlat.model.family.embedding import embedding_of
from hybridlat.model.family.fit import fit
from hybridlat.model.family.model import FamilyModel
from hybridlat.model.family.observations import KernelSet, Observation, kernel_set
from hybridlat.model.family.physics import KernelTable, table_of_texts
from hybridlat.model.family.tasks import Task
from hybridlat.schema.target import Target
from hybridlat.store.importers import ImportedRecords

Array = NDArray[np.float64]
SPACES = {"nasbench201": nasbench201, "fbnet": fbnet}
LEARNED, POOL, JUDGED = 100, 150, 300
FEW = (0, 10, 30, 100)
DRAWS = 3
SHOWN = (
    (0, "hybridlat"), (10, "hybridlat, chosen"), (10, "hybridlat, random"),
    (10, "flops_linear, random"), (100, "hybridlat, random"), (100, "flops_linear, random"),
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A network on one GPU at one batch."""

    name: str
    target: Target
    batch: int
    table: KernelTable
    kernels: KernelSet
    latency_us: float

    @property
    def task(self) -> Task:
        return Task(self.target.device, "torch-1.8", self.target.precision)

    @property
    def observation(self) -> Observation:
        return Observation(self.kernels, self.task, self.latency_us, self.name)


def read(space: Callable[[Path], ImportedRecords], folder: Path) -> list[list[Row]]:
    """As many networks as are needed, drawn at random: for each, its rows."""
    frame = pd.read_parquet(folder / "networks.parquet")
    frame = frame.sample(LEARNED + POOL + JUDGED, random_state=0)
    with tempfile.TemporaryDirectory() as few:
        frame.to_parquet(Path(few) / "networks.parquet")
        found = space(Path(few))
    tables: dict[str, KernelTable] = {}
    sets: dict[tuple[str, str], KernelSet] = {}
    rows: dict[str, list[Row]] = {}
    for measured, parts in zip(found.measurements, found.breakdowns, strict=True):
        target, key = measured.target, parts.network
        if key not in tables:
            hashes, counts = zip(*parts.cells, strict=True)
            tables[key] = table_of_texts([found.signatures[h] for h in hashes], counts)
        if (key, target.device) not in sets:
            device = device_sheets.load(target.device)
            sets[key, target.device] = kernel_set(tables[key], device, target.precision)
        name, _, batch = parts.network.rpartition(" batch ")
        rows.setdefault(name, []).append(
            Row(
                name, target, int(batch), tables[key], sets[key, target.device],
                measured.latency_us,
            )
        )  # fmt: skip
    return list(rows.values())


def lines(space: str, networks: Sequence[Sequence[Row]]) -> Iterator[str]:
    """The table of one space, a GPU left out at a time."""
    learned, pool = networks[:LEARNED], networks[LEARNED : LEARNED + POOL]
    judged = networks[LEARNED + POOL :]
    embedding = embedding_of("torch")
    for device in sorted({row.target.device for row in networks[0]}):
        others = [
            row.observation for rows in learned for row in rows if row.target.device != device
        ]
        model = fit(others, embedding)
        for batch in sorted({row.batch for row in networks[0] if row.target.device == device}):
            own = [_of(rows, device, batch) for rows in pool]
            rest = [_of(rows, device, batch) for rows in judged]
            scores = {(count, method): one for count, method, one in _few(model, own, rest)}
            cells = [f"{scores[key][0]:.1f} / {scores[key][1]:.1f}" for key in SHOWN]
            ranks = scores[10, "hybridlat, random"][2]
            yield f"| {space} | {device}, {batch} | {' | '.join(cells)} | {ranks:.3f} |"


def _of(rows: Sequence[Row], device: str, batch: int) -> Row:
    return next(r for r in rows if r.target.device == device and r.batch == batch)


def _few(
    model: FamilyModel, pool: Sequence[Row], rest: Sequence[Row]
) -> Iterator[tuple[int, str, Array]]:
    task = pool[0].task
    points = [model.embedding(row.kernels.descriptors, row.kernels.classes) for row in rest]

    def scores(measured: Sequence[Row]) -> Array:
        conditioned = model.condition([row.observation for row in measured])
        kernels, tasks = [row.kernels for row in rest], [task] * len(rest)
        each = conditioned.predict_all(kernels, tasks, points)
        return _judge(np.array([one.median_us for one in each]), rest)

    order = choose(model, task, [row.kernels for row in pool], max(FEW))
    draw = np.random.default_rng(0)
    for count in FEW:
        if not count:
            yield 0, "hybridlat", scores([])
            continue
        yield count, "hybridlat, chosen", scores([pool[i] for i in order[:count]])
        picks = [draw.choice(len(pool), count, replace=False) for _ in range(DRAWS)]
        drawn = [[pool[i] for i in pick] for pick in picks]
        yield count, "hybridlat, random", _mean([scores(one) for one in drawn])
        yield count, "flops_linear, random", _mean([_line(one, rest) for one in drawn])


def _line(measured: Sequence[Row], rest: Sequence[Row]) -> Array:
    target = measured[0].target
    line = FlopsLinear(device_sheets.load(target.device), target.precision)
    truth = np.array([row.latency_us for row in measured])
    names = tuple(map(str, range(len(measured))))
    line.fit(Problem(Sums.of_networks([row.table for row in measured]), truth, names))
    return _judge(line.predict(Sums.of_networks([row.table for row in rest])), rest)


def _judge(said: Array, rest: Sequence[Row]) -> Array:
    """(RMSPE, median error, both in percent, Spearman's rank correlation)."""
    truth = np.array([row.latency_us for row in rest])
    off = said / truth - 1
    ranks = spearman(said.tolist(), truth.tolist())
    found = (100 * np.sqrt(np.mean(off**2)), 100 * np.median(np.abs(off)), ranks or 0.0)
    return np.array(found, np.float64)


def _mean(scores: Sequence[Array]) -> Array:
    return np.asarray(np.mean(scores, axis=0), np.float64)


def known(folder: Path) -> Iterator[str]:
    """A line for each count of latencies that are known, as a user gives them."""
    frame = pd.read_parquet(folder / "networks.parquet")
    with tempfile.TemporaryDirectory() as nets, tarfile.open(folder / "nets.tar.gz") as packed:
        packed.extractall(nets, filter="data")
        files = [f"{nets}/nets/{name}.onnx" for name in frame.onnx]
        latencies = dict(zip(files, frame.latency_us.to_list(), strict=True))
        for count in (0, 10, 200):
            errors = []
            for seed in range(5):
                order = np.random.default_rng(seed).permutation(files).tolist()
                measured = {file: latencies[file] for file in order[:count]}
                predictor = Predictor(frame.target[0], measure="never", known=measured)
                judged = [predictor.predict(file).latency_us or 0 for file in order[-200:]]
                off = np.array(judged) / [latencies[file] for file in order[-200:]] - 1
                errors.append((100 * np.sqrt(np.mean(off**2)), 100 * np.median(np.abs(off))))
            mean, spread = np.mean(errors, axis=0), np.std(errors, axis=0, ddof=1)
            yield f"| {count} | {mean[0]:.1f} ± {spread[0]:.1f} | {mean[1]:.1f} |"


def main() -> None:
    """Both spaces, or the third."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data")
    parser.add_argument("--space", nargs="*", default=list(SPACES), choices=list(SPACES))
    parser.add_argument("--known", action="store_true")
    given = parser.parse_args()
    if given.known:
        print("| known | RMSPE % | median % |\n|--:|--:|--:|")
        print(*known(given.data / "nas_gtx1660"), sep="\n")
        return
    print("| space | GPU, batch |", *(f"{method}, {k} |" for k, method in SHOWN), "Spearman, 10 |")
    print("|---|---|" + "---|" * (len(SHOWN) + 1))
    for space in given.space:
        began = time.perf_counter()
        networks = read(SPACES[space], given.data / space)
        for line in lines(space, networks):
            print(line, flush=True)
        print(f"{space}: {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
