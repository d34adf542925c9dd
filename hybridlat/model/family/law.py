"""The law of kernels' latencies: a Gaussian process seen through the logarithm of sums.

A kernel takes ``base * exp(f)``; ``f`` is a Gaussian process over kernels and tasks. The covariance
of two kernels is a sum of two Gaussian kernels over the descriptors (a smooth one and a rough one),
one term for kernels of the same class and a constant, and linear terms in the shares that compute,
memory and launch have of a kernel's base. Random Fourier features (Rahimi and Recht 2007) make it
an inner product of points, one for each kernel.

Of a network only ``log(sum of counts * base * exp(f))`` is seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from hybridlat.model.family.dataset import HOST_ROW, KernelSet, Number, Relations, Sharing, Task
from hybridlat.model.family.kernels import CLASSES, COPY, DESCRIPTORS, HOST, LAYOUT, PARTS

Array = NDArray[np.float64]
Float32 = NDArray[np.float32]
LOWEST = -1.3
"""Bound of a kernel's log-ratio to its base: what no kernel was seen to leave."""


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


def _lengths(scale: float = 1.0, **factors: float) -> Array:
    lengths = Hyper().lengths * scale
    for name, factor in factors.items():
        lengths[DESCRIPTORS.index(name)] *= factor
    return lengths


_STEADY: dict[str, Any] = {"noise": 0.05, "network": 0.02, "architecture": 0.02}
"""Where little of a latency is noise or a network's own."""


def _table(text: str) -> dict[str, Sharing]:
    header, *rows = [line.split() for line in text.strip().splitlines()]
    nothing = {one.name: 0.0 for one in fields(Sharing)}
    return {
        name: Sharing(**nothing | dict(zip(header[1:], map(float, values), strict=True)))
        for name, *values in rows
    }


_TENSORRT = _table("""
    term        all   device engine precision runtime recipe task
    smooth      1.1   0.089  0      0         0.11    0      0
    rough       0.18  0.012  0.35   0.045     0.045   0      0
    class       0.37  0.018  0.032  0.048     0.57    0.031  0.017
    host        30    0.25   0.29   0.13      0.69    30     30
    copy        1.1   0.19   0.3    0.1       0.3     30     30
    offset      0.11  0      0      0.097     0.052   0      0
    by_compute  5.5   0.032  0.026  0.13      0.48    0.04   0
    compute     0.15  0.011  0      0.041     0.077   0.022  0
    by_memory   0.64  0.033  0.043  0.17      1.1     0.043  0.15
    memory      1.9   0.11   0.019  0.016     0.071   0.012  0
    by_launch   0.45  5      1.4    0.038     4.1     0.063  0.12
    launch      0.23  0.044  0.34   0.01      0.053   0.01   0.03
""")
_TORCH_COMPILE = _table("""
    term        all   engine runtime task
    smooth      1.9   0      0.02    0
    rough       0.25  0.06   0       0.08
    class       13    0.04   0       0.05
    offset      0.5   0.05   0       0.05
""")
"""What tasks share of each term. Large kernels are alike everywhere; how small ones are launched is
a matter of the device and of the engine's version, what a run costs beside them of the table."""
ASSUMED = {
    # Chosen on tables of one collection (experiments/28_family_shares.py), noise by hand: single
    # figures of others are off by more than their tables say.
    "tensorrt": (800, Hyper(
        lengths=_lengths(1.2, k=1.5, roofline=0.5, balance=0.0, units=0.0),
        class_distance=0.9, rough_scale=1.5,
        noise=0.06, network=0.03, architecture=0.03, highest=5.0, by_part=0.3, parts=0.6,
        apart=_TENSORRT, alone=0.5, boosted=True,
    )),
    # Devices differ by little but their data sheets. Descriptors that tell devices apart count
    # less where few devices tell of another.
    "torch": (160, Hyper(
        lengths=_lengths(
            balance=0.0, units=0.0, to_last_cache=0.3, roofline=0.5, outputs_per_unit=0.5
        ),
        sharing=Sharing(all=1.0, device=0.05, engine=0.05, precision=0.1, layout=0.3, task=0.05),
        by_part=0.3, parts=0.3, layout_distance=1.0, overlap=3.0, host=0.2, **_STEADY,
        apart={"host": Sharing(1.0, device=6.0, engine=1.0, precision=2.0, layout=0.0, task=4.0)},
    )),
    # Hundreds of networks, timed at large batches, tell kernels apart that dozens do not.
    "torch-compile": (240, Hyper(
        lengths=_lengths(1.4), **_STEADY | {"noise": 0.03}, apart=_TORCH_COMPILE
    )),
}  # fmt: skip
"""By family, before data: waves (more where fewer rows are known), and what is assumed."""


def embedding_of(family: str) -> Embedding:
    """The kernels of a family, as is assumed before data."""
    size, hyper = ASSUMED[family]
    return Embedding(hyper, size)


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
        return np.asarray(sum(terms, self.hosts(equations) ** 2))

    def hosts(self, equations: Float32) -> Array:
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


def log_sum(kernels: KernelSet, base_us: Array, ratios: Array, hyper: Hyper) -> tuple[float, Array]:
    """(logarithm of the network's latency, what it moves by for a row's logarithm)."""
    each = each_us(kernels, base_us, ratios, hyper)
    total = float(each.sum())
    share = each / total
    if hyper.overlap > 1:
        device = 1 - float(share[HOST_ROW])
        share *= device ** (hyper.overlap - 1)
        share[HOST_ROW] = 1 - device**hyper.overlap
    return float(np.log(total)), np.asarray(share)


def each_us(kernels: KernelSet, base_us: Array, ratios: Array, hyper: Hyper) -> Array:
    """What every row takes in all, in us; of a host beside the device, what is waited for it.

    Log-ratios count from ``LOWEST`` to ``highest``.
    """
    each = kernels.counts * base_us * np.exp(np.clip(ratios, LOWEST, hyper.highest))
    if hyper.overlap > 1:
        device = float(each.sum() - each[HOST_ROW])
        whole = (device**hyper.overlap + each[HOST_ROW] ** hyper.overlap) ** (1 / hyper.overlap)
        each[HOST_ROW] = whole - device
    return np.asarray(each)
