"""Regimes of targets of which only whole networks are recorded, each fitted once for a family.

``unseen``: five folds of architectures, twins in one fold. ``unseen_family``: five folds of what
architectures are variants of. ``zero_shot``: nothing of the device is known. Figures of folds are
means over draws of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np

from hybridlat.errors import InputError
from hybridlat.evaluation.baseline_runs import Judged, Split, Task, evaluate_baselines
from hybridlat.evaluation.families import Parts
from hybridlat.evaluation.family_laws import HeldOutLaws, interval
from hybridlat.evaluation.metrics import (
    OWN,
    MethodResult,
    Prediction,
    TargetReport,
    levels,
    noise_floor,
)
from hybridlat.evaluation.twins import TWIN_SHARE
from hybridlat.model.baselines import Problem, Sums, Unit
from hybridlat.model.fit import FitConfig
from hybridlat.schema.target import Target

LEAST_ROWS = 10


class Regimes(HeldOutLaws):
    """The regimes of one family's targets."""

    def evaluate(
        self,
        target: Target,
        config: FitConfig,
        baselines: Sequence[str],
        networks: Sequence[str] | None = None,
    ) -> TargetReport:
        """All regimes of ``target``; ``networks`` restricts what is judged, not what teaches.

        InputError where there are too few networks.
        """
        records = self.records
        places = self.places(target, networks)
        results = [
            MethodResult(regime, OWN, self.unseen(regime, places, config.confidence))
            for regime in self.held_out
        ]
        results += self.zero_shot(places, config.confidence)
        tasks = self._tasks(places, config.seed)
        others = evaluate_baselines(target, baselines, tasks, config, self.on_message)
        results += [replace(result, predict_ms=None) for result in others]  # nor is ours timed
        rows = [records.rows[i] for i in places]
        return TargetReport(
            target=target,
            data_hash=records.data_hash,
            results=tuple(results),
            noise_floor=noise_floor([row.repeats_us for row in rows]),
            networks=len(rows),
            cells=len({text for row in rows for text, _ in row.cells}),
            calibration={r: levels(partial(self._of_all_draws, r, places)) for r in self.held_out},
            notes=tuple(self._notes(target, places, results)),
        )

    def places(self, target: Target, networks: Sequence[str] | None = None) -> list[int]:
        """Positions of the rows of ``target`` that are judged; InputError where they are few."""
        rows, counted = self.records.rows, np.flatnonzero(self.records.counted).tolist()
        of_target = [i for i in counted if rows[i].target == target]
        own = [i for i in of_target if networks is None or rows[i].network in networks]
        if len(own) < LEAST_ROWS:
            which = "of those named " if networks is not None else ""
            raise InputError(
                f"of {target} only whole networks are recorded, and {len(own)} {which}that can be "
                f"used: {LEAST_ROWS} are needed to hold some out; measure or import more"
            )
        return own

    def _of_all_draws(
        self, regime: str, places: Sequence[int], confidence: float
    ) -> list[Prediction]:
        return list(chain(*self.unseen(regime, places, confidence)))

    def zero_shot(self, places: Sequence[int], confidence: float) -> list[MethodResult]:
        """The rows of one target by the law of other devices; none where there are no others."""
        rows = self.records.rows
        device = rows[places[0]].target.device
        if self.without(device) is None:
            return []
        calibration = None
        if "unseen" in self.held_out:
            outside = np.array([row.target.device != device for row in rows])
            calibration = self.calibration(outside, self.held_out["unseen"][0].answers)
        predictions = [interval(rows[i], self.foretold[i], calibration, confidence) for i in places]
        return [MethodResult("zero_shot", OWN, [predictions])]

    def _tasks(self, places: Sequence[int], seed: int) -> dict[Unit, Task]:
        rows = [self.records.rows[i] for i in places]
        truth = np.array([row.latency_us for row in rows])
        names = tuple(row.architecture for row in rows)
        networks = [
            Judged(row.name, row.latency_us, ((i, 1),), len(row.cells))
            for i, row in enumerate(rows)
        ]
        splits = []
        for regime, drawn in self.folds.items():
            for draw, folds in enumerate(of[places] for of in drawn):
                for number in np.unique(folds):
                    known, judged = np.flatnonzero(folds != number), np.flatnonzero(folds == number)
                    splits.append(Split(known, judged.tolist(), {regime: {}}, seed, draw))
        tasks: dict[Unit, Task] = {}
        units: dict[Unit, list[Parts]] = {
            "network": [row.cells for row in rows],
            "layered network": [row.layers for row in rows],
        }
        for unit, parts in units.items():
            if all(parts):
                tables = [row.table(own) for own, row in zip(parts, rows, strict=True)]
                problem = Problem(Sums.of_networks(tables), truth, names)
                tasks[unit] = Task(problem, np.zeros(len(rows)), networks, splits)
        return tasks

    def _notes(
        self, target: Target, places: Sequence[int], results: Sequence[MethodResult]
    ) -> Iterator[str]:
        records = self.records
        yield from records.missing
        own = [row for row in records.rows if row.target == target]
        suspect, learned = sum(row.suspect for row in own), int(records.counted.sum())
        if suspect:
            yield f"{suspect} of {len(own)} networks are noted as suspect and do not count"
        if learned > len(places):
            yield (
                f"other methods learn from the {len(places)} latencies of {target}, hybridlat from "
                f"all {learned} of its family, each without the fold that is judged"
            )
        if self.folds:
            drawn = "one draw" if self.draws == 1 else f"{self.draws} draws"
            apart = Counter(self.groups["unseen"].values())
            yield (
                f"folds are of {drawn}, with {sum(n for n in apart.values() if n > 1)} twins kept "
                f"together; {self.held_share('unseen', places):.0%} of the networks still spend "
                f"over {TWIN_SHARE:.0%} of their time in kernels that training has seen"
            )
        if not any(result.regime == "zero_shot" for result in results):
            yield (
                "zero_shot is not judged: the store has no networks of another device of the "
                f"family {records.family}"
            )
