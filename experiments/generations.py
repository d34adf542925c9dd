"""How far off is a family's law on generations of GPUs, or on devices, that it has not seen?

    python experiments/generations.py [--by generation|device] [--judge NAME ...] [--waves 100]
        [--family NAME] [--data DIR ...] [--cache DIR]

Of every table of three rows or more: errors by the law without its group, intervals by the scores
of the other groups, and what the kernels' bytes take by the data sheet over the latency, the whole
and what the last cache does not spare. ``--judge`` names collections in ``--data``; all teach.
"""

import argparse
import importlib
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from experiments.whole_networks_lines import Line, line
from hybridlat.engines import device_sheets
from hybridlat.evaluation.family_laws import ROWS_EACH
from hybridlat.model.conformal import ELSEWHERE, calibrate
from hybridlat.model.family.embedding import LAUNCH, Embedding, embedding_of
from hybridlat.model.family.fit import embedded, fit
from hybridlat.model.family.model import interval_us
from hybridlat.model.family.physics import at_batch
from hybridlat.model.geometry import View
from hybridlat.schema.workers import silent

BY = {
    "generation": lambda device: device_sheets.load(device).architecture,
    "device": lambda device: device,
}


def left_out(world, by: str, waves: int) -> Iterator[tuple[str, Line]]:
    """(generation, errors) of every table that is judged."""
    rows, observed = world.rows, world.observations
    embedding = Embedding(embedding_of(world.family).hyper, waves)
    points = embedded(observed, embedding)
    group = np.array([BY[by](row.target.device) for row in rows])
    answers, log_error, spread = {}, np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    for name in np.unique(group[np.concatenate(list(world.tables.values()))]):
        known = np.flatnonzero(world.counted & (group != name))
        law = fit([observed[i] for i in known], embedding, points, with_trees=False)
        mine = np.flatnonzero(world.counted & (group == name))
        each = [observed[i] for i in mine]
        kernels, tasks = [one.kernels for one in each], [one.task for one in each]
        own = [points[id(one)] for one in kernels]
        for i, one in zip(mine, law.predict_all(kernels, tasks, own), strict=True):
            answers[i] = one
            log_error[i], spread[i] = np.log(rows[i].latency_us / one.median_us), one.log_sd
    for label, places in world.tables.items():
        others = []
        for table in world.tables.values():
            if group[table[0]] != group[places[0]]:
                few = np.linspace(0, len(table) - 1, min(len(table), ROWS_EACH)).astype(int)
                others += [table[i] for i in few]
        scores = calibrate(log_error[others], spread[others], [ELSEWHERE] * len(others))
        bounds = np.array([interval_us(scores, answers[i], observed[i].task) for i in places]).T
        predicted = np.array([answers[i].median_us for i in places])
        made = line((label, by, world.family), predicted, world.truth[places], (), bounds)
        yield BY["generation"](rows[places[0]].target.device), made


def memory_shares(world, place: int) -> tuple[float, float]:
    """What a row's bytes take by the data sheet, and without what caches spare, of its latency."""
    row, kernels = world.rows[place], world.observations[place].kernels
    device = device_sheets.of_target(row.target)
    table = at_batch(world.lowerer.table(row), row.batch)
    whole_us = table.counts @ View(table.values, device, row.target.precision).memory_us
    left_us = kernels.counts @ (kernels.base_us * kernels.descriptors[:, LAUNCH - 1])
    return whole_us / row.latency_us, left_us / row.latency_us


def main() -> None:
    """A line a table, then geometric means of medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--by", choices=list(BY), default="generation")
    parser.add_argument("--judge", nargs="*", help="collections; all where none is named")
    parser.add_argument("--waves", type=int, default=800, help="fewer are quicker")
    parser.add_argument("--family", default="tensorrt")
    parser.add_argument("--data", type=Path, nargs="+", default=[
        ROOT.parent / "shared/data" / name
        for name in ("whole_networks", "gpu_networks", "gpu_networks2")
    ])  # fmt: skip
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache/whole_networks")
    given = parser.parse_args()
    tables = importlib.import_module("whole_networks")
    tables.one_thread()
    world = tables.load(given.family, given.data, given.cache, re.compile(""), silent)
    medians = defaultdict(list)
    print("generation,target,rows,median,rmspe,bias,coverage,half-width,memory,most,kept off,most")
    for generation, one in left_out(world, given.by, given.waves):
        places = world.tables[one.target]
        if given.judge and world.rows[places[0]].folder not in given.judge:
            continue
        whole, left = np.array([memory_shares(world, i) for i in places]).T
        shares = [np.median(whole), whole.max(), np.median(left), left.max()]
        errors = [one.median, one.rmspe, one.bias, one.coverage, one.half_width]
        print(f"{generation},{one.target},{one.latencies}", *(f"{x:.1f}" for x in errors),
              *(f"{x:.2f}" for x in shares), sep=",", flush=True)  # fmt: skip
        for name in (generation, "all"):
            medians[name].append((one.median, one.coverage, one.half_width))
    for name, each in medians.items():
        median, coverage, half = np.array(each).T
        print(f"{name}: {np.exp(np.log(np.maximum(median, 0.5)).mean()):.1f} % in {len(each)} "
              f"tables, worst {median.max():.0f}; 90 % holds {coverage.mean():.0f}, half-width "
              f"{np.median(half):.0f}")  # fmt: skip


if __name__ == "__main__":
    main()
