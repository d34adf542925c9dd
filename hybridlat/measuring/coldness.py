"""How cold a cell is inside a network on this machine: found once, before its first cells.

The number of replicas that run in turn was chosen on one machine. On another one networks are
measured whole, and their cells with half as many, as many and twice as many replicas, all shuffled
together; the factor with which sums of cells come closest to their networks is the machine's
``coldness``. It stands in the environment of every record made with it, and is read from there.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hybridlat.engines import registry
from hybridlat.graph.signature import sign
from hybridlat.measuring import target_constants
from hybridlat.measuring.messages import VisitTask
from hybridlat.measuring.process import MeasuringProcess
from hybridlat.measuring.schedule import probe_key, probe_tasks, replicas_for
from hybridlat.measuring.statistics import FLOOR_US, level_us, usual_us
from hybridlat.measuring.target_constants import PROBE_LENGTHS, fit_dispatch_overhead_us
from hybridlat.schema.progress import OnProgress, Progress

if TYPE_CHECKING:
    from hybridlat.engines.base import Backend
    from hybridlat.graph.network import Network
    from hybridlat.schema.target import Target
    from hybridlat.store import Store

FACTORS = (0.5, 1.0, 2.0)
LEAST_NETWORKS = 5
"""Fewer say more of themselves than of the machine: its coldness stays 1."""
_KEY = "coldness"
_VISIT_MS, _NETWORK_VISIT_MS, _NETWORK_VISITS = 10.0, 100.0, 4
_SUM_ERROR = 0.04  # what the sum of a network's cells is off by at the right coldness
_PRIOR_OCTAVES = 0.6  # how far machines are thought to be apart
_GRID = np.linspace(-1.0, 1.0, 33)  # of log2 of the coldness

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """A network to find the coldness with: its cells with how often each occurs."""

    name: str
    network: Network
    cells: tuple[tuple[Network, int], ...]


@dataclass(frozen=True)
class Coldness:
    """What was found. ``errors`` are, for each of ``FACTORS``, sum / whole - 1 of ``networks``."""

    factor: float
    networks: tuple[str, ...] = ()
    errors: tuple[tuple[float, ...], ...] = ()

    def rmspe(self, factor: float) -> float:
        """Of the networks' sums at one of ``FACTORS``, in percent."""
        squares = [error**2 for error in self.errors[FACTORS.index(factor)]]
        return 100 * math.sqrt(statistics.fmean(squares))

    def __str__(self) -> str:
        usual, fewer, more = (f"{self.rmspe(f):.1f} %" for f in (1.0, FACTORS[0], FACTORS[-1]))
        return (
            f"cells are measured with {self.factor:g} times the usual number of replicas: the sums "
            f"of {len(self.networks)} networks are off by {usual} with the usual number, by "
            f"{fewer} with half of it and {more} with twice"
        )


def noted(coldness: float) -> Mapping[str, str]:
    """What a record's environment says of it: nothing where the numbers are the usual ones."""
    return {} if coldness == 1.0 else {_KEY: f"{coldness:.2f}"}


def known_coldness(store: Store, target: Target) -> float:
    """What the target's newest records were measured with; 1 where there are none.

    Records may be of others: what is no number counts as 1, and no factor beyond ``FACTORS``.
    """
    for record in store.recent(target, runs=1, each=12):
        if record.protocol == target_constants.PROTOCOL:
            continue
        try:
            told = float(record.environment.get(_KEY, 1.0))
        except ValueError:
            return 1.0
        return min(max(told, FACTORS[0]), FACTORS[-1]) if math.isfinite(told) else 1.0
    return 1.0


