"""The family model as it is served: coefficients per task, a few anchors, calibrated intervals."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridlat.errors import StoreError
from hybridlat.model.family.dataset import KernelSet, Sharing, Task, task_base
from hybridlat.model.family.law import Embedding, Hyper, Posterior, log_sum

Array = NDArray[np.float64]
Float32 = NDArray[np.float32]
FORMAT = 3
"""Counts also what a law is relative to: the base of kernels (``kernels.parts_us``)."""
ELSEWHERE = ""
"""Stands among the tasks of a calibration for devices that were left out."""
_ARRAYS = "family.npz"
_HEAD = "family.json"
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

    floor: float
    pooled: Array
    by_task: dict[str, Array]
    spreads: dict[str, float] = field(default_factory=dict)

    def half_width(self, spread: float, task: str, confidence: float = 0.9) -> float:
        """Half the width of the interval of the logarithm; wider for a higher confidence.

        A task's own quantile counts by its scores against ``20`` of the pool's, so that a task
        without any has the pool's.
        """
        own = self.by_task.get(task, np.zeros(0))
        factor = _quantile(self.pooled, confidence)
        if len(own):
            weight = len(own) / (len(own) + _PRIOR_SCORES)
            factor = weight * _quantile(own, confidence) + (1 - weight) * factor
        return float(factor * np.hypot(spread, self.floor))

    def to_json(self) -> dict[str, object]:
        """As plain lists, scores to four figures."""
        return {
            "floor": self.floor,
            "pooled": _rounded(self.pooled),
            "by_task": {name: _rounded(scores) for name, scores in self.by_task.items()},
            "spreads": {name: float(f"{x:.4g}") for name, x in self.spreads.items()},
        }

    @classmethod
    def from_json(cls, stated: Mapping[str, Any]) -> Calibration:
        """Read ``to_json``; KeyError, TypeError or ValueError for anything else."""
        by_task = {str(k): np.array(v, np.float64) for k, v in stated["by_task"].items()}
        spreads = {str(k): float(v) for k, v in stated.get("spreads", {}).items()}
        return cls(float(stated["floor"]), np.array(stated["pooled"], np.float64), by_task, spreads)


def calibrate(
    errors: Array, spreads: Array, tasks: Sequence[str], floor: float = 0.05
) -> Calibration:
    """Learn from log-errors of networks that were held out, and the spreads stated for them.

    Raises ValueError where there are none.
    """
    if not len(errors):
        raise ValueError("no held-out error to calibrate intervals with")
    scores = np.abs(errors) / np.hypot(spreads, floor)
    names = np.array(list(tasks))
    places = {str(name): names == name for name in np.unique(names)}
    by_task = {name: np.sort(scores[mine]) for name, mine in places.items()}
    medians = {name: float(np.median(spreads[mine])) for name, mine in places.items()}
    return Calibration(floor, np.sort(scores), by_task, medians)


def _rounded(scores: Array) -> list[float]:
    return [float(f"{score:.4g}") for score in scores]


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
        ratios = (points @ weights).astype(np.float64)
        base = task_base(kernels, task)
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
            arrays, sums=self.sums, anchors=self.anchors.astype(np.float16),
            anchor_task=self.anchor_task.astype(np.int32), anchor_factor=self.anchor_factor,
        )  # fmt: skip
        (folder / _ARRAYS).write_bytes(arrays.getvalue())
        (folder / _HEAD).write_text(json.dumps(head) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> FamilyModel:
        """Read ``save``; StoreError for what is damaged or of another format."""
        head, tasks, calibration = _read_head(folder)
        try:
            hyper = dict(head["hyper"])
            hyper["lengths"] = np.array(hyper["lengths"])
            hyper["sharing"] = Sharing(**hyper["sharing"])
            embedding = Embedding(Hyper(**hyper), head["size"], head["seed"])
            seen = np.array(head["seen"], np.intp)
            with np.load(folder / _ARRAYS, allow_pickle=False) as arrays:
                return cls(
                    embedding, tasks, arrays["sums"], arrays["anchors"].astype(np.float32),
                    arrays["anchor_task"].astype(np.intp), arrays["anchor_factor"], seen,
                    calibration,
                )  # fmt: skip
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise _unreadable(folder, error) from None


def read_head(folder: Path) -> tuple[tuple[Task, ...], Calibration | None]:
    """The tasks of a saved model and its calibration, no arrays; StoreError as for `load`."""
    return _read_head(folder)[1:]


def _read_head(folder: Path) -> tuple[dict[str, Any], tuple[Task, ...], Calibration | None]:
    try:
        head = json.loads((folder / _HEAD).read_text(encoding="utf-8"))
        if not isinstance(head, dict):
            raise ValueError("its head is no JSON object")
        if head["format"] != FORMAT:
            raise StoreError(
                f"{folder} is a family model of format {head['format']}, this version reads "
                f"{FORMAT}: install the version that wrote it or train it anew"
            )
        known = head["calibration"]
        tasks = tuple(Task(**task) for task in head["tasks"])
        return head, tasks, Calibration.from_json(known) if known else None
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unreadable(folder, error) from None


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
    covariance[np.diag_indices(len(chosen))] += (
        embedding.hyper.own_variance / posterior.robust[chosen] + 1e-6
    )
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
