"""Which family an engine belongs to, and its models as files: ``family.json``, ``family.npz``."""

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from hybridlat.errors import StoreError
from hybridlat.model.conformal import ELSEWHERE, Calibration
from hybridlat.model.family.embedding import DESCRIPTORS, Embedding, Hyper
from hybridlat.model.family.model import FamilyModel
from hybridlat.model.family.task_laws import WIDTHS, TaskGP, TaskTrees
from hybridlat.model.family.tasks import Task, label_of
from hybridlat.model.model_files import Arrays, hash_of, reading, user_models_folder
from hybridlat.schema.files import MOST_BYTES, all_readable, listing, read_bytes
from hybridlat.schema.plugins import shipped
from hybridlat.schema.target import Target, version_key

FAMILY_OF = dict.fromkeys(("paddle-tensorrt", "tensorrt", "tensorrt-rtx"), "tensorrt")
FAMILY_OF |= {engine: engine for engine in ("torch", "torch-compile")}
"""Engines that run much the same kernels learn from each other."""
FORMAT = 8
"""Counts also what a law is relative to: the base of kernels (``physics.parts_us``)."""
_COPIES = ("paddle-tensorrt",)  # engines that are timed from host to host
_ARRAYS, _HEAD = "family.npz", "family.json"
Size = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


def copies_of(target: Target, stated: bool | None = None) -> bool:
    """Whether latencies hold copies between host and device, as stated or as engines usually do."""
    return target.engine in _COPIES if stated is None else stated


def task_of(
    target: Target, tasks: Sequence[Task], seen: Iterable[int], architecture: str = ""
) -> Task:
    """What a family that has ``seen`` rows of ``tasks`` takes a target for, on a GPU.

    Where a source distinguished layouts and the target does not, the layout is that of the file
    (channels first). Whether copies between host and device count is as usual for the engine, and
    kernels are launched one by one, unless the target was measured in the other way alone. Of its
    rows those count that the named harness timed, else those that no harness is named of, else the
    most that one harness timed.
    """
    usual, engine, precision = copies_of(target), target.plain.runtime, target.precision
    new = Task(target.device, engine, precision, copies=usual, architecture=architecture)
    own = new.board, engine, precision, ""
    ranks = [
        (t.graphs, t.copies != usual, t.harness != target.harness, t.harness != "", -rows, t)
        for t, rows in zip(tasks, seen, strict=True)
        if (t.board, t.engine, t.precision, t.layout) == own
    ]
    if not ranks:
        return replace(new, layout="nchw" if any(t.layout for t in tasks) else "")
    *_, one = min(ranks)
    timed = replace(new, copies=one.copies, graphs=one.graphs)
    return replace(timed, harness=one.harness, version=one.version)


def folders(family: str) -> list[Path]:
    """Where models of a family lie, the user's own before the one shipped."""
    name = f"family_{family}"
    each = (user_models_folder() / name, shipped("models", name))
    return [folder for folder in each if listing(folder, _HEAD)]


class FamilyHead(msgspec.Struct):
    """What a saved model states beside its arrays."""

    format: int
    size: Annotated[int, msgspec.Meta(ge=1, le=4096)]
    seed: Size
    hyper: Hyper
    tasks: tuple[Task, ...]
    seen: list[Size]
    calibration: Calibration | None
    batches: dict[str, tuple[int, int]] = {}
    arrays_hash: str = ""
    hash: str = ""

    @classmethod
    def read(cls, folder: Path) -> "FamilyHead":
        """Of the model in a folder; StoreError for what is damaged or of another format."""
        with reading(unreadable(folder)):
            return _head_of(folder, read_bytes(folder / _HEAD))

    @property
    def name(self) -> str:
        """The family's."""
        return FAMILY_OF.get(self.tasks[0].runtime, "")

    @property
    def targets(self) -> set[Target]:
        """What its tasks are of."""
        return {Target(t.device, t.engine, t.precision).plain for t in self.tasks}

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines that it answers for, without their versions."""
        return tuple(sorted(engine for engine, name in FAMILY_OF.items() if name == self.name))

    def networks(self, target: Target) -> int:
        """Whole networks of a target that the intervals were calibrated on."""
        label = label_of(task_of(target, self.tasks, self.seen))
        return 0 if self.calibration is None else len(self.calibration.by_task.get(label, ()))

    def half_width_share(self, target: Target | None) -> float | None:
        """As of ``Calibration``; None as target: of a device that no network was measured on."""
        label = ELSEWHERE if target is None else label_of(task_of(target, self.tasks, self.seen))
        return None if self.calibration is None else self.calibration.half_width_share(label)


@lru_cache(maxsize=16)
def _head_of(folder: Path, data: bytes) -> FamilyHead:
    """What the bytes of a head state, worked out once a process."""
    stated = msgspec.json.decode(data, type=dict[str, Any])
    if stated["format"] != FORMAT:
        raise StoreError(
            f"{folder} is a family model of format {stated['format']!r:.40}, this version "
            f"reads {FORMAT}: install the version that wrote it or train it anew"
        )
    if stated.get("hash", "") not in ("", _hash_of_head(stated)):
        raise ValueError(f"{_HEAD} is not the one that was saved")
    head = msgspec.convert(stated, FamilyHead, dec_hook=lambda _, body: np.array(body, np.float64))
    if not len(head.seen) == len(head.tasks) == len(set(head.tasks)) > 0:
        raise ValueError("it does not say of each of its tasks what was seen")
    scores = [] if (one := head.calibration) is None else [one.pooled, *one.by_task.values()]
    if head.hyper.lengths.shape != (len(DESCRIPTORS),) or not all(head.hyper.lengths >= 0):
        raise ValueError("it has no length for each descriptor")
    if not all(s.ndim == 1 and len(s) and (np.diff(s, prepend=0) >= 0).all() for s in scores):
        raise ValueError("the scores of its calibration do not rise")
    return head


def family_head(name: str) -> FamilyHead | None:
    """The head of an engine family: the user's own, else the shipped one, else nothing."""
    return next(all_readable(FamilyHead.read, folders(name)), None)


