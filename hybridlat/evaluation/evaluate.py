"""Judge predictions on held-out networks: per target, every regime, ours and every baseline.

A target that cannot be judged is a row with its reason, and costs the others nothing. Every other
one is an MLflow run, with a run for each method below it.
"""

import math
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from hybridlat.engines.registry import float_precision
from hybridlat.errors import HybridlatError, InputError
from hybridlat.estimate.lookup.named_target import known_target
from hybridlat.estimate.lookup.target_data import RecordSource, TargetData
from hybridlat.evaluation import tracking
from hybridlat.evaluation.cross_fitting import FOLDS, device_of
from hybridlat.evaluation.dataset import Dataset, OnlyNetworks, load
from hybridlat.evaluation.families import family_records
from hybridlat.evaluation.metrics import MethodResult, ResultRow, TargetReport
from hybridlat.evaluation.other_regimes import Regimes, first_met
from hybridlat.evaluation.regimes import LARGEST_SHARE, evaluate_cells, evaluate_networks
from hybridlat.model import baselines as all_baselines
from hybridlat.model.family.shipped import FAMILY_OF
from hybridlat.model.fit import LEAST_ROWS, FitConfig
from hybridlat.report.units import count_text
from hybridlat.schema.target import Target
from hybridlat.schema.workers import OnMessage, silent, steady_fits
from hybridlat.store import Store, packs
from hybridlat.store.place import without_password

LEAST_NETWORKS = 2 * FOLDS
LEAST_CELLS = math.ceil(LEAST_ROWS / LARGEST_SHARE)
OnEvaluated = Callable[[Sequence[ResultRow], TargetReport | None], None]
"""Gets a target's rows once they are there, and its report: None where it cannot be judged."""


@dataclass(frozen=True)
class EvaluationOptions:
    """What is judged, and how.

    ``baselines`` None means all there are; ``networks`` are the names of those judged. Figures per
    cell are the mean of ``trials`` random draws, those of an engine's family of ``draws`` of folds.
    """

    tolerances: Sequence[float] = (0.05,)
    baselines: Sequence[str] | None = None
    networks: Sequence[str] | None = None
    seed: int = 0
    trials: int = 3
    draws: int = 1
    track: bool = True

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(all_baselines.names() if self.baselines is None else self.baselines)


@dataclass(frozen=True)
class Evaluation:
    """The rows of all targets, in order, and what is behind them."""

    rows: tuple[ResultRow, ...]
    reports: tuple[TargetReport, ...]

    def to_json(self) -> list[dict[str, object]]:
        return [row.to_json() for row in self.rows]


@steady_fits()
def evaluate_targets(
    targets: Sequence[str | Target] = (),
    options: EvaluationOptions | None = None,
    *,
    store: str | None = None,
    on_message: OnMessage = silent,
    on_evaluated: OnEvaluated | None = None,
) -> Evaluation:
    """Judge ``targets``: those named, or all that the store or the shipped packs have cells of.

    Where none is named, those with the fewest records come first. A target that cannot be judged
    has one row, with the reason. Deterministic but for ``predict_ms``. InputError where none can.
    """
    chosen = options or EvaluationOptions()
    for name in chosen.methods:
        all_baselines.load(name)  # says which there are
    with Store(store) as opened:
        order = [known_target(target, opened) for target in targets] or known_targets(opened)
        judge = _Judge(order, chosen, opened, on_message)
        rows, reports = list[ResultRow](), list[TargetReport]()
        try:
            for place, target in enumerate(order, start=1):
                if len(order) > 1:
                    on_message(f"target {place} of {len(order)}: {target}")
                report = None
                try:
                    config, report = judge.report(target)
                except HybridlatError as error:
                    if len(order) == 1:
                        raise
                    own = [ResultRow(str(target), "", "", reason=str(error))]
                    on_message(f"{target} is left out: {error}")
                else:
                    own = report.rows()
                    reports.append(report)
                try:
                    if report is not None and chosen.track:
                        on_message("recording the figures in MLflow")
                        parameters = parameters_of(report, config, opened.place.address)
                        own = tracking.log_evaluation(opened.url, report, parameters)
                finally:  # an interruption of what MLflow takes costs no figures
                    rows += own
                    if on_evaluated is not None:
                        on_evaluated(own, report)
        finally:
            if any(row.mlflow_run for row in rows):
                where = "" if store is None else f" --store {shlex.quote(without_password(store))}"
                on_message(f"the figures are in MLflow: hybridlat mlflow{where}")
        if not reports:
            reasons = "; ".join(row.reason for row in rows[:3])
            raise InputError(f"none of the {len(rows)} targets can be judged: {reasons}")
    return Evaluation(tuple(rows), tuple(reports))


