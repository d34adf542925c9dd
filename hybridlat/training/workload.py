"""What an onboarding can measure: networks with their cells, random kernels; and how it does."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hybridlat import onnx_io
from hybridlat.engines.base import Backend
from hybridlat.errors import HybridlatError, UnavailableError
from hybridlat.estimate.partition import Partition, partition_network
from hybridlat.graph.network import Network
from hybridlat.graph.signature import sign
from hybridlat.graph.signature_reading import read
from hybridlat.measuring.measurer import Measurer, MeasureRequest
from hybridlat.measuring.schedule import MeasurementConfig
from hybridlat.schema.measurement import Breakdown, Kind
from hybridlat.schema.progress import OnMessage, OnProgress
from hybridlat.schema.target import Target
from hybridlat.store import Store
from hybridlat.training.kernel_families import EVERY
from hybridlat.training.kernel_sampler import draws, sweep

LEAST_NETWORKS = 4
"""So many networks are lowered however long that takes."""
HEAVY_BYTES = 100_000_000
"""Weights from which on a network is read last."""
NETWORK_SHARE = 0.4
"""Part of the measuring time that goes to whole networks with their cells, while there are some."""
DEAREST_SHARE = 0.25
"""A network that is expected to take more of the time left is left out."""
_LONGEST = 2.0  # after so many times its length a run is cut off: the rest is measured later
_STARTING_S = 3.0  # a measuring process: what is left of a budget must be more than that
_CELL_S, _CELL_IN_NETWORK_S = 0.1, 2.0  # expected until something was measured
_WHOLE = 5  # so many cells a whole network counts as


@dataclass(frozen=True)
class Item:
    """One thing to measure: ``request`` asks for all of it.

    ``texts`` are the signature texts of its cells by hash. A network has a ``breakdown``, a kernel
    has none.
    """

    request: MeasureRequest
    texts: Mapping[str, str]
    breakdown: Breakdown | None = None


def random_kernels(measurer: Measurer, count: int, seed: int) -> Iterator[Item]:
    """``count`` kernels in the order drawn, each inside a small network where it must be."""
    backend = measurer.backend
    if measurer.needs_network:
        for place, drawn in zip(range(count), draws(seed, EVERY), strict=False):
            try:
                partition = _partition(drawn.network, backend)
            except HybridlatError:
                continue  # what an engine refuses is passed over, as in every sweep
            if partition.uses:
                request = MeasureRequest(f"kernel {place}", drawn.network, _cells(partition))
                yield Item(request, partition.texts)
    else:
        for hash_, kernel in sweep(backend, count, seed, EVERY):
            labels = {"sweep": str(seed)}
            request = MeasureRequest("kernel", kernel, {hash_: kernel}, labels=labels)
            yield Item(request, {hash_: sign(kernel).text})


def _partition(network: Network, backend: Backend) -> Partition:
    left_out = (name for name, _ in network.left_out)
    names = (*(node.name for node in network.nodes), *network.folded, *left_out)
    return partition_network(network, backend.lower(network), names)


def _cells(partition: Partition) -> dict[str, Network]:
    texts = partition.texts
    return {u.signature: read(texts[u.signature], " ".join(u.ops)[:60]) for u in partition.uses}


@dataclass
class Bench:
    """A measurer with its store: what was tried, and what measuring takes.

    ``networks`` are those that were read, ``unread`` counts the rest. ``tried`` says by kind and
    hash whether there is a latency; ``refused`` are names of what could not be measured. So far
    ``spent_s`` went to ``count`` things.
    """

    measurer: Measurer
    store: Store
    settings: MeasurementConfig
    progress: OnProgress | None
    networks: list[Item] = field(default_factory=list)
    unread: int = 0
    tried: dict[tuple[Kind, str], bool] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    spent_s: float = 0.0
    count: int = 0

    @property
    def target(self) -> Target:
        return self.measurer.backend.target

    def read(self, files: Iterable[Path], seed: int, end: float) -> None:
        """Read networks, and lower them until ``end`` (of the monotonic clock), at least a few.

        The order is drawn from the seed; networks with large weights come last.
        """
        readable: list[Network] = []
        for path in sorted(files):
            try:
                readable.append(onnx_io.read_network(path, name=path.stem))
            except HybridlatError as error:
                self.notes.append(f"{path.name} is left out: {error}")
        random.Random(f"hybridlat networks {seed}").shuffle(readable)
        readable.sort(key=lambda network: network.weight_bytes > HEAVY_BYTES)
        for place, network in enumerate(readable):
            if time.monotonic() >= end and place >= LEAST_NETWORKS:
                self.unread = len(readable) - place
                break
            try:
                partition = _partition(network, self.measurer.backend)
            except HybridlatError as error:
                self.notes.append(f"{network.name} is left out: {error}")
                continue
            breakdown = Breakdown(
                self.target,
                network.name,
                sign(network).hash,
                tuple((use.signature, use.count) for use in partition.uses),
                labels={"network": network.name},
            )
            request = MeasureRequest(network.name, network, _cells(partition), whole=True)
            self.networks.append(Item(request, partition.texts, breakdown))

    def measure(
        self, kernels: Iterator[Item], run_s: float, end: float, on_message: OnMessage
    ) -> int:
        """Runs until ``end`` or until nothing is left; how many random kernels were measured."""
        networks_s = kernels_s = 0.0
        measured = 0
        self._look_up(self.networks)
        while (left_s := end - time.monotonic()) > (_STARTING_S if self.tried else 0.0):
            networks = [item for item in self.networks if item.request.name not in self.refused]
            turns: tuple[Iterable[Item], ...] = (networks, kernels)
            if networks_s > NETWORK_SHARE * (networks_s + kernels_s):
                turns = (kernels, networks)
            chosen = next(filter(None, (self._next(of, run_s, end) for of in turns)), [])
            if not chosen:
                break
            known = sum(has and kind == "cell" for (kind, _), has in self.tried.items())
            what = "random kernels" if chosen[0].breakdown is None else "networks"
            so_far = f"{self.target}: {known} cells known, {left_s:.0f} s left"
            on_message(f"{so_far}; now {len(chosen)} {what}")
            took_s = self._run(chosen, min(end, time.monotonic() + _LONGEST * run_s))
            if chosen[0].breakdown is not None:
                networks_s += took_s
            else:
                kernels_s += took_s
                tried = self.tried
                measured += sum(any(tried.get(("cell", h)) for h in one.texts) for one in chosen)
        return measured

    def things(self, item: Item) -> int:
        """How many things of an item were not tried yet, in cells."""
        rest = self._rest(item)
        return len(rest.cells) + _WHOLE * rest.whole

    def _rest(self, item: Item) -> MeasureRequest:
        cells = {h: c for h, c in item.request.cells.items() if ("cell", h) not in self.tried}
        whole = item.breakdown
        is_open = whole is not None and ("network", whole.signature) not in self.tried
        return replace(item.request, cells=cells, whole=is_open)

    def _look_up(self, items: Sequence[Item]) -> None:
        """Read what the store knows of these by now."""
        cells = [h for item in items for h in item.texts]
        wholes = [item.breakdown.signature for item in items if item.breakdown is not None]
        hashes: tuple[tuple[Kind, list[str]], ...] = (("cell", cells), ("network", wholes))
        for kind, keys in hashes:
            unknown = [h for h in keys if (kind, h) not in self.tried]
            for h, stats in self.store.latencies(self.target, unknown, kind).items():
                self.tried[kind, h] = stats.latency_us is not None

    def _next(self, items: Iterable[Item], run_s: float, end: float) -> list[Item]:
        """The next items with something to try, for about ``run_s`` seconds."""
        thing_s = _CELL_IN_NETWORK_S if self.measurer.needs_network else _CELL_S
        if self.count:
            thing_s = self.spent_s / self.count
        chosen: list[Item] = []
        expected_s = 0.0
        for item in items:
            left_s = end - time.monotonic()
            self._look_up([item])
            item_s = thing_s * self.things(item)
            if item_s and (item.breakdown is None or item_s <= DEAREST_SHARE * left_s):
                chosen.append(item)
                expected_s += item_s
            if expected_s >= min(run_s, left_s):
                break
        return chosen

    def _run(self, items: Sequence[Item], end: float) -> float:
        """Measure what is left of these; the seconds that it took."""
        things = sum(map(self.things, items))
        self.store.add_signatures({h: t for item in items for h, t in item.texts.items()})
        began = time.monotonic()
        latencies = self._try([self._rest(item) for item in items], end)
        took_s = time.monotonic() - began
        self.store.add_breakdowns([i.breakdown for i in items if i.breakdown is not None])
        self._look_up(items)
        if latencies:
            self.spent_s += took_s
            self.count += things - sum(map(self.things, items))
        elif time.monotonic() < end:  # what cannot be measured is not tried again
            self.refused.update(item.request.name for item in items)
        return took_s

    def _try(self, requests: Sequence[MeasureRequest], end: float) -> int:
        """Measure what there is time for; how many latencies came of it. Refusals become notes."""
        left_s = end - time.monotonic()
        if left_s <= 0:
            return 0
        if len(requests) > 1 and self.measurer.needs_network:
            # What needs its network is built with it, and a run of many cannot be cut.
            return sum(self._try([request], end) for request in requests)
        settings = replace(self.settings, budget_s=left_s)
        try:
            records = self.measurer.measure(requests, self.store, settings, self.progress)
        except UnavailableError:
            raise
        except HybridlatError as error:
            if len(requests) > 1:  # one of them is to blame: each for itself
                return sum(self._try([request], end) for request in requests)
            self.notes.append(f"{requests[0].name} was not measured: {error}")
            self.refused.add(requests[0].name)
            return 0
        return sum(record.latency_us is not None for record in records)
