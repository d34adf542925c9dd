"""Latencies of whole networks as equations between kernels: what the family model learns from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hybridlat.model.family.descriptors import (
    DESCRIPTORS,
    classes_and_counts,
    describe,
    groups_of,
)
from hybridlat.model.family.kernels import CLASSES, COPY, HOST, KernelTable
from hybridlat.model.family.tasks import Task
from hybridlat.schema.device import Device

Array = NDArray[np.float64]
_NOTHING_US = 1e-3
STARTS_EACH_GROUP = ("paddle-tensorrt-2020", "paddle-tensorrt-2021")
"""Where a grouped convolution was seen to take a launch for each group: ResNeXt-50's sixteen on the
V100 take 8.9 ms at batch 1 and at batch 4, a ResNet-50 2.8 and 4.4."""
GROUP_US = 4.0
GROUPED = CLASSES.index("conv grouped")


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
    return KernelSet(descriptors.astype(np.float32), *classes_and_counts(table), base_us)


@dataclass(frozen=True)
class Observation:
    """A measured latency: of a whole network, or of one cell (``is_network`` False).

    ``network`` groups what must be held out together: all sizes and forms of one architecture.
    ``weight`` divides the variance of its noise; 0 leaves it out of learning.
    """

    kernels: KernelSet
    task: Task
    latency_us: float
    network: str
    weight: float = 1.0
    is_network: bool = True


@dataclass(frozen=True)
class SumData:
    """Observations in columns. Equal kernel sets are held once: ``of_set`` says which is whose.

    ``counts`` and ``base_us`` of an observation are its set's, but for what its task leaves out.
    """

    sets: tuple[KernelSet, ...]
    of_set: NDArray[np.intp]
    tasks: tuple[Task, ...]
    task: NDArray[np.intp]
    log_us: Array
    networks: tuple[str, ...]
    weights: Array
    base_us: tuple[Array, ...]

    def __len__(self) -> int:
        return len(self.log_us)

    def take(self, places: Sequence[int] | NDArray[np.intp]) -> SumData:
        """The observations at these places; sets and tasks stay as they are."""
        chosen = np.asarray(places, np.intp)
        return replace(
            self,
            of_set=self.of_set[chosen],
            task=self.task[chosen],
            log_us=self.log_us[chosen],
            networks=tuple(self.networks[i] for i in chosen),
            weights=self.weights[chosen],
            base_us=tuple(self.base_us[i] for i in chosen),
        )


def collect(observations: Iterable[Observation]) -> SumData:
    """Observations in columns. Raises ValueError for a latency that is not above zero."""
    items = list(observations)
    sets: dict[int, int] = {}
    distinct: list[KernelSet] = []
    of_set = []
    for one in items:
        if not one.latency_us > 0:
            raise ValueError(f"{one.network} on {one.task}: a latency of {one.latency_us} us")
        set_index = sets.get(id(one.kernels))
        if set_index is None:
            set_index = sets[id(one.kernels)] = len(distinct)
            distinct.append(one.kernels)
        of_set.append(set_index)
    tasks = tuple(sorted({one.task for one in items}))
    number = {task: i for i, task in enumerate(tasks)}
    return SumData(
        tuple(distinct),
        np.array(of_set, np.intp),
        tasks,
        np.array([number[one.task] for one in items], np.intp),
        np.log([one.latency_us for one in items]),
        tuple(one.network for one in items),
        np.array([one.weight for one in items]),
        tuple(task_base(one.kernels, one.task, one.is_network) for one in items),
    )


def task_base(kernels: KernelSet, task: Task, is_network: bool = True) -> Array:
    """Base latencies of a set's kernels under a task; what does not happen there costs nothing.

    An engine that starts a grouped convolution once for each group launches as often.
    """
    base = kernels.base_us.copy()
    if task.engine in STARTS_EACH_GROUP:
        # With one channel a group it is a depthwise convolution that reads a concatenation.
        wide = kernels.descriptors[:, DESCRIPTORS.index("group_width")] > 0
        grouped = (kernels.classes == GROUPED) & wide
        base[grouped] += GROUP_US * (groups_of(kernels.descriptors[grouped]) - 1)
    if not task.copies:
        base[kernels.classes == COPY] = _NOTHING_US
    if not is_network:
        base[kernels.classes == HOST] = _NOTHING_US
    return base


CLASS_COUNT = len(CLASSES)
