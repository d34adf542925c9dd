"""Make a new device known: measure what is worth most within a time budget, then train.

In order of worth: whole networks that come with hybridlat together with their cells (they fit the
composition and say how good it is), small and quick ones first; then random realistic kernels (they
widen what the model may be trusted on). Everything measured is in the store at once, so a run that
was cut off, or a second one, goes on where the first stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hybridlat import onnx_io
from hybridlat.engines.base import Backend
from hybridlat.errors import HybridlatError, InputError
from hybridlat.estimate.partition import Partition, partition_network
from hybridlat.graph.network import Network
from hybridlat.graph.signature import sign
from hybridlat.measuring.isolated import Job, Progress, Settings, measure
from hybridlat.schema.device import Device
from hybridlat.schema.measurement import Breakdown, Kind
from hybridlat.schema.resources import shipped
from hybridlat.schema.target import Target
from hybridlat.store import Store
from hybridlat.training.kernel_sampler import EVERY, as_read, draw, sweep
from hybridlat.training.train import Trained, TrainingOptions, train_target

NETWORK_SHARE = 0.6
"""Part of the budget that whole networks and their cells may take."""
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
    settings: Settings | None = None,
    progress: Callable[[Progress], None] | None = None,
    tell: Callable[[str], None] | None = None,
    most_kernels: int = 5000,
) -> Onboarded:
    """Measure on ``backend`` (``options`` start it anew) for about ``budget_s`` seconds and train.

    ``nets`` is a folder of ONNX files, by default those that come with hybridlat. Raises InputError
    for a budget that is not above 0.
    """
    if not budget_s > 0:
        raise InputError(f"a budget of {budget_s} s measures nothing: give for example 10m")
    say = tell or (lambda _: None)
    began = time.monotonic()
    work = _Work(backend, options, Store(store), settings or Settings(), progress, say, began)
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
        say(f"{backend.target}: training on {known} cells")
        chosen = TrainingOptions(out=out, device=device, seed=seed, track=track)
        trained = train_target(backend.target, chosen, store=url, tell=say)
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
        settings: Settings,
        progress: Callable[[Progress], None] | None,
        tell: Callable[[str], None],
        began: float,
    ) -> None:
        self.backend, self.options, self.store = backend, options, store
        self.settings, self.progress, self.tell = settings, progress, tell
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
        for place, (_, name, network) in enumerate(sorted(sized, key=lambda item: item[:2])):
            if time.monotonic() >= end:
                self.notes.append(f"{len(sized) - place} networks did not fit into the budget")
                break
            self.tell(f"{self.backend.target}: {name}")
            try:
                partition = self._partition(network)
            except HybridlatError as error:
                self.notes.append(f"{name} is left out: {error}")
                continue
            whole = Job(sign(network).hash, network, "network", {"network": name})
            jobs = [*self._cells(partition, name), *self._unless_known([whole])]
            if self.backend.protocol == "differential":
                self._measure_within(name, network, jobs)
            else:
                self._measure(jobs, end)
            cells = tuple((use.signature, use.count) for use in partition.uses)
            self.store.add_breakdowns(
                [Breakdown(self.backend.target, name, whole.signature, cells,
                           labels={"network": name})]
            )  # fmt: skip
            done += 1
        return done

    def kernels(self, end: float, seed: int, most: int) -> int:
        """Measure random kernels in portions until ``end``."""
        if self.backend.protocol == "differential":
            return self._drawn_networks(end, seed, most)
        portion: list[Job] = []
        done = 0
        for hash_, network in sweep(self.backend.lower, most, seed, families=EVERY):
            portion.append(Job(hash_, network, "cell", {"sweep": str(seed)}))
            if len(portion) == _BATCH:
                done += self._measure(self._unless_known(portion), end)
                portion = []
            if time.monotonic() >= end:
                return done
        return done + self._measure(self._unless_known(portion), end)

    def _drawn_networks(self, end: float, seed: int, most: int) -> int:
        """The small networks around random kernels, each cell behind the one before it."""
        done = 0
        for place in range(20 * most):
            if time.monotonic() >= end or done >= most:
                break
            drawn = draw(seed * 1_000_003 + place, EVERY)
            try:
                network = as_read(drawn)
                partition = self._partition(network)
            except HybridlatError:
                continue  # what an engine refuses is passed over, as in every sweep
            done += self._measure_within(f"kernel {place}", network, self._cells(partition, ""))
        return done

    def _measure_within(self, name: str, network: Network, jobs: Sequence[Job]) -> int:
        """Measure cells behind their predecessors; an engine's refusal becomes a note."""
        from hybridlat.measuring.dispatch import measure_in_network

        if not jobs:
            return 0
        wanted = [job.signature for job in jobs if job.kind == "cell"]
        whole = len(wanted) < len(jobs)
        try:
            records = measure_in_network(
                self.backend, name, network, wanted, self.store, whole=whole,
                rounds=1, progress=self.progress,
            )  # fmt: skip
        except HybridlatError as error:
            self.notes.append(f"{name} was not measured: {error}")
            return 0
        return sum(record.latency_us is not None for record in records)

    def _partition(self, network: Network) -> Partition:
        names = (*(node.name for node in network.nodes), *network.folded)
        found = partition_network(network, self.backend.lower(network), names)
        self.store.add_signatures(found.texts)
        return found

    def _cells(self, partition: Partition, name: str) -> list[Job]:
        from hybridlat.graph.signature import read

        jobs = [
            Job(use.signature, read(partition.texts[use.signature], " ".join(use.ops)[:60]), "cell",
                {"network": name} if name else {})
            for use in partition.uses
        ]  # fmt: skip
        return self._unless_known(jobs)

    def _unless_known(self, jobs: Sequence[Job]) -> list[Job]:
        found: list[Job] = []
        kinds: tuple[Kind, ...] = ("cell", "network")
        for kind in kinds:
            own = [job for job in jobs if job.kind == kind]
            known = self.store.latencies(self.backend.target, [job.signature for job in own], kind)
            found += [job for job in own if job.signature not in known]
        return found

    def _measure(self, jobs: Sequence[Job], end: float) -> int:
        left = end - time.monotonic()
        if not jobs or left <= 0:
            return 0
        from dataclasses import replace

        settings = replace(self.settings, budget_s=left)
        records = measure(self.backend, self.options, jobs, self.store, settings, self.progress)
        return sum(record.latency_us is not None for record in records)
