"""Train one target: fit, calibrate, judge on held-out networks, and promote only what is not worse.

Held out are the networks of one fold, decided by their names, so that they stay the same while
records are added; the champion is judged on those of them that it was not trained on either. The
rest give the model, and by cross-fitting the composition and its interval. A model takes the place
of the champion if its error is not larger; otherwise it is kept in MLflow, and the reason is given.
Deterministic: the same records give the same files.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import math
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hybridlat.errors import HybridlatError, InputError
from hybridlat.estimate.calibration import JudgedNetwork, fit_composition
from hybridlat.estimate.composition import Composition
from hybridlat.estimate.target_data import (
    CARD_FILE,
    COMPOSITION_FILE,
    model_folders,
    user_models_folder,
)
from hybridlat.evaluation import tracking
from hybridlat.evaluation.cross_fitting import Setting, cross_fit, device_of, fit_without, judged
from hybridlat.evaluation.dataset import Records, WholeNetwork, load
from hybridlat.evaluation.evaluate import sources_of
from hybridlat.evaluation.metrics import Answer, Score, noise, score
from hybridlat.evaluation.network_level import all_measured, answer, play_gate
from hybridlat.evaluation.splits import FOLDS, even_folds, fold_of
from hybridlat.model.cell_model import CellModel
from hybridlat.schema.device import Device
from hybridlat.schema.target import Target
from hybridlat.store import Store

LEAST_NETWORKS = 10
_LEAST_EXPLAINED = 0.5
_PRIORS_BELOW = 1500
_GATED_TOLERANCE = 0.05
_MODEL_FILES = ("model.json", "arrays.npz", "trees.ubj", "spread.ubj", COMPOSITION_FILE)


@dataclass(frozen=True)
class Trained:
    """What became of a training.

    ``error`` and ``champion_error`` are the RMSPE in percent on the same held-out networks (cells
    where there are no networks), the champion's None where there is none. ``folder`` holds the
    files that predictions use from now on; None when the model was refused.
    """

    target: Target
    accepted: bool
    reason: str
    error: float
    champion_error: float | None
    held_out: int
    scores: Mapping[str, Score] = field(default_factory=dict)
    model_hash: str = ""
    folder: Path | None = None
    mlflow_run: str = ""
    version: str = ""


def train_target(
    target: str | Target,
    *,
    store: str | None = None,
    out: Path | None = None,
    packs_folder: Path | None = None,
    device: Device | None = None,
    seed: int = 0,
    confidence: float = 0.9,
    track: bool = True,
    tell: Callable[[str], None] | None = None,
) -> Trained:
    """Train ``target`` from the store and its shipped packs; see the module.

    The files go to ``out/<target>/``, by default among the user's models. Raises InputError where
    there are too few records to learn from.
    """
    wanted = Target.parse(target) if isinstance(target, str) else target
    say = tell or (lambda _: None)
    with Store(store) as opened, tempfile.TemporaryDirectory() as scratch:
        records = load(wanted, sources_of(wanted, opened, packs_folder))
        root = out or user_models_folder()
        setting = Setting(
            device or device_of(wanted, opened), wanted.precision, seed,
            _priors(wanted, records), confidence,
        )  # fmt: skip
        tracker = tracking.open_tracker(opened.url) if track else tracking.Tracker()
        with tracker.run(f"train {wanted}") as kept:
            found = _Training(records, setting, say)
            folder = Path(scratch) / "new"
            found.save(folder)
            champion = _Champion.find(tracker, wanted, root, Path(scratch))
            accepted, reason, error, old_error = found.compare(champion)
            say(f"{wanted}: {reason}")
            _keep(kept, records, setting, found, error, old_error, accepted, reason)
            version = tracker.register(wanted, kept, folder, setting.device.title)
            if accepted and version is not None:
                tracker.promote(version)
            installed = _install(folder, root / wanted.folder) if accepted else None
            return Trained(
                wanted, accepted, reason, error, old_error, found.held_out, found.scores,
                model_hash(folder), installed, kept.id, version.number if version else "",
            )  # fmt: skip


def model_hash(folder: Path) -> str:
    """Hash of all that predictions depend on, 16 hex digits; the card's date is not part of it."""
    digest = hashlib.sha256()
    for name in _MODEL_FILES:
        digest.update((folder / name).read_bytes())
    return digest.hexdigest()[:16]


def _priors(target: Target, records: Records) -> tuple[CellModel, ...]:
    """Models of other targets to start from, where the target has few records of its own."""
    if len(records.cells) >= _PRIORS_BELOW:
        return ()
    folders = {f.name: f for f in reversed(model_folders(None)) if f.name != target.folder}
    found: list[CellModel] = []
    for _, folder in sorted(folders.items()):
        with contextlib.suppress(HybridlatError):  # of a format that is gone: no help
            found.append(CellModel.load(folder))
    return tuple(found)


