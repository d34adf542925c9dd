"""A cell model as files: arrays, trees and JSON, light to load, neither training nor pickles."""

import contextlib
import hashlib
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from hybridlat.errors import HybridlatError, StoreError
from hybridlat.model import applicability_domain, features
from hybridlat.model.cell_model import CellModel
from hybridlat.model.gaussian_process import GaussianProcessMean
from hybridlat.model.trees import Booster
from hybridlat.schema.files import MOST_BYTES, read_bytes
from hybridlat.schema.target import Device

MODEL_FORMAT = 2
CARD_FILE = "card.json"
PRIOR_FOLDER = "prior"
"""The folder within a model's that holds the model it started from, and so on."""
HASHES = "files"
"""The key of a card that holds the hash of each file beside it, but the card's own."""
MODEL_FILES = ("model.json", "arrays.npz", "trees.ubj", "spread.ubj")
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Size = Annotated[float, msgspec.Meta(gt=0, le=1e6)]
_Log = Annotated[float, msgspec.Meta(ge=-100, le=100)]
_OF_MODEL = (
    "precision", "ops", "floor_us", "gp_weight", "quantile", "confidence", "log_bias", "prior_line",
)  # fmt: skip


def user_models_folder() -> Path:
    """Where models trained on this machine lie."""
    import platformdirs

    return platformdirs.user_data_path("hybridlat", appauthor=False) / "models"


class _Head(msgspec.Struct, rename={"gp_weight": "mix", "radius": "reach", "log_bias": "lean"}):
    """The numbers of a model beside its arrays and trees, as ``model.json`` names them."""

    format: int
    precision: str
    ops: tuple[str, ...]
    features: tuple[str, ...]
    floor_us: Annotated[float, msgspec.Meta(ge=0, le=1e6)]
    gp_weight: _Share
    quantile: _Size
    confidence: Annotated[float, msgspec.Meta(gt=0, lt=1)]
    level: _Log
    radius: _Size
    limit: _Size
    log_bias: _Log
    prior_line: tuple[_Log, _Log]
    device: dict[str, Any]


def save_model(model: CellModel, folder: Path, card: Mapping[str, object] | None = None) -> None:
    """Write a model; ``card`` adds metrics, date, versions to its own."""
    folder.mkdir(parents=True, exist_ok=True)
    gp_mean, domain = model.gp_mean, model.domain
    head = _Head(
        **{name: getattr(model, name) for name in _OF_MODEL},
        format=MODEL_FORMAT,
        features=features.feature_names(model.ops),
        level=gp_mean.level,
        radius=domain.radius,
        limit=domain.limit,
        device=asdict(model.device),
    )
    np.savez_compressed(
        folder / "arrays.npz",
        **{n: getattr(gp_mean, n) for n in ("columns", "shift", "scale", "points", "weights")},
        low=domain.low,
        high=domain.high,
        landmarks=domain.prototypes,
        met=domain.seen_triples.astype(np.int32),
        triples=domain.weights,
    )
    _write_json(folder / "model.json", msgspec.to_builtins(head))
    (folder / "trees.ubj").write_bytes(model.trees.ubj)
    (folder / "spread.ubj").write_bytes(model.error_scale.ubj)
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and path.name != CARD_FILE]
    hashes = {path.name: hash_of(path.read_bytes()) for path in files}
    _write_json(folder / CARD_FILE, {**model.card, **(card or {}), HASHES: hashes})
    if model.prior is not None:
        save_model(model.prior, folder / PRIOR_FOLDER)


