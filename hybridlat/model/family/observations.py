"""Latencies of whole networks as equations between kernels: what the family model learns from.

Equation numbers are those of ``docs/background/family.md``.
"""

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hybridlat.model.family.embedding import DESCRIPTORS, LAUNCH, Embedding, Hyper, describe
from hybridlat.model.family.physics import CLASSES, COPY, HOST, KernelTable, at_batch, least_us
from hybridlat.model.family.tasks import Relations, Task
from hybridlat.model.geometry import Array, Float32, Positions, View
from hybridlat.schema.plugins import shipped_table
from hybridlat.schema.target import Device

_FROM = re.compile(r"(torchvision__|(np|pd|sg|wb|mlperf|caffe)_)?")
"""How tables of networks mark from where a file was exported: ``np_resnet50`` is a ResNet-50."""
_NOTHING_US = 1e-3
HOST_ROW = -2  # of a KernelSet
STARTS_EACH_GROUP = ("paddle-tensorrt-2020", "paddle-tensorrt-2021")
"""Where a grouped convolution was seen to take a launch for each group. ResNeXt-50's sixteen on the
V100 take 8.9 ms at batch 1 and at batch 4, a ResNet-50 2.8 and 4.4."""
GROUP_US = 4.0
GROUPED = CLASSES.index("conv grouped")
DISPATCH_US = 10.0
"""What eager PyTorch's host takes for a call, while the device computes."""
_WEIGHTED = (np.arange(len(CLASSES)) <= CLASSES.index("matmul")).astype(np.float64)
_CALLS = 1 + 2 * _WEIGHTED + (np.arange(len(CLASSES)) == CLASSES.index("batch normalisation"))
_CALLS[[HOST, COPY]] = 0
"""Calls that a kernel of each class is worth; autocast casts weights in one more."""
GRAPH_SHARE = 0.5
"""What a CUDA graph leaves of a launch: some 4 us a small kernel in all, 5 to 13 without."""


@dataclass(frozen=True)
class KernelSet:
    """The kernels of one network on one device: a row each, host and copy last.

    ``descriptors`` are rows of ``DESCRIPTORS`` and ``PARTS``, ``classes`` index ``CLASSES``,
    ``base_us`` is the latency that the model corrects, ``least_us`` what the device cannot beat.
    ``batch`` is that of most kernels. They came of a ``table``, whose ``precision`` names a peak of
    the device's sheet.
    """

    descriptors: Float32
    classes: Positions
    counts: Array
    base_us: Array
    least_us: Array
    batch: float
    table: KernelTable = field(repr=False)
    device: Device = field(repr=False)
    precision: str

    def times(self, factor: float) -> "KernelSet":
        """The same network on so many times as many inputs."""
        return kernel_set(at_batch(self.table, factor), self.device, self.precision)


def kernel_set(table: KernelTable, device: Device, precision: str) -> KernelSet:
    """The kernels of a network as a device sees them."""
    view = View(table.values, device, precision)
    descriptors, base_us = describe(table, view)
    classes, counts = np.append(table.classes, [HOST, COPY]), np.append(table.counts, [1.0, 1.0])
    least = np.append(least_us(view), [0.0, 0.0])
    recurrent = view.reread_bytes > 0  # what is around it has steps first
    batches = view.batch[recurrent if recurrent.any() else slice(None)]
    # To import numpy's masked arrays, as its own median does, takes longer than all the rest.
    batch = float(statistics.median(batches.tolist())) if len(batches) else 1.0
    rows = descriptors.astype(np.float32)
    return KernelSet(rows, classes, counts, base_us, least, batch, table, device, precision)


@dataclass(frozen=True)
class Observation:
    """The measured latency of a whole network.

    ``architecture`` groups what must be held out together: all sizes and forms of it, which share
    errors by (6). ``weight`` divides the variance of its noise; 0 leaves it out of learning.
    """

    kernels: KernelSet
    task: Task
    latency_us: float
    architecture: str
    weight: float = 1.0


def shared_noise(observations: Sequence[Observation], hyper: Hyper, hosts: Array) -> Array:
    """N of (6) but for its last term; ``hosts`` are h, the standard deviations of the hosts."""
    names = np.array([one.architecture for one in observations])
    tasks = [one.task for one in observations]
    same, relations = names[:, None] == names, Relations(tasks, tasks)
    on_task = same & relations.alike["task"][relations.pairs]
    network = hyper.network**2 + np.outer(hosts, hosts)
    return np.asarray(network * on_task + hyper.architecture**2 * same)


