"""Descriptors x of kernels, their points φ, and what is assumed of a law before data: (1), (2).

Descriptors are formulas over geometry and device, in octaves, scaled so that 1 is a long way.

The covariance of two kernels' log-ratios is a sum of two Gaussian kernels over the descriptors (a
smooth one and a rough one), one term for kernels of the same class and a constant, and linear terms
in the shares that compute, memory and launch have of a kernel's base. Random Fourier features
(Rahimi and Recht 2007) make it an inner product of points, one for each kernel.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import msgspec
import numpy as np

from hybridlat.model.family.physics import CLASSES, HOST, PARTS, KernelTable, parts_us
from hybridlat.model.family.tasks import Number, Relations, Sharing, Task
from hybridlat.model.features import alignment
from hybridlat.model.geometry import Array, Float32, Positions, View, cache_bytes
from hybridlat.model.kernel_rows import CHANNELS_LAST
from hybridlat.schema.plugins import shipped_table

DESCRIPTORS: tuple[str, ...] = (
    "m", "n", "k", "groups", "group_width", "size", "roofline", "intensity", "taps", "asymmetric",
    "stride", "dilated", "activation", "adds", "batch", "height", "c_in", "c_out", "fill_64",
    "fill_128", "outputs_per_unit", "align_in", "align_out", "align_group", "weight_share",
    "to_last_cache", "inputs", "run", "length", "balance",
    "units", "wide",
)  # fmt: skip
"""Columns of ``describe`` that say how alike kernels are, in order."""
LAUNCH = len(DESCRIPTORS) + PARTS.index("launch")
"""The column that holds the share of its base that launching a kernel takes."""
LAYOUT = len(DESCRIPTORS) + len(PARTS)
"""The last column, behind the parts of the base as shares of it (0..1): whether channels are
innermost."""
_MADE_FOR = 2.0 ** np.arange(3, 12)
_HOST_US = 60.0
COPY_BYTES_PER_US = 8e3
"""Starting points of what a run and a copied byte cost; fitting corrects them."""


def _octaves(values: Array) -> Array:
    return np.log2(np.maximum(values, 1.0))


def _alignment(channels: Array) -> Array:
    """Largest power of two, up to 16, that divides the channels, as a share of four octaves."""
    return np.minimum(alignment(channels), 4.0) / 4.0


def describe(table: KernelTable, v: View) -> tuple[Array, Array]:
    """(rows, base latency in us) of every kernel on a device.

    A row holds ``DESCRIPTORS``, ``PARTS`` and, at ``LAYOUT``, whether channels are innermost. The
    base is the sum of its parts (``parts_us``). Two rows follow the kernels': what the run costs
    beside them, and copying the network's inputs and outputs from and to the host.
    """
    count, device = len(table.values), v.device
    convolves = (table.classes <= 3).astype(np.float64)
    group_width = np.maximum(v.c_in / np.maximum(v.groups, 1), 1)
    ratio = np.log2(np.maximum(v.compute_us, 1e-5) / np.maximum(v.memory_us, 1e-5))
    cache = cache_bytes(device, -1)
    balance = device.peak(v.precision) / device.bandwidth_bytes_per_s

    # Grouped kernels of channels innermost are made for groups of 8, 16, 32 ... channels.
    whole = (table.classes == CLASSES.index("conv grouped")) & np.isin(group_width, _MADE_FOR)

    def fill(tile: int) -> Array:
        tiles = v.tiles((tile, tile))
        return 0.7 * convolves * tiles / np.maximum(v.waves((tile, tile)) * device.units, 1.0)

    columns = {
        "m": _octaves(v.m) / 3,
        "n": _octaves(v.n) / 2,
        "k": _octaves(v.k) / 2,
        "groups": _octaves(v.groups) / 2,
        "group_width": _octaves(group_width) / 2,
        "size": _octaves(v.moved_bytes) / 3,
        "roofline": np.log2(v.roofline_us + 1.0) / 2,
        "intensity": np.clip(ratio, -6, 6) / 2,
        "taps": _octaves(v.k_h * v.k_w) / 1.5,
        "asymmetric": (v.k_h != v.k_w).astype(np.float64),
        "stride": 0.7 * (v.stride - 1),
        "dilated": (v.dilation > 1).astype(np.float64),
        "activation": 0.35 * v.activation,
        "adds": 0.4 * v.has_add,
        "batch": _octaves(v.batch) / 3,
        "height": _octaves(v.h_out) / 2,
        "c_in": _octaves(v.c_in) / 2.5,
        "c_out": _octaves(v.c_out) / 2.5,
        "fill_64": fill(64),
        "fill_128": fill(128),
        "outputs_per_unit": _octaves(v.m * v.n * v.groups / device.units) / 3,
        "align_in": 0.5 * convolves * _alignment(v.c_in),
        "align_out": 0.5 * convolves * _alignment(v.c_out),
        "align_group": 0.5 * convolves * _alignment(group_width) + 0.5 * whole,
        "weight_share": 0.7 * v.moved_weight_bytes / np.maximum(v.moved_bytes, 1),
        "to_last_cache": np.clip(np.log2(np.maximum(v.moved_bytes, 1) / cache), -6, 6) / 3,
        "inputs": _octaves(v.inputs) / 1.5,
        "run": _octaves(v.run) / 4,
        "length": _octaves(v.length) / 3,
        "balance": np.full(count, np.log2(balance) / 3),
        # Libraries' ready-made depthwise kernels end at 7x7: wider ones are another matter.
        "wide": 3.0 * (np.maximum(v.k_h, v.k_w) > 7) * convolves,
        "units": np.full(count, np.log2(device.units) / 3),
    }
    rows = np.zeros((count + 2, LAYOUT + 1))
    rows[:count, : len(DESCRIPTORS)] = np.column_stack([columns[name] for name in DESCRIPTORS])
    parts = parts_us(table, v)
    kernels_us = parts.sum(axis=1)
    rows[:count, len(DESCRIPTORS) : LAYOUT] = parts / kernels_us[:, None]
    rows[:count, LAYOUT] = v.variant.astype(int) & CHANNELS_LAST > 0
    copy_us = max(table.copied_bytes, 1.0) / COPY_BYTES_PER_US
    return rows, np.append(kernels_us, [_HOST_US, copy_us])


@dataclass(frozen=True)
class Hyper:
    """What is assumed of the law before data. Standard deviations are of log-ratios.

    ``lengths`` multiply the descriptors (1 over a length scale); ``class_distance`` is how far
    apart two classes are in the same scale; ``smooth`` and ``rough`` are standard deviations of the
    two Gaussian kernels, the rough one ``rough_scale`` times as quick; ``by_class`` that of a
    class's own level, ``offset`` of a level of all. ``by_part`` is that of how much longer than its
    base each part (compute, memory, launch) takes in kernels of one class, ``parts`` in all
    kernels; of a launch, kernels that only move data have ``moving_launch`` of it (0..1), for to
    start one is to start any. ``layout_distance`` is how far apart the same kernel is with channels
    first and last, 0 where they are taken for one. Of (6), ``noise`` is of one observation,
    ``network`` of what one architecture has of its own on one task, ``architecture`` on all tasks,
    ``host`` of what its host has on one task, and ``freedom`` is ν, low where rows contradict each
    other. No f is believed to be below ``lowest`` or above ``highest``. ``sharing`` is S of (2);
    ``apart`` has that of single terms (``Embedding.terms``) which share otherwise. ``alone`` is the
    share a (0..1) of (11); ``boosted`` gives tasks trees (12). ``overlap`` is the power of the norm
    that joins the device's time and the host's (3): 1 adds them, infinity takes the longer.
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
    lowest: Annotated[float, msgspec.Meta(ge=-10, le=0)] = -1.3
    highest: Number = 3.5
    by_part: Number = 0.0
    parts: Number = 0.0
    moving_launch: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    layout_distance: Number = 0.0
    overlap: Annotated[float, msgspec.Meta(ge=1, le=100)] = 1.0
    host: Number = 0.0
    freedom: Annotated[float, msgspec.Meta(ge=1, le=100)] = 4.0

    @property
    def own_variance(self) -> float:
        """Of one observation: its noise and what its network has of its own."""
        return self.noise**2 + self.network**2 + self.architecture**2


