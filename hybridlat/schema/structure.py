"""What a network's cells are made of and where they stand: what reports draw and explain.

Values only. ``Structure.cells`` runs parallel to ``Estimate.cells``, and ``Structure.places`` is
the network's own order, one entry for each use of a cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hybridlat.schema.device import Device

Limit = Literal["compute", "memory", "launch"]
LIMITS: tuple[Limit, ...] = ("compute", "memory", "launch")

LEAST_SHARE = 0.1
"""A roof below a tenth of the latency explains nothing, and is not called its limit."""
MOST_SHARE = 1.15
"""A roof this far above the latency is not the one that binds: its data come from a cache, or the
sheet's figure is too low."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a kernel does, and what the device needs for it at least.

    ``flop`` counts a multiply-add as two, ``bytes`` all that is read and written once, at the
    precision of the target. The times are None where nothing is known of the device.
    """

    flop: float
    bytes: float
    compute_us: float | None = None
    memory_us: float | None = None
    launch_us: float | None = None

    def bound(self) -> tuple[Limit, float] | None:
        """The limit that binds, and the time in µs that it allows at best; None if unknown."""
        if self.compute_us is None or self.memory_us is None:
            return None
        times = (self.compute_us, self.memory_us, self.launch_us or 0.0)
        return max(zip(LIMITS, times, strict=True), key=lambda pair: pair[1])


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of a cell, in the order of the cell's signature.

    ``op`` labels it (``Conv+Relu``); ``reads`` are the kernels of the cell whose results it takes,
    -1 for what comes from outside. ``input_shape`` and ``output_shape`` are of its first tensors;
    ``window`` is the kernel size of a convolution or pooling, None for what has none; ``contracts``
    is true of convolutions and matrix products.
    """

    op: str
    reads: tuple[int, ...]
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    window: tuple[int, int] | None
    stride: int
    groups: int
    contracts: bool
    work: Work


@dataclass(frozen=True, slots=True)
class CellStructure:
    """One distinct cell: its kernels in the order of the signature."""

    kernels: tuple[Kernel, ...]

    @property
    def running(self) -> tuple[int, ...]:
        """Positions of the kernels that compute something of the input: the rest makes constants.

        All of them where none does.
        """
        reached: set[int] = set()
        for i, kernel in enumerate(self.kernels):
            if any(j < 0 or j in reached for j in kernel.reads):
                reached.add(i)
        return tuple(sorted(reached)) or tuple(range(len(self.kernels)))

    @property
    def flop(self) -> float:
        return sum(kernel.work.flop for kernel in self.kernels)

    @property
    def bytes(self) -> float:
        return sum(kernel.work.bytes for kernel in self.kernels)

    def limit(self, latency_us: float | None) -> tuple[Limit, float] | None:
        """The limit that the cell runs against, and the share of its time which that explains.

        Kernels run one after another: each is bound by one limit, and the cell's is the one that
        binds for longest; the share (0..) is the sum of all bounds over the latency. None where the
        device is not known, or where the bounds are too far from the latency to explain it.
        """
        bounds = [kernel.work.bound() for kernel in self.kernels]
        if not latency_us or not bounds or None in bounds:
            return None
        sums = dict.fromkeys(LIMITS, 0.0)
        for bound in bounds:
            assert bound is not None
            sums[bound[0]] += bound[1]
        share = sum(sums.values()) / latency_us
        if not LEAST_SHARE <= share <= MOST_SHARE:
            return None
        return max(sums, key=sums.__getitem__), share


@dataclass(frozen=True, slots=True)
class CellPosition:
    """One use of a cell, in the order of the network's schedule.

    ``cell`` counts in ``Structure.cells``; ``reads`` are the places whose results it takes, -1 for
    the network's inputs; ``path`` is the module path that its operators share, ``names`` are the
    file's operators behind each kernel.
    """

    cell: int
    reads: tuple[int, ...]
    path: str
    names: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Roofs:
    """What a device can do at best, as far as its sheet tells: FLOP/s and bytes/s.

    ``source`` says where the figures come from.
    """

    title: str
    peak_flop_per_s: float
    bandwidth_bytes_per_s: float
    launch_us: float | None
    source: str

    @classmethod
    def of(cls, device: Device, precision: str) -> Roofs:
        return cls(
            device.title or device.name,
            device.peak(precision),
            device.bandwidth_bytes_per_s,
            device.launch_us,
            device.source,
        )


@dataclass(frozen=True, slots=True)
class Structure:
    """A network as cells and kernels; ``roofs`` None where nothing is known of the device."""

    cells: tuple[CellStructure, ...]
    places: tuple[CellPosition, ...]
    roofs: Roofs | None = None

    def paths(self, cell: int) -> tuple[str, ...]:
        """The module path of every use of a cell, in order."""
        return tuple(place.path for place in self.places if place.cell == cell)
