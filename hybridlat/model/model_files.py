"""A cell model as files: arrays, trees and JSON, light to load, neither training nor pickles."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from hybridlat.errors import StoreError
from hybridlat.model import features
from hybridlat.model.applicability_domain import ApplicabilityDomain
from hybridlat.model.cell_model import CellModel
from hybridlat.model.gaussian_process import GaussianProcessMean
from hybridlat.model.xgboost_runtime import Booster
from hybridlat.schema.device import Device

MODEL_FORMAT = 2
CARD_FILE = "card.json"
PRIOR_FOLDER = "prior"
"""The folder within a model's that holds the model it started from, and so on."""
MODEL_FILES = ("model.json", "arrays.npz", "trees.ubj", "spread.ubj")


def save_model(model: CellModel, folder: Path, card: Mapping[str, object] | None = None) -> None:
    """Write a model; ``card`` adds metrics, date, versions to its own."""
    folder.mkdir(parents=True, exist_ok=True)
    gp_mean, domain = model.gp_mean, model.domain
    head = {
        "format": MODEL_FORMAT, "precision": model.precision, "ops": model.ops,
        "floor_us": model.floor_us, "mix": model.gp_weight, "quantile": model.quantile,
        "confidence": model.confidence, "features": features.feature_names(model.ops),
        "level": gp_mean.level, "reach": domain.radius, "limit": domain.limit,
        "lean": model.log_bias, "prior_line": model.prior_line, "device": asdict(model.device),
    }  # fmt: skip
    stream = io.BytesIO()
    np.savez_compressed(
        stream, columns=gp_mean.columns, shift=gp_mean.shift, scale=gp_mean.scale,
        points=gp_mean.points, weights=gp_mean.weights, low=domain.low, high=domain.high,
        landmarks=domain.prototypes, met=domain.seen_triples.astype(np.int32),
        triples=domain.weights,
    )  # fmt: skip
    _write_json(folder / "model.json", head)
    (folder / "arrays.npz").write_bytes(stream.getvalue())
    (folder / "trees.ubj").write_bytes(model.trees.ubj)
    (folder / "spread.ubj").write_bytes(model.error_scale.ubj)
    _write_json(folder / CARD_FILE, {**model.card, **(card or {})})
    if model.prior is not None:
        save_model(model.prior, folder / PRIOR_FOLDER)


def _write_json(path: Path, body: Mapping[str, object]) -> None:
    path.write_text(json.dumps(body, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def load_model(folder: Path) -> CellModel:
    """Read a model folder; StoreError when it is missing, damaged or of another format."""
    missing = [name for name in MODEL_FILES if not (folder / name).is_file()]
    if missing:
        raise StoreError(f"{folder} is not a model: it lacks {', '.join(missing)}")
    try:
        return _read(folder)
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise StoreError(f"the model in {folder} is damaged: {error!r}") from None


def _read(folder: Path) -> CellModel:
    head: dict[str, Any] = json.loads((folder / "model.json").read_text())
    if head["format"] != MODEL_FORMAT:
        raise StoreError(
            f"{folder} has model format {head['format']}, this version reads {MODEL_FORMAT}: "
            "train it again with `hybridlat train`"
        )
    ops = tuple(head["ops"])
    if list(head["features"]) != list(features.feature_names(ops)):
        raise StoreError(
            f"{folder} was trained on other features than this version computes: "
            "train it again with `hybridlat train`"
        )
    stream = io.BytesIO((folder / "arrays.npz").read_bytes())
    with np.load(stream, allow_pickle=False) as arrays:
        a = {name: arrays[name] for name in arrays.files}
    width = len(head["features"])
    card_file, prior = folder / CARD_FILE, folder / PRIOR_FOLDER
    return CellModel(
        device=Device.from_mapping(head["device"]),
        precision=head["precision"],
        ops=ops,
        floor_us=head["floor_us"],
        gp_mean=GaussianProcessMean(
            a["columns"], a["shift"], a["scale"], a["points"], a["weights"], head["level"]
        ),
        gp_weight=head["mix"],
        trees=Booster((folder / "trees.ubj").read_bytes(), width),
        error_scale=Booster((folder / "spread.ubj").read_bytes(), width),
        domain=ApplicabilityDomain(
            a["low"], a["high"], a["landmarks"], head["reach"], a["met"], a["triples"],
            head["limit"],
        ),
        quantile=head["quantile"],
        log_bias=head["lean"],
        confidence=head["confidence"],
        prior=load_model(prior) if prior.is_dir() else None,
        prior_line=(head["prior_line"][0], head["prior_line"][1]),
        card=json.loads(card_file.read_text()) if card_file.is_file() else {},
    )  # fmt: skip


def read_device(folder: Path) -> Device | None:
    """The device that a model was trained for, whatever its format; None where it does not say."""
    try:
        head = json.loads((folder / "model.json").read_text())
        return Device.from_mapping(head["device"])
    except (OSError, KeyError, TypeError, ValueError):
        return None