def embedding_of(family: str) -> "Embedding":
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
            scales = [*hyper.lengths * speed, *[hyper.class_distance] * len(CLASSES)]
            scaled = (waves * np.array(scales)[:, None]).astype(np.float32)
            self._waves.append((scaled[: len(DESCRIPTORS)], scaled[len(DESCRIPTORS) :]))
        # By a draw of their own, so that laws that know no layouts are what they are without.
        layouts = np.random.default_rng([seed, 1]).standard_normal((2, size))
        self._over_layout = (layouts * hyper.layout_distance).astype(np.float32)

        # Host and copy are the last classes, their coordinates behind those of kernels.
        widths = {"smooth": 2 * size, "rough": 2 * size}
        widths |= {"class": HOST, "host": 1, "copy": 1, "offset": 1}
        self._parts = PARTS if hyper.by_part > 0 or hyper.parts > 0 else ()
        for part in self._parts:
            widths |= {f"by_{part}": len(CLASSES), part: 1}
        self.terms: dict[str, slice] = {}
        """The columns of each term τ of the covariance."""
        self.columns = 0
        by_sharing: dict[Sharing, list[slice]] = {}
        for name, width in widths.items():
            self.terms[name] = slice(self.columns, self.columns + width)
            self.columns += width
            by_sharing.setdefault(hyper.apart.get(name, hyper.sharing), []).append(self.terms[name])
        # A slice of an array of columns copies nothing.
        self._shared = [
            (own, np.r_[tuple(each)] if each[1:] else each[0]) for own, each in by_sharing.items()
        ]

    def covariance(
        self, left: Float32, left_tasks: Sequence[Task], right: Float32, right_tasks: Sequence[Task]
    ) -> Array:
        """K (5) of two lists of equations z, each (rows x columns) with a task a row."""
        result = np.zeros((len(left), len(right)))
        relations = Relations(left_tasks, right_tasks)
        for sharing, columns in self._shared:
            result += (left[:, columns] @ right[:, columns].T) * sharing.between(relations)
        return result

    def variances(self, equations: Float32) -> Array:
        """Before data, of each network (whatever its task): its own K (5) and its host's h²."""
        terms = (
            sharing.total * (equations[:, columns].astype(np.float64) ** 2).sum(axis=1)
            for sharing, columns in self._shared
        )
        return np.asarray(sum(terms, self.host_sds(equations) ** 2))

    def host_sds(self, equations: Float32) -> Array:
        """h of each network: the host's standard deviation by its share s of the time (6)."""
        shares = equations[:, self.terms["host"].start].astype(np.float64) / self.hyper.by_class
        return np.asarray(self.hyper.host * shares)

    def mixed(self, tasks: Sequence[Task], known: Sequence[Task], sums: Float32) -> Float32:
        """w (7) of tasks (tasks x columns), by Σ α z of the tasks ``known``."""
        result = np.zeros((len(tasks), self.columns), np.float32)
        relations, sums = Relations(tasks, known), np.asfortranarray(sums)
        for sharing, columns in self._shared:
            result[:, columns] = sharing.between(relations).astype(np.float32) @ sums[:, columns]
        return result

    def __call__(self, descriptors: Float32, classes: Positions) -> Float32:
        """φ of kernels (kernels x columns), whose inner products are prior covariances of f."""
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
        for i, part in enumerate(self._parts):
            # To first order the logarithm of a sum of parts moves by the shares of them.
            share = descriptors[:, len(DESCRIPTORS) + i]
            moves = (part == "launch") & (classes > CLASSES.index("matmul"))
            by_class = hyper.by_part * share * np.where(moves, hyper.moving_launch, 1.0)
            points[rows, self.terms[f"by_{part}"].start + classes] = by_class
            points[:, self.terms[part].start] = hyper.parts * share
        return points


def _orthogonal(draw: np.random.Generator, dimensions: int, count: int) -> Array:
    """Columns distributed like standard normal vectors, orthogonal in blocks of ``dimensions``."""
    drawn = draw.standard_normal((-(-count // dimensions), 2, dimensions, dimensions))
    directions, _ = np.linalg.qr(drawn[:, 0])
    lengths = np.sqrt((drawn[:, 1] ** 2).sum(axis=1, keepdims=True))
    return np.hstack([*directions * lengths])[:, :count]
