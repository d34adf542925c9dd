"""The family model as it is served: coefficients per task, a few anchors, calibrated intervals."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from hybridlat.errors import StoreError
from hybridlat.model.arrays import Arrays, hash_of, reading
from hybridlat.model.family.boosted import WIDTHS, TaskTrees
from hybridlat.model.family.dataset import KernelSet, Number, Task, task_base
from hybridlat.model.family.kernels import DESCRIPTORS
from hybridlat.model.family.law import Array, Embedding, Float32, Hyper, log_sum
from hybridlat.schema.files import MOST_BYTES, read_bytes

FORMAT = 6
"""Counts also what a law is relative to: the base of kernels (``kernels.parts_us``)."""
ELSEWHERE = ""
"""Stands among the tasks of a calibration for devices that were left out."""
_ARRAYS = "family.npz"
_HEAD = "family.json"
_FLOOR = 0.05
_PRIOR_SCORES = 20.0
_MOST_VARIANCE = 0.3  # beyond it the normal law of log-errors says nothing any more
_COMMON = 20.0


@dataclass(frozen=True)
class Calibration:
    """Intervals from out-of-fold errors: normalised split conformal (Papadopoulos et al. 2002).

    ``scores`` of held-out networks, ascending, of all tasks and by task: absolute log-errors over
    ``sqrt(spread² + floor²)``, the spread being what the model itself says of the network.
    ``spreads`` are the medians of those of each task.
    """

    floor: Number
    pooled: Array
    by_task: dict[str, Array]
    spreads: dict[str, Number] = field(default_factory=dict)

    def half_width(
        self, spread: float, task: str, confidence: float = 0.9, before: float | None = None
    ) -> float:
        """Half the width of the interval of the logarithm; wider for a higher confidence.

        A task's own quantile counts by its scores against ``20`` of the pool's, so that a task
        without any has the pool's. ``before`` is the spread before networks of the task were
        measured: what they leave is missed as on learned tasks, by no more than without them.
        """
        own = self.by_task.get(task, np.zeros(0))
        factor = _quantile(self.pooled, confidence)
        if before is not None and not len(own) and self.by_task:
            learned = _quantile(np.sort(np.concatenate(list(self.by_task.values()))), confidence)
            widest = factor * np.hypot(before, self.floor)
            return float(min(learned * np.hypot(spread, self.floor), widest))
        if len(own):
            weight = len(own) / (len(own) + _PRIOR_SCORES)
            factor = weight * _quantile(own, confidence) + (1 - weight) * factor
        return float(factor * np.hypot(spread, self.floor))

    def rounded(self) -> Calibration:
        """The same, scores to four figures."""
        by_task = {name: _rounded(scores) for name, scores in self.by_task.items()}
        return replace(self, pooled=_rounded(self.pooled), by_task=by_task)


def calibrate(errors: Array, spreads: Array, tasks: Sequence[str]) -> Calibration:
    """Learn from log-errors of networks that were held out, and the spreads stated for them.

    Raises ValueError where there are none.
    """
    if not len(errors):
        raise ValueError("no held-out error to calibrate intervals with")
    scores = np.abs(errors) / np.hypot(spreads, _FLOOR)
    names = np.array(list(tasks))
    places = {str(name): names == name for name in np.unique(names)}
    by_task = {name: np.sort(scores[mine]) for name, mine in places.items()}
    medians = {name: float(np.median(spreads[mine])) for name, mine in places.items()}
    return Calibration(_FLOOR, np.sort(scores), by_task, medians)


def _rounded(scores: Array) -> Array:
    return np.array([float(f"{score:.4g}") for score in scores])


def _quantile(scores: Array, confidence: float) -> float:
    """The conformal quantile: the (n + 1)·confidence smallest score, the largest at most."""
    rank = int(np.ceil((len(scores) + 1) * confidence)) - 1
    return float(scores[min(max(rank, 0), len(scores) - 1)])


def relative_point(spread: Array, seen: Array | int) -> Array:
    """Factor from the median of a latency to the point of least expected squared relative error.

    For a normal logarithm that point, E[1/m] / E[1/m²], is ``exp(-3/2 spread²)`` times the median:
    too high by half costs more than too low by half. The error that all networks of a task have in
    common must not be leaned on, and is the larger part of the spread where few of its networks
    were ``seen``: the exponent counts by ``seen / (seen + 20)``.
    """
    variance = np.minimum(np.square(spread), _MOST_VARIANCE)
    weight = np.asarray(seen, np.float64) / (np.asarray(seen, np.float64) + _COMMON)
    return np.asarray(np.exp(-1.5 * weight * variance), np.float64)


@dataclass(frozen=True)
class FamilyModel:
    """One law for all targets of an engine family.

    ``sums[t]`` is the dual-weighted sum of the equations of task ``t``; a task's coefficients are
    their mixture by what tasks share, and ``beside[t]`` what its own rows alone add to it.
    ``anchors`` are equations kept to tell how far the knowledge reaches, ``anchor_factor`` the
    inverse of the Cholesky factor of their covariance. ``seen`` counts the observations of each
    task, ``trees`` are of some of them, ``batches`` the least and the largest by target.
    """

    embedding: Embedding
    tasks: tuple[Task, ...]
    sums: Float32
    beside: Float32
    anchors: Float32
    anchor_task: NDArray[np.intp]
    anchor_factor: Float32
    seen: NDArray[np.intp]
    trees: dict[Task, TaskTrees] = field(default_factory=dict)
    calibration: Calibration | None = None
    batches: dict[str, tuple[int, int]] = field(default_factory=dict)

    def seen_of(self, task: Task) -> int:
        """How many observations of a task were learned from."""
        return int(self.seen[self.tasks.index(task)]) if task in self.tasks else 0

    def coefficients(self, task: Task) -> Float32:
        """Weights of the points' coordinates for a task, seen before or not."""
        shared = self.embedding.mixed([task], self.tasks, self.sums)[0]
        if task in self.tasks:
            shared += self.beside[self.tasks.index(task)]
        return np.asarray(shared)

    def equation(
        self,
        kernels: KernelSet,
        task: Task,
        points: Float32 | None = None,
        coefficients: Float32 | None = None,
    ) -> tuple[float, Float32]:
        """(log latency in us, linear equation) of a network: what few-shot learning works on.

        ``points`` are its kernels in the embedding, where they are at hand; ``coefficients``
        replace the task's.
        """
        if points is None:
            points = self.embedding(kernels.descriptors, kernels.classes)
        weights = self.coefficients(task) if coefficients is None else coefficients
        logarithm, equation = self._equation(kernels, task, points, weights)
        return logarithm + self.correction(kernels, task, points), equation

    def correction(self, kernels: KernelSet, task: Task, points: Float32) -> float:
        """What a task's trees add to a network's log-latency, whatever has changed it since."""
        if task not in self.trees:
            return 0.0
        logarithm, equation = self._equation(kernels, task, points, self.coefficients(task))
        own = np.flatnonzero(self.anchor_task == self.tasks.index(task))
        spread = float(self.spreads_by(equation[None], task, own)[0])
        return self.trees[task].correction(kernels, task, logarithm, spread)

    def spreads_by(self, equations: Float32, task: Task, places: NDArray[np.intp]) -> Array:
        """As ``spreads``, of networks of one task, by the anchors at these places alone."""
        anchors, there = self.anchors[places], [task] * len(places)
        known = self.embedding.covariance(anchors, there, anchors, there)
        known[np.diag_indices(len(known))] += self.embedding.hyper.own_variance
        here = [task] * len(equations)
        across = self.embedding.covariance(equations, here, anchors, there)
        taken = (across * np.linalg.solve(known, across.T).T).sum(axis=1)
        left = self.embedding.variances(equations) - taken
        return np.asarray(np.sqrt(np.maximum(left, 1e-6)), np.float64)

    def _equation(
        self, kernels: KernelSet, task: Task, points: Float32, weights: Float32
    ) -> tuple[float, Float32]:
        ratios, base_us = (points @ weights).astype(np.float64), task_base(kernels, task)
        logarithm, share = log_sum(kernels, base_us, ratios, self.embedding.hyper)
        return logarithm, share.astype(np.float32) @ points

    def spreads(self, equations: Float32, tasks: Sequence[Task]) -> Array:
        """Standard deviations of networks' log-latencies: the diagonal of ``covariance``."""
        half = self._known(equations, tasks)
        left = self.embedding.variances(equations) - (half**2).sum(axis=1)
        return np.asarray(np.sqrt(np.maximum(left, 1e-6)), np.float64)

    @cached_property
    def _factor(self) -> Array:
        """``anchor_factor`` in double precision, which it is multiplied in."""
        return self.anchor_factor.astype(np.float64)

    @cached_property
    def anchor_tasks(self) -> list[Task]:
        """The task of each anchor."""
        return [self.tasks[i] for i in self.anchor_task]

    def _known(self, equations: Float32, tasks: Sequence[Task]) -> Array:
        """A row for each equation; their products are the covariance that the anchors take."""
        across = self.embedding.covariance(equations, tasks, self.anchors, self.anchor_tasks)
        return np.asarray(across @ self._factor.T)

    def covariance(self, equations: Float32, tasks: Sequence[Task]) -> Array:
        """Covariance of networks' log-latencies that the anchors leave, noise not included."""
        half = self._known(equations, tasks)
        left = self.embedding.covariance(equations, tasks, equations, tasks) - half @ half.T
        own = self.embedding.hosts(equations) ** 2
        left[np.diag_indices(len(left))] = np.maximum(np.diag(left) + own, 1e-6)
        return np.asarray(left, np.float64)

    def save(self, folder: Path) -> None:
        """Write ``family.json`` and ``family.npz`` into a folder that exists."""
        calibration = self.calibration.rounded() if self.calibration else None
        arrays = io.BytesIO()
        own = self.trees.values()
        trees: dict[str, Any] = {
            f"trees_{i}": np.frombuffer(zlib.compress(one.ubj), np.uint8)
            for i, one in enumerate(own)
        }
        laws = np.array([[*one.factors, one.weight, one.reach] for one in own])
        np.savez(
            arrays, laws=laws, law_task=np.array([self.tasks.index(t) for t in self.trees], int),
            **trees, sums=self.sums, beside=self.beside.astype(np.float16),
            anchors=self.anchors.astype(np.float16),
            anchor_task=self.anchor_task.astype(np.int32), anchor_factor=self.anchor_factor,
        )  # fmt: skip
        (folder / _ARRAYS).write_bytes(arrays.getvalue())
        head = ModelHead(
            FORMAT, self.embedding.size, self.embedding.seed, self.embedding.hyper, self.tasks,
            self.seen.tolist(), calibration, self.batches, hash_of(arrays.getvalue()),
        )  # fmt: skip
        body = msgspec.to_builtins(head, enc_hook=lambda array: array.tolist())
        body["hash"] = _hash_of_head(body)
        (folder / _HEAD).write_text(json.dumps(body) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> FamilyModel:
        """Read ``save``; StoreError for what is damaged or of another format."""
        head = ModelHead.read(folder)
        with reading(unreadable(folder)):
            data = read_bytes(folder / _ARRAYS)
            if head.arrays_hash not in ("", hash_of(data)):
                raise ValueError(f"{_ARRAYS} is not the one that was saved")
            arrays, embedding = Arrays(data), Embedding(head.hyper, head.size, head.seed)
            count, columns = len(head.tasks), embedding.columns
            arrays["laws"] = np.nan_to_num(arrays["laws"], nan=-1.0)  # a reach has no end
            trees: dict[Task, TaskTrees] = {}
            shape = (-1, len(WIDTHS) + 2) if arrays["laws"].size else (0,)
            laws = arrays.take("laws", *shape, low=0)
            law_task = arrays.take("law_task", len(laws), kind="iu", low=0, high=count - 1)
            for i, task in enumerate(law_task):
                packed = arrays.take(f"trees_{i}", -1, kind="u").tobytes()
                ubj = zlib.decompressobj().decompress(packed, MOST_BYTES)
                factors, counts = laws[i, :-2], laws[i, -2:].tolist()
                trees[head.tasks[task]] = TaskTrees(factors, ubj, *counts)
            anchors = arrays.take("anchors", -1, columns).astype(np.float32)
            size = len(anchors)
            anchor_task = arrays.take("anchor_task", size, kind="iu", low=0, high=count - 1)
            return cls(
                embedding, head.tasks, arrays.take("sums", count, columns),
                arrays.take("beside", count, columns).astype(np.float32), anchors,
                anchor_task.astype(np.intp), arrays.take("anchor_factor", size, size),
                np.array(head.seen, np.intp), trees, head.calibration, head.batches,
            )  # fmt: skip


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
        """Of the model in a folder; StoreError as for ``FamilyModel.load``."""
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
