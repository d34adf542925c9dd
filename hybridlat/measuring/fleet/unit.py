"""What one device does in one go: a task of Dask, in a worker that stands for the device."""

from __future__ import annotations

import platform
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from hybridlat.engines import registry
from hybridlat.engines.base import Backend, Method, Session
from hybridlat.engines.resolution import resolve
from hybridlat.errors import BackendUnavailable, HybridlatError
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.signature import sign
from hybridlat.measuring.fleet.devices import FleetDevice
from hybridlat.measuring.measurer import MeasureRequest, measurer_of
from hybridlat.measuring.schedule import MeasurementConfig
from hybridlat.measuring.ssh import Board
from hybridlat.schema.measurement import Breakdown, Measurement
from hybridlat.schema.progress import OnProgress, Progress
from hybridlat.schema.target import Target
from hybridlat.store import Store

if TYPE_CHECKING:
    Start = tuple[Backend, Mapping[str, int | str]]

_TELL_EVERY_S = 1.0
_STEPS = (  # what run.sh and worker.py say of how far they are
    re.compile(r"round (\d+) of (\d+), model (\d+) of (\d+)"),
    re.compile(r"\b(\d+) of (\d+)  "),
)


@dataclass(frozen=True)
class Unit:
    """Requests that one device of ``target`` measures, and what it needs to know for that.

    ``resource`` is what the device's worker has; the target is another where an engine computes in
    the precision of a file. A worker on ``node`` writes to ``store`` itself, unless that is None;
    others get ``constants``, the target's, as the store knows them. ``remeasure``: also what is
    known. ``topic`` is where progress is told.
    """

    resource: str
    target: Target
    requests: tuple[MeasureRequest, ...]
    settings: MeasurementConfig
    remeasure: bool = False
    store: str | None = None
    node: str = ""
    constants: tuple[Measurement, ...] = ()
    topic: str = ""

    @property
    def size(self) -> int:
        """How many cells and networks are measured."""
        return sum(len(request.cells) + request.whole for request in self.requests)

    @property
    def names(self) -> str:
        """The networks, for people."""
        names = list(dict.fromkeys(request.name for request in self.requests))
        return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")

    def left(self, store: Store) -> Unit:
        """What of it the store does not know yet."""
        if self.remeasure:
            return self
        requests = [_left(request, self.target, store) for request in self.requests]
        return replace(self, requests=tuple(r for r in requests if not r.is_empty))


def _left(request: MeasureRequest, target: Target, store: Store) -> MeasureRequest:
    known = store.latencies(target, request.cells)
    whole = request.whole and not store.latencies(target, [sign(request.network).hash], "network")
    cells = {hash_: cell for hash_, cell in request.cells.items() if hash_ not in known}
    return replace(request, cells=cells, whole=whole)


@dataclass(frozen=True)
class Outcome:
    """What came of a unit on ``device``: records, failures too, or an error as well."""

    device: str
    records: tuple[Measurement, ...] = ()
    texts: Mapping[str, str] | None = None
    breakdowns: tuple[Breakdown, ...] = ()
    seconds: float = 0.0
    error: HybridlatError | None = None


class FarBackend(Backend):
    """An engine on another machine: it lowers by ``lower``, and measures where ``device`` is a
    board that ssh reaches."""

    name = "far"
    method: ClassVar[Method] = Method.PLAN

    def __init__(
        self,
        target: Target,
        lower: Callable[[Network, Target], Lowered] = registry.lower,
        device: FleetDevice | None = None,
        limit_s: float | None = None,
    ) -> None:
        self._target, self._lower, self._device, self._limit_s = target, lower, device, limit_s
        self.contexts = registry.load_backend(target.engine).contexts

    @property
    def target(self) -> Target:
        return self._target

    def environment(self) -> Mapping[str, str]:
        return {}

    def lower(self, network: Network) -> Lowered:
        return self._lower(network, self._target)

    def build(self, network: Network, *, seed: int, lowered: bool) -> Session:
        raise BackendUnavailable(f"{self._target} is another machine's")

    def run_plan(
        self, folder: Path, progress: Callable[[int, int, str], None] | None = None
    ) -> None:
        device = self._device
        if device is None or device.host is None:
            raise BackendUnavailable(f"{self._target} is another machine's")

        def on_message(line: str) -> None:
            step = _step(line)
            if progress is not None and step is not None:
                progress(*step, "")

        name = re.sub(r"[^A-Za-z0-9._-]", "_", device.host)
        limit_s = min(device.limit_s, self._limit_s or device.limit_s)
        board = Board(device.host, folder, results=f"results-{name}.jsonl")
        board.measure(device.runner, limit_s, on_message)


