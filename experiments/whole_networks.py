"""What whole networks teach: every table of experiments/gpus.md, its picture and its runs.

    python experiments/whole_networks.py --write [--mlflow URI] [--models DIR [--models-alone]]
        [--data DIR ...] [--cache DIR] [--family NAME ...] [--targets REGEX] [--draws 5]

``--data`` holds networks.parquet and nets.tar.gz (``../shared/data/whole_networks`` and
``gpu_networks``). Lowered networks are kept in ``--cache``; everything else is computed anew, and
is the same every time. Published are means of five ``--draws`` of folds. ``--targets`` judges some
tables alone (all teach); ``--write`` leaves those that were not judged as they are, and with
``--draw`` nothing is judged anew.
"""

import argparse
import re
import sys
import tarfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from experiments.whole_networks_data import FAMILIES, Lowerer, family_of, read_rows
from experiments.whole_networks_few_shot import few_shot, one_known
from experiments.whole_networks_lines import FIGURES, Line, line, mean, noise, read, write
from experiments.whole_networks_page import LARGE, log, write_page
from hybridlat.engines import device_sheets
from hybridlat.evaluation.families import FamilyRecords
from hybridlat.evaluation.family_laws import Answers, Fold, interval
from hybridlat.evaluation.metrics import OWN
from hybridlat.evaluation.other_regimes import Regimes
from hybridlat.model.baselines import Problem, Sums
from hybridlat.model.baselines import load as baseline_of
from hybridlat.model.conformal import ELSEWHERE, Calibration
from hybridlat.model.family import shipped as files
from hybridlat.model.family.observations import Observation
from hybridlat.model.family.physics import at_batch
from hybridlat.schema.workers import OnMessage

Array = NDArray[np.float64]
LEAST = 3
"""Latencies of a table that is judged."""
LAYERWISE = "layerwise_learned"
BASELINES = ("flops_linear", "roofline", "per_kind_linear", "kernel_forest", LAYERWISE)
_OLD = ("1.12", "1.13")  # the same networks on the same card as under 2.1: time, not knowledge


@dataclass(frozen=True, kw_only=True)
class World(FamilyRecords):
    """One engine family's published rows, and what the model sees of them."""

    lowerer: Lowerer
    on_message: OnMessage
    judged: re.Pattern[str] = re.compile("")
    draws: int = 1
    processes: int = 1

    @cached_property
    def observations(self) -> list[Observation]:
        return [self.lowerer.observation(row) for row in self.rows]

    @cached_property
    def truth(self) -> Array:
        return np.array([row.latency_us for row in self.rows])

    @cached_property
    def labels(self) -> list[str]:
        return [row.label for row in self.rows]

    @cached_property
    def tables(self) -> dict[str, list[int]]:
        """What is judged: the rows that count of every table that holds enough of them."""
        found = defaultdict(list)
        for i in np.flatnonzero(self.counted):
            if self.judged.search(self.labels[i]):
                found[self.labels[i]].append(int(i))
        return {label: rows for label, rows in sorted(found.items()) if len(rows) >= LEAST}

    @cached_property
    def regimes(self) -> Regimes:
        """Folds of each regime in every draw, and each device left out: fitted once."""
        return Regimes(self, self.on_message, self.draws, each=self.in_processes)

    def in_processes(
        self, fold: Callable[[Fold], Answers], jobs: Sequence[Fold]
    ) -> Iterator[Answers]:
        """By processes that are forked once the kernels are embedded, so that all share them."""
        global _fold
        self.on_message(f"{self.family}: {len(self.clouds)} sets of kernels are embedded")
        _fold = fold
        forked = get_context("fork")
        with ProcessPoolExecutor(max(1, self.processes), forked, one_thread) as pool:
            yield from pool.map(_answers, jobs)

    def others(self, device: str) -> NDArray[np.bool_]:
        """Rows that count, of other devices."""
        return self.counted & np.array([row.target.device != device for row in self.rows])

    def calibration(self, known: NDArray[np.bool_], kin: Path | None = None) -> Calibration:
        """Intervals by known networks that were held out, of other devices by those left out.

        Where no device was left out they are those of the model in ``kin``, if that is given.
        """
        own = self.regimes.calibration(known, self.regimes.held_out["unseen"][0].answers)
        if kin is None:
            return own
        theirs = files.read(kin).calibration
        spreads = {name: one for name, one in theirs.spreads.items() if name == ELSEWHERE}
        return replace(own, pooled=theirs.pooled, spreads=own.spreads | spreads)

    def line(
        self, label: str, regime: str, method: str, predicted: Array, bounds: Sequence[Array] = ()
    ) -> Line:
        """How far off a method is on all rows of a table."""
        rows = self.tables[label]
        networks = [self.rows[i].architecture for i in rows]
        return line((label, regime, method), predicted, self.truth[rows], networks, bounds)


