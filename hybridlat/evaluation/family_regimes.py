"""Regimes of targets of which only whole networks are recorded, each fitted once for a family.

``unseen``: five folds by architecture. ``unseen_family``: five folds by what architectures are
variants of. ``zero_shot``: nothing of the device is known. ``few@K``: of a device left out, K
networks are measured, those that the law chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hybridlat.estimate.compose.composition import CALIBRATED_AT
from hybridlat.evaluation.cross_fitting import FOLDS, even_folds
from hybridlat.evaluation.families import FamilyRecords, MeasuredRow
from hybridlat.evaluation.metrics import (
    OWN,
    ConfidenceLevel,
    MethodResult,
    Prediction,
    levels,
)
from hybridlat.model.family.adapt import adapt, choose
from hybridlat.model.family.dataset import family_of
from hybridlat.model.family.served import Calibration, FamilyModel, calibrate, relative_point
from hybridlat.schema.progress import OnMessage

Array = NDArray[np.float64]
FEW = (5, 10, 30)
_GROUPS: dict[str, Callable[[MeasuredRow], str]] = {
    "unseen": lambda row: row.architecture,
    "unseen_family": lambda row: family_of(row.architecture),
}
HELD_OUT = tuple(_GROUPS)
"""Regimes of folds, which other methods can be judged in too."""


@dataclass(frozen=True)
class HeldOut:
    """Predictions of every row by a model that has not seen its group.

    ``medians_us`` are the centres of the intervals, ``spreads`` standard deviations of their
    logarithms; ``seen`` is how many networks of each row's task its law has learned from;
    ``calibrations`` are by fold, from the other folds' errors.
    """

    folds: NDArray[np.intp]
    medians_us: Array
    spreads: Array
    seen: Array
    calibrations: dict[int, Calibration]


@dataclass
class Regimes:
    """The regimes of one family; what one target had to have fitted serves the next."""

    records: FamilyRecords
    on_message: OnMessage
    _held_out: dict[str, HeldOut | None] = field(default_factory=dict)
    _without_device: dict[str, FamilyModel | None] = field(default_factory=dict)

    def held_out(self, regime: str) -> HeldOut | None:
        """Five folds of a regime; None where there are too few groups to hold any out."""
        if regime not in self._held_out:
            self._held_out[regime] = self._cross_validated(regime)
        return self._held_out[regime]

    def _cross_validated(self, regime: str) -> HeldOut | None:
        records = self.records
        names = [_GROUPS[regime](row) for row in records.rows]
        if len({names[i] for i in np.flatnonzero(records.counted)}) < FOLDS:
            return None
        fold_of = even_folds(names)
        folds = np.array([fold_of[name] for name in names], np.intp)
        medians, spreads, seen = np.ones(len(folds)), np.ones(len(folds)), np.zeros(len(folds))
        numbers = sorted(set(folds.tolist()))
        for number in numbers:
            mine = np.flatnonzero(folds == number)
            self.on_message(
                f"{records.family}, {regime}: law {number + 1} of {FOLDS}, "
                f"without {len(mine)} of {len(folds)} rows"
            )
            model = records.learn(folds != number)
            if model is None:
                return None
            medians[mine], spreads[mine] = records.predict(model, mine.tolist())
            seen[mine] = [model.seen_of(records.rows[i].task) for i in mine]
        calibrations = {
            number: self._calibration(folds != number, medians, spreads) for number in numbers
        }
        return HeldOut(folds, medians, spreads, seen, calibrations)

    def _calibration(
        self, places: NDArray[np.bool_], medians_us: Array, spreads: Array
    ) -> Calibration:
        """Intervals from the errors of held-out rows at these places."""
        chosen = np.flatnonzero(places & self.records.counted)
        errors = self.records.data.log_us - np.log(medians_us)
        tasks = [str(self.records.rows[i].task) for i in chosen]
        return calibrate(errors[chosen], spreads[chosen], tasks)

    def unseen(
        self, regime: str, places: Sequence[int], confidence: float
    ) -> tuple[MethodResult, tuple[ConfidenceLevel, ...]] | None:
        """A regime of folds on the rows at ``places``, with what intervals hold."""
        held_out = self.held_out(regime)
        if held_out is None:
            return None
        points = held_out.medians_us * relative_point(held_out.spreads, held_out.seen)

        def predictions_at(level: float) -> list[Prediction]:
            return [
                _prediction(
                    self.records.rows[i], held_out.medians_us[i], held_out.spreads[i],
                    held_out.calibrations[int(held_out.folds[i])], level, points[i],
                )
                for i in places
            ]  # fmt: skip

        result = MethodResult(regime, OWN, tuple(predictions_at(confidence)))
        return result, levels({level: predictions_at(level) for level in CALIBRATED_AT})

    def across_devices(self, places: Sequence[int], confidence: float) -> list[MethodResult]:
        """``zero_shot`` and ``few@K`` on the rows of one target; none without other devices."""
        rows = self.records.rows
        device = rows[places[0]].target.device
        model = self._without(device)
        if model is None:
            return []
        calibration = self._of_others(device)
        medians, spreads = self.records.predict(model, places)
        zero_shot = [
            _prediction(rows[i], us, spread, calibration, confidence)
            for i, us, spread in zip(places, medians, spreads, strict=True)
        ]
        results = [MethodResult("zero_shot", OWN, tuple(zero_shot))]
        by_task = [
            [i for i in places if rows[i].task == task]
            for task in sorted({rows[i].task for i in places})
        ]
        for count in FEW:
            # Layouts are laws of their own: of each, so many networks are measured.
            tasks = [own for own in by_task if len(own) >= 2 * count]
            if tasks:
                few = [
                    prediction
                    for own in tasks
                    for prediction in self._few_shot(model, calibration, confidence, own, count)
                ]
                results.append(MethodResult(f"few@{count}", OWN, tuple(few)))
        return results

    def _few_shot(
        self,
        model: FamilyModel,
        calibration: Calibration | None,
        confidence: float,
        places: Sequence[int],
        count: int,
    ) -> Iterator[Prediction]:
        """Networks of other architectures than those that are best measured first."""
        records, rows = self.records, self.records.rows
        task = rows[places[0]].task
        picked = choose(model, task, [records.kernels(i) for i in places], count)
        measured = [places[i] for i in picked]
        known = {rows[i].architecture for i in measured}
        adapted = adapt(model, task, [(records.kernels(i), rows[i].latency_us) for i in measured])
        for i in places:
            if rows[i].architecture not in known:
                logarithm, spread = adapted.log_latency(records.kernels(i), records.points(i))
                median_us = float(np.exp(logarithm))
                yield _prediction(rows[i], median_us, spread, calibration, confidence)

    def _without(self, device: str) -> FamilyModel | None:
        """The law of all other devices; None where the store knows no other."""
        if device not in self._without_device:
            outside = np.array([row.target.device != device for row in self.records.rows])
            if (outside & self.records.counted).any():
                self.on_message(f"{self.records.family}, zero_shot: the law without {device}")
            self._without_device[device] = self.records.learn(outside)
        return self._without_device[device]

    def _of_others(self, device: str) -> Calibration | None:
        """Intervals calibrated on other devices' networks, held out by architecture."""
        held_out = self.held_out("unseen")
        others = np.array([row.target.device != device for row in self.records.rows])
        if held_out is None or not (others & self.records.counted).any():
            return None
        return self._calibration(others, held_out.medians_us, held_out.spreads)


def _prediction(
    row: MeasuredRow,
    median_us: float,
    spread: float,
    calibration: Calibration | None,
    confidence: float,
    point_us: float | None = None,
) -> Prediction:
    """The interval lies around the median, of its logarithm."""
    interval = None
    if calibration is not None:
        factor = float(np.exp(calibration.half_width(spread, str(row.task), confidence)))
        interval = (float(median_us) / factor, float(median_us) * factor)
    point_us = median_us if point_us is None else point_us
    return Prediction(row.name, row.latency_us, float(point_us), interval, cells=len(row.cells))
