"""Measurers, one for each way to measure an engine, behind one protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hybridlat.engines.base import Backend, Method
from hybridlat.graph.network import Network
from hybridlat.graph.signature import sign
from hybridlat.measuring import plans, replicas
from hybridlat.measuring.differential import Differential, DifferentialConfig
from hybridlat.measuring.pairs import parts_of, whole
from hybridlat.measuring.plans import run
from hybridlat.measuring.schedule import Job, MeasurementConfig
from hybridlat.measuring.target_constants import dispatch_overhead_us, reference_latency_us
from hybridlat.schema.measurement import Kind, Measurement
from hybridlat.schema.progress import OnProgress, Progress
from hybridlat.store import Store

LEAST_ROUNDS = 2
"""One visit does not show its own spread."""


@dataclass(frozen=True)
class MeasureRequest:
    """What to measure of one network of a file.

    ``cells`` are the wanted cells as the engine runs them, by signature hash; ``whole`` asks for
    the network itself. ``labels`` go into the records; by default they name the network.
    """

    name: str
    network: Network
    cells: Mapping[str, Network] = field(default_factory=dict)
    whole: bool = False
    labels: Mapping[str, str] | None = None

    @property
    def is_empty(self) -> bool:
        return not self.cells and not self.whole


class Measurer(Protocol):
    """Measures on one backend, in its own way.

    ``needs_network``: a cell can only be measured inside a network of a file. ``devices`` measure
    at the same time.
    """

    @property
    def needs_network(self) -> bool: ...

    @property
    def devices(self) -> int: ...

    def measure(
        self,
        requests: Sequence[MeasureRequest],
        store: Store,
        settings: MeasurementConfig,
        on_progress: OnProgress | None = None,
    ) -> list[Measurement]:
        """Measure what is requested; records, failures too, are in ``store`` and returned.

        Raises MeasurementError when the engine refuses a network, BackendUnavailable when the
        engine does not start again.
        """
        ...


def measurer_of(backend: Backend, options: Mapping[str, int | str]) -> Measurer:
    """The measurer for a backend; ``options`` start it anew in another process."""
    if backend.method is Method.REPLICAS:
        return ReplicaMeasurer(backend, options)
    if backend.method is Method.DIFFERENTIAL:
        return DifferentialMeasurer(backend)
    return PlanMeasurer(backend)


@dataclass(frozen=True)
class ReplicaMeasurer:
    """Cells by themselves, replicas in turn, in fresh measuring processes."""

    backend: Backend
    options: Mapping[str, int | str]
    needs_network: bool = False
    devices: int = 1

    def measure(
        self,
        requests: Sequence[MeasureRequest],
        store: Store,
        settings: MeasurementConfig,
        on_progress: OnProgress | None = None,
    ) -> list[Measurement]:
        """See Measurer."""
        jobs: dict[str, Job] = {}
        for request in requests:
            labels = _labels(request)
            for hash_, cell in request.cells.items():
                job = Job(hash_, cell, "cell", labels)
                jobs.setdefault(job.key, job)
            if request.whole:
                job = Job(sign(request.network).hash, request.network, "network", labels)
                jobs.setdefault(job.key, job)
        if not jobs:
            return []
        return replicas.measure(
            self.backend, self.options, list(jobs.values()), store, settings, on_progress
        )


@dataclass(frozen=True)
class DifferentialMeasurer:
    """Cells with their predecessors, sessions of this process in turn."""

    backend: Backend
    needs_network: bool = True
    devices: int = 1

    def measure(
        self,
        requests: Sequence[MeasureRequest],
        store: Store,
        settings: MeasurementConfig,
        on_progress: OnProgress | None = None,
    ) -> list[Measurement]:
        """See Measurer; one network after the other."""
        rounds = max(settings.differential_rounds, LEAST_ROUNDS)
        config = DifferentialConfig(rounds, rounds + 2, network_visit_ms=settings.network_visit_ms)
        return [
            record
            for request in requests
            for record in measure_pairs(self.backend, request, store, config, on_progress)
        ]


def measure_pairs(
    backend: Backend,
    request: MeasureRequest,
    store: Store,
    config: DifferentialConfig | None = None,
    on_progress: OnProgress | None = None,
) -> list[Measurement]:
    """Measure one request by the differential protocol in this process, into ``store``."""
    parts = [whole(request.name, request.network)] if request.whole else []
    if request.cells:
        lowered = backend.lower(request.network)
        cells = parts_of(request.name, request.network, lowered)
        parts += [part for part, _ in cells if part.signature.hash in request.cells]
    if not parts:
        return []
    run = Differential(backend, parts, config)

    def on_step(done: int, total: int) -> None:
        if on_progress is not None:
            on_progress(Progress(done, total, request.name, None))

    run.visit(on_step)
    store.add_signatures({part.signature.hash: part.signature.text for part in parts})
    records = run.records(
        reference_latency_us(store, backend, run.usual_us(), run.load),
        dispatch_overhead_us(store, backend, run.overhead_us, run.load),
    )
    store.add(records)
    return records


@dataclass(frozen=True)
class PlanMeasurer:
    """Cells with their predecessors, by a plan that the backend runs."""

    backend: Backend
    needs_network: bool = True
    devices: int = 1

    def measure(
        self,
        requests: Sequence[MeasureRequest],
        store: Store,
        settings: MeasurementConfig,
        on_progress: OnProgress | None = None,
    ) -> list[Measurement]:
        """See Measurer; all networks in one plan."""
        wanted: set[tuple[Kind, str]] = set()
        for request in requests:
            wanted |= {("cell", hash_) for hash_ in request.cells}
            if request.whole:
                wanted.add(("network", sign(request.network).hash))
        plan = plans.PlanRequest(
            [(request.name, request.network) for request in requests],
            self.backend.target,
            lambda kind, hash_: (kind, hash_) in wanted,
            self.backend.lower,
            max(settings.differential_rounds, LEAST_ROUNDS),
        )
        here = run.run_here(self.backend.run_plan, on_progress)
        return list(run.measure_networks(plan, store, here).records)


def _labels(request: MeasureRequest) -> Mapping[str, str]:
    return {"network": request.name} if request.labels is None else request.labels