class _Training:
    """The fitted model and composition, and what they say of what was held out."""

    def __init__(self, records: Records, setting: Setting, tell: Callable[[str], None]) -> None:
        self.records, self.setting = records, setting
        networks = records.complete_networks
        enough = len(networks) >= LEAST_NETWORKS
        held = _held_out(networks) if enough else []
        training = [n for n in networks if n not in held]
        # Without networks to hold out, cells are: by their hashes, for the same reason.
        self.cells = (
            sorted({h for n in held for h, _ in n.cells})
            if held
            else [h for h in sorted(records.cells) if fold_of(h) == 0]
        )
        forbidden = records.forbidden(held) | set(self.cells)
        tell(
            f"{records.target}: {len(records.cells) - len(forbidden & set(records.cells))} cells "
            f"to learn from, {len(held)} of {len(networks)} networks held out"
        )
        crossed: list[JudgedNetwork] = []
        if training and enough:
            place = even_folds((n.name for n in training), FOLDS - 1)
            found = cross_fit(records, training, setting, place, forbidden, tell)
            crossed = list(found.judged.values())
            tell(f"{records.target}: the model of all of them")
        self.model = fit_without(records, forbidden, setting)
        if training and not enough:
            crossed = [
                judged(self.model, records, n, setting.confidence)
                for n in training
                if any(h not in forbidden for h, _ in n.cells)
            ]
        self.composition = fit_composition(crossed, setting.confidence)
        self.networks = held
        self.trained_networks = [n.name for n in training]
        self.held_out = len(held) or len(self.cells)
        self.answers = self.judge(self.model, self.composition)
        self.scores = {regime: score(given) for regime, given in self.answers.items()}

    def judge(self, model: CellModel, composition: Composition) -> dict[str, list[Answer]]:
        """Regime → answers on what was held out, of any model and composition."""
        records = self.records
        texts = [records.cells[h].text for h in self.cells]
        cells = [
            Answer(h, records.cells[h].latency_us,
                   math.nan if p.latency_us is None else p.latency_us, p.interval_us)
            for h, p in zip(self.cells, model.predict(texts), strict=True)
        ]  # fmt: skip
        found: dict[str, list[Answer]] = {"unseen_cells": cells}
        gated = f"gated@{_GATED_TOLERANCE * 100:g}%"
        for whole in self.networks:
            network = judged(model, records, whole, self.setting.confidence)
            for regime, belief in (
                ("unseen", composition.start(network.cells)),
                (gated, play_gate(network, composition, _GATED_TOLERANCE)),
                ("measured", all_measured(network, composition)),
            ):
                found.setdefault(regime, []).append(answer(network, composition, belief))
        return found

    def compare(self, champion: _Champion | None) -> tuple[bool, str, float, float | None]:
        """Whether the new model takes the champion's place, why, and the two errors (RMSPE %)."""
        regime = "unseen" if self.networks else "unseen_cells"
        ours = self.answers[regime]
        theirs: Sequence[Answer] = ()
        if champion is not None:
            seen = champion.trained_networks
            fair = [a for a in ours if a.name not in seen]
            ours = fair or ours  # a champion that saw them all has the easier task: so be it
            names = {a.name for a in ours}
            said = self.judge(champion.model, champion.composition)[regime]
            theirs = [a for a in said if a.name in names]
        what = f"{len(ours)} held-out {'networks' if self.networks else 'cells'}"
        error = _error(ours)
        old = _error(theirs) if theirs else None
        explained = _explained(self.answers["unseen_cells"])
        if explained < _LEAST_EXPLAINED:
            reason = (
                f"refused: the model explains {100 * max(explained, 0):.0f} % of what makes "
                f"latencies of held-out cells differ, at least {100 * _LEAST_EXPLAINED:.0f} % are "
                "needed; are the records damaged?"
            )
            return False, reason, error, old
        if old is None:
            return True, f"accepted: the first model, RMSPE {error:.2f} % on {what}", error, None
        if error > old + 1e-9:
            reason = f"refused: RMSPE {error:.2f} % on {what}, the champion has {old:.2f} %"
            return False, reason, error, old
        return True, f"accepted: RMSPE {error:.2f} % on {what}, before {old:.2f} %", error, old

    def save(self, folder: Path) -> None:
        """Write model, composition and card."""
        folder.mkdir(parents=True)
        metrics = {
            regime: {"rmspe": s.rmspe, "mape": s.mape, "coverage": s.coverage}
            for regime, s in self.scores.items()
        }
        card = {
            **self.model.card,
            "target": str(self.records.target),
            "data_hash": self.records.data_hash,
            "held_out": self.held_out,
            "held_out_networks": [n.name for n in self.networks],
            "trained_networks": self.trained_networks,
            "metrics": metrics,
            "noise_floor": noise([n.repeats_us for n in self.records.complete_networks])[0],
            "trained_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "versions": _versions(),
        }
        self.model.save(folder, card)
        text = json.dumps(self.composition.to_json(), indent=2, sort_keys=True)
        (folder / COMPOSITION_FILE).write_text(text + "\n", encoding="utf-8")


