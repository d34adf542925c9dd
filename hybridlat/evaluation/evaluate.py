"""Judge predictions on held-out networks: per target, every regime, ours and every baseline.

Targets with whole networks are judged in the three regimes, each network once, held out by name in
five folds. Targets without (a public data set of cells) are judged per cell. Everything is kept as
nested MLflow runs: one for the call, one per target, one per method.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hybridlat.errors import InputError
from hybridlat.evaluation import leaderboard, tracking
from hybridlat.evaluation.cell_level import judge_cells
from hybridlat.evaluation.cross_fitting import Setting, device_of
from hybridlat.evaluation.dataset import Records, Source, load
from hybridlat.evaluation.figures import figures
from hybridlat.evaluation.network_level import judge_networks
from hybridlat.evaluation.results import Row, TargetReport
from hybridlat.evaluation.splits import FOLDS
from hybridlat.model import baselines as all_baselines
from hybridlat.schema.device import Device
from hybridlat.schema.target import Target
from hybridlat.store import Store, packs

LEAST_NETWORKS = 2 * FOLDS
_REGIME = re.compile(
    r"measured|unseen|unseen_cells|gated@[0-9.]+%|gated_cells@[0-9.]+%|cells@[0-9]+"
)
_REGIMES = (
    "measured, unseen, gated@T (T as in --tolerance, for example gated@5%), unseen_cells, "
    "gated_cells@S (5%, 10%, 20% or 30%), and cells@N where only cells are recorded"
)
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Evaluation:
    """The rows of all targets, in order, and what is behind them."""

    rows: tuple[Row, ...]
    reports: tuple[TargetReport, ...]

    def to_json(self) -> list[dict[str, object]]:
        """The list that ``evaluate --json`` prints."""
        return [row.to_json() for row in self.rows]

    def markdown(self) -> str:
        """The leaderboard as Markdown."""
        return leaderboard.markdown(self.rows)


def evaluate_targets(
    targets: Sequence[str | Target] = (),
    *,
    store: str | None = None,
    packs_folder: Path | None = None,
    regimes: Sequence[str] = (),
    tolerances: Sequence[float] = (0.05,),
    baselines: Sequence[str] | None = None,
    networks: Iterable[str] | None = None,
    where: Mapping[str, str] | None = None,
    device: Device | None = None,
    seed: int = 0,
    confidence: float = 0.9,
    trials: int = 3,
    track: bool = True,
    tell: Tell | None = None,
) -> Evaluation:
    """Judge ``targets`` (none: every target that the store or the shipped packs have cells of).

    ``regimes`` keeps only rows of those regimes; ``baselines`` None means all there are;
    ``networks`` restricts the judged networks to these names; ``where`` restricts cells (see
    records.load); ``device`` overrides the data sheet; ``trials`` is how many random draws figures
    per cell are the mean of. Deterministic but for ``predict_ms``.
    Raises InputError where there is nothing to judge.
    """
    say = tell or _silent
    names = all_baselines.names() if baselines is None else tuple(baselines)
    for name in names:
        all_baselines.load(name)
    for regime in regimes:
        if not _REGIME.fullmatch(regime):
            raise InputError(f"{regime!r} is not a regime: choose one of {_REGIMES}")
    with Store(store) as opened:
        chosen = [Target.parse(t) if isinstance(t, str) else t for t in targets]
        chosen = chosen or known_targets(opened, packs_folder)
        tracker = tracking.open_tracker(opened.url) if track else tracking.Tracker()
        rows: list[Row] = []
        reports: list[TargetReport] = []
        with tracker.run("evaluate") as whole:
            for target in chosen:
                records = load(target, sources_of(target, opened, packs_folder), where)
                records = _restricted(records, networks)
                setting = Setting(device or device_of(target, opened), target.precision, seed,
                                  confidence=confidence)  # fmt: skip
                report = judge(records, setting, tolerances, names, say, trials)
                reports.append(report)
                rows += _keep(report, setting, whole, where or {}, regimes)
            if rows:
                whole.text("leaderboard.md", leaderboard.markdown(rows))
    if not rows:
        there = dict.fromkeys(j.regime for report in reports for j in report.judgements)
        raise InputError(f"no target has the regime {', '.join(regimes)}: there is {_list(there)}")
    return Evaluation(tuple(rows), tuple(reports))


def judge(
    records: Records,
    setting: Setting,
    tolerances: Sequence[float],
    names: Sequence[str],
    tell: Tell,
    trials: int = 3,
) -> TargetReport:
    """One target: per network where at least ten were measured whole, else per cell."""
    count = len(records.complete_networks)
    if count >= LEAST_NETWORKS:
        return judge_networks(records, setting, tolerances, names, tell)
    if count:
        tell(f"{records.target}: {count} whole networks are too few to hold out, judged per cell")
    return judge_cells(records, setting, names, tell, range(trials))


def known_targets(store: Store, packs_folder: Path | None = None) -> list[Target]:
    """Targets with cells in the store or in packs; InputError where there are none."""
    found = {s.target for s in store.stats() if s.cells}
    found |= {pack.target for pack in packs.shipped_packs(packs_folder)}
    if not found:
        raise InputError(
            "there is nothing to judge: the store is empty and no packs are shipped; "
            "measure a network, import a pack or onboard a target first"
        )
    return sorted(found, key=str)


def sources_of(target: Target, store: Store, packs_folder: Path | None = None) -> list[Source]:
    """Where records of the target may lie: the store, then its packs."""
    return [store, *packs.packs_for(target, packs_folder)]


def _restricted(records: Records, networks: Iterable[str] | None) -> Records:
    if networks is None:
        return records
    wanted = set(networks)
    chosen = tuple(n for n in records.networks if n.name in wanted)
    if not chosen:
        known = ", ".join(sorted(n.name for n in records.networks)[:8]) or "none"
        raise InputError(
            f"none of the {len(wanted)} networks was measured whole on {records.target}: "
            f"known are {known}"
        )
    return dataclasses.replace(records, networks=chosen)


def _keep(
    report: TargetReport,
    setting: Setting,
    whole: tracking.Run,
    where: Mapping[str, str],
    regimes: Sequence[str],
) -> list[Row]:
    parameters = {
        "target": report.target,
        "git_commit": tracking.git_commit() or "unknown",
        "data_hash": report.data_hash,
        "seed": setting.seed,
        "confidence": setting.confidence,
        "networks": report.networks,
        "cells": report.cells,
        "protocol": f"{FOLDS} folds by network" if report.networks else "random rows, three seeds",
        "device": setting.device.title or setting.device.name,
        "python": sys.version.split()[0],
        **{f"where_{name}": value for name, value in where.items()},
    }
    kept: list[Row] = []
    with whole.nested(str(report.target)) as run:
        run.parameters(parameters)
        run.metrics({"noise_floor": report.noise_floor, "noise_within_5": report.noise_within_5})
        run.metrics({f"{r}/device_time_share": v for r, v in report.device_time_share.items()})
        for name, figure in figures(report).items():
            run.figure(name, figure)
        run.table("per_network.json", _table(report))
        run.table("calibration.json", _calibration(report))
        for method in dict.fromkeys(j.method for j in report.judgements):
            with run.nested(f"{report.target} {method}") as inner:
                own = [r for r in report.rows(inner.id) if r.method == method]
                own = [r for r in own if not regimes or r.regime in regimes]
                inner.parameters({**parameters, "method": method})
                values = {
                    f"{row.regime}/{name}": value
                    for row in own
                    for name, value in dataclasses.asdict(row.score).items()
                }
                inner.metrics(values)
                if method == "hybridlat":
                    run.metrics(values)
                kept += own
        run.text("leaderboard.md", leaderboard.markdown(kept))
    place = {j.regime: i for i, j in reversed(list(enumerate(report.judgements)))}
    return sorted(kept, key=lambda row: place[row.regime])


def _table(report: TargetReport) -> dict[str, list[object]]:
    """One row per network (or a sample of cells) and own regime."""
    columns: dict[str, list[object]] = {
        name: [] for name in ("regime", "name", "true_us", "predicted_us", "error_percent",
                              "low_us", "high_us", "measured_share", "cells_measured", "device_s")
    }  # fmt: skip
    for judgement in report.judgements:
        if judgement.method != "hybridlat":
            continue
        for a in judgement.answers[:2000]:
            low, high = a.interval_us or (None, None)
            values = (
                judgement.regime, a.name, a.true_us, a.predicted_us, 100 * a.error_share,
                low, high, a.measured_share, a.cells_measured, a.device_s,
            )  # fmt: skip
            for column, value in zip(columns.values(), values, strict=True):
                column.append(value)
    return columns


def _calibration(report: TargetReport) -> dict[str, list[object]]:
    """One row per regime and confidence asked for."""
    found = [(r, level.to_json()) for r, given in report.calibration.items() for level in given]
    names = dict.fromkeys(name for _, level in found for name in level)
    columns: dict[str, list[object]] = {"regime": [regime for regime, _ in found]}
    columns.update({name: [level[name] for _, level in found] for name in names})
    return columns


def _list(words: Iterable[str]) -> str:
    return ", ".join(words) or "none"


def _silent(_: str) -> None:
    """Progress that nobody asked for."""


__all__ = ["Evaluation", "evaluate_targets", "judge", "known_targets", "sources_of"]