_fold: Callable[[Fold], Answers]


def _answers(job: Fold) -> Answers:
    return _fold(job)


def cross_validate(world: World) -> Iterator[Line]:
    """Five folds of each regime, in every draw; intervals by the errors of the other folds."""
    regimes = world.regimes
    for regime in regimes.held_out:
        for label, rows in world.tables.items():
            lines = []
            for answers in regimes.unseen(regime, rows, 0.9):
                bounds = np.array([answer.interval_us for answer in answers]).T
                points = np.array([answer.predicted_us for answer in answers])
                lines.append(world.line(label, regime, OWN, points, bounds))
            yield mean(lines, 100 * regimes.held_share(regime, rows))


def baselines(world: World, processes: int) -> Iterator[Line]:
    """The other methods on the same folds of all tables that are large enough."""
    lowerer, jobs = world.lowerer, []
    for label, places in world.tables.items():
        rows = [world.rows[i] for i in places] if len(places) >= LARGE else []
        for regime, drawn in world.regimes.folds.items() if rows else ():
            for name in BASELINES:
                table = lowerer.layers if name == LAYERWISE else lowerer.table
                tables = [table(row) for row in rows]
                jobs += [((label, regime, name), rows, tables, folds[places]) for folds in drawn]
    lines: dict[tuple[str, str, str], list[Line]] = defaultdict(list)
    with ProcessPoolExecutor(processes, initializer=one_thread) as pool:
        for (names, *_), predicted in zip(jobs, pool.map(fitted, jobs), strict=True):
            world.on_message(f"{world.family}, baselines: {' '.join(names)}")
            if np.isfinite(predicted).all():
                lines[names].append(world.line(*names, predicted))
    yield from map(mean, lines.values())


def fitted(job: Any) -> Array:
    """What a method says of every network, having learned from the other folds."""
    (_, _, name), rows, tables, folds = job
    pairs = zip(tables, rows, strict=True)
    sums = Sums.of_networks([at_batch(table, row.batch) for table, row in pairs])
    truth, names = zip(*((row.latency_us, row.architecture) for row in rows), strict=True)
    problem, target = Problem(sums, np.array(truth), names), rows[0].target
    predicted = np.full(len(folds), np.nan)
    for one in np.unique(folds):
        out = folds == one
        if not out.all():  # else a table of one family of architectures
            method = baseline_of(name)(device_sheets.of_target(target), target.precision)
            method.fit(problem.take(np.flatnonzero(~out)))
            predicted[out] = method.predict(sums.take(np.flatnonzero(out)))
    return predicted


def other_devices(world: World) -> Iterator[Line]:
    """A device left out: nothing of it, one latency, then a few."""
    for label, rows in world.tables.items():
        device = world.rows[rows[0]].target.device
        model = world.regimes.without(device)
        if model is None:
            continue
        world.on_message(f"{world.family}, few known: {label}")
        medians = np.array([o.median_us for i in rows if (o := world.regimes.left_out[i])])
        constant = np.median(world.truth[rows] / medians)  # by the table itself
        yield world.line(label, "one_constant", OWN, medians * constant)
        calibration = world.calibration(world.others(device))
        answers = [
            interval(world.rows[i], world.regimes.left_out[i], calibration, 0.9) for i in rows
        ]
        bounds = np.array([answer.interval_us for answer in answers]).T
        yield world.line(label, "zero_shot", OWN, medians, bounds)
        every = one_known(world, model, calibration, rows)
        judged = np.isfinite(every[0])
        if judged.any():
            predicted, truth, half = (each[judged] for each in every)
            bounds = np.array([predicted * np.exp(-half), predicted * np.exp(half)])
            known = line((label, "known@1", OWN), predicted, truth, bounds=bounds)
            yield replace(known, latencies=len(rows))
        yield from few_shot(world, model, label, rows)


