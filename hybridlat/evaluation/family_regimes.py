"""Regimes of targets of which only whole networks are recorded, each fitted once for a family.

``unseen``: five folds by architecture. ``unseen_family``: five folds by what architectures are
variants of. ``zero_shot``: nothing of the device is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from hybridlat.errors import InputError
from hybridlat.evaluation.baseline_runs import Judged, Split, Task, evaluate_baselines
from hybridlat.evaluation.cross_fitting import FOLDS, even_folds
from hybridlat.evaluation.families import FamilyRecords, MeasuredRow, Parts
from hybridlat.evaluation.metrics import (
    OWN,
    MethodResult,
    Prediction,
    TargetReport,
    levels,
    noise_floor,
)
from hybridlat.model.baselines import Problem, Sums, Unit
from hybridlat.model.family.calibration import Calibration, calibrate
from hybridlat.model.family.model import FamilyModel, NetworkPrediction, interval_us
from hybridlat.model.family.observations import family_of
from hybridlat.model.family.tasks import label_of
from hybridlat.model.training_problem import FitConfig
from hybridlat.schema.progress import OnMessage
from hybridlat.schema.target import Target

LAYERWISE = "layerwise_learned"
LEAST_ROWS = 10
_GROUPS: dict[str, Callable[[MeasuredRow], str]] = {
    "unseen": lambda row: row.architecture,
    "unseen_family": lambda row: family_of(row.architecture),
}
HELD_OUT = tuple(_GROUPS)
"""Regimes of folds, which other methods can be judged in too."""


@dataclass(frozen=True)
class HeldOut:
    """Predictions of every row by a model that has not seen its group.

    ``calibrations`` are by fold, from the other folds' errors.
    """

    folds: NDArray[np.intp]
    predictions: Sequence[NetworkPrediction]
    calibrations: dict[int, Calibration]


@dataclass
class Regimes:
    """The regimes of one family; what one target had to have fitted serves the next."""

    records: FamilyRecords
    on_message: OnMessage
    _without_device: dict[str, FamilyModel] = field(default_factory=dict)

    @cached_property
    def held_out(self) -> dict[str, HeldOut]:
        """Five folds of each regime that has groups enough to hold some out."""
        known = {regime: self._cross_validated(regime) for regime in HELD_OUT}
        return {regime: one for regime, one in known.items() if one is not None}

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
            MethodResult(regime, OWN, [self.unseen(regime, places, config.confidence)])
            for regime in self.held_out
        ]
        results += self.zero_shot(places, config.confidence)
        tasks = self._tasks(places, config.seed)
        results += [
            replace(result, predict_ms=None)  # our own is not timed either
            for result in evaluate_baselines(
                baselines, tasks, config, lambda text: self.on_message(f"{target}: {text}")
            )
        ]
        rows = [records.rows[i] for i in places]
        return TargetReport(
            target=target,
            data_hash=records.data_hash,
            results=tuple(results),
            noise_floor=noise_floor([row.repeats_us for row in rows]),
            networks=len(rows),
            cells=len({text for row in rows for text, _ in row.cells}),
            calibration={r: levels(partial(self.unseen, r, places)) for r in self.held_out},
            notes=_notes(target, records, results, baselines),
        )

    def places(self, target: Target, networks: Sequence[str] | None = None) -> list[int]:
        """Positions of the rows of ``target`` that are judged; InputError where they are few."""
        own = [
            i for i, row in enumerate(self.records.rows)
            if row.target == target and not row.suspect
            and (networks is None or row.network in networks)
        ]  # fmt: skip
        if len(own) < LEAST_ROWS:
            which = "of those named " if networks is not None else ""
            raise InputError(
                f"of {target} only whole networks are recorded, and {len(own)} {which}that can be "
                f"used: {LEAST_ROWS} are needed to hold some out; measure or import more"
            )
        return own

    def _cross_validated(self, regime: str) -> HeldOut | None:
        records = self.records
        names = [_GROUPS[regime](row) for row in records.rows]
        if len({names[i] for i in np.flatnonzero(records.counted)}) < FOLDS:
            return None
        fold_of = even_folds(names)
        folds = np.array([fold_of[name] for name in names], np.intp)
        predictions = dict[int, NetworkPrediction]()
        numbers = sorted(set(folds.tolist()))
        for number in numbers:
            mine = np.flatnonzero(folds == number).tolist()
            if not (records.counted & (folds != number)).any():
                return None
            self.on_message(
                f"{records.family}, {regime}: law {number + 1} of {FOLDS}, "
                f"without {len(mine)} of {len(folds)} rows"
            )
            model = records.learn(folds != number)
            predictions |= zip(mine, records.predict(model, mine), strict=True)
        each = [predictions[i] for i in range(len(folds))]
        calibrations = {number: self._calibration(folds != number, each) for number in numbers}
        return HeldOut(folds, each, calibrations)

    def _calibration(
        self, places: NDArray[np.bool_], predictions: Sequence[NetworkPrediction]
    ) -> Calibration:
        chosen = np.flatnonzero(places & self.records.counted).tolist()
        rows, each = [self.records.rows[i] for i in chosen], [predictions[i] for i in chosen]
        ratios = [row.latency_us / one.median_us for row, one in zip(rows, each, strict=True)]
        spreads = np.array([one.log_sd for one in each])
        return calibrate(np.log(ratios), spreads, [label_of(row.task) for row in rows])

    def unseen(self, regime: str, places: Sequence[int], confidence: float) -> list[Prediction]:
        """The rows at ``places`` in a regime of folds that there is."""
        of = self.held_out[regime]
        calibrations = [of.calibrations[int(of.folds[i])] for i in places]
        each = [of.predictions[i] for i in places]
        return self._predictions(places, each, calibrations, confidence)

    def zero_shot(self, places: Sequence[int], confidence: float) -> list[MethodResult]:
        """The rows of one target by the law of other devices; none where there are no others."""
        records, rows = self.records, self.records.rows
        device = rows[places[0]].target.device
        outside = np.array([row.target.device != device for row in rows])
        if not (outside & records.counted).any():
            return []
        if device not in self._without_device:
            self.on_message(f"{records.family}, zero_shot: the law without {device}")
            self._without_device[device] = records.learn(outside, with_trees=False)
        model, held_out = self._without_device[device], self.held_out.get("unseen")
        calibration = None
        if held_out is not None:  # of other devices' networks, held out by architecture
            calibration = self._calibration(outside, held_out.predictions)
        each = records.predict(model, places)
        calibrations = [calibration] * len(places)
        return [
            MethodResult(
                "zero_shot", OWN, [self._predictions(places, each, calibrations, confidence)]
            )
        ]

    def _predictions(
        self,
        places: Sequence[int],
        each: Sequence[NetworkPrediction],
        calibrations: Sequence[Calibration | None],
        confidence: float,
    ) -> list[Prediction]:
        """Rows as judged: with the intervals that estimates serve; none where none calibrated."""
        result = []
        for i, one, calibration in zip(places, each, calibrations, strict=True):
            row, interval = self.records.rows[i], None
            if calibration is not None:
                interval = interval_us(calibration, one, row.task, confidence)
            result.append(
                Prediction(row.name, row.latency_us, one.median_us, interval, cells=len(row.cells))
            )
        return result

    def _tasks(self, places: Sequence[int], seed: int) -> dict[Unit, Task]:
        rows = [self.records.rows[i] for i in places]
        truth = np.array([row.latency_us for row in rows])
        names = tuple(row.architecture for row in rows)
        networks = [
            Judged(row.name, row.latency_us, ((i, 1),), len(row.cells))
            for i, row in enumerate(rows)
        ]
        splits = []
        for regime, held_out in self.held_out.items():
            folds = held_out.folds[places]
            for number in np.unique(folds):
                judged = np.flatnonzero(folds == number).tolist()
                splits.append(Split(np.flatnonzero(folds != number), judged, {regime: {}}, seed))
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
    target: Target,
    records: FamilyRecords,
    results: Sequence[MethodResult],
    baselines: Sequence[str],
) -> tuple[str, ...]:
    notes = list(records.missing)
    own = [row for row in records.rows if row.target == target]
    suspect = sum(row.suspect for row in own)
    if suspect:
        notes.append(f"{suspect} of {len(own)} networks are noted as suspect and do not count")
    if not any(result.regime == "zero_shot" for result in results):
        notes.append(
            "zero_shot is not judged: the store has no networks of another device of the family "
            f"{records.family}"
        )
    if LAYERWISE in baselines and not any(result.method == LAYERWISE for result in results):
        notes.append(f"{LAYERWISE} is not judged: the layers of the networks are not recorded")
    return tuple(notes)
