"""One target of which only whole networks are recorded, judged beside baselines that learn sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hybridlat.errors import InputError
from hybridlat.evaluation.confidence_levels import ConfidenceLevel
from hybridlat.evaluation.metrics import Prediction, noise
from hybridlat.evaluation.results import MethodResult, TargetReport
from hybridlat.evaluation.whole_network_level import Families, FamilyRecords, MeasuredRow
from hybridlat.evaluation.whole_network_regimes import HELD_OUT, Regimes
from hybridlat.model.baselines.sums import BASELINES, LAYERWISE, Networks
from hybridlat.model.family.kernels import KernelTable, table_of_texts
from hybridlat.model.training_problem import FitConfig
from hybridlat.schema.progress import OnMessage
from hybridlat.schema.target import Target

LEAST_ROWS = 10


@dataclass
class WholeNetworks:
    """Judges such targets; what is fitted for one serves all of its family in the same call."""

    families: Families
    on_message: OnMessage
    _regimes: dict[int, Regimes] = field(default_factory=dict)

    def evaluate(
        self,
        target: Target,
        config: FitConfig,
        baselines: Sequence[str],
        networks: Sequence[str] | None = None,
        draws: int = 3,
    ) -> TargetReport:
        """All regimes of ``target``; ``networks`` restricts what is judged, not what teaches.

        ``draws`` is how many random choices ``random_choice`` is the mean of. InputError where
        there are too few networks.
        """
        records = self.families.of(target)
        places = _places(target, records, networks)
        regimes = self._regimes.setdefault(id(records), Regimes(records, self.on_message))
        results: list[MethodResult] = []
        calibration: dict[str, Sequence[ConfidenceLevel]] = {}
        for regime in HELD_OUT:
            unseen = regimes.unseen(regime, places, config.confidence)
            if unseen is not None:
                results.append(unseen[0])
                calibration[regime] = unseen[1]
        results += regimes.across_devices(places, config.confidence, draws, config.seed)
        self.on_message(f"{target}: fitting baselines")
        for regime in HELD_OUT:
            held_out = regimes.held_out(regime)
            if held_out is not None:
                results += _baselines(records, places, held_out.folds, regime, config, baselines)
        own = [i for i, row in enumerate(records.rows) if row.target == target]
        rows = [records.rows[i] for i in places]
        floor, within = noise([row.repeats_us for row in rows])
        return TargetReport(
            target=target,
            data_hash=records.data_hash,
            results=tuple(results),
            noise_floor=floor,
            noise_within_5=within,
            networks=len(rows),
            cells=len({text for row in rows for text, _ in row.record.cells}),
            calibration=calibration,
            notes=_notes(records, own, results, baselines),
        )


def _places(target: Target, records: FamilyRecords, networks: Sequence[str] | None) -> list[int]:
    """Positions of the rows of the target that are judged."""
    own = [
        i for i, row in enumerate(records.rows)
        if row.target == target and not row.suspect
        and (networks is None or row.record.name in networks)
    ]  # fmt: skip
    if len(own) < LEAST_ROWS:
        which = "of those named " if networks is not None else ""
        raise InputError(
            f"of {target} only whole networks are recorded, and {len(own)} {which}that can be "
            f"used: {LEAST_ROWS} are needed to hold some out"
        )
    return own


def _baselines(
    records: FamilyRecords,
    places: Sequence[int],
    folds: NDArray[np.intp],
    regime: str,
    config: FitConfig,
    names: Sequence[str],
) -> list[MethodResult]:
    """The other methods on the same folds, each learning from the target's own networks."""
    rows = [records.rows[i] for i in places]
    truth = np.array([row.latency_us for row in rows])
    stacked: dict[bool, Networks | None] = {}
    results = []
    for name in names:
        layered = name == LAYERWISE
        if layered not in stacked:
            stacked[layered] = _networks(rows, layered, config)
        nets = stacked[layered]
        if nets is None:
            continue
        predicted_us = np.full(len(rows), np.nan)
        for one in sorted(set(folds[places].tolist())):
            out = folds[places] == one
            if (~out).any():
                predicted_us[out] = BASELINES[name](nets, truth, ~out)[out]
        predictions = tuple(
            Prediction(row.name, row.latency_us, float(us), cells=len(row.record.cells))
            for row, us in zip(rows, predicted_us, strict=True)
        )
        results.append(MethodResult(regime, name, predictions))
    return results


def _networks(rows: Sequence[MeasuredRow], layered: bool, config: FitConfig) -> Networks | None:
    """The networks of one target, fused or layer by layer; None where layers are not recorded."""
    tables: list[KernelTable] = []
    for row in rows:
        parts = row.record.layers if layered else row.record.cells
        if not parts:
            return None
        texts, counts = zip(*parts, strict=True)
        tables.append(table_of_texts(texts, counts, row.record.copied_bytes))
    return Networks(tables, config.device, config.precision)


def _notes(
    records: FamilyRecords,
    own: Sequence[int],
    results: Sequence[MethodResult],
    baselines: Sequence[str],
) -> tuple[str, ...]:
    notes = list(records.missing)
    suspect = sum(records.rows[i].suspect for i in own)
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
