"""Made-up networks whose kernels follow a known law, so that what is learned can be held to it."""

import numpy as np

from hybridlat.graph.operators import KINDS
from hybridlat.model.family.model import FamilyModel
from hybridlat.model.family.observations import KernelSet, Observation, kernel_set, task_base
from hybridlat.model.family.physics import CLASSES, KernelTable
from hybridlat.model.family.tasks import Task
from hybridlat.model.geometry import COLUMN, COLUMNS
from hybridlat.schema.target import Device

GPU = Device("gpu", "gpu", {"fp32": 10e12}, 500e9, 40, 1.5e9, (128 * 1024, 4 * 2**20))
OTHER = Device("other", "gpu", {"fp32": 20e12}, 900e9, 80, 1.7e9, (128 * 1024, 6 * 2**20))
HERE = Task("gpu", "engine-1", "fp32")
THERE = Task("other", "engine-1", "fp32")
DEVICES = {"gpu": GPU, "other": OTHER}
SLOWNESS = {"conv 1x1": 0.3, "conv kxk": -0.2, "conv depthwise": 1.2, "pointwise": 0.6}
"""The true log-ratio of each class to roofline and launch."""


def table(draw: np.random.Generator, kernels: int = 12) -> KernelTable:
    """A network of random convolutions and pointwise kernels."""
    rows, classes = [], []
    for _ in range(kernels):
        name = str(draw.choice(list(SLOWNESS)))
        channels, out = (int(2 ** draw.integers(4, 9)) for _ in range(2))
        size = int(draw.choice([7, 14, 28, 56]))
        rows.append(_row(name, channels, out, size))
        classes.append(CLASSES.index(name))
    counts = draw.integers(1, 4, kernels).astype(np.float64)
    return KernelTable(np.array(rows), np.array(classes, np.intp), counts, 6e5)


def _row(name: str, channels: int, out: int, size: int) -> list[float]:
    deep = name == "conv depthwise"
    taps = 3 if name in ("conv kxk", "conv depthwise") else 1
    out = channels if deep or name == "pointwise" else out
    groups = channels if deep else 1
    values = dict.fromkeys(COLUMNS, 1.0)
    pixels = size * size
    depth = channels // groups * taps * taps
    values.update(
        kind=KINDS["pointwise" if name == "pointwise" else "conv"],
        c_in=channels, c_out=out, h_in=size, w_in=size, h_out=size, w_out=size, k_h=taps, k_w=taps,
        groups=groups, m=pixels, n=out // groups, k=depth, flop=2.0 * pixels * out * depth,
        in_bytes=4.0 * channels * pixels, out_bytes=4.0 * out * pixels,
        weight_bytes=4.0 * out * depth, item_bytes=4.0, op=0.0, pad=0.0, has_add=0.0, has_bias=0.0,
        activation=0.0, context=0.0, variant=0.0, rank=4.0,
    )  # fmt: skip
    return [float(values[name]) for name in sorted(values, key=COLUMN.__getitem__)]


def true_us(kernels: KernelSet, task: Task, slower: float = 0.0) -> float:
    """What the law says a network takes; ``slower`` is a log-ratio of all its kernels."""
    ratios = np.array([SLOWNESS.get(CLASSES[c], 0.0) for c in kernels.classes]) + slower
    return float((kernels.counts * task_base(kernels, task) * np.exp(ratios)).sum())


def observations(
    count: int, seed: int, task: Task = HERE, slower: float = 0.0
) -> list[Observation]:
    """Networks of the law measured with noise on one task."""
    draw = np.random.default_rng(seed)
    result = []
    for i in range(count):
        kernels = kernel_set(table(draw), DEVICES[task.device], task.precision)
        latency = true_us(kernels, task, slower) * float(np.exp(0.02 * draw.standard_normal()))
        result.append(Observation(kernels, task, latency, f"net{seed}-{i}"))
    return result


def log_us(model: FamilyModel, one: Observation) -> float:
    """The logarithm of a network's latency by a model."""
    return float(np.log(model.predict(one.kernels, one.task).median_us))