@dataclass(frozen=True)
class _Champion:
    """The model in use, and where it came from."""

    model: CellModel
    composition: Composition
    trained_networks: frozenset[str]

    @classmethod
    def find(
        cls, tracker: tracking.Tracker, target: Target, root: Path, scratch: Path
    ) -> _Champion | None:
        """What carries the alias, else the files in ``root``, else the user's or shipped ones."""
        version = tracker.champion(target)
        places: list[Path] = []
        if version is not None:
            place = scratch / "champion"
            place.mkdir()
            fetched = tracker.download(version, place)
            places += [fetched] if fetched is not None else []
        places += [root / target.folder, *model_folders(target)]
        for folder in places:
            if (folder / CARD_FILE).is_file() and (folder / COMPOSITION_FILE).is_file():
                try:
                    text = (folder / COMPOSITION_FILE).read_text(encoding="utf-8")
                    composition = Composition.from_json(json.loads(text))
                    model = CellModel.load(folder)
                    names = model.card.get("trained_networks", ())
                    assert isinstance(names, list | tuple)
                    return cls(model, composition, frozenset(map(str, names)))
                except HybridlatError:
                    continue  # of a format that is gone: no rival
        return None


def _held_out(networks: Sequence[WholeNetwork]) -> list[WholeNetwork]:
    """The first fold that has networks enough to judge by: fold 0 but for small sets."""
    needed = max(2, len(networks) // (2 * FOLDS))
    for fold in range(FOLDS):
        found = [n for n in networks if fold_of(n.name) == fold]
        if len(found) >= needed:
            return found
    return list(networks[:needed])


def _error(answers: Sequence[Answer]) -> float:
    found = score(answers).rmspe
    if found is None:
        raise InputError("none of the held-out cells could be predicted: there is too little data")
    return found


def _explained(answers: Sequence[Answer]) -> float:
    """Share of the variance of ln(latency) of held-out cells that the predictions explain."""
    pairs = [(a.true_us, a.predicted_us) for a in answers if math.isfinite(a.predicted_us)]
    if len(pairs) < 2:
        return 0.0
    truth, said = np.log(np.array(pairs)).T
    spread = float(np.var(truth))
    return 1.0 - float(np.mean((truth - said) ** 2)) / spread if spread > 0 else 0.0


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("hybridlat", "numpy", "xgboost", "xgboost-cpu", "scikit-learn"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _install(folder: Path, place: Path) -> Path:
    """Put the files in their place whole: a reader sees the old model or the new, never half."""
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = place.with_name(place.name + ".new")
    old = place.with_name(place.name + ".old")
    for left in (fresh, old):
        shutil.rmtree(left, ignore_errors=True)
    shutil.copytree(folder, fresh)
    if place.exists():
        place.rename(old)
    fresh.rename(place)
    shutil.rmtree(old, ignore_errors=True)
    return place


def _keep(
    kept: tracking.Run,
    records: Records,
    setting: Setting,
    found: _Training,
    error: float,
    champion_error: float | None,
    accepted: bool,
    reason: str,
) -> None:
    kept.parameters(
        {
            "target": records.target,
            "git_commit": tracking.git_commit() or "unknown",
            "data_hash": records.data_hash,
            "protocol": f"held out: one fold of {FOLDS}, by name",
            "seed": setting.seed,
            "confidence": setting.confidence,
            "cells": len(records.cells),
            "networks": len(records.complete_networks),
            "held_out": found.held_out,
        }
    )
    kept.tags({"accepted": str(accepted).lower(), "reason": reason})
    kept.metrics({"held_out_rmspe": error, "champion_rmspe": champion_error})
    for regime, figures in found.scores.items():
        kept.metrics(
            {
                f"{regime}/{name}": getattr(figures, name)
                for name in ("rmspe", "mape", "within_5", "coverage", "width", "measured_share")
            }
        )
    rows = [(r, a) for r, given in found.answers.items() for a in given[:2000]]
    kept.table(
        "held_out.json",
        {
            "regime": [r for r, _ in rows],
            "name": [a.name for _, a in rows],
            "true_us": [a.true_us for _, a in rows],
            "predicted_us": [a.predicted_us for _, a in rows],
            "error_percent": [100 * a.error_share for _, a in rows],
        },
    )