def _step(line: str) -> tuple[int, int] | None:
    """How many of how many a board has done, from what its runner says."""
    rounds, plain = (pattern.search(line) for pattern in _STEPS)
    if rounds:
        round_, of_rounds, model, of_models = map(int, rounds.groups())
        return (round_ - 1) * of_models + model, of_rounds * of_models
    return (int(plain[1]), int(plain[2])) if plain else None


def measure_unit(unit: Unit) -> Outcome:
    """In a worker: measure the unit; what goes wrong is part of the outcome."""
    worker = _worker()
    began = time.monotonic()
    shared = unit.store is not None and platform.node() == unit.node
    error: HybridlatError | None = None
    records: Sequence[Measurement] = ()
    texts: dict[str, str] = {}
    breakdowns: tuple[Breakdown, ...] = ()
    # A host that went away and came back may still have a thread that waits for it.
    alone: AbstractContextManager[object] = getattr(worker, "fleet_lock", nullcontext())
    with alone, Store(unit.store if shared else "sqlite://") as store:
        if not shared:
            store.add(unit.constants)
        before = {record.id for record in unit.constants} | _known(unit, store)
        try:
            backend, options = _start(worker, unit.target, unit.settings.budget_s)
            try:
                records = measurer_of(backend, options).measure(
                    unit.requests, store, unit.settings, _teller(worker, unit)
                )
            finally:
                backend.close()
        except HybridlatError as caught:
            error = caught
        if not shared:
            records = [r for r in store.measurements() if r.id not in before]
            texts = store.signature_texts({record.signature for record in records})
            breakdowns = tuple(store.breakdowns())
        elif error is not None:  # some of it may have been measured until then
            records = [r for r in _records(unit, store) if r.id not in before]
    seconds = time.monotonic() - began
    return Outcome(str(worker.name), tuple(records), texts, breakdowns, seconds, error)


def dask_setup(worker: Any) -> None:
    """What Dask calls where a worker of this machine starts: Ctrl-C is the caller's to answer."""
    del worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _records(unit: Unit, store: Store) -> Iterator[Measurement]:
    """What the store has of what the unit asks for."""
    for request in unit.requests:
        for hash_ in request.cells:
            yield from store.measurements(unit.target, "cell", hash_)
        if request.whole:
            yield from store.measurements(unit.target, "network", sign(request.network).hash)


def _known(unit: Unit, store: Store) -> set[str]:
    return {record.id for record in _records(unit, store)}


def lower_network(network: Network, target: Target) -> Lowered | HybridlatError:
    """In a worker: the kernels that the device's engine runs for a network."""
    try:
        return registry.lower(network, target)
    except HybridlatError as error:
        return error


def lowering_identity(target: Target) -> str | HybridlatError:
    """In a worker: what the device's answers to :func:`lower_network` depend on."""
    try:
        return registry.lowering_identity(target)
    except HybridlatError as error:
        return error


def _start(worker: Any, target: Target, budget_s: float | None) -> Start:
    """The engine of the worker's device, and what starts it anew."""
    device: FleetDevice | None = getattr(worker, "fleet_device", None)
    if device is not None:
        return FarBackend(target, device=device, limit_s=budget_s), {}
    engine = resolve(target)
    if engine.backend is None:
        raise BackendUnavailable(engine.why_not)
    return engine.backend, engine.options


def _teller(worker: Any, unit: Unit) -> OnProgress:
    told = 0.0

    def tell(progress: Progress) -> None:
        nonlocal told
        if time.monotonic() - told >= _TELL_EVERY_S:
            told = time.monotonic()
            step = [str(worker.name), progress.done, progress.total, unit.size, unit.names]
            worker.log_event(unit.topic, step)

    return tell


def _worker() -> Any:
    from distributed import get_worker

    return get_worker()
