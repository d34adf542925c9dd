"""Judges targets of which only whole networks are recorded, with their kin of one engine family."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from hybridlat.errors import InputError
from hybridlat.evaluation.baseline_runs import Judged, Split, Task, evaluate_baselines
from hybridlat.evaluation.dataset import RecordSource
from hybridlat.evaluation.families import FamilyRecords, Parts, family_records
from hybridlat.evaluation.family_regimes import HELD_OUT, Regimes
from hybridlat.evaluation.metrics import ConfidenceLevel, MethodResult, TargetReport, noise_floor
from hybridlat.model.baselines import Problem, Sums, Unit
from hybridlat.model.family.shipped import family_name
from hybridlat.model.training_problem import FitConfig
from hybridlat.schema.device import Device
from hybridlat.schema.progress import OnMessage
from hybridlat.schema.target import Target

LAYERWISE = "layerwise_learned"
LEAST_ROWS = 10


@dataclass
class WholeNetworks:
    """Judges such targets beside their kin; what is fitted for one serves all of its family."""

    kin: Sequence[Target]
    sources_of: Callable[[Target], Sequence[RecordSource]]
    device: Device | None
    on_message: OnMessage
    _by_family: dict[str, Regimes] = field(default_factory=dict)

    def regimes(self, target: Target) -> Regimes:
        """The regimes of a target's family; InputError as ``family_records``."""
        family = family_name(target.engine) or ""
        known = self._by_family.get(family)
        if known is None or not any(row.target == target for row in known.records.rows):
            records = family_records(target, self.kin, self.sources_of, self.device)
            known = self._by_family[family] = Regimes(records, self.on_message)
        return known

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
        regimes = self.regimes(target)
        records = regimes.records
        places = _places(target, records, networks)
        results: list[MethodResult] = []
        calibration: dict[str, Sequence[ConfidenceLevel]] = {}
        for regime in HELD_OUT:
            unseen = regimes.unseen(regime, places, config.confidence)
            if unseen is not None:
                results.append(unseen[0])
                calibration[regime] = unseen[1]
        results += regimes.across_devices(places, config.confidence)
        self.on_message(f"{target}: fitting baselines")
        results += [
            dataclasses.replace(result, predict_ms=None)  # our own is not timed either
            for result in evaluate_baselines(
                baselines, _tasks(regimes, places, config.seed), config
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
            calibration=calibration,
            notes=_notes(target, records, results, baselines),
        )


def _places(target: Target, records: FamilyRecords, networks: Sequence[str] | None) -> list[int]:
    """Positions of the rows of the target that are judged."""
    own = [
        i for i, row in enumerate(records.rows)
        if row.target == target and not row.suspect
        and (networks is None or row.network in networks)
    ]  # fmt: skip
    if len(own) < LEAST_ROWS:
        which = "of those named " if networks is not None else ""
        raise InputError(
            f"of {target} only whole networks are recorded, and {len(own)} {which}that can be "
            f"used: {LEAST_ROWS} are needed to hold some out"
        )
    return own


def _tasks(regimes: Regimes, places: Sequence[int], seed: int) -> dict[Unit, Task]:
    """The baselines on the same folds, each learning from the target's own networks."""
    rows = [regimes.records.rows[i] for i in places]
    truth = np.array([row.latency_us for row in rows])
    names = tuple(row.architecture for row in rows)
    networks = [
        Judged(row.name, row.latency_us, ((i, 1),), len(row.cells)) for i, row in enumerate(rows)
    ]
    splits = []
    for regime in HELD_OUT:
        held_out = regimes.held_out(regime)
        folds = np.zeros(0) if held_out is None else held_out.folds[places]
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
            "zero_shot and few@K are not judged: the store has no networks of another device of "
            f"the family {records.family}"
        )
    if LAYERWISE in baselines and not any(result.method == LAYERWISE for result in results):
        notes.append(f"{LAYERWISE} is not judged: the layers of the networks are not recorded")
    return tuple(notes)
