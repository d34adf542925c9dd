"""A newly trained model and composition, and how it does against the champion.

Both are judged on the same networks: those of one fold, decided by their names, less those that
the champion was trained on. A candidate is accepted where its RMSPE is not larger and its intervals
hold the latency as often as they say, but for what chance explains (see ``holds``).
"""

import datetime
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hybridlat.errors import InputError, StoreError
from hybridlat.estimate.calibration import HeldOutNetwork, fit_composition
from hybridlat.estimate.compose.composition import Composition
from hybridlat.estimate.compose.target_composition import read_composition
from hybridlat.estimate.lookup import models
from hybridlat.evaluation import cross_fitting
from hybridlat.evaluation.dataset import Dataset, WholeNetwork, without_form
from hybridlat.evaluation.metrics import Prediction, noise_floor, score
from hybridlat.model.cell_model import CellModel
from hybridlat.model.fit import FitConfig
from hybridlat.model.model_files import save_model
from hybridlat.schema.files import all_readable
from hybridlat.schema.target import Target
from hybridlat.schema.workers import OnMessage

_LEAST_NETWORKS = 10
_LEAST_EXPLAINED = 0.5
_LEAST_CHANCE, _MOST_INDEPENDENT = 0.05, 30


@dataclass(frozen=True)
class Champion:
    """The model in use."""

    folder: Path
    model: CellModel
    composition: Composition
    trained_networks: frozenset[str]

    @classmethod
    def find(cls, target: Target, root: Path) -> "Champion | None":
        """The one installed in ``root``, else among the user's models, else the shipped one.

        What is damaged or of a format that is gone is no rival: it is passed over with a warning.
        """
        folders = (models.folder_in_use(root / target.folder), *models.model_folders(target))
        return next(all_readable(cls.read, filter(None, folders)), None)

    @classmethod
    def read(cls, folder: Path) -> "Champion | None":
        """The model in a folder, None where it has no composition; StoreError for damaged files."""
        composition = read_composition(folder)
        if composition is None:
            return None
        model = models.read_model(folder)
        names = model.card.get("trained_networks", ())
        if not isinstance(names, list | tuple):
            raise StoreError(
                f"the card of the model in {folder} does not list the networks it was trained on "
                f"(trained_networks is {names!r}): train its target again with `hybridlat train`, "
                "or delete the model's folder"
            )
        return cls(folder, model, composition, frozenset(map(str, names)))


@dataclass(frozen=True)
class Verdict:
    """Whether a new model takes the champion's place, and why.

    ``rmspe`` and ``champion_rmspe`` are the RMSPE in percent on the same held-out networks (cells
    where there are no networks), the champion's None where there is none.
    """

    accepted: bool
    reason: str
    rmspe: float
    champion_rmspe: float | None

    @property
    def errors(self) -> dict[str, float | None]:
        """Both, as MLflow names them."""
        return {"rmspe": self.rmspe, "rmspe_of_champion": self.champion_rmspe}


