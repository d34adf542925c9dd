"""The learned model as it is served: coefficients per task and a few anchors, light to load."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridlat.errors import StoreError
from hybridlat.model.family.dataset import KernelSet, task_base
from hybridlat.model.family.embedding import Embedding, Hyper
from hybridlat.model.family.intervals import Calibration
from hybridlat.model.family.posterior import Posterior, log_sum
from hybridlat.model.family.tasks import Sharing, Task

Array = NDArray[np.float64]
Float32 = NDArray[np.float32]
FORMAT = 3
"""Counts also what a law is relative to: the base of kernels (``descriptors.parts_us``)."""
_ARRAYS = "family.npz"
_HEAD = "family.json"


_MOST_VARIANCE = 0.3
_COMMON = 20.0
"""Beyond this the normal law of log-errors says nothing any more."""


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
    their mixture by what tasks share. ``anchors`` are equations kept to tell how far the knowledge
    reaches, ``anchor_factor`` the inverse of the Cholesky factor of their covariance. ``seen``
    counts the observations of each task.
    """

    embedding: Embedding
    tasks: tuple[Task, ...]
    sums: Float32
    anchors: Float32
    anchor_task: NDArray[np.intp]
    anchor_factor: Float32
    seen: NDArray[np.intp]
    calibration: Calibration | None = None

    def seen_of(self, task: Task) -> int:
        """How many observations of a task were learned from."""
        return int(self.seen[self.tasks.index(task)]) if task in self.tasks else 0

    def coefficients(self, task: Task) -> Float32:
        """Weights of the points' coordinates for a task, seen before or not."""
        between = self.embedding.hyper.sharing.between([task], self.tasks)[0]
        return np.asarray(between.astype(np.float32) @ self.sums)

    def equation(
        self, kernels: KernelSet, task: Task, points: Float32 | None = None
    ) -> tuple[float, Float32]:
        """(log latency, linear equation) of a network: what few-shot learning works on.

        ``points`` are its kernels in the embedding, where they are at hand.
        """
        base = task_base(kernels, task)
        if points is None:
            points = self.embedding(kernels.descriptors, kernels.classes)
        ratios = (points @ self.coefficients(task)).astype(np.float64)
        logarithm, share = log_sum(kernels, base, ratios, self.embedding.hyper.highest)
        return logarithm, share.astype(np.float32) @ points

    def spreads(self, equations: Float32, tasks: Sequence[Task]) -> Array:
        """Standard deviations of networks' log-latencies: the diagonal of ``covariance``."""
        between = self._between(tasks)
        own = np.array([self.embedding.hyper.sharing.between([t], [t])[0, 0] for t in tasks])
        half = ((equations @ self.anchors.T) * between) @ self._factor.T
        prior = (equations.astype(np.float64) ** 2).sum(axis=1) * own
        left = prior - (half.astype(np.float64) ** 2).sum(axis=1)
        return np.asarray(np.sqrt(np.maximum(left, 1e-6)), np.float64)

    @cached_property
    def _factor(self) -> Array:
        """``anchor_factor`` in double precision, which it is multiplied in."""
        return self.anchor_factor.astype(np.float64)

    def _between(self, tasks: Sequence[Task]) -> Array:
        """What tasks share with those of the anchors."""
        return self.embedding.hyper.sharing.between(tasks, self.tasks)[:, self.anchor_task]

    def covariance(self, equations: Float32, tasks: Sequence[Task]) -> Array:
        """Covariance of networks' log-latencies that the anchors leave, noise not included."""
        sharing = self.embedding.hyper.sharing
        prior = (equations @ equations.T) * sharing.between(tasks, tasks)
        cross = (equations @ self.anchors.T) * self._between(tasks)
        half = cross @ self._factor.T
        left = prior - half @ half.T
        left[np.diag_indices(len(left))] = np.maximum(np.diag(left), 1e-6)
        return np.asarray(left, np.float64)

    def save(self, folder: Path) -> None:
        """Write ``family.json`` and ``family.npz`` into a folder that exists."""
        hyper = asdict(self.embedding.hyper)
        hyper["lengths"] = [float(x) for x in self.embedding.hyper.lengths]
        head = {
            "format": FORMAT,
            "size": self.embedding.size,
            "seed": self.embedding.seed,
            "hyper": hyper,
            "tasks": [asdict(task) for task in self.tasks],
            "seen": [int(n) for n in self.seen],
            "calibration": self.calibration.to_json() if self.calibration else None,
        }
        arrays = io.BytesIO()
        np.savez(
            arrays,
            sums=self.sums,
            anchors=self.anchors.astype(np.float16),
            anchor_task=self.anchor_task.astype(np.int32),
            anchor_factor=self.anchor_factor,
        )
        (folder / _ARRAYS).write_bytes(arrays.getvalue())
        (folder / _HEAD).write_text(json.dumps(head) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> FamilyModel:
        """Read ``save``; StoreError for what is damaged or of another format."""
        try:
            head = _head(folder)
            hyper = dict(head["hyper"])
            hyper["lengths"] = np.array(hyper["lengths"])
            hyper["sharing"] = Sharing(**hyper["sharing"])
            embedding = Embedding(Hyper(**hyper), head["size"], head["seed"])
            with np.load(folder / _ARRAYS, allow_pickle=False) as arrays:
                return cls(
                    embedding,
                    _tasks(head),
                    arrays["sums"],
                    arrays["anchors"].astype(np.float32),
                    arrays["anchor_task"].astype(np.intp),
                    arrays["anchor_factor"],
                    np.array(head["seen"], np.intp),
                    _calibration(head),
                )
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise _unreadable(folder, error) from None


def read_head(folder: Path) -> tuple[tuple[Task, ...], Calibration | None]:
    """The tasks of a saved model and its calibration, no arrays; StoreError as for `load`."""
    try:
        head = _head(folder)
        return _tasks(head), _calibration(head)
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unreadable(folder, error) from None


def _head(folder: Path) -> dict[str, Any]:
    head = json.loads((folder / _HEAD).read_text(encoding="utf-8"))
    if not isinstance(head, dict):
        raise ValueError("its head is no JSON object")
    if head["format"] != FORMAT:
        raise StoreError(
            f"{folder} is a family model of format {head['format']}, this version reads "
            f"{FORMAT}: install the version that wrote it or train it anew"
        )
    return head


def _tasks(head: Mapping[str, Any]) -> tuple[Task, ...]:
    return tuple(Task(**task) for task in head["tasks"])


def _calibration(head: Mapping[str, Any]) -> Calibration | None:
    return Calibration.from_json(head["calibration"]) if head["calibration"] else None


def _unreadable(folder: Path, error: object) -> StoreError:
    return StoreError(f"{folder} holds no family model that can be read: {error}")


def serve(posterior: Posterior, anchors: int = 900) -> FamilyModel:
    """The served form of what was learned.

    Anchors are at most that many observations, spread over tasks and networks; with all
    observations they give the exact posterior covariance.
    """
    data, embedding = posterior.data, posterior.embedding
    tasks = len(data.tasks)
    sums = np.zeros((tasks, embedding.columns), np.float32)
    for task in range(tasks):
        mine = data.task == task
        sums[task] = posterior.dual[mine].astype(np.float32) @ posterior.points[mine]
    chosen = _spread_out(posterior, anchors)
    anchor_points = posterior.points[chosen].astype(np.float16).astype(np.float32)
    task_of = data.task[chosen]
    between = embedding.hyper.sharing.between(data.tasks, data.tasks)[np.ix_(task_of, task_of)]
    covariance = (anchor_points @ anchor_points.T).astype(np.float64) * between
    noise = embedding.hyper.noise**2 + embedding.hyper.network**2 + embedding.hyper.architecture**2
    covariance[np.diag_indices(len(chosen))] += noise / posterior.robust[chosen] + 1e-6
    factor = np.linalg.inv(np.linalg.cholesky(covariance)).astype(np.float32)
    seen = np.bincount(data.task, minlength=tasks)
    return FamilyModel(embedding, data.tasks, sums, anchor_points, task_of, factor, seen)


def _spread_out(posterior: Posterior, count: int) -> NDArray[np.intp]:
    """Every so-many-th observation that was believed, tasks by turns, in a fixed order."""
    data = posterior.data
    believed = np.flatnonzero(data.weights > 0)
    order = sorted(believed, key=lambda i: (data.networks[i], int(data.task[i]), int(i)))
    if len(order) > count:
        order = [order[int(i)] for i in np.linspace(0, len(order) - 1, count)]
    return np.array(order, np.intp)