def _write_json(path: Path, body: Mapping[str, object]) -> None:
    path.write_text(json.dumps(body, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def load_model(folder: Path) -> CellModel:
    """Read a model folder; StoreError when it is missing, damaged or of another format."""
    missing = [name for name in MODEL_FILES if not (folder / name).is_file()]
    if missing:
        raise StoreError(f"{folder} is not a model: it lacks {', '.join(missing)}")
    with reading(f"the model in {folder} is damaged"):
        return _read(folder)


def _read(folder: Path) -> CellModel:
    card_file, prior = folder / CARD_FILE, folder / PRIOR_FOLDER
    card = read_json(card_file) if card_file.is_file() else {}

    def data_of(name: str) -> bytes:
        data = read_bytes(folder / name)
        if HASHES in card and card[HASHES].get(name) != hash_of(data):
            raise StoreError(f"{name} is not the file that was installed")
        return data

    with reading("model.json"):
        stated = msgspec.json.decode(data_of("model.json"), type=dict[str, Any])
    if (stated_format := stated["format"]) != MODEL_FORMAT:
        is_newer = isinstance(stated_format, int) and stated_format > MODEL_FORMAT
        fix = "upgrade hybridlat" if is_newer else "train it again with `hybridlat train`"
        raise StoreError(
            f"{folder} has model format {stated_format!r:.40}, this version reads "
            f"{MODEL_FORMAT}: {fix}"
        )
    head = msgspec.convert(stated, _Head)
    if head.features != features.feature_names(head.ops):
        raise StoreError(
            f"{folder} was trained on other features than this version computes: "
            "train it again with `hybridlat train`"
        )
    with reading("arrays.npz"):
        a, width, ops = Arrays(data_of("arrays.npz")), len(head.features), len(head.ops)
    columns = a.take("columns", -1, kind="iu", low=0, high=width - 1)
    points = a.take("points", -1, len(columns))
    shift, scale = a.take("shift", len(columns)), a.take("scale", len(columns), low=1e-9)
    weights = a.take("weights", len(points))
    known = applicability_domain
    domain = known.ApplicabilityDomain(
        a.take("low", ops, len(known.RANGED)),
        a.take("high", ops, len(known.RANGED)),
        a.take("landmarks", -1, len(known.SHAPE) + 1),
        head.radius,
        a.take("met", -1, kind="iu", low=0, high=known.COMBINATIONS + known.MOST_OPS - 1),
        a.take("triples", len(known.TRIPLES)),
        head.limit,
    )
    if not len(domain.prototypes):
        raise ValueError("it has no landmarks")
    return CellModel(
        **{name: getattr(head, name) for name in _OF_MODEL},
        device=Device.from_mapping(head.device),
        gp_mean=GaussianProcessMean(columns, shift, scale, points, weights, head.level),
        trees=Booster(data_of("trees.ubj"), width),
        error_scale=Booster(data_of("spread.ubj"), width),
        domain=domain,
        card=card,
        prior=load_model(prior) if prior.is_dir() else None,
    )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, no NaN and no infinity in it; OSError, ValueError or RecursionError."""
    return msgspec.json.decode(read_bytes(path, 16 << 20), type=dict[str, Any])


def read_device(folder: Path) -> Device | None:
    """The device that a model was trained for, whatever its format; None where it does not say."""
    try:
        return Device.from_mapping(read_json(folder / "model.json")["device"])
    except (OSError, KeyError, TypeError, ValueError, RecursionError):
        return None


@contextlib.contextmanager
def reading(what: str) -> Iterator[None]:
    """StoreError, after ``what``, for what a damaged file raises: it has no common class."""
    try:
        yield
    except HybridlatError:
        raise
    except Exception as error:  # noqa: BLE001
        raise StoreError(f"{what}: {error!r:.200}") from None


def hash_of(data: bytes) -> str:
    """Of a file of a model, 16 hex digits."""
    return hashlib.sha256(data).hexdigest()[:16]


class Arrays(dict[str, NDArray[Any]]):
    """The arrays of an npz file by name, at most 256 MiB; what is damaged is for ``reading``."""

    def __init__(self, data: bytes) -> None:
        with zipfile.ZipFile(io.BytesIO(data)) as zipped:
            entries = zipped.infolist()
        is_usual = all(entry.compress_type in (0, zipfile.ZIP_DEFLATED) for entry in entries)
        if not is_usual or sum(entry.file_size for entry in entries) > MOST_BYTES:
            raise ValueError(f"its arrays take more than {MOST_BYTES >> 20} MiB")
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            self.update(arrays)  # a size that is understated is an error too

    def take(
        self, name: str, *shape: int, kind: str = "f", low: float = -np.inf, high: float = np.inf
    ) -> NDArray[Any]:
        """The array of that shape (-1: any length) with finite numbers of a kind, within bounds.

        ``kind`` is numpy's: ``f`` for floats, ``iu`` for integers. ValueError where it is not so.
        """
        array = self[name]
        sizes = tuple(a if b < 0 else b for a, b in zip(array.shape, shape, strict=False))
        if array.shape != sizes or len(sizes) != len(shape) or array.dtype.kind not in kind:
            raise ValueError(f"{name} is {array.dtype} {array.shape}, not {shape}")
        ends = (array.min(), array.max()) if array.size else ()  # NaN where there is one
        if not all(np.isfinite(end) and low <= end <= high for end in ends):
            raise ValueError(f"{name} has numbers that it cannot have")
        return array