def family_heads() -> list[FamilyHead]:
    """The head of every engine family that can be read."""
    return [*filter(None, map(family_head, sorted({*FAMILY_OF.values()})))]


def timed_as(target: Target) -> Target:
    """The target as a family's timings of it were lowered: with their version where it has none."""
    name = FAMILY_OF.get(target.engine)
    if name is None or version_key(target.version):
        return target
    head = family_head(name)
    version = task_of(target, head.tasks, head.seen).version if head else ""
    return replace(target, runtime=f"{target.engine}-{version}") if version else target


def save(model: FamilyModel, folder: Path) -> None:
    """Write ``family.json`` and ``family.npz`` into a folder that exists."""
    trees, anchors, file = model.trees, model.anchors, folder / _ARRAYS
    packed: dict[str, Any] = {
        f"trees_{i}": np.frombuffer(zlib.compress(one.ubj), np.uint8)
        for i, one in enumerate(trees.values())
    }
    np.savez(
        file,
        laws=np.array([[*one.factors, one.weight, one.reach] for one in trees.values()]),
        law_task=np.array([model.tasks.index(t) for t in trees], int),
        **packed,
        sums=model.sums,
        beside=model.own_shifts.astype(np.float16),
        anchors=anchors.equations.astype(np.float16),
        anchor_task=np.array([model.tasks.index(t) for t in anchors.tasks], np.int32),
        anchor_factor=anchors.factor,
    )
    embedding = model.embedding
    head = FamilyHead(
        FORMAT,
        embedding.size,
        embedding.seed,
        embedding.hyper,
        model.tasks,
        model.seen.tolist(),
        model.calibration.rounded() if model.calibration else None,
        model.batches,
        hash_of(file.read_bytes()),
    )
    body = msgspec.to_builtins(head, enc_hook=lambda array: array.tolist())
    body["hash"] = _hash_of_head(body)
    (folder / _HEAD).write_text(json.dumps(body) + "\n", encoding="utf-8")


def read(folder: Path) -> FamilyModel:
    """What ``save`` wrote; StoreError for what is damaged or of another format."""
    head = FamilyHead.read(folder)
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
            trees[head.tasks[task]] = TaskTrees(laws[i, :-2], ubj, *laws[i, -2:].tolist())
        anchors = arrays.take("anchors", -1, columns).astype(np.float32, order="F")
        size = len(anchors)
        places = arrays.take("anchor_task", size, kind="iu", low=0, high=count - 1)
        of_anchors = tuple(head.tasks[i] for i in places)
        factor = arrays.take("anchor_factor", size, size)
        return FamilyModel(
            embedding,
            head.tasks,
            np.asfortranarray(arrays.take("sums", count, columns)),
            arrays.take("beside", count, columns).astype(np.float32),
            TaskGP(embedding, anchors, of_anchors, factor, np.zeros(size)),
            np.array(head.seen, np.intp),
            trees,
            head.calibration,
            head.batches,
        )


load = cache(read)
"""The family model in a folder, read once a process; StoreError for a damaged one."""


def unreadable(folder: Path) -> str:
    """The words before the reason."""
    return f"{folder} is passed over, delete it or put it back: it holds no family model"


def _hash_of_head(body: Mapping[str, object]) -> str:
    rest = {key: value for key, value in body.items() if key != "hash"}
    return hash_of(json.dumps(rest, sort_keys=True).encode())
