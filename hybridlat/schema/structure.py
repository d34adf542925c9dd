"""The parts of an estimate: what is known of cells, their kernels, and a network's memory."""

import math
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Literal

LatencySource = Literal["measured", "predicted", "unsupported"]


@dataclass(frozen=True, slots=True)
class CellEstimate:
    """One row of a report: all uses of one cell in the network.

    Attributes:
        signature: 32 hex digits of what the cell computes, without names and weights.
        ops: its kernels in order, such as ``Conv+Relu``.
        nodes: every operator of the file in any of the uses.
        uses: how often the network runs it.
        latency_us: of one use, in microseconds; None where it is unsupported.
        interval_us: the ends of the interval of one use, in microseconds.
        share: the part of the sum of cells that all uses take, 0..1.
        source: ``measured``, ``predicted`` or ``unsupported``.
        reason: what a prediction rests on, if not on the target's own model, or why it is doubtful.
        trusted: False where the prediction is far from all that its model was trained on.
    """

    signature: str
    ops: tuple[str, ...]
    nodes: tuple[str, ...] = field(repr=False)
    uses: int
    latency_us: float | None
    interval_us: tuple[float, float] | None
    share: float
    source: LatencySource
    reason: str = ""
    trusted: bool = True

    @property
    def total_us(self) -> float | None:
        """The time of all uses in microseconds; None where there is no latency."""
        return None if self.latency_us is None else self.uses * self.latency_us


@dataclass(frozen=True, slots=True)
class CellPrediction:
    """What the model says of one cell it has not seen measured."""

    latency_us: float | None
    interval_us: tuple[float, float] | None
    trusted: bool
    reason: str = ""


def half_width_share(
    latency_us: float | None, interval_us: tuple[float, float] | None
) -> float | None:
    """The farther end of the interval from the latency, over the latency (0..)."""
    if not latency_us or interval_us is None or math.isinf(interval_us[1]):
        return None
    low_us, high_us = interval_us
    return max(high_us - latency_us, latency_us - low_us) / latency_us


Limit = Literal["compute", "memory", "launch"]
# A roof below a tenth of the latency explains nothing; one far above it does not bind, since the
# data come from a cache, or the sheet's figure is too low.
_LEAST_SHARE, _MOST_SHARE = 0.1, 1.15


@dataclass(frozen=True, slots=True)
class Work:
    """What a kernel does, and what the device needs for it at least.

    ``flop`` counts a multiply-add as two, ``bytes`` all that is read and written once, at the
    precision of the target. ``compute_us``, ``memory_us`` and ``launch_us`` are the microseconds of
    the arithmetic, the memory traffic and the start; None where nothing is known of the device.
    """

    flop: float
    bytes: float
    compute_us: float | None = None
    memory_us: float | None = None
    launch_us: float | None = None


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of a cell, in the order of the cell's signature.

    ``op`` labels it (``Conv+Relu``); ``reads`` are the kernels of the cell whose results it takes,
    -1 for what comes from outside. ``input_shape`` and ``output_shape`` are of its first tensors;
    ``window`` is the kernel size of a convolution or pooling, None for what has none, ``stride``
    and ``groups`` are its own; ``contracts`` is true of convolutions and matrix products. ``work``
    is what it does.
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
    """One distinct cell: its ``kernels`` in the order of the signature."""

    kernels: tuple[Kernel, ...]

    @property
    def flop(self) -> float:
        return sum(kernel.work.flop for kernel in self.kernels)

    @property
    def bytes(self) -> float:
        return sum(kernel.work.bytes for kernel in self.kernels)

    def limit(self, latency_us: float | None) -> tuple[Limit, float] | None:
        """The limit that the cell runs against, and the share of its time which that explains.

        Kernels run one after another, each bound by one limit. The cell's is the one that binds for
        longest; the share (0..) is the sum of all bounds over the latency. None where the
        device is not known, or where the bounds are too far from the latency to explain it.
        """
        sums: dict[Limit, float] = {"compute": 0.0, "memory": 0.0, "launch": 0.0}
        for work in (kernel.work for kernel in self.kernels):
            if work.compute_us is None or work.memory_us is None:
                return None
            times = (work.compute_us, work.memory_us, work.launch_us or 0.0)
            limit, time_us = max(zip(sums, times, strict=True), key=itemgetter(1))
            sums[limit] += time_us
        share = sum(sums.values()) / latency_us if latency_us else 0.0
        if not _LEAST_SHARE <= share <= _MOST_SHARE:
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
    """What a device can do at best by its data sheet.

    ``title`` names it, and ``source`` says where the figures come from. ``peak_flop_per_s`` is at
    the precision of the target, ``bandwidth_bytes_per_s`` of the main memory; ``launch_us`` is the
    time of a kernel that does nothing, None where it is unknown.
    """

    title: str
    peak_flop_per_s: float
    bandwidth_bytes_per_s: float
    launch_us: float | None
    source: str


@dataclass(frozen=True, slots=True)
class Structure:
    """A network as cells and kernels.

    ``cells`` runs parallel to ``Estimate.cells``; ``places`` is the network's own order, one entry
    for each use of a cell. ``roofs`` is None where nothing is known of the device.
    """

    cells: tuple[CellStructure, ...]
    places: tuple[CellPosition, ...]
    roofs: Roofs | None = None

    def paths(self, cell: int) -> tuple[str, ...]:
        """The module path of every use of a cell, in order."""
        return tuple(place.path for place in self.places if place.cell == cell)


@dataclass(frozen=True, slots=True)
class Memory:
    """What a network takes of a device's memory: weights, and the activations that live at once.

    ``total_bytes`` has what the engine adds, at least and at most; None where that is unknown, as
    ``device_bytes`` may be. ``system_bytes`` of those the system and other programs usually take.
    """

    weights_bytes: int
    activations_bytes: int
    total_bytes: tuple[int, int] | None = None
    device_bytes: int | None = None
    system_bytes: int = 0

    @property
    def verdict(self) -> Literal["fits", "tight", "too large"] | None:
        """``fits`` beside the system at most, ``too large`` alone at least; else ``tight``."""
        if self.total_bytes is None or self.device_bytes is None:
            return None
        if self.total_bytes[1] + self.system_bytes <= self.device_bytes:
            return "fits"
        return "too large" if self.total_bytes[0] > self.device_bytes else "tight"


OriginCode = Literal[
    "public-timings", "other-precision", "other-version", "other-device", "device-unmeasured",
    "data-sheet-only",
]  # fmt: skip
"""Where predictions come from that are not the target's own model's."""
WarningCode = Literal[
    OriginCode, "missing-cells", "no-data-sheet", "busy", "contradicted", "beyond-physics",
    "precision", "file", "model-unreadable", "tolerance-out-of-reach", "batch-outside",
    "unlike-known", "uncalibrated", "pace", "network-hint", "cannot-measure", "to-measure", "plan",
    "known-network", "surprising", "host", "order",
]  # fmt: skip
"""What a warning is about; docs/reference/troubleshooting.md says what to do about each."""


@dataclass(frozen=True, slots=True)
class EstimateWarning:
    """What a reader must know besides the numbers: a ``code`` for programs, a ``text`` for people.

    ``fix`` is a command that would narrow the interval or end the doubt, or empty.
    """

    code: WarningCode
    text: str
    fix: str = ""

    def __str__(self) -> str:
        return self.text
