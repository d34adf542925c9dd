"""The embedding of kernels, and what is assumed of a family's law before data.

The covariance of two kernels' log-ratios is a sum of two Gaussian kernels over the descriptors (a
smooth one and a rough one), one term for kernels of the same class and a constant, and linear terms
in the shares that compute, memory and launch have of a kernel's base. Random Fourier features
(Rahimi and Recht 2007) make it an inner product of points phi, one for each kernel (2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from hybridlat.model.family.descriptors import DESCRIPTORS, LAYOUT
from hybridlat.model.family.physics import CLASSES, COPY, HOST, PARTS
from hybridlat.model.family.tasks import Array, Float32, Number, Relations, Sharing, Task
from hybridlat.schema.plugins import shipped_table


@dataclass(frozen=True)
class Hyper:
    """What is assumed of the law before data. Standard deviations are of log-ratios.

    ``lengths`` multiply the descriptors (1 over a length scale); ``class_distance`` is how far
    apart two classes are in the same scale; ``smooth`` and ``rough`` are standard deviations of the
    two Gaussian kernels, the rough one ``rough_scale`` times as quick; ``by_class`` that of a
    class's own level, ``offset`` of a level of all. ``by_part`` is that of how much longer than its
    base each part (compute, memory, launch) takes in kernels of one class, ``parts`` in all
    kernels. ``layout_distance`` is how far apart the same kernel is with channels first and last, 0
    where they are taken for one. ``noise`` is of one observation, ``network`` of what one network
    has of its own on one task, ``architecture`` on all tasks. No kernel's log-ratio to its base is
    believed to be above ``highest``. ``sharing`` is between tasks; ``apart`` has that of single
    terms (``Embedding.terms``) which share otherwise. ``alone`` is the weight (0..1) of what a
    task's own rows say where no other task teaches; ``boosted`` gives tasks trees of their own.
    ``overlap`` is the power of the norm that joins the device's time and the host's: 1 adds them,
    infinity takes the longer. ``host`` is what a network's host has of its own on one task.
    """

    lengths: Array = field(default_factory=lambda: np.full(len(DESCRIPTORS), 0.35))
    class_distance: Number = 1.4
    smooth: Number = 0.85
    rough: Number = 0.5
    rough_scale: Number = 2.5
    by_class: Annotated[float, msgspec.Meta(gt=0)] = 0.2
    offset: Number = 0.5
    noise: Number = 0.08
    network: Number = 0.05
    architecture: Number = 0.05
    sharing: Sharing = field(default_factory=Sharing)
    apart: dict[str, Sharing] = field(default_factory=dict)
    alone: Number = 0.0
    boosted: bool = False
    highest: Number = 3.5
    by_part: Number = 0.0
    parts: Number = 0.0
    layout_distance: Number = 0.0
    overlap: Annotated[float, msgspec.Meta(ge=1, le=100)] = 1.0
    host: Number = 0.0

    @property
    def own_variance(self) -> float:
        """Of one observation: its noise and what its network has of its own."""
        return self.noise**2 + self.network**2 + self.architecture**2


def embedding_of(family: str) -> Embedding:
    """The embedding that ``data/families.toml`` assumes of a family, before data."""
    table = shipped_table("families")[family]
    factors = {"scale": 1.0, **table.get("lengths", {})}
    lengths = Hyper().lengths * factors.pop("scale")
    for name, factor in factors.items():
        lengths[DESCRIPTORS.index(name)] *= factor
    apart = {term: Sharing(**shares) for term, shares in table.get("sharing", {}).items()}
    sharing = apart.pop("other", Sharing())
    hyper = Hyper(lengths=lengths, sharing=sharing, apart=apart, **table["hyper"])
    return Embedding(hyper, table["waves"])


class Embedding:
    """Maps kernels to points; the same seed and hyper-parameters give the same map.

    ``size`` is the number of waves of each of the two Gaussian kernels, each with a sine and a
    cosine; directions are orthogonal in blocks (Yu et al. 2016).
    """

    def __init__(self, hyper: Hyper, size: int = 400, seed: int = 1) -> None:
        self.hyper, self.size, self.seed = hyper, size, seed
        draw = np.random.default_rng(seed)
        self._waves: list[tuple[Float32, Float32]] = []
        for speed in (1.0, hyper.rough_scale):
            waves = _orthogonal(draw, len(DESCRIPTORS) + len(CLASSES), size)
            over_descriptors = waves[: len(DESCRIPTORS)] * (hyper.lengths * speed)[:, None]
            over_classes = waves[len(DESCRIPTORS) :] * hyper.class_distance
            self._waves.append(
                (over_descriptors.astype(np.float32), over_classes.astype(np.float32))
            )
        # By a draw of their own, so that laws that know no layouts are what they are without.
        apart = np.random.default_rng([seed, 1]).standard_normal((2, size))
        self._over_layout = (apart * hyper.layout_distance).astype(np.float32)

        self._knows_parts = hyper.by_part > 0 or hyper.parts > 0
        at, terms = 0, {}
        for name, width in self._widths():
            terms[name] = slice(at, at + width)
            at += width
        self.terms: dict[str, slice] = terms
        """The columns of each term of the covariance."""
        self.columns = at
        by_sharing: dict[Sharing, list[NDArray[np.intp]]] = {}
        for name, places in terms.items():
            own = hyper.apart.get(name, hyper.sharing)
            by_sharing.setdefault(own, []).append(np.arange(places.start, places.stop))
        self._shared = [(own, np.concatenate(places)) for own, places in by_sharing.items()]

    def _widths(self) -> list[tuple[str, int]]:
        beside = {HOST: "host", COPY: "copy"}
        each = [("smooth", 2 * self.size), ("rough", 2 * self.size), ("class", len(CLASSES) - 2)]
        each += [*((beside[i], 1) for i in sorted(beside)), ("offset", 1)]
        if self._knows_parts:
            for part in PARTS:
                each += [(f"by_{part}", len(CLASSES)), (part, 1)]
        return each

    def covariance(
        self, left: Float32, left_tasks: Sequence[Task], right: Float32, right_tasks: Sequence[Task]
    ) -> Array:
        """Prior covariance of what equations say, each (rows x columns) with a task a row."""
        result = np.zeros((len(left), len(right)))
        relations = Relations(left_tasks, right_tasks)
        for own, places in self._shared:
            result += (left[:, places] @ right[:, places].T) * own.between(relations)
        return result

    def variances(self, equations: Float32) -> Array:
        """Of each equation alone, whatever its task: its prior variance and its host's own."""
        terms = (
            own.total * (equations[:, places].astype(np.float64) ** 2).sum(axis=1)
            for own, places in self._shared
        )
        return np.asarray(sum(terms, self.host_sds(equations) ** 2))

    def host_sds(self, equations: Float32) -> Array:
        """Standard deviation that each network's own host has of its log-latency."""
        share = equations[:, self.terms["host"].start].astype(np.float64) / self.hyper.by_class
        return np.asarray(share * self.hyper.host)

    def mixed(self, tasks: Sequence[Task], known: Sequence[Task], weighted: Float32) -> Float32:
        """Coefficients (tasks x columns) by ``weighted`` rows of the tasks ``known``."""
        result = np.zeros((len(tasks), self.columns), np.float32)
        relations = Relations(tasks, known)
        for own, places in self._shared:
            between = own.between(relations).astype(np.float32)
            result[:, places] = between @ weighted[:, places]
        return result

    def __call__(self, descriptors: Float32, classes: NDArray[np.intp]) -> Float32:
        """Points (kernels x columns) whose inner products are prior covariances."""
        hyper, size = self.hyper, self.size
        points = np.zeros((len(classes), self.columns), np.float32)
        for i, deviation in enumerate((hyper.smooth, hyper.rough)):
            over_descriptors, over_classes = self._waves[i]
            angle = descriptors[:, : len(DESCRIPTORS)] @ over_descriptors
            angle += over_classes[classes]
            if hyper.layout_distance:
                angle += descriptors[:, LAYOUT:] * self._over_layout[i]
            scale = np.float32(deviation / np.sqrt(size))
            at = 2 * size * i
            points[:, at : at + size] = np.cos(angle) * scale
            points[:, at + size : at + 2 * size] = np.sin(angle) * scale
        rows = np.arange(len(classes))
        points[rows, self.terms["class"].start + classes] = hyper.by_class
        points[:, self.terms["offset"]] = hyper.offset
        for i, part in enumerate(PARTS if self._knows_parts else ()):
            # To first order the logarithm of a sum of parts moves by the shares of them.
            share = descriptors[:, len(DESCRIPTORS) + i]
            points[rows, self.terms[f"by_{part}"].start + classes] = hyper.by_part * share
            points[:, self.terms[part].start] = hyper.parts * share
        return points


def _orthogonal(draw: np.random.Generator, dimensions: int, count: int) -> Array:
    """Columns distributed like standard normal vectors, orthogonal in blocks of ``dimensions``."""
    blocks = []
    for _ in range(-(-count // dimensions)):
        directions, _ = np.linalg.qr(draw.standard_normal((dimensions, dimensions)))
        lengths = np.sqrt((draw.standard_normal((dimensions, dimensions)) ** 2).sum(axis=0))
        blocks.append(directions * lengths)
    return np.hstack(blocks)[:, :count]
