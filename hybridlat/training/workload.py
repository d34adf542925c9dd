"""What an onboarding can measure, what of it was tried, and what the rest is expected to cost."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from hybridlat import onnx_io
from hybridlat.errors import HybridlatError, UnavailableError
from hybridlat.estimate.partition import Partition, partition_network
from hybridlat.graph.network import Network
from hybridlat.graph.signature import sign
from hybridlat.graph.signature_reading import read
from hybridlat.measuring.measurer import Measurer, MeasureRequest
from hybridlat.measuring.schedule import MeasurementConfig
from hybridlat.model.geometry import View, geometry, problem_of
from hybridlat.schema.device import Device
from hybridlat.schema.measurement import Breakdown, Kind
from hybridlat.schema.progress import OnProgress
from hybridlat.schema.target import Target
from hybridlat.store import Store
from hybridlat.training.kernel_families import EVERY
from hybridlat.training.kernel_sampler import Engine, as_read, draw, sweep

LEAST_NETWORKS = 4
"""So many networks are lowered however long that takes."""
HEAVY_BYTES = 100_000_000
"""Weights from which on a network is read last."""
_MOST_KERNELS = 1_000_000
_PACE_IN_NETWORKS = 20.0  # a cell that is measured inside its network against one by itself
_LAUNCH_US = 1.0  # of a kernel, on top of its roofline
_UNREADABLE_US = 100.0  # taken for a cell whose signature the model cannot read
_CELL_S, _CELL_RUNS = 0.1, 30  # one visit of a cell: its fixed part, and how often the cell runs
_NETWORK_S, _NETWORK_RUNS = 0.3, 4


@dataclass(frozen=True)
class Item:
    """One thing to measure: ``request`` asks for all of it.

    ``texts`` are the signature texts of its cells by hash. A network has a ``breakdown``, a kernel
    has none.
    """

    request: MeasureRequest
    texts: Mapping[str, str]
    breakdown: Breakdown | None = None

    @property
    def name(self) -> str:
        return self.request.name


@dataclass
class Networks:
    """The networks that were read, and notes on those left out; ``unread`` counts the rest."""

    items: list[Item] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unread: int = 0


def read_networks(files: Sequence[Path], engine: Engine, seed: int, end: float) -> Networks:
    """Read networks, and lower them until ``end`` (of the monotonic clock), at least a few.

    The order is drawn from the seed; networks with large weights come last.
    """
    networks = Networks()
    readable: list[Network] = []
    for path in sorted(files):
        try:
            readable.append(onnx_io.read_network(path, name=path.stem))
        except HybridlatError as error:
            networks.notes.append(f"{path.name} is left out: {error}")
    random.Random(f"hybridlat networks {seed}").shuffle(readable)
    readable.sort(key=lambda network: network.weight_bytes > HEAVY_BYTES)
    for place, network in enumerate(readable):
        if time.monotonic() >= end and place >= LEAST_NETWORKS:
            networks.unread = len(readable) - place
            break
        try:
            networks.items.append(_network_item(network, engine))
        except HybridlatError as error:
            networks.notes.append(f"{network.name} is left out: {error}")
    return networks


def random_kernels(engine: Engine, needs_network: bool, seed: int) -> Iterator[Item]:
    """Random kernels in the order drawn; ``needs_network``: each inside a small network."""
    if needs_network:
        yield from _kernels_in_networks(engine, seed)
        return
    labels = {"sweep": str(seed)}
    for hash_, kernel in sweep(engine, _MOST_KERNELS, seed, families=EVERY):
        request = MeasureRequest("kernel", kernel, {hash_: kernel}, labels=labels)
        yield Item(request, {hash_: sign(kernel).text})


def _kernels_in_networks(engine: Engine, seed: int) -> Iterator[Item]:
    for place in range(_MOST_KERNELS):
        try:
            network = as_read(draw(seed * 1_000_003 + place, EVERY))
            partition = _partition(network, engine)
        except HybridlatError:
            continue  # what an engine refuses is passed over, as in every sweep
        if partition.uses:
            request = MeasureRequest(f"kernel {place}", network, _cells(partition))
            yield Item(request, partition.texts)


def _network_item(network: Network, engine: Engine) -> Item:
    partition = _partition(network, engine)
    counts = tuple((use.signature, use.count) for use in partition.uses)
    labels = {"network": network.name}
    signature = sign(network).hash
    breakdown = Breakdown(engine.target, network.name, signature, counts, labels=labels)
    request = MeasureRequest(network.name, network, _cells(partition), whole=True)
    return Item(request, partition.texts, breakdown)


def _partition(network: Network, engine: Engine) -> Partition:
    left_out = (name for name, _ in network.left_out)
    names = (*(node.name for node in network.nodes), *network.folded, *left_out)
    return partition_network(network, engine.lower(network), names)


def _cells(partition: Partition) -> dict[str, Network]:
    return {
        use.signature: read(partition.texts[use.signature], " ".join(use.ops)[:60])
        for use in partition.uses
    }


@dataclass
class Bench:
    """The measurer of a target with its store: what was tried, and what measuring costs.

    ``tried`` says by kind and hash whether there is a latency; ``refused`` are names of what could
    not be measured; ``pace`` is what visits take against the guess.
    """

    target: Target
    measurer: Measurer
    store: Store
    settings: MeasurementConfig
    device: Device
    progress: OnProgress | None
    tried: dict[tuple[Kind, str], bool] = field(default_factory=dict)
    start_us: dict[str, float] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    pace: float = 0.0

    def __post_init__(self) -> None:
        self.pace = _PACE_IN_NETWORKS if self.measurer.needs_network else 1.0

    def look_up(self, items: Sequence[Item]) -> None:
        """Read what the store knows of these by now."""
        texts = {h: text for item in items for h, text in item.texts.items()}
        new = {h: text for h, text in texts.items() if h not in self.start_us}
        self.start_us |= start_us(new, self.device, self.target.precision)
        wholes = [item.breakdown.signature for item in items if item.breakdown is not None]
        hashes: tuple[tuple[Kind, list[str]], ...] = (("cell", list(texts)), ("network", wholes))
        for kind, wanted in hashes:
            unknown = [h for h in wanted if (kind, h) not in self.tried]
            for h, stats in self.store.latencies(self.target, unknown, kind).items():
                self.tried[kind, h] = stats.latency_us is not None

    def rest(self, item: Item) -> MeasureRequest:
        """What was not tried of an item yet."""
        cells = {h: c for h, c in item.request.cells.items() if ("cell", h) not in self.tried}
        whole = (
            item.breakdown is not None and ("network", item.breakdown.signature) not in self.tried
        )
        return replace(item.request, cells=cells, whole=whole)

    def is_complete(self, item: Item) -> bool:
        """Whether nothing is left to try of an item."""
        return self.rest(item).is_empty

    def knows_any(self, item: Item) -> bool:
        """Whether a cell of an item has a latency."""
        return any(self.tried.get(("cell", h)) for h in item.request.cells)

    def expected_s(self, item: Item) -> float:
        """Seconds that measuring what is left of an item is expected to take."""
        rest = self.rest(item)
        seconds = sum(_CELL_S + 1e-6 * _CELL_RUNS * self.start_us[h] for h in rest.cells)
        if rest.whole and item.breakdown is not None:
            whole_us = sum(count * self.start_us[h] for h, count in item.breakdown.cells)
            settings = self.settings
            visits = settings.rounds * settings.processes * settings.network_visits
            seconds += visits * (_NETWORK_S + 1e-6 * _NETWORK_RUNS * whole_us)
        return self.pace * seconds

    def run(self, items: Sequence[Item], end: float) -> float:
        """Measure what is left of these; the seconds that it took."""
        expected_s = sum(self.expected_s(item) for item in items)
        requests = [rest for item in items if not (rest := self.rest(item)).is_empty]
        self.store.add_signatures({h: t for item in items for h, t in item.texts.items()})
        began = time.monotonic()
        count = self._measure(requests, end)
        took_s = time.monotonic() - began
        self.store.add_breakdowns([i.breakdown for i in items if i.breakdown is not None])
        self.look_up(items)
        if time.monotonic() < end:
            if count:
                ratio = self.measurer.devices * took_s / expected_s
                self.pace *= math.sqrt(min(max(ratio, 0.2), 5.0))
            else:  # what cannot be measured is not tried again
                self.refused.update(item.name for item in items)
        return took_s

    def _measure(self, requests: Sequence[MeasureRequest], end: float) -> int:
        """Measure what there is time for; how many latencies came of it. Refusals become notes."""
        left_s = end - time.monotonic()
        if not requests or left_s <= 0:
            return 0
        if len(requests) > 1 and self.measurer.needs_network and self.measurer.devices == 1:
            # What needs its network is built with it, and a run of many cannot be cut.
            return sum(self._measure([request], end) for request in requests)
        settings = replace(self.settings, budget_s=left_s)
        try:
            records = self.measurer.measure(requests, self.store, settings, self.progress)
        except UnavailableError:
            raise
        except HybridlatError as error:
            if len(requests) > 1:  # one of them is to blame: each for itself
                return sum(self._measure([request], end) for request in requests)
            self.notes.append(f"{requests[0].name} was not measured: {error}")
            self.refused.add(requests[0].name)
            return 0
        return sum(record.latency_us is not None for record in records)

    def sentence(self, items: Sequence[Item], left_s: float) -> str:
        """What is measured now, after how much, and the time left."""
        cells = sum(known for (kind, _), known in self.tried.items() if kind == "cell")
        names = [item.name for item in items if item.breakdown is not None]
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        what = f"networks {', '.join(names[:4])}{more}" if names else f"{len(items)} random kernels"
        return f"{self.target}: {cells} cells known, {left_s:.0f} s left; now {what}"


def start_us(texts: Mapping[str, str], device: Device, precision: str) -> dict[str, float]:
    """What cells (hash → signature text) may take, in µs: only the cost of visits rests on it.

    The roofline and a launch for each kernel.
    """
    guesses = dict.fromkeys(texts, _UNREADABLE_US)
    readable = {h: text for h, text in texts.items() if not problem_of(text)}
    if readable:
        cells = geometry(list(readable.values()))
        kernels_us = View(cells, device, precision).roofline_us + _LAUNCH_US
        total_us = np.bincount(cells.cell, kernels_us, cells.cells)
        guesses |= dict(zip(readable, total_us.tolist(), strict=True))
    return guesses
