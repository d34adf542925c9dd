"""What can be measured of a new machine: networks of a folder, and kernels drawn at random."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hybridlat import onnx_io
from hybridlat.engines.base import Backend
from hybridlat.errors import HybridlatError
from hybridlat.estimate.partition import Partition, partition_network
from hybridlat.graph.network import Network
from hybridlat.graph.signature import sign
from hybridlat.graph.signature_reading import read
from hybridlat.measuring.measurer import MeasureRequest
from hybridlat.schema.measurement import Breakdown
from hybridlat.schema.target import Target
from hybridlat.store import Store
from hybridlat.training.kernel_sampler import EVERY, as_read, draw, sweep

LEAST_READ = 4
HEAVY_BYTES = 100_000_000
"""Weights from which on a network is read last."""


@dataclass(frozen=True)
class NetworkLesson:
    """A network and the cells it falls into on the target."""

    name: str
    network: Network
    partition: Partition

    @property
    def signature(self) -> str:
        return sign(self.network).hash

    @property
    def cells(self) -> tuple[str, ...]:
        return tuple(use.signature for use in self.partition.uses)

    def breakdown(self, target: Target) -> Breakdown:
        cells = tuple((use.signature, use.count) for use in self.partition.uses)
        return Breakdown(target, self.name, self.signature, cells, labels={"network": self.name})

    def request(self, unknown: Mapping[str, bool], whole: bool) -> MeasureRequest:
        """What is not known of it yet; ``unknown`` are the cells to measure."""
        return MeasureRequest(self.name, self.network, _cells(self.partition, unknown), whole)


@dataclass
class Lessons:
    """Networks read and kernels drawn so far; both keep their texts in the store."""

    backend: Backend
    store: Store
    needs_network: bool
    seed: int = 0
    networks: dict[str, NetworkLesson] = field(default_factory=dict)
    kernels: dict[str, MeasureRequest] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unread: int = 0
    _sweep: Iterator[tuple[str, MeasureRequest, Mapping[str, str]]] | None = None

    def read(self, files: Sequence[Path], end: float) -> None:
        """Read networks, and lower them until ``end`` (of the monotonic clock), at least a few.

        The order is drawn, always the same for the same files: a cut-off run takes the same first.
        Those with large weights come last: everything about them takes long.
        """
        found: list[tuple[bool, Network]] = []
        for path in sorted(files):
            try:
                network = onnx_io.read_network(path, name=path.stem)
            except HybridlatError as error:
                self.notes.append(f"{path.name} is left out: {error}")
                continue
            found.append((network.weight_bytes > HEAVY_BYTES, network))
        random.Random(f"hybridlat networks {self.seed}").shuffle(found)
        found.sort(key=lambda item: item[0])
        for place, (_, network) in enumerate(found):
            if time.monotonic() >= end and place >= LEAST_READ:
                self.unread = len(found) - place
                return
            try:
                partition = self._partition(network)
            except HybridlatError as error:
                self.notes.append(f"{network.name} is left out: {error}")
                continue
            self.networks[network.name] = NetworkLesson(network.name, network, partition)

    def draw(self, count: int, end: float) -> None:
        """Draw up to ``count`` more kernels, until ``end``."""
        if self._sweep is None:
            self._sweep = self._alone() if not self.needs_network else self._in_networks()
        for _ in range(count):
            if time.monotonic() >= end:
                return
            found = next(self._sweep, None)
            if found is None:
                return
            hash_, request, texts = found
            self.kernels[hash_] = request
            self.texts.update(texts)

    def _alone(self) -> Iterator[tuple[str, MeasureRequest, Mapping[str, str]]]:
        labels = {"sweep": str(self.seed)}
        for hash_, kernel in sweep(self.backend.lower, 1_000_000, self.seed, families=EVERY):
            request = MeasureRequest("kernel", kernel, {hash_: kernel}, labels=labels)
            yield hash_, request, {hash_: sign(kernel).text}

    def _in_networks(self) -> Iterator[tuple[str, MeasureRequest, Mapping[str, str]]]:
        """Kernels that only a network can hold: each stands for the small one drawn around it."""
        for place in range(1_000_000):
            try:
                network = as_read(draw(self.seed * 1_000_003 + place, EVERY))
                found = self._partition(network)
            except HybridlatError:
                continue  # what an engine refuses is passed over, as in every sweep
            cells = _cells(found, dict.fromkeys(found.texts, True))
            if not cells:
                continue
            heaviest = max(cells, key=lambda h: (cells[h].weight_bytes, h))
            request = MeasureRequest(f"kernel {place}", network, cells)
            yield heaviest, request, found.texts

    def _partition(self, network: Network) -> Partition:
        left_out = (name for name, _ in network.left_out)
        names = (*(node.name for node in network.nodes), *network.folded, *left_out)
        found = partition_network(network, self.backend.lower(network), names)
        self.store.add_signatures(found.texts)
        self.texts.update(found.texts)
        return found


def _cells(partition: Partition, wanted: Mapping[str, bool]) -> dict[str, Network]:
    return {
        use.signature: read(partition.texts[use.signature], " ".join(use.ops)[:60])
        for use in partition.uses
        if wanted.get(use.signature)
    }
