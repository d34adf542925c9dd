"""Judge predictions on held-out networks: per target, every regime, ours and every baseline.

Targets with whole networks are judged in the three regimes, each network once, held out by name in
five folds. Targets without (a public data set of cells) are judged per cell. Targets of which only
whole networks are recorded are learned together with all others of their engine's family. A target
that cannot be judged is a row with its reason, and costs the others nothing. Every row is an MLflow
run, logged target by target (see run_log).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hybridlat.errors import HybridlatError, InputError
from hybridlat.evaluation import run_log, tracking
from hybridlat.evaluation.cross_fitting import FOLDS, device_of
from hybridlat.evaluation.dataset import Dataset, OnlyNetworks, RecordSource, load
from hybridlat.evaluation.family_regimes import WholeNetworks
from hybridlat.evaluation.metrics import ResultRow, TargetReport
from hybridlat.evaluation.regimes import evaluate_cells, evaluate_networks
from hybridlat.model import baselines as all_baselines
from hybridlat.model.steady_sums import steady_fits
from hybridlat.model.training_problem import FitConfig
from hybridlat.schema.device import Device
from hybridlat.schema.progress import OnMessage, silent
from hybridlat.schema.target import Target
from hybridlat.store import Store, packs

LEAST_NETWORKS = 2 * FOLDS
_REGIME = re.compile(
    r"measured|unseen|unseen_family|zero_shot|few@[0-9]+|unseen_cells|gated@[0-9.]+%|gated_cells@[0-9.]+%|cells@[0-9]+"
)
_REGIMES = (
    "measured, unseen, gated@T (T as in --tolerance, for example gated@5%), unseen_cells, "
    "gated_cells@S (5%, 10%, 20% or 30%), cells@N where only cells are recorded, and "
    "unseen_family, zero_shot and few@K where only whole networks are"
)
OnEvaluated = Callable[[Sequence[ResultRow], TargetReport | None], None]


@dataclass(frozen=True)
class EvaluationOptions:
    """What is judged, and how.

    ``regimes`` keeps only rows of those regimes; ``baselines`` None means all there are;
    ``networks`` restricts the judged networks to these names; ``where`` restricts cells (see
    dataset.load); ``device`` overrides the data sheet; ``trials`` is how many random draws figures
    per cell are the mean of; ``track`` keeps everything in MLflow.
    """

    packs_folder: Path | None = None
    regimes: Sequence[str] = ()
    tolerances: Sequence[float] = (0.05,)
    baselines: Sequence[str] | None = None
    networks: Sequence[str] | None = None
    where: Mapping[str, str] = field(default_factory=dict)
    device: Device | None = None
    seed: int = 0
    confidence: float = 0.9
    trials: int = 3
    track: bool = True

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the baselines; InputError for one that there is not."""
        names = all_baselines.names() if self.baselines is None else self.baselines
        for name in names:
            all_baselines.load(name)
        return tuple(names)

    def check(self) -> None:
        """InputError for a regime or a baseline that there is not."""
        for regime in self.regimes:
            if not _REGIME.fullmatch(regime):
                raise InputError(f"{regime!r} is not a regime: choose one of {_REGIMES}")
        _ = self.methods


