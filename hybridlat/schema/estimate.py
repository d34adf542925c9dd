"""What a prediction says: the latency of a network, how sure it is, and where the time goes.

``Structure.cells`` runs parallel to ``Estimate.cells``; ``Structure.places`` is the network's own
order, one entry for each use of a cell.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from operator import itemgetter
from typing import Any, Literal

from hybridlat.schema.device import Device

ESTIMATE_FORMAT = 1
LatencySource = Literal["measured", "predicted", "unsupported"]
NetworkSource = Literal["measured", "composed"]
Limit = Literal["compute", "memory", "launch"]
# A roof below a tenth of the latency explains nothing; one far above it does not bind, since the
# data come from a cache, or the sheet's figure is too low.
_LEAST_SHARE, _MOST_SHARE = 0.1, 1.15


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
    def flop(self) -> float:
        return sum(kernel.work.flop for kernel in self.kernels)

    @property
    def bytes(self) -> float:
        return sum(kernel.work.bytes for kernel in self.kernels)

    def limit(self, latency_us: float | None) -> tuple[Limit, float] | None:
        """The limit that the cell runs against, and the share of its time which that explains.

        Kernels run one after another, each bound by one limit; the cell's is the one that binds for
        longest, and the share (0..) is the sum of all bounds over the latency. None where the
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
    """What a device can do at best by its data sheet, and where the figures come from."""

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


@dataclass(frozen=True, slots=True)
class CellEstimate:
    """One row of a report: all uses of one cell in the network.

    ``latency_us`` and ``interval_us`` are of one use, ``count`` the number of uses, ``share`` the
    part of the sum of cells that all uses take (0..1). ``nodes`` names every operator of the
    file in any of the uses. An unsupported cell has no latency, and makes the whole untrusted.
    ``trusted`` is False where the prediction is far from all that its model was trained on;
    ``reason`` says so then, and else what a prediction rests on if not on the target's own model.
    """

    signature: str
    ops: tuple[str, ...]
    nodes: tuple[str, ...]
    count: int
    latency_us: float | None
    interval_us: tuple[float, float] | None
    share: float
    source: LatencySource
    reason: str = ""
    trusted: bool = True


@dataclass(frozen=True)
class Estimate:
    """The answer for one network on one target; see the JSON of ``predict --json``.

    ``latency_us`` is None only when no cell of the network has a latency. ``interval_us`` holds
    the true latency with probability ``confidence``. ``measured_share`` is the part of the time
    that comes from measured cells; ``measured_now`` counts cells measured to answer this call.
    ``removed`` names the operators of the file that the engine does not run, and the last
    ``constants`` of them only make constants; every other one is in exactly one cell.
    ``to_measure`` are the signatures that the gate would measure next, to come within
    ``tolerance``. ``structure`` says what the cells are made of and where they stand, where that
    was asked for.

    ``source`` is ``measured`` where the latency is that of the network itself, measured whole, and
    ``reason`` says when; then all of the time counts as measured, and the cells are what is
    believed of them given that sum. It is ``composed`` where the latency is made of the cells.
    ``network_measured_now`` says that the whole network was measured to answer this call.
    ``pace_share`` is how far the interval would reach if nothing but the machine's own pace were
    unsure: what all latencies on it share, so that it tells no two of them apart. ``contradicted``
    says that the network and its cells were both measured and cannot both be right, ``busy`` that
    the machine had other work while it measured what the answer rests on.
    """

    network: str
    target: str
    batch: int
    latency_us: float | None
    interval_us: tuple[float, float] | None
    confidence: float
    within_tolerance: bool
    sum_of_cells_us: float
    measured_share: float
    measured_now: int
    elapsed_s: float
    cells: tuple[CellEstimate, ...]
    removed: tuple[str, ...] = ()
    constants: int = 0
    to_measure: tuple[str, ...] = ()
    tolerance: float | None = None
    warnings: tuple[str, ...] = ()
    structure: Structure | None = field(default=None, compare=False, repr=False)
    source: NetworkSource = "composed"
    reason: str = ""
    network_measured_now: bool = False
    pace_share: float = 0.0
    contradicted: bool = False
    busy: bool = False

    @property
    def supported(self) -> bool:
        """True when every cell has a latency."""
        return all(cell.source != "unsupported" for cell in self.cells)

    @property
    def trusted(self) -> bool:
        """True when every cell has a latency, and they are measured or the interval suffices.

        With every cell measured there is nothing left to do about an interval that is wide; so it
        is with a network that was measured whole, unless its measured cells contradict it. What a
        busy machine measured is never trusted.
        """
        if self.busy:
            return False
        if self.source == "measured":
            return not self.contradicted
        if self.latency_us is None or not self.supported:
            return False
        measured = all(cell.source == "measured" for cell in self.cells)
        return self.within_tolerance or measured

    @property
    def throughput_per_s(self) -> float | None:
        """Items a second, one batch after another; None where there is no latency."""
        return self.batch * 1e6 / self.latency_us if self.latency_us else None

    @property
    def throughput_interval_per_s(self) -> tuple[float, float] | None:
        """What ``interval_us`` says of the items a second."""
        if self.interval_us is None or not self.interval_us[0] > 0:
            return None
        low_us, high_us = self.interval_us
        return self.batch * 1e6 / high_us, self.batch * 1e6 / low_us

    def to_json(self) -> dict[str, Any]:
        """The fixed JSON object of ``predict --json`` (format 1)."""
        body: dict[str, Any] = {"format": ESTIMATE_FORMAT}
        body |= {f.name: getattr(self, f.name) for f in fields(self) if f.name != "structure"}
        body["cells"] = [self._cell_json(position) for position in range(len(self.cells))]
        body["throughput_per_s"] = self.throughput_per_s
        body["throughput_interval_per_s"] = self.throughput_interval_per_s
        return body

    def _cell_json(self, position: int) -> dict[str, Any]:
        cell = self.cells[position]
        body = asdict(cell)
        if not cell.reason:
            del body["reason"]
        if self.structure is not None:
            made_of = self.structure.cells[position]
            limit = made_of.limit(cell.latency_us)
            body |= {
                "paths": self.structure.paths(position),
                "flop": made_of.flop,
                "bytes": made_of.bytes,
                "limit": limit[0] if limit else None,
                "limit_share": limit[1] if limit else None,
            }
        return body


@dataclass(frozen=True, slots=True)
class CellPrediction:
    """What the model says of one cell it has not seen measured.

    ``interval_us`` is at the model's stated confidence. ``trusted`` is False outside what the model
    was trained on, and ``reason`` then says why (``outside the training range: K=4608`` …);
    ``latency_us`` None means the model cannot say anything (an operator it has never seen).
    """

    latency_us: float | None
    interval_us: tuple[float, float] | None
    trusted: bool
    reason: str = ""
