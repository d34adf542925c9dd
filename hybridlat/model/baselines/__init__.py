"""Baselines: what hybridlat is judged against, on the same sums of kernels.

Another package offers a baseline of its own, a subclass of ``Baseline``, under the entry point
group ``hybridlat.baselines``.
"""

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import numpy as np

from hybridlat.errors import InputError
from hybridlat.model.family.physics import CLASSES, KernelTable
from hybridlat.model.geometry import COLUMN, Array, Geometry, Positions, View, geometry
from hybridlat.schema.plugins import Plugins
from hybridlat.schema.target import Device

Unit = Literal["cell", "layer", "network", "layered network"]


@dataclass(frozen=True)
class Sums:
    """Things whose latency is a sum over kernels: cells, unfused layers, or whole networks.

    ``kernels.cell`` is the sum that a kernel belongs to and ``counts`` how often it occurs there.
    The column ``op`` counts in ``kernels.ops``: the engine's operators, of networks the classes of
    kernels. ``texts`` are the signatures of cells and layers; ``copied_bytes`` is what networks
    read and give out. ``whole`` marks networks, which cost something beside their kernels.
    """

    kernels: Geometry
    counts: Array
    copied_bytes: Array
    texts: tuple[str, ...] = ()
    whole: bool = False

    @classmethod
    def of_texts(cls, texts: Sequence[str]) -> "Sums":
        """Cells or layers by their signature texts."""
        kernels = geometry(texts)
        return cls(kernels, np.ones(len(kernels.cell)), np.zeros(len(texts)), tuple(texts))

    @classmethod
    def of_networks(cls, tables: Sequence[KernelTable]) -> "Sums":
        """Whole networks by their tables of kernels."""
        values = np.vstack([table.values for table in tables])
        values[:, COLUMN["op"]] = np.concatenate([table.classes for table in tables])
        owner = np.repeat(np.arange(len(tables)), [len(table.values) for table in tables])
        return cls(
            Geometry(values, owner, len(tables), CLASSES),
            np.concatenate([table.counts for table in tables]),
            np.array([table.copied_bytes for table in tables], np.float64),
            whole=True,
        )

    def __len__(self) -> int:
        return self.kernels.cells

    def take(self, places: Positions) -> "Sums":
        """The sums at these places, in the order given (none twice)."""
        counts = self.counts[self.kernels.rows_of(places)]
        texts = tuple(self.texts[i] for i in places) if self.texts else ()
        return Sums(self.kernels.take(places), counts, self.copied_bytes[places], texts, self.whole)

    def view(self, device: Device, precision: str) -> View:
        """The kernels on a device."""
        return View(self.kernels.values, device, precision)

    def total(self, each: Array) -> Array:
        """Per sum, a quantity of its kernels, each as often as it occurs."""
        return np.asarray(np.bincount(self.kernels.cell, self.counts * each, len(self)), np.float64)


@dataclass(frozen=True)
class Problem:
    """Sums with their latencies in microseconds; ``groups`` are the networks they are from."""

    sums: Sums
    latencies_us: Array
    groups: tuple[str, ...]

    def take(self, places: Positions) -> "Problem":
        """The part of the problem at these places."""
        groups = tuple(self.groups[i] for i in places)
        return Problem(self.sums.take(places), self.latencies_us[places], groups)

    def usable(self) -> "Problem":
        """The part with a positive latency; InputError where there is none."""
        places = np.flatnonzero(np.isfinite(self.latencies_us) & (self.latencies_us > 0))
        if not len(places):
            raise InputError("a baseline needs at least one row with a positive latency, got none")
        return self if len(places) == len(self.sums) else self.take(places)


class Baseline(abc.ABC):
    """A method that predicts the latencies of sums after seeing others.

    ``units`` says which sums it is given, at fit and at predict: ``cell``s of the lowered network,
    unfused ``layer``s of the file, whole ``network``s, or ``layered network``s: unfused ones. Where
    it has cells or layers, a network's latency is the sum over them. ``judged_ops`` are the
    operators of what will be predicted, so that none is learned in vain; None means all.
    """

    name: ClassVar[str]
    units: ClassVar[tuple[Unit, ...]] = ("cell",)
    judged_ops: tuple[str, ...] | None = None

    def __init__(self, device: Device, precision: str, seed: int = 0) -> None:
        self.device = device
        self.precision = precision
        self.seed = seed

    @abc.abstractmethod
    def fit(self, problem: Problem) -> None:
        """Learn from ``problem``; calling it again forgets what it learned before."""

    @abc.abstractmethod
    def predict(self, sums: Sums) -> Array:
        """Latency in microseconds of each sum, NaN where the baseline has no answer."""


_OWN = {
    "flops_linear": "methods:FlopsLinear",
    "kernel_forest": "methods:KernelForest",
    "layerwise_learned": "methods:LayerwiseLearned",
    "layerwise_measured": "methods:LayerwiseMeasured",
    "lookup_only": "methods:LookupOnly",
    "model_only": "methods:ModelOnly",
    "per_kind_linear": "methods:PerKindLinear",
    "roofline": "methods:Roofline",
    "wave_model": "methods:WaveModel",
}
"""By name, the module of this folder and the class."""
BASELINES = Plugins("hybridlat.baselines", {n: f"{__name__}.{c}" for n, c in _OWN.items()})


def names() -> tuple[str, ...]:
    """The baselines there are, in alphabetical order."""
    return BASELINES.names()


def load(name: str) -> type[Baseline]:
    """The baseline class of that name; InputError names the choices."""
    if name not in BASELINES:
        raise InputError(f"{name!r} is not a baseline: choose one of {', '.join(names())}")
    return cast(type[Baseline], BASELINES.load(name, type))
