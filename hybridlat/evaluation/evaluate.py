"""Judge predictions on held-out networks: per target, every regime, ours and every baseline.

Targets with whole networks are judged in the three regimes, each network once, held out by name in
five folds. Targets without (a public data set of cells) are judged per cell. Targets of which only
whole networks are recorded are learned together with all others of their engine's family. A target
that cannot be judged is a row with its reason, and costs the others nothing.

Every row is a flat MLflow run, logged target by target, with figures that are named alike: tags say
what a run is of. Our own run of a regime carries the target's tables.
"""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hybridlat.errors import HybridlatError, InputError
from hybridlat.evaluation import leaderboard, tracking
from hybridlat.evaluation.cell_regimes import evaluate_cells
from hybridlat.evaluation.cross_fitting import FOLDS, device_of
from hybridlat.evaluation.dataset import Dataset, OnlyNetworks, RecordSource, load
from hybridlat.evaluation.metrics import ResultRow, TargetReport
from hybridlat.evaluation.regimes import evaluate_networks
from hybridlat.evaluation.whole_networks import WholeNetworks
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

    ``regimes`` (none: all) are the rows wanted; ``baselines`` None means all there are;
    ``networks`` are the names of those judged; ``where`` restricts cells (see dataset.load);
    ``device`` overrides the data sheet; figures per cell are the mean of ``trials`` random draws.
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
        """Names of the baselines."""
        return tuple(all_baselines.names() if self.baselines is None else self.baselines)

    def check(self) -> None:
        """InputError for a regime or a baseline that there is not."""
        for regime in self.regimes:
            if not _REGIME.fullmatch(regime):
                raise InputError(f"{regime!r} is not a regime: choose one of {_REGIMES}")
        for name in self.methods:
            all_baselines.load(name)


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
        call = uuid.uuid4().hex[:8]
        rows: list[ResultRow] = []
        reports: list[TargetReport] = []
        refused: list[HybridlatError] = []
        try:
            for index, target in enumerate(order):
                if len(order) > 1:
                    after = f", then {order[index + 1]}" if index + 1 < len(order) else ""
                    on_message(f"target {index + 1} of {len(order)}: {target}{after}")
                try:
                    report, config = _report(target, chosen, opened, whole_networks)
                except HybridlatError as error:
                    refused.append(error)
                    reason = str(error)
                    with leaderboard.run_of(tracker, call, str(target)) as run:
                        run.log({"target": target}, tags={"reason": reason})
                    new = [ResultRow.without_figures(target, reason)]
                    if len(order) > 1:  # else it is the error that ends it all
                        on_message(f"{target} is left out: {reason}")
                        if on_evaluated is not None:
                            on_evaluated(new, None)
                else:
                    about = _about(report, config, chosen.where)
                    rows_wanted = _wanted(report, chosen.regimes)
                    source = opened.place.address
                    new = leaderboard.log(tracker, call, source, report, rows_wanted, about)
                    reports.append(report)
                    if on_evaluated is not None:
                        on_evaluated(new, report)
                rows += new
        finally:
            if reports and tracker.page():
                on_message(f"the figures in MLflow: {tracker.page()}")
        if not reports:
            raise _none_of_them(refused)
    return Evaluation(tuple(rows), tuple(reports))


def _report(
    target: Target, options: EvaluationOptions, store: Store, whole_networks: WholeNetworks
) -> tuple[TargetReport, FitConfig]:
    dataset = None
    on_message = whole_networks.on_message
    try:
        dataset = load(target, sources_of(target, store, options.packs_folder), options.where)
    except OnlyNetworks:
        on_message(f"{target}: reading the whole networks of its family")
        whole_networks.regimes(target)  # says why not, before a device is looked for
    if dataset is not None and options.networks is not None:
        dataset = dataset.only(options.networks)
    device = options.device or device_of(target, store)
    config = FitConfig(device, target.precision, options.seed, confidence=options.confidence)
    methods, trials = options.methods, options.trials
    if dataset is None:
        report = whole_networks.evaluate(target, config, methods, options.networks)
    else:
        report = evaluate_target(dataset, config, options.tolerances, methods, on_message, trials)
    if options.regimes and not any(j.regime in options.regimes for j in report.results):
        there = ", ".join(dict.fromkeys(j.regime for j in report.results)) or "none"
        raise InputError(
            f"{target} has not the regime {', '.join(options.regimes)}: there is {there}"
        )
    return report, config


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


def _wanted(report: TargetReport, regimes: Sequence[str]) -> list[ResultRow]:
    """The rows of a report in the order of regimes."""
    order = list(dict.fromkeys(j.regime for j in report.results))
    rows = [row for row in report.rows() if not regimes or row.regime in regimes]
    return sorted(rows, key=lambda row: order.index(row.regime))


def _about(report: TargetReport, config: FitConfig, where: Mapping[str, str]) -> dict[str, object]:
    """The parameters that all runs of a target have."""
    return {
        "data_hash": report.data_hash,
        "seed": config.seed,
        "confidence": config.confidence,
        "protocol": f"{FOLDS} folds by network" if report.networks else "random rows",
        "device": config.device.title or config.device.name,
        "python": sys.version.split()[0],
        **{f"where_{name}": value for name, value in where.items()},
    }
