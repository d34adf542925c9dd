"""What the family model learns for: targets, how much one tells about another, and networks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hybridlat.schema.target import VERSION

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, order=True)
class Task:
    """One slice of the data with a law of its own.

    ``engine`` is the engine with its version (``paddle-tensorrt-8.0``), ``layout`` that of the
    activations where a source tells several apart (``nchw``, ``nhwc``), else empty. ``copies`` says
    whether inputs and outputs are moved between host and device within the time that was taken.
    """

    device: str
    engine: str
    precision: str
    layout: str = ""
    copies: bool = False

    @property
    def runtime(self) -> str:
        """The engine without its version."""
        return VERSION.sub("", self.engine)


def by_task(places: Sequence[int], tasks: Sequence[Task]) -> list[list[int]]:
    """The places of each task, in the order of tasks; ``tasks`` are those of the places."""
    of_task: dict[Task, list[int]] = {}
    for place, task in zip(places, tasks, strict=True):
        of_task.setdefault(task, []).append(place)
    return [of_task[task] for task in sorted(of_task)]


@dataclass(frozen=True, slots=True)
class Sharing:
    """Variance of the kernels' log-ratios by what two tasks must have in common to share it.

    ``all`` is common to the whole family, the others to tasks of one device, one engine version,
    one precision, one layout, to one task alone, to all versions of one engine, and to one engine
    version at one precision, which runs the same kernels on every device.
    """

    all: float = 1.0
    device: float = 0.3
    engine: float = 0.2
    precision: float = 0.3
    layout: float = 0.1
    task: float = 0.4
    runtime: float = 0.0
    recipe: float = 0.0

    def between(self, left: Sequence[Task], right: Sequence[Task]) -> Array:
        """Covariance factor of every pair, (left x right)."""
        alike = {
            name: np.array([getattr(task, name) for task in left])[:, None]
            == np.array([getattr(task, name) for task in right])[None, :]
            for name in ("device", "engine", "precision", "layout", "runtime")
        }
        result = np.full((len(left), len(right)), float(self.all))
        for name, same_name in alike.items():
            result += getattr(self, name) * same_name
        result += self.recipe * (alike["engine"] & alike["precision"])
        same = np.array([[a == b for b in right] for a in left], np.float64)
        return np.asarray(result + self.task * same.reshape(len(left), len(right)))


_FAMILY = (
    "efficientnetv2", "efficientnet", "mobilenetv1", "mobilenetv2", "mobilenetv3", "mobilenetv4",
    "mobilenet_edgetpu", "mobileone", "convnextv2", "convnext", "convmixer", "convformer",
    "resnetv2", "resnest", "resnext", "regnet", "repvgg", "repvit", "repghostnet", "ghostnet",
    "densenet", "darknet", "hrnet", "hgnet", "dla", "dpn", "vgg", "inception", "xception",
    "rexnet", "nfnet", "nf_", "seresnext", "seresnet", "senet", "ecaresnet", "eca_", "res2ne",
    "skresnet", "cs", "lcnet", "mixnet", "mnasnet", "semnasnet", "poolformer", "mambaout",
    "fasternet", "fastvit", "starnet", "selecsls", "fbnet", "hardcorenas", "wide_resnet",
    "resnet", "shufflenet", "squeezenet", "alexnet", "ese_vovnet", "vovnet", "tresnet",
)  # fmt: skip


def architecture_of(network: str) -> str:
    """A network's name without the size and the form that it was exported in."""
    return network.removeprefix("torchvision__").split("__")[0]


def family_of(architecture: str) -> str:
    """What an architecture is a variant of, by its name."""
    name = re.sub(r"^(tf_|dm_|legacy_|gc_|test_)", "", architecture)
    return next((f for f in _FAMILY if name.startswith(f)), name.split("_")[0])