def save(world: World, folder: Path, kin: Path) -> None:
    """The model of all rows, with intervals by networks and by devices that were held out.

    A family with one device alone has the latter from the model in ``kin``, of another family.
    """
    known = world.counted
    alone = len({row.target.device for row in world.rows}) == 1
    calibration = world.calibration(known, kin if alone else None)
    folder.mkdir(parents=True, exist_ok=True)
    sizes = defaultdict(list)
    for i in np.flatnonzero(known):
        sizes[str(world.rows[i].target)].append(world.rows[i].batch)
    batches = {target: (min(some), max(some)) for target, some in sorted(sizes.items())}
    files.save(replace(world.learn(known), calibration=calibration, batches=batches), folder)


def load(
    name: str, folders: Sequence[Path], cache: Path, judged: str, say: OnMessage, **more: int
) -> World:
    """The rows of an engine family; the networks are unpacked into the cache once."""
    for folder in folders:
        if not (cache / folder.name / "nets").is_dir():
            with tarfile.open(folder / "nets.tar.gz") as packed:
                packed.extractall(cache / folder.name, filter="data")
    rows = [r for r in read_rows(folders, FAMILIES[name]) if r.target.version not in _OLD]
    rows.sort(key=lambda r: (r.onnx, str(r.task), r.batch, r.folder))
    return World(
        name, tuple(rows), {}, lowerer=Lowerer(cache), on_message=say, judged=re.compile(judged),
        **more,
    )  # fmt: skip


def one_thread() -> None:
    """Digits of linear algebra do not hang on how many threads there are."""
    threadpool_limits(1, user_api="blas")


def main() -> None:
    """All families, all regimes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", default=[
        ROOT.parent / "shared/data" / name for name in ("whole_networks", "gpu_networks")
    ])  # fmt: skip
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache/whole_networks")
    parser.add_argument("--family", nargs="*", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--targets", default="", metavar="REGEX", help="judge these tables alone")
    parser.add_argument("--draws", type=int, default=1, help="of folds: figures are their mean")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--no-baselines", action="store_true", help="they stay as they are")
    parser.add_argument("--models", type=Path, help="a folder to write the models to")
    parser.add_argument("--models-alone", action="store_true", help="no tables")
    parser.add_argument("--write", action="store_true", help="figures, page and picture")
    parser.add_argument("--draw", action="store_true", help="judge nothing anew")
    parser.add_argument("--mlflow", help="a run for each table goes here: a URI, or a file")
    given = parser.parse_args()
    given.cache.mkdir(parents=True, exist_ok=True)
    one_thread()
    lines, began = read(FIGURES), time.perf_counter()

    def say(text: str) -> None:
        print(f"{time.perf_counter() - began:4.0f} s  {text}", file=sys.stderr, flush=True)

    for name in [] if given.draw else given.family:
        world = load(name, given.data, given.cache, given.targets, say, draws=given.draws,
                     processes=given.processes)  # fmt: skip
        say(f"{name}: {len(world.rows)} rows")
        if given.models:
            save(world, given.models / f"family_{name}", given.models / "family_torch")
        if not given.models_alone:
            anew = [
                o for o in lines if family_of(o.target) == name and world.judged.search(o.target)
                and not (given.no_baselines and o.method in BASELINES)
            ]  # fmt: skip
            lines = [one for one in lines if one not in anew]
            lines += [*cross_validate(world), *other_devices(world)]
            for label, rows in world.tables.items():
                lines += noise(label, [world.rows[i].repeats_us for i in rows])
            lines += () if given.no_baselines else baselines(world, given.processes)
        if given.write:
            write(lines, FIGURES)
    if given.write:
        write_page(read(FIGURES))
    if given.mlflow:
        log(lines, given.mlflow)


if __name__ == "__main__":
    main()
