"""Make a new device known: measure what is worth most within a time budget, then train.

In order of worth: whole networks that come with hybridlat together with their cells (they fit the
composition and say how good it is), small and quick ones first; then random realistic kernels (they
widen what the model may be trusted on). Everything measured is in the store at once, so a run that
was cut off, or a second one, goes on where the first stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hybridlat import onnx_io
from hybridlat.engines.base import Backend
from hybridlat.errors import HybridlatError, InputError, UnavailableError
from hybridlat.estimate.partition import Partition, partition_network
from hybridlat.graph.network import Network
from hybridlat.graph.signature import read, sign
from hybridlat.measuring.measurer import MeasureRequest, measurer_of
from hybridlat.measuring.schedule import MeasurementConfig
from hybridlat.schema.device import Device
from hybridlat.schema.measurement import Breakdown
from hybridlat.schema.progress import OnMessage, Progress, silent
from hybridlat.schema.resources import shipped
from hybridlat.schema.target import Target
from hybridlat.store import Store
from hybridlat.training.kernel_sampler import EVERY, as_read, draw, sweep
from hybridlat.training.train import Trained, TrainingOptions, train_target

NETWORK_SHARE = 0.6
"""Part of the budget that whole networks and their cells may take."""
ONBOARDING = MeasurementConfig(differential_rounds=1)
"""Many cells a few times are worth more than few cells often."""
_BATCH = 120  # kernels of the sweep measured in one go: what a cut loses at most
_TRAINING_S = 30.0
_LEAST_CELLS = 60


@dataclass(frozen=True)
class Onboarded:
    """What an onboarding did; ``trained`` is None where there was too little to learn from."""

    target: Target
    networks: int
    cells: int
    kernels: int
    elapsed_s: float
    trained: Trained | None
    notes: tuple[str, ...] = field(default=())


def networks_folder() -> Path | None:
    """The networks that come with hybridlat; None where none do."""
    folder = shipped("data", "nets")
    return folder if any(folder.glob("*.onnx")) else None


def onboard_target(
    backend: Backend,
    options: Mapping[str, int | str],
    budget_s: float,
    *,
    store: str | None = None,
    nets: Path | None = None,
    out: Path | None = None,
    device: Device | None = None,
    seed: int = 0,
    track: bool = True,
    settings: MeasurementConfig | None = None,
    progress: Callable[[Progress], None] | None = None,
    on_message: OnMessage = silent,
    most_kernels: int = 5000,
) -> Onboarded:
    """Measure on ``backend`` (``options`` start it anew) for about ``budget_s`` seconds and train.

    ``nets`` is a folder of ONNX files, by default those that come with hybridlat. Raises InputError
    for a budget that is not above 0.
    """
    if not budget_s > 0:
        raise InputError(f"a budget of {budget_s} s measures nothing: give for example 10m")
    began = time.monotonic()
    work = _Work(
        backend, options, Store(store), settings or ONBOARDING, progress, on_message, began
    )
    with work.store:
        end = began + max(budget_s - _TRAINING_S, 0.5 * budget_s)
        folder = nets or networks_folder()
        files = sorted(folder.glob("*.onnx")) if folder is not None else []
        done = work.networks(files, began + NETWORK_SHARE * (end - began))
        kernels = work.kernels(end, seed, most_kernels)
        known = sum(s.cells for s in work.store.stats() if s.target == backend.target)
        url = work.store.url
    trained = None
    if known >= _LEAST_CELLS:
        on_message(f"{backend.target}: training on {known} cells")
        chosen = TrainingOptions(out=out, device=device, seed=seed, track=track)
        trained = train_target(backend.target, chosen, store=url, on_message=on_message)
    else:
        work.notes.append(
            f"{known} cells are too few to train on (at least {_LEAST_CELLS}): "
            "run it again with a larger budget, it goes on where it stopped"
        )
    return Onboarded(
        backend.target, done, known, kernels, time.monotonic() - began, trained, tuple(work.notes)
    )


class _Work:
    """Measures jobs in portions that fit the time left, and keeps what it measured."""

    def __init__(
        self,
        backend: Backend,
        options: Mapping[str, int | str],
        store: Store,
        settings: MeasurementConfig,
        progress: Callable[[Progress], None] | None,
        on_message: OnMessage,
        began: float,
    ) -> None:
        self.backend, self.store = backend, store
        self.measurer = measurer_of(backend, options)
        self.settings, self.progress, self.on_message = settings, progress, on_message
        self.began = began
        self.notes: list[str] = []

    def networks(self, files: Sequence[Path], end: float) -> int:
        """Measure networks and their cells, the fewest operators first, until ``end``."""
        sized: list[tuple[int, str, Network]] = []
        for path in files:
            try:
                network = onnx_io.read_network(path, name=path.stem)
            except HybridlatError as error:
                self.notes.append(f"{path.name} is left out: {error}")
                continue
            sized.append((len(network.nodes), path.stem, network))
        done = 0
        for index, (_, name, network) in enumerate(sorted(sized, key=lambda item: item[:2])):
            if time.monotonic() >= end:
                self.notes.append(f"{len(sized) - index} networks did not fit into the budget")
                break
            self.on_message(f"{self.backend.target}: {name}")
            try:
                partition = self._partition(network)
            except HybridlatError as error:
                self.notes.append(f"{name} is left out: {error}")
                continue
            self._measure([self._request(name, network, partition)], end)
            cells = tuple((use.signature, use.count) for use in partition.uses)
            self.store.add_breakdowns(
                [Breakdown(self.backend.target, name, sign(network).hash, cells,
                           labels={"network": name})]
            )  # fmt: skip
            done += 1
        return done

    def kernels(self, end: float, seed: int, most: int) -> int:
        """Measure random kernels in portions until ``end``."""
        portion: list[MeasureRequest] = []
        done = 0
        for request in self._drawn(seed, most):
            portion.append(request)
            # What needs its network is built with it: a few kernels make a portion of work.
            if sum(len(each.cells) for each in portion) >= (
                1 if self.measurer.needs_network else _BATCH
            ):
                done += self._measure(portion, end)
                portion = []
            if done >= most or time.monotonic() >= end:
                return done
        return done + self._measure(portion, end)

    def _drawn(self, seed: int, most: int) -> Iterator[MeasureRequest]:
        """Random kernels, each alone or in the small network that was drawn around it."""
        if not self.measurer.needs_network:
            for hash_, kernel in sweep(self.backend.lower, most, seed, families=EVERY):
                cells = self._unknown({hash_: kernel})
                yield MeasureRequest("kernel", kernel, cells, labels={"sweep": str(seed)})
            return
        for index in range(20 * most):
            try:
                network = as_read(draw(seed * 1_000_003 + index, EVERY))
                partition = self._partition(network)
            except HybridlatError:
                continue  # what an engine refuses is passed over, as in every sweep
            yield MeasureRequest(f"kernel {index}", network, self._cells(partition))

    def _partition(self, network: Network) -> Partition:
        left_out = (name for name, _ in network.left_out)
        names = (*(node.name for node in network.nodes), *network.folded, *left_out)
        partition = partition_network(network, self.backend.lower(network), names)
        self.store.add_signatures(partition.texts)
        return partition

    def _request(self, name: str, network: Network, partition: Partition) -> MeasureRequest:
        """What is not known of a network yet."""
        whole = sign(network).hash
        known = self.store.latencies(self.backend.target, [whole], "network")
        return MeasureRequest(name, network, self._cells(partition), whole not in known)

    def _cells(self, partition: Partition) -> dict[str, Network]:
        return self._unknown(
            {
                use.signature: read(partition.texts[use.signature], " ".join(use.ops)[:60])
                for use in partition.uses
            }
        )

    def _unknown(self, cells: Mapping[str, Network]) -> dict[str, Network]:
        known = self.store.latencies(self.backend.target, cells)
        return {hash_: cell for hash_, cell in cells.items() if hash_ not in known}

    def _measure(self, requests: Sequence[MeasureRequest], end: float) -> int:
        """Measure what there is time for; how many latencies came of it. Refusals become notes."""
        left_s = end - time.monotonic()
        asked = [request for request in requests if not request.is_empty]
        if not asked or left_s <= 0:
            return 0
        settings = replace(self.settings, budget_s=left_s)
        try:
            records = self.measurer.measure(asked, self.store, settings, self.progress)
        except UnavailableError:
            raise
        except HybridlatError as error:
            names = ", ".join(request.name for request in asked)
            self.notes.append(f"{names} was not measured: {error}")
            return 0
        return sum(record.latency_us is not None for record in records)