@dataclass
class _Judge:
    """Judges one target after the other; what is fitted for one serves all of its family."""

    order: Sequence[Target]
    options: EvaluationOptions
    store: Store
    on_message: OnMessage
    families: dict[str | None, Regimes] = field(default_factory=dict)

    def report(self, target: Target) -> tuple[FitConfig, TargetReport]:
        """All regimes of a target, cell by cell or beside its kin where it has no cells.

        InputError where too little is recorded of it.
        """
        options = self.options
        try:
            dataset = load(target, sources_of(target, self.store))
        except OnlyNetworks:
            self.on_message(f"{target}: reading the whole networks of its family")
            regimes = self._regimes(target)  # says why not, before a device is looked for
            config = FitConfig(device_of(target, self.store), float_precision(target), options.seed)
            report = regimes.evaluate(target, config, options.methods, options.networks)
        else:
            if options.networks is not None:
                dataset = dataset.only(options.networks)
            refuse_few(dataset)
            config = FitConfig(device_of(target, self.store), float_precision(target), options.seed)
            report = evaluate_dataset(dataset, config, options, self.on_message)
            report = replace(report, results=(*report.results, *self._first_met(dataset)))
        judged, left_out = {result.method for result in report.results}, list[str]()
        for name in (name for name in options.methods if name not in judged):
            units = " or ".join(f"{unit}s" for unit in all_baselines.load(name).units)
            left_out.append(f"{name} (from {units})")
        if left_out:
            note = f"not judged, as they do not learn from such records: {', '.join(left_out)}"
            report = replace(report, notes=(*report.notes, note))
        return config, report

    def _first_met(self, dataset: Dataset) -> list[MethodResult]:
        """Regimes of ten networks that were measured under another version of the engine too."""
        target = dataset.target
        for other in (there.target for there in TargetData(target, self.store).other_versions):
            sources = [*sources_of(target, self.store), *sources_of(other, self.store)[1:]]
            try:
                known = load(other, sources)
            except InputError:
                continue  # there is a model of it, and no records
            both = {n.signature for n in known.networks}
            if sum(n.signature in both for n in dataset.complete_networks) >= LEAST_NETWORKS:
                self.on_message(f"{target}: as first met, after {other}")
                return first_met(dataset, sources, known, self.options.tolerances)
        return []

    def _regimes(self, target: Target) -> Regimes:
        family, options = FAMILY_OF.get(target.engine), self.options
        known = self.families.get(family)
        if known is None or not any(row.target == target for row in known.records.rows):
            kin = {*self.order, *(s.target for s in self.store.stats() if s.networks)}
            records = family_records(target, kin, lambda t: sources_of(t, self.store))
            known = Regimes(records, self.on_message, options.draws, options.seed)
            self.families[family] = known
        return known


def refuse_few(dataset: Dataset) -> None:
    """InputError where there are too few cells to fit any model."""
    if len(dataset.cells) < LEAST_CELLS:
        raise InputError(
            f"{count_text(len(dataset.cells), 'cell')} of {dataset.target} were measured, and "
            f"{LEAST_CELLS} are needed to fit a model: measure more networks there"
        )


def evaluate_dataset(
    dataset: Dataset, config: FitConfig, options: EvaluationOptions, on_message: OnMessage
) -> TargetReport:
    """Per network where at least ten were measured whole, else per cell."""
    count, methods = len(dataset.complete_networks), options.methods
    if count >= LEAST_NETWORKS:
        return evaluate_networks(dataset, config, options.tolerances, methods, on_message)
    if count:
        are = count_text(count, "whole network", "is", "are")
        on_message(f"{dataset.target}: {are} too few to hold out, judged per cell")
    return evaluate_cells(dataset, config, methods, on_message, range(options.trials))


def known_targets(store: Store) -> list[Target]:
    """Targets with records in the store or in packs, those with the fewest records first.

    InputError where there are none.
    """
    held = [s for s in store.stats() if s.cells or s.networks]
    counts = {s.target: s.cells + s.networks + s.layers for s in held}
    for pack in packs.shipped_packs():
        counts[pack.target] = counts.get(pack.target, 0) + sum(pack.counts().values())
    if not counts:
        raise InputError(
            "there is nothing to judge: the store is empty and no packs are shipped; "
            "measure a network, import a pack or onboard a target first"
        )
    return sorted(counts, key=lambda target: (counts[target], str(target)))


def sources_of(target: Target, store: Store) -> list[RecordSource]:
    """Where records of the target may lie: the store, then the shipped packs of the target."""
    return [store, *packs.packs_for(target)]


def parameters_of(report: TargetReport, config: FitConfig, store: str) -> dict[str, object]:
    """What MLflow shows of how figures were made."""
    return {
        "store": store,
        "target": report.target,
        "data_hash": report.data_hash,
        "networks": report.networks,
        "cells": report.cells,
        "seed": config.seed,
        "confidence": config.confidence,
        "protocol": f"{FOLDS} folds by network" if report.networks else "random rows",
        "device": config.device.title or config.device.name,
        "python": sys.version.split()[0],
    }
