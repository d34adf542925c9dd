"""Latencies of whole networks as equations between kernels: what the family model learns from.

A task is a slice of the data with a law of its own: a device, an engine version, a precision.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from hybridlat.model.family.kernels import (
    CLASSES,
    COPY,
    DESCRIPTORS,
    HOST,
    LAUNCH,
    KernelTable,
    describe,
    groups_of,
)
from hybridlat.schema.device import Device
from hybridlat.schema.target import VERSION

Array = NDArray[np.float64]
Number = Annotated[float, msgspec.Meta(ge=0, le=1e4)]
"""Of a law: a standard deviation, a variance, a factor."""
_NOTHING_US = 1e-3
HOST_ROW = -2  # of a KernelSet
STARTS_EACH_GROUP = ("paddle-tensorrt-2020", "paddle-tensorrt-2021")
"""Where a grouped convolution was seen to take a launch for each group: ResNeXt-50's sixteen on the
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


@dataclass(frozen=True, slots=True, order=True)
class Task:
    """One slice of the data with a law of its own.

    ``engine`` is the engine with its version (``paddle-tensorrt-8.0``), ``layout`` that of the
    activations where a source tells several apart (``nchw``, ``nhwc``), else empty. ``copies`` says
    whether inputs and outputs are moved between host and device within the time that was taken,
    ``graphs`` whether a CUDA graph replayed the network.
    """

    device: str
    engine: str
    precision: str
    layout: str = ""
    copies: bool = False
    graphs: bool = False

    @property
    def runtime(self) -> str:
        """The engine without its version."""
        return VERSION.sub("", self.engine)


@dataclass(frozen=True, slots=True)
class Sharing:
    """Variance of the kernels' log-ratios by what two tasks must have in common to share it.

    ``all`` is common to the whole family, the others to tasks of one device, one engine version,
    one precision, one layout, to one task alone, to all versions of one engine, and to one engine
    version at one precision, which runs the same kernels on every device.
    """

    all: Number = 1.0
    device: Number = 0.3
    engine: Number = 0.2
    precision: Number = 0.3
    layout: Number = 0.1
    task: Number = 0.4
    runtime: Number = 0.0
    recipe: Number = 0.0

    @property
    def total(self) -> float:
        """Of a task with itself."""
        return float(sum(astuple(self)))

    def between(self, relations: Relations) -> Array:
        """Covariance factor of every pair, (left x right)."""
        each = [getattr(self, name) * same for name, same in relations.alike.items()]
        return np.asarray(sum(each, float(self.all)))[relations.pairs]


class Relations:
    """What the tasks of two lists have in common: ``alike`` of the distinct ones by name.

    ``pairs`` picks (left x right) of what is worked out for those.
    """

    def __init__(self, left: Sequence[Task], right: Sequence[Task]) -> None:
        number = {task: i for i, task in enumerate(dict.fromkeys((*left, *right)))}
        self.alike = {
            name: np.equal.outer(*[np.array([getattr(task, name) for task in number], object)] * 2)
            for name in ("device", "engine", "precision", "layout", "runtime")
        }
        self.alike["recipe"] = self.alike["engine"] & self.alike["precision"]
        self.alike["task"] = np.eye(len(number), dtype=bool)
        self.pairs = np.ix_([number[t] for t in left], [number[t] for t in right])


@dataclass(frozen=True)
class KernelSet:
    """The kernels of one network on one device: a row each, host and copy last.

    ``descriptors`` are rows of ``DESCRIPTORS`` and ``PARTS``, ``classes`` index ``CLASSES``,
    ``base_us`` is the latency that the model corrects.
    """

    descriptors: NDArray[np.float32]
    classes: NDArray[np.intp]
    counts: Array
    base_us: Array


def kernel_set(table: KernelTable, device: Device, precision: str) -> KernelSet:
    """The kernels of a network as a device sees them; ``precision`` names a peak of its sheet."""
    descriptors, base_us = describe(table, device, precision)
    classes, counts = np.append(table.classes, [HOST, COPY]), np.append(table.counts, [1.0, 1.0])
    return KernelSet(descriptors.astype(np.float32), classes, counts, base_us)


@dataclass(frozen=True)
class Observation:
    """The measured latency of a whole network.

    ``network`` groups what must be held out together: all sizes and forms of one architecture.
    ``weight`` divides the variance of its noise; 0 leaves it out of learning.
    """

    kernels: KernelSet
    task: Task
    latency_us: float
    network: str = ""
    weight: float = 1.0


def task_base(kernels: KernelSet, task: Task) -> Array:
    """Base latencies of a set's kernels under a task; what does not happen there costs nothing.

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
        base[grouped] += GROUP_US * (groups_of(kernels.descriptors[grouped]) - 1)
    if task.runtime == "torch":
        calls = _CALLS + _WEIGHTED * (task.precision == "amp")
        base[HOST_ROW] = DISPATCH_US * float(kernels.counts @ calls[kernels.classes])
    if not task.copies:
        base[kernels.classes == COPY] = _NOTHING_US
    return base


_FAMILY = (
    "efficientnetv2", "efficientnet", "mobilenetv1", "mobilenetv2", "mobilenetv3", "mobilenetv4",
    "mobilenet_edgetpu", "mobileone", "convnextv2", "convnext", "convmixer", "convformer",
    "resnetv2", "resnest", "resnext", "regnet", "repvgg", "repvit", "repghostnet", "ghostnet",
    "densenet", "darknet", "hrnet", "hgnet", "dla", "dpn", "vgg", "inception", "xception",
    "rexnet", "nfnet", "nf_", "seresnext", "seresnet", "senet", "ecaresnet", "eca_", "res2ne",
    "skresnet", "cs", "lcnet", "mixnet", "mnasnet", "semnasnet", "poolformer", "mambaout",
    "fasternet", "fastvit", "starnet", "selecsls", "fbnet", "hardcorenas", "wide_resnet",
    "resnet", "shufflenet", "squeezenet", "alexnet", "ese_vovnet", "vovnet", "tresnet",
    "yolo_nas", "yolov5", "yolov7", "yolov8", "yolov9", "yolov10", "yolo11", "yolo12", "yolox",
    "ppyoloe", "pp_lite", "ddrnet", "stdc", "ssd", "nextvit", "gpunet", "pplcnet", "mobilenet",
)  # fmt: skip


_FROM = re.compile(r"(torchvision__|(np|pd|sg|wb|mlperf|caffe)_)?")
"""How tables of networks mark from where a file was exported: ``np_resnet50`` is a ResNet-50."""


def architecture_of(network: str) -> str:
    """A network's name without its origin, and the size and the form that it was exported in."""
    return _FROM.sub("", network, count=1).split("__")[0]


def family_of(architecture: str) -> str:
    """What an architecture is a variant of, by its name."""
    name = re.sub(r"^(tf_|dm_|legacy_|gc_|test_)", "", architecture)
    return next((f for f in _FAMILY if name.startswith(f)), name.split("_")[0])