def task_base(kernels: KernelSet, task: Task) -> Array:
    """b of a set's rows under a task; what does not happen there costs nothing.

    An engine that starts a grouped convolution once for each group launches as often. Eager
    PyTorch's host enqueues kernel by kernel.
    """
    base = kernels.base_us.copy()
    if task.graphs:
        base *= 1 - (1 - GRAPH_SHARE) * kernels.descriptors[:, LAUNCH]
    if task.engine in STARTS_EACH_GROUP:
        # With one channel a group it is a depthwise convolution that reads a concatenation.
        wide = kernels.descriptors[:, DESCRIPTORS.index("group_width")] > 0
        grouped = (kernels.classes == GROUPED) & wide
        octaves = kernels.descriptors[grouped, DESCRIPTORS.index("groups")].astype(np.float64)
        base[grouped] += GROUP_US * (np.exp2(2.0 * octaves) - 1)
    if task.runtime == "torch":
        base[HOST_ROW] = dispatch_us(kernels.classes, kernels.counts, task)
    if not task.copies:
        base[kernels.classes == COPY] = _NOTHING_US
    return base


def dispatch_us(classes: Positions, counts: Array, task: Task) -> float:
    """What a host takes to enqueue kernels one by one, at a usual pace; 0 but for eager PyTorch."""
    calls = _CALLS + _WEIGHTED * (task.precision == "amp")
    return DISPATCH_US * float(counts @ calls[classes]) if task.runtime == "torch" else 0.0


class LinearNetwork(NamedTuple):
    """A network near a guess f⁰ of its rows' log-ratios, as a linear equation (4).

    ``log_us`` is y⁰; ``shares`` are s, the slopes of y by each row's f; ``equation`` is z.
    ``uses_us`` is the time of all uses of every row: of a host beside the device, what is waited
    for it.
    """

    log_us: float
    shares: Array
    equation: Float32
    uses_us: Array

    def residual(self, log_us: float, ratios: Array) -> float:
        """r of an observed ``log_us``; ``ratios`` are f⁰, or what f⁰ has beyond a mean."""
        return float(log_us - self.log_us + self.shares @ ratios)


class TaskNetwork(NamedTuple):
    """A network on a task: rows of kernels, their bases b there, and their points φ."""

    kernels: KernelSet
    task: Task
    base_us: Array
    points: Float32

    @classmethod
    def of(
        cls, kernels: KernelSet, task: Task, embedding: Embedding, points: Float32 | None = None
    ) -> "TaskNetwork":
        """``points`` where they are at hand."""
        points = embedding(kernels.descriptors, kernels.classes) if points is None else points
        return cls(kernels, task, task_base(kernels, task), points)

    def linearise(self, ratios: Array, hyper: Hyper) -> LinearNetwork:
        """Near f⁰ = ``ratios``, which count from ``hyper.lowest`` to ``.highest`` alone."""
        ratios = np.clip(ratios, hyper.lowest, hyper.highest)
        uses_us, power = self.kernels.counts * self.base_us * np.exp(ratios), hyper.overlap
        device_us = float(uses_us.sum() - uses_us[HOST_ROW])
        whole_us = float((device_us**power + uses_us[HOST_ROW] ** power) ** (1 / power))
        device_share = device_us / whole_us
        uses_us[HOST_ROW] = whole_us - device_us
        shares = uses_us * (device_share ** (power - 1) / whole_us)
        shares[HOST_ROW] = 1 - device_share**power
        equation = shares.astype(np.float32) @ self.points
        return LinearNetwork(float(np.log(whole_us)), shares, equation, uses_us)


def architecture_of(network: str) -> str:
    """A network's name without its origin, and the size and the form that it was exported in."""
    return _FROM.sub("", network, count=1).split("__")[0]


def family_of(architecture: str) -> str:
    """The family of architectures that one is a variant of, by its name: ``resnet`` (12)."""
    name = re.sub(r"^(tf_|dm_|legacy_|gc_|test_)", "", architecture)
    groups: list[str] = shipped_table("names")["architectures"]["groups"]
    return next((group for group in groups if name.startswith(group)), name.split("_")[0])
