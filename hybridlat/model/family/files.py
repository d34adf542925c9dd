"""A family's model as files: ``family.json`` and ``family.npz``."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from hybridlat.errors import StoreError
from hybridlat.model.arrays import Arrays, hash_of, reading
from hybridlat.model.family.calibration import Calibration
from hybridlat.model.family.descriptors import DESCRIPTORS
from hybridlat.model.family.embedding import Embedding, Hyper
from hybridlat.model.family.model import FamilyModel
from hybridlat.model.family.task_gp import TaskGP
from hybridlat.model.family.tasks import Task
from hybridlat.model.family.trees import WIDTHS, TaskTrees
from hybridlat.schema.files import MOST_BYTES, read_bytes

FORMAT = 8
"""Counts also what a law is relative to: the base of kernels (``physics.parts_us``)."""
_ARRAYS = "family.npz"
_HEAD = "family.json"


def save(model: FamilyModel, folder: Path) -> None:
    """Write ``family.json`` and ``family.npz`` into a folder that exists."""
    calibration = model.calibration.rounded() if model.calibration else None
    arrays = io.BytesIO()
    own = model.trees.values()
    trees: dict[str, Any] = {
        f"trees_{i}": np.frombuffer(zlib.compress(one.ubj), np.uint8) for i, one in enumerate(own)
    }
    laws = np.array([[*one.factors, one.weight, one.reach] for one in own])
    np.savez(
        arrays,
        laws=laws,
        law_task=np.array([model.tasks.index(t) for t in model.trees], int),
        **trees,
        sums=model.sums,
        beside=model.own_shifts.astype(np.float16),
        anchors=model.anchors.equations.astype(np.float16),
        anchor_task=np.array([model.tasks.index(t) for t in model.anchors.tasks], np.int32),
        anchor_factor=model.anchors.factor,
    )
    (folder / _ARRAYS).write_bytes(arrays.getvalue())
    head = ModelHead(
        FORMAT,
        model.embedding.size,
        model.embedding.seed,
        model.embedding.hyper,
        model.tasks,
        model.seen.tolist(),
        calibration,
        model.batches,
        hash_of(arrays.getvalue()),
    )
    body = msgspec.to_builtins(head, enc_hook=lambda array: array.tolist())
    body["hash"] = _hash_of_head(body)
    (folder / _HEAD).write_text(json.dumps(body) + "\n", encoding="utf-8")


def load(folder: Path) -> FamilyModel:
    """Read what ``save`` wrote; StoreError for what is damaged or of another format."""
    head = ModelHead.read(folder)
    with reading(unreadable(folder)):
        data = read_bytes(folder / _ARRAYS)
        if head.arrays_hash not in ("", hash_of(data)):
            raise ValueError(f"{_ARRAYS} is not the one that was saved")
        arrays, embedding = Arrays(data), Embedding(head.hyper, head.size, head.seed)
        count, columns = len(head.tasks), embedding.columns
        # A reach may have no end; without trees there is not even a row.
        arrays["laws"] = np.nan_to_num(arrays["laws"], nan=-1.0).reshape(-1, len(WIDTHS) + 2)
        laws, trees = arrays.take("laws", -1, len(WIDTHS) + 2, low=0), dict[Task, TaskTrees]()
        law_task = arrays.take("law_task", len(laws), kind="iu", low=0, high=count - 1)
        for i, task in enumerate(law_task):
            packed = arrays.take(f"trees_{i}", -1, kind="u").tobytes()
            ubj = zlib.decompressobj().decompress(packed, MOST_BYTES)
            factors, counts = laws[i, :-2], laws[i, -2:].tolist()
            trees[head.tasks[task]] = TaskTrees(factors, ubj, *counts)
        anchors = arrays.take("anchors", -1, columns).astype(np.float32)
        size = len(anchors)
        anchor_task = arrays.take("anchor_task", size, kind="iu", low=0, high=count - 1)
        gp = TaskGP(
            embedding,
            anchors,
            tuple(head.tasks[i] for i in anchor_task),
            arrays.take("anchor_factor", size, size),
            np.zeros(size),
        )
        return FamilyModel(
            embedding,
            head.tasks,
            arrays.take("sums", count, columns),
            arrays.take("beside", count, columns).astype(np.float32),
            gp,
            np.array(head.seen, np.intp),
            trees,
            head.calibration,
            head.batches,
        )


class ModelHead(msgspec.Struct):
    """What a saved model says of itself beside its arrays."""

    format: int
    size: Annotated[int, msgspec.Meta(ge=1, le=4096)]
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**62)]
    hyper: Hyper
    tasks: tuple[Task, ...]
    seen: list[Annotated[int, msgspec.Meta(ge=0, le=10**9)]]
    calibration: Calibration | None
    batches: dict[str, tuple[int, int]] = {}
    arrays_hash: str = ""
    hash: str = ""

    @classmethod
    def read(cls, folder: Path) -> ModelHead:
        """Of the model in a folder; StoreError as for ``load``."""
        with reading(unreadable(folder)):
            stated = msgspec.json.decode(read_bytes(folder / _HEAD), type=dict[str, Any])
            if stated["format"] != FORMAT:
                raise StoreError(
                    f"{folder} is a family model of format {stated['format']!r:.40}, this version "
                    f"reads {FORMAT}: install the version that wrote it or train it anew"
                )
            if stated.get("hash", "") not in ("", _hash_of_head(stated)):
                raise ValueError(f"{_HEAD} is not the one that was saved")
            head = msgspec.convert(stated, cls, dec_hook=lambda _, body: np.array(body, np.float64))
            head.check()
            return head

    def check(self) -> None:
        """ValueError where parts do not belong together, or numbers are none that a law has."""
        if len(self.seen) != len(self.tasks) or len(set(self.tasks)) != len(self.tasks):
            raise ValueError("it does not say of each of its tasks what was seen")
        scores = [] if (one := self.calibration) is None else [one.pooled, *one.by_task.values()]
        if self.hyper.lengths.shape != (len(DESCRIPTORS),) or not all(self.hyper.lengths >= 0):
            raise ValueError("it has no length for each descriptor")
        if not all(s.ndim == 1 and len(s) and (np.diff(s, prepend=0) >= 0).all() for s in scores):
            raise ValueError("the scores of its calibration do not rise")


def unreadable(folder: Path) -> str:
    """The words before the reason."""
    return f"{folder} is passed over, delete it or put it back: it holds no family model"


def _hash_of_head(body: Mapping[str, object]) -> str:
    rest = {key: value for key, value in body.items() if key != "hash"}
    return hash_of(json.dumps(rest, sort_keys=True).encode())
