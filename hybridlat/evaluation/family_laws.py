"""Laws of a family that have not seen what they answer for, and the intervals they give.

By folds of networks, twins in one fold, drawn once or several times; and with a device left out.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hybridlat.evaluation.cross_fitting import FOLDS
from hybridlat.evaluation.families import FamilyRecords, MeasuredRow
from hybridlat.evaluation.metrics import Prediction
from hybridlat.evaluation.twins import TWIN_SHARE, SharedKernels, dealt, plain_name, united
from hybridlat.model.conformal import ELSEWHERE, Calibration, calibrate
from hybridlat.model.family.model import FamilyModel, NetworkPrediction, interval_us
from hybridlat.model.family.observations import family_of
from hybridlat.model.family.tasks import label_of
from hybridlat.model.geometry import Array
from hybridlat.schema.workers import OnMessage

ROWS_EACH, TIMES_EACH = 40, 10
"""Of a table, for the intervals on other devices: each table counts alike, but no row more than ten
times. A single row would be all of the last per cent."""
_GROUPS: dict[str, tuple[Callable[[str], str], float]] = {
    "unseen": (plain_name, 0.1),
    "unseen_family": (family_of, 1 / FOLDS),
}
"""By regime: what belongs together by its name, and the share of all architectures that one group
may hold once twins join it: a tenth, or a fold."""
HELD_OUT = tuple(_GROUPS)
"""Regimes of folds, which other methods can be judged in too."""
Fold = tuple[str, int, int]
"""A regime, a draw of its folds, and one of them."""
Answers = Sequence[NetworkPrediction | None]
"""What laws predict of rows; None where there is none that may."""


@dataclass(frozen=True)
class HeldOut:
    """Answers for every row by laws without its fold, of one draw of folds.

    ``calibrations`` are by fold, from the errors of the others.
    """

    folds: NDArray[np.intp]
    answers: Answers
    calibrations: dict[int, Calibration]


def interval(
    row: MeasuredRow,
    answer: NetworkPrediction | None,
    calibration: Calibration | None,
    confidence: float,
) -> Prediction:
    """A row beside its truth, with the interval that estimates serve; none without calibration.

    Every error, coverage and width is computed from this.
    """
    bounds = None
    if answer is not None and calibration is not None:
        bounds = interval_us(calibration, answer, row.task, confidence)
    median_us = math.nan if answer is None else answer.median_us
    return Prediction(row.name, row.latency_us, median_us, bounds, cells=len(row.cells))


@dataclass
class HeldOutLaws:
    """The laws of one family, each fitted once; what one target needs serves the next.

    Folds are drawn ``draws`` times, by ``seed``. ``each`` is ``map``, or maps in processes.
    """

    records: FamilyRecords
    on_message: OnMessage
    draws: int = 1
    seed: int = 0
    each: Callable[[Callable[[Fold], Answers], Sequence[Fold]], Iterable[Answers]] = map
    _without: dict[str, FamilyModel | None] = field(default_factory=dict)

    @cached_property
    def kernels(self) -> SharedKernels:
        return SharedKernels(self.records.observations)

    @cached_property
    def groups(self) -> dict[str, dict[str, str]]:
        """By regime: the group of each architecture, all of which is held out together."""
        names, twins = sorted({row.architecture for row in self.records.rows}), self.kernels.twins()
        return {
            regime: united({n: of(n) for n in names}, twins, max(2, int(share * len(names))))
            for regime, (of, share) in _GROUPS.items()
        }

    @cached_property
    def folds(self) -> dict[str, list[NDArray[np.intp]]]:
        """The fold of every row, by regime and draw, where there are groups enough to hold out."""
        names, counted = [row.architecture for row in self.records.rows], self.records.counted
        drawn = {}
        for regime, groups in self.groups.items():
            if len({groups[names[i]] for i in np.flatnonzero(counted)}) >= FOLDS:
                places = [dealt(groups, (self.seed, draw)) for draw in range(self.draws)]
                drawn[regime] = [np.array([of[n] for n in names], np.intp) for of in places]
        return drawn

    @cached_property
    def held_out(self) -> dict[str, list[HeldOut]]:
        drawn = [(r, n, folds) for r, each in self.folds.items() for n, folds in enumerate(each)]
        jobs = [(r, n, int(number)) for r, n, folds in drawn for number in np.unique(folds)]
        answers = iter([*self.each(self._fold, jobs)])
        made: dict[str, list[HeldOut]] = {regime: [] for regime in self.folds}
        for regime, _, folds in drawn:
            of_rows, numbers = np.full(len(folds), None), np.unique(folds).tolist()
            for number in numbers:
                of_rows[folds == number] = next(answers)
            each_row = of_rows.tolist()
            calibrations = {n: self.calibration(folds != n, each_row) for n in numbers}
            made[regime].append(HeldOut(folds, each_row, calibrations))
        return made

    def _fold(self, job: Fold) -> Answers:
        regime, draw, number = job
        folds = self.folds[regime][draw]
        mine = np.flatnonzero(folds == number).tolist()
        of = f", draw {draw + 1} of {self.draws}" if self.draws > 1 else ""
        self.on_message(
            f"{self.records.family}, {regime}{of}: law {number + 1} of {FOLDS}, "
            f"without {len(mine)} of {len(folds)} rows"
        )
        return self.records.predict(self.records.learn(folds != number), mine)

    def without(self, device: str) -> FamilyModel | None:
        """The law of all other devices; None where there are none."""
        if device not in self._without:
            outside, law = np.array([r.target.device != device for r in self.records.rows]), None
            if (outside & self.records.counted).any():
                self.on_message(f"{self.records.family}, zero_shot: the law without {device}")
                law = self.records.learn(outside, with_trees=False)
            self._without[device] = law
        return self._without[device]

    @cached_property
    def left_out(self) -> Answers:
        """What the laws without its device answer for every row."""
        devices = np.array([row.target.device for row in self.records.rows])
        answers = np.full(len(devices), None)
        for device in np.unique(devices).tolist():
            mine, law = np.flatnonzero(devices == device).tolist(), self.without(device)
            if law is not None:
                answers[mine] = self.records.predict(law, mine)
        return list(answers)

    def errors(self, answers: Answers) -> Array:
        """(log-errors, standard deviations) of every row; NaN where there is no answer."""
        pairs = np.full((2, len(answers)), math.nan)
        for i, (row, one) in enumerate(zip(self.records.rows, answers, strict=True)):
            if one is not None:
                pairs[:, i] = math.log(row.latency_us / one.median_us), one.log_sd
        return pairs

    def calibration(self, known: NDArray[np.bool_], held_out: Answers) -> Calibration:
        """Intervals as they are served, by the errors of ``known`` rows.

        Those of learned tasks go by networks held out, elsewhere by devices left out, each table
        alike; where no device was, by the networks too.
        """
        rows, known = self.records.rows, known & self.records.counted
        labels = np.array([label_of(row.task) for row in rows])
        errors, own_spreads = self.errors(held_out)
        own = calibrate(errors[known], own_spreads[known], labels[known].tolist())
        (elsewhere, spreads), chosen = self.errors(self.left_out), list[int]()
        for label in np.unique(labels[known]):
            mine = np.flatnonzero(known & (labels == label) & np.isfinite(elsewhere))
            ordered = mine[np.argsort(np.abs(elsewhere[mine]) / spreads[mine], kind="stable")]
            count = min(ROWS_EACH, TIMES_EACH * len(ordered))
            places = np.linspace(0, len(ordered) - 1, count).round().astype(int)
            chosen += ordered[places].tolist() if len(mine) else []
        if not chosen:
            return own
        others = calibrate(elsewhere[chosen], spreads[chosen], [ELSEWHERE] * len(chosen))
        return replace(own, pooled=others.pooled, spreads=own.spreads | others.spreads)

    def unseen(
        self, regime: str, places: Sequence[int], confidence: float
    ) -> list[list[Prediction]]:
        """The rows at ``places`` in every draw of a regime of folds that there is."""

        def shown(of: HeldOut, place: int) -> Prediction:
            calibration = of.calibrations[int(of.folds[place])]
            return interval(self.records.rows[place], of.answers[place], calibration, confidence)

        return [[shown(of, place) for place in places] for of in self.held_out[regime]]

    def held_share(self, regime: str, places: Sequence[int]) -> float:
        """The part of rows with over 90 % of their time in kernels that training held, by draw."""
        shares = []
        for folds in self.folds.get(regime, ()):
            held = np.zeros(len(folds))
            for number in np.unique(folds[places]):
                mine = folds == number
                held[mine] = self.kernels.held(~mine & self.records.counted)[mine]
            shares.append(float(np.mean(held[places] > TWIN_SHARE)))
        return statistics.fmean(shares) if shares else 0.0