@dataclass(frozen=True)
class Evaluation:
    """The rows of all targets, in order, and what is behind them."""

    rows: tuple[ResultRow, ...]
    reports: tuple[TargetReport, ...]

    def to_json(self) -> list[dict[str, object]]:
        """The list that ``evaluate --json`` prints."""
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

    Where none is named, those with the fewest records come first. ``on_evaluated`` is given the
    rows of each target as soon as they are there, and what is behind them (None where it could not
    be judged: its one row has the reason). Deterministic but for ``predict_ms``.
    Raises InputError where not one target could be judged.
    """
    chosen = options or EvaluationOptions()
    chosen.check()
    with Store(store) as opened:
        named = [Target.parse(t) if isinstance(t, str) else t for t in targets]
        order = named or known_targets(opened, chosen.packs_folder)
        whole_networks = WholeNetworks(
            sorted({*order, *(s.target for s in opened.stats() if s.networks)}),
            lambda target: sources_of(target, opened, chosen.packs_folder),
            chosen.device,
            on_message,
        )
        if chosen.track:
            on_message("opening the experiment in MLflow")
        tracker = tracking.open_tracker(opened.url) if chosen.track else tracking.Tracker()
        rows: list[ResultRow] = []
        reports: list[TargetReport] = []
        refused: list[HybridlatError] = []
        log = run_log.RunLog(tracker, opened.address, chosen.where, chosen.regimes)
        try:
            for index, target in enumerate(order):
                if len(order) > 1:
                    on_message(_what_is_next(index, order))
                new, report = _one_target(target, chosen, opened, log, whole_networks)
                if isinstance(new, HybridlatError):
                    refused.append(new)
                    new = [ResultRow.without_figures(target, str(new))]
                    if len(order) > 1:  # else it is the error that ends it all
                        on_message(f"{target} is left out: {new[0].reason}")
                if report is not None:
                    reports.append(report)
                rows += new
                if on_evaluated is not None and (report is not None or len(order) > 1):
                    on_evaluated(new, report)
        finally:
            if reports:
                log.describe()
                if tracker.page():
                    on_message(f"the figures in MLflow: {tracker.page()}")
        if not reports:
            raise _none_of_them(refused)
    return Evaluation(tuple(rows), tuple(reports))


def _one_target(
    target: Target,
    options: EvaluationOptions,
    store: Store,
    log: run_log.RunLog,
    whole_networks: WholeNetworks,
) -> tuple[list[ResultRow] | HybridlatError, TargetReport | None]:
    """Its rows and the report behind them, or why there are none."""
    try:
        report, config = _report(target, options, store, whole_networks)
        if options.regimes and not any(j.regime in options.regimes for j in report.results):
            there = ", ".join(dict.fromkeys(j.regime for j in report.results)) or "none"
            raise InputError(
                f"{target} has not the regime {', '.join(options.regimes)}: there is {there}"
            )
    except tracking.TrackingError:
        raise
    except HybridlatError as error:
        log.keep_reason(target, str(error))
        return error, None
    return log.keep_target(report, config), report


def _report(
    target: Target, options: EvaluationOptions, store: Store, whole_networks: WholeNetworks
) -> tuple[TargetReport, FitConfig]:
    dataset = None
    on_message = whole_networks.on_message
    try:
        dataset = load(target, sources_of(target, store, options.packs_folder), options.where)
        dataset = _restricted(dataset, options.networks)
    except OnlyNetworks:
        on_message(f"{target}: reading the whole networks of its family")
        whole_networks.regimes(target)  # says why not, before a device is looked for
    device = options.device or device_of(target, store)
    config = FitConfig(device, target.precision, options.seed, confidence=options.confidence)
    if dataset is None:
        return whole_networks.evaluate(
            target, config, options.methods, options.networks, options.trials
        ), config
    report = evaluate_target(
        dataset, config, options.tolerances, options.methods, on_message, options.trials
    )
    return report, config


def _what_is_next(index: int, order: Sequence[Target]) -> str:
    after = f", then {order[index + 1]}" if index + 1 < len(order) else ""
    return f"target {index + 1} of {len(order)}: {order[index]}{after}"


def _none_of_them(refused: Sequence[HybridlatError]) -> HybridlatError:
    if len(refused) == 1:
        return refused[0]
    reasons = "; ".join(str(error) for error in refused[:3])
    more = f"; and {len(refused) - 3} more" if len(refused) > 3 else ""
    return InputError(f"none of the {len(refused)} targets can be judged: {reasons}{more}")


@steady_fits()
def evaluate_target(
    dataset: Dataset,
    config: FitConfig,
    tolerances: Sequence[float],
    names: Sequence[str],
    on_message: OnMessage,
    trials: int = 3,
) -> TargetReport:
    """One target: per network where at least ten were measured whole, else per cell."""
    count = len(dataset.complete_networks)
    if count >= LEAST_NETWORKS:
        return evaluate_networks(dataset, config, tolerances, names, on_message)
    if count:
        are = "network is" if count == 1 else "networks are"
        on_message(f"{dataset.target}: {count} whole {are} too few to hold out, judged per cell")
    return evaluate_cells(dataset, config, names, on_message, range(trials))


def known_targets(store: Store, packs_folder: Path | None = None) -> list[Target]:
    """Targets with records in the store or in packs, those with the fewest records first.

    InputError where there are none.
    """
    counts = {
        s.target: s.cells + s.networks + s.layers for s in store.stats() if s.cells or s.networks
    }
    for pack in packs.shipped_packs(packs_folder):
        counts[pack.target] = counts.get(pack.target, 0) + sum(pack.counts().values())
    if not counts:
        raise InputError(
            "there is nothing to judge: the store is empty and no packs are shipped; "
            "measure a network, import a pack or onboard a target first"
        )
    return sorted(counts, key=lambda target: (counts[target], str(target)))


def sources_of(
    target: Target, store: Store, packs_folder: Path | None = None
) -> list[RecordSource]:
    """Where records of the target may lie: the store, then its packs."""
    return [store, *packs.packs_for(target, packs_folder)]


def _restricted(dataset: Dataset, networks: Iterable[str] | None) -> Dataset:
    if networks is None:
        return dataset
    wanted = set(networks)
    chosen = tuple(n for n in dataset.networks if n.name in wanted)
    if not chosen:
        known = ", ".join(sorted(n.name for n in dataset.networks)[:8]) or "none"
        raise InputError(
            f"none of the {len(wanted)} networks was measured whole on {dataset.target}: "
            f"known are {known}"
        )
    return dataclasses.replace(dataset, networks=chosen)