def find_coldness(
    backend: Backend,
    options: Mapping[str, int | str],
    samples: Sequence[Sample],
    budget_s: float,
    progress: OnProgress | None = None,
    seed: int = 0,
) -> Coldness:
    """The coldness of this machine, from as many of ``samples`` as there is time for.

    Visits go network by network, so that what has been visited when the time is up is complete.
    Raises BackendUnavailable where the engine does not start.
    """
    end = time.monotonic() + budget_s
    reports: dict[str, list[tuple[float, float]]] = {}
    done: list[Sample] = []
    began, worker = time.monotonic(), None
    try:
        for place, sample in enumerate(samples):
            # The overhead's probes go with the networks that must be there anyway.
            for task in _tasks(sample, seed + place, probing=place < LEAST_NETWORKS):
                if time.monotonic() > end:
                    break
                worker = worker or MeasuringProcess(registry.place_of(backend), options)
                report = worker.ask(task)
                if report is None:  # it took the process down: the next gets a new one
                    worker.kill()
                    worker = None
                elif report.failure is None and report.samples_us:
                    found = level_us(report.samples_us), report.reference_us
                    reports.setdefault(task.key, []).append(found)
            if time.monotonic() > end:
                break
            done.append(sample)
            if progress is not None:
                passed_s = time.monotonic() - began
                left_s = passed_s / len(done) * (len(samples) - len(done))
                label = "how cold cells are"
                left_s = min(left_s, end - time.monotonic())
                progress(Progress(len(done), len(samples), label, left_s))
    finally:
        if worker is not None:
            worker.stop()
    return judged(done, reports)


def judged(samples: Sequence[Sample], reports: Mapping[str, list[tuple[float, float]]]) -> Coldness:
    """What visits say: (level, reference around it) in µs, by the keys of their tasks."""
    usual = usual_us([reference for found in reports.values() for _, reference in found])

    def median_us(key: str) -> float:
        found = reports.get(key, ())
        return statistics.median(us * usual / ref for us, ref in found) if found else float("nan")

    overhead_us = fit_dispatch_overhead_us(
        {n: [us * usual / ref for us, ref in reports.get(probe_key(n), ())] for n in PROBE_LENGTHS}
    )
    names: list[str] = []
    errors: list[list[float]] = []
    for sample in samples:
        whole_us = median_us(_key(sample.network))
        sums = [
            overhead_us
            + sum(
                count * max(median_us(_key(cell, factor)) - overhead_us, FLOOR_US)
                for cell, count in sample.cells
            )
            for factor in FACTORS
        ]
        shares = [total / whole_us - 1 for total in sums]
        if np.isfinite(shares).all():
            names.append(sample.name)
            errors.append(shares)
    if len(errors) < LEAST_NETWORKS:
        return Coldness(1.0)
    table = np.array(errors)
    return Coldness(best_factor(table), tuple(names), tuple(map(tuple, table.T.tolist())))


def best_factor(errors: Array) -> float:
    """The coldness with the least squared errors, pulled towards 1.

    ``errors`` is networks x ``FACTORS``; between factors an error goes straight over their
    logarithm. Two digits, as records keep it.
    """
    octaves = np.log2(FACTORS)
    curves = np.array([np.interp(_GRID, octaves, row) for row in errors])
    losses = np.square(curves / _SUM_ERROR).sum(axis=0) + np.square(_GRID / _PRIOR_OCTAVES)
    return round(float(2 ** _GRID[int(np.argmin(losses))]), 2)


def _tasks(sample: Sample, seed: int, probing: bool) -> Iterator[VisitTask]:
    """The visits of one network, shuffled; ``probing`` adds those of the dispatch overhead."""
    tasks = [
        VisitTask(_key(cell, factor), cell, True, _VISIT_MS, replicas_for(cell, factor), 1 + seed)
        for cell, _ in sample.cells
        for factor in FACTORS
    ]
    whole = _key(sample.network)
    tasks += [
        VisitTask(whole, sample.network, False, _NETWORK_VISIT_MS, 1, 100 * seed + turn + 1)
        for turn in range(_NETWORK_VISITS)
    ]
    if probing:
        tasks += probe_tasks(seed)
    random.Random(f"coldness {seed}").shuffle(tasks)
    yield from tasks


def _key(network: Network, factor: float | None = None) -> str:
    """Names what is visited: a cell at a factor, or a network whole."""
    what = "network" if factor is None else f"cell at {factor:g}"
    return f"{what}/{sign(network).hash}"