class Candidate:
    """The fitted model and composition, and what they say of what was held out."""

    def __init__(self, dataset: Dataset, config: FitConfig, on_message: OnMessage) -> None:
        self.dataset, self.config = dataset, config
        networks = dataset.complete_networks
        enough = len(networks) >= _LEAST_NETWORKS
        held = _held_out(networks) if enough else []
        training = [n for n in networks if n not in held]
        # Without networks to hold out, cells are: by their hashes, for the same reason.
        of_fold = (h for h in dataset.cells if cross_fitting.fold_of(h) == 0)
        self.cells = sorted({h for n in held for h, _ in n.cells} if held else of_fold)
        forbidden = dataset.forbidden(held) | set(self.cells)
        on_message(
            f"{dataset.target}: {len(dataset.cells) - len(forbidden & set(dataset.cells))} cells "
            f"to learn from, {len(held)} of {len(networks)} networks held out"
        )
        folds = cross_fitting.even_folds((n.name for n in training), cross_fitting.FOLDS - 1)
        crossed: list[HeldOutNetwork] = []
        try:
            fit = cross_fitting.cross_fit(dataset, training, config, folds, forbidden, on_message)
            crossed = list(fit.held_out.values())
        except InputError as error:
            if enough:
                raise
            on_message(f"{dataset.target}: no network calibrates the intervals, {error}")
        on_message(f"{dataset.target}: the model of all of them")
        self.model = cross_fitting.fit_without(dataset, forbidden, config)
        self.composition = fit_composition(crossed, config.confidence)
        self.networks, self.trained_networks = held, [n.name for n in training]
        self.held_out = len(held) or len(self.cells)
        self.predictions = self.evaluate(self.model, self.composition)
        self.scores = {regime: score(rows) for regime, rows in self.predictions.items()}

    def evaluate(self, model: CellModel, composition: Composition) -> dict[str, list[Prediction]]:
        """Regime → answers on what was held out, of any model and composition."""
        dataset = self.dataset
        # Networks are judged at the pace and on the scale of the records, drift divided out.
        composition = composition.at(self.config.confidence)
        composition = replace(composition, wander_share=0.0, shown_ratio=1.0)
        predictions: dict[str, list[Prediction]] = {"unseen_cells": []}
        texts = [dataset.cells[h].text for h in self.cells]
        for h, p in zip(self.cells, model.predict(texts), strict=True):
            us = math.nan if p.latency_us is None else p.latency_us
            cell = Prediction(h, dataset.cells[h].latency_us, us, p.interval_us)
            predictions["unseen_cells"].append(cell)
        for whole in self.networks:
            network = cross_fitting.held_out(model, dataset, whole)
            states = cross_fitting.states(network, composition, {"gated@5%": 0.05})
            for regime, posterior in states.items():
                answer = cross_fitting.prediction_in(network, composition, posterior)
                predictions.setdefault(regime, []).append(answer)
        return predictions

    def compare(self, champion: Champion | None, is_in_use: bool = False) -> Verdict:
        """The verdict on the same held-out networks; InputError where none could be predicted."""
        regime = "unseen" if self.networks else "unseen_cells"
        ours = self.predictions[regime]
        theirs: dict[str, Prediction] = {}
        if champion is not None:
            # A champion that was trained on all of them is compared anyway: it has the easier task.
            known = set(map(without_form, champion.trained_networks))
            ours = [a for a in ours if without_form(a.name) not in known] or ours
            # What the champion has no latency of is no part of its error, nor of ours then.
            every = self.evaluate(champion.model, champion.composition)[regime]
            theirs = {a.name: a for a in every if math.isfinite(a.predicted_us)}
            ours = [a for a in ours if a.name in theirs] or ours
        what = f"{len(ours)} held-out {'networks' if self.networks else 'cells'}"
        rivals = [theirs[a.name] for a in ours if a.name in theirs]
        error, old = _error(ours), _error(rivals) if rivals else None
        if lost := sum(math.isnan(a.predicted_us) for a in ours):
            what += f", of {lost} of which it has no latency"
        explained = _explained(self.predictions["unseen_cells"])
        accepted, word = False, "refused"
        if is_in_use:
            word, reason = "unchanged", f"the same model is in use, RMSPE {error:.2f} % on {what}"
        elif explained < _LEAST_EXPLAINED:
            reason = (
                f"the model explains {100 * max(explained, 0):.0f} % of what makes "
                f"latencies of held-out cells differ, at least {100 * _LEAST_EXPLAINED:.0f} % are "
                "needed; are the records damaged?"
            )
        elif old is None:
            accepted, reason = True, f"the first model, RMSPE {error:.2f} % on {what}"
        else:
            accepted = not lost and round(error, 2) <= round(old, 2)  # as they are shown
            before = f"before {old:.2f} %" if accepted else f"the champion has {old:.2f} %"
            reason = f"RMSPE {error:.2f} % on {what}, {before}"
        if accepted and not holds(ours, self.config.confidence):
            stated, held = 100 * self.config.confidence, 100 * (score(ours).coverage or 0)
            share = f"intervals of {stated:.0f} % hold the latency of {held:.0f} % of {what}"
            accepted, reason = False, f"{share}; {reason}"
        return Verdict(accepted, f"{'accepted' if accepted else word}: {reason}", error, old)

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        kept = ("rmspe", "mape", "coverage")
        metrics = {r: {key: getattr(s, key) for key in kept} for r, s in self.scores.items()}
        card = {
            **self.model.card,
            "metrics": metrics,
            "target": str(self.dataset.target),
            "data_hash": self.dataset.data_hash,
            "held_out": self.held_out,
            "held_out_networks": [n.name for n in self.networks],
            "trained_networks": self.trained_networks,
            "noise_floor": noise_floor([n.repeats_us for n in self.dataset.complete_networks]),
            "trained_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }
        wander, shown = self.dataset.drift.wander_share, self.dataset.drift.shown_ratio
        served = replace(self.composition, wander_share=wander, shown_ratio=shown)
        text = json.dumps(served.to_json(), indent=2, sort_keys=True)
        (folder / models.COMPOSITION_FILE).write_text(text + "\n", encoding="utf-8")
        save_model(self.model, folder, card)  # its card has the hash of each file


def holds(predictions: Sequence[Prediction], confidence: float) -> bool:
    """Whether the intervals' coverage is what chance explains of intervals of this confidence.

    A one-sided binomial test at 5 %: of 12 networks 9 must be inside at 90 %. More than 30 count
    as 30, where 80 % must be inside: what is measured on one device does not err independently.
    """
    figures = score(predictions)
    if figures.coverage is None:
        return False
    from scipy.stats import binom

    count = min(figures.answered, _MOST_INDEPENDENT)
    inside = math.floor(figures.coverage * count + 1e-6)
    return bool(binom.cdf(inside, count, confidence) >= _LEAST_CHANCE)


def _held_out(networks: Sequence[WholeNetwork]) -> list[WholeNetwork]:
    """The first fold that has networks enough to judge by, as the largest of five always has."""
    needed = max(2, len(networks) // (2 * cross_fitting.FOLDS))
    numbers = range(cross_fitting.FOLDS)
    folds = ([n for n in networks if cross_fitting.fold_of(n.name) == k] for k in numbers)
    return next(fold for fold in folds if len(fold) >= needed)


def _error(predictions: Sequence[Prediction]) -> float:
    rmspe = score(predictions).rmspe
    if rmspe is None:
        raise InputError("none of the held-out cells could be predicted: there is too little data")
    return rmspe


def _explained(predictions: Sequence[Prediction]) -> float:
    """Share of the variance of ln(latency) of held-out cells that the predictions explain."""
    pairs = [(a.true_us, a.predicted_us) for a in predictions if math.isfinite(a.predicted_us)]
    if len(pairs) < 2:
        return 0.0
    truth, predicted = np.log(np.array(pairs)).T
    spread = float(np.var(truth))
    return 1.0 - float(np.mean((truth - predicted) ** 2)) / spread if spread > 0 else 0.0
