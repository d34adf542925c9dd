"""Requests measured by the devices of a fleet: Dask shares them out, and starts workers again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import msgspec

from hybridlat.engines import registry
from hybridlat.engines.base import Method
from hybridlat.errors import (
    BackendUnavailable,
    HybridlatError,
    InputError,
    MeasurementError,
    MissingExtra,
    UnavailableError,
)
from hybridlat.graph.builder import null_network, reference_network
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.signature import sign
from hybridlat.measuring.fleet_device import (
    DEVICE,
    FleetFile,
    Outcome,
    Unit,
    measure_unit,
    shares,
    why_away,
)
from hybridlat.measuring.measurer import MeasureRequest
from hybridlat.measuring.schedule import MeasurementConfig
from hybridlat.schema.measurement import Measurement
from hybridlat.schema.progress import OnMessage, OnProgress, Progress, silent
from hybridlat.schema.target import Target
from hybridlat.store import Store

CONNECT_S = 15.0
_POLL_S, _CLOSE_S = 1.0, 5.0
# Nothing of Dask's own runs beside a measurement: no settings of the C library, no profiler.
_QUIET = {"distributed.nanny.pre-spawn-environ": {}, "distributed.worker.profile.enabled": False}


@dataclass
class DeviceReport:
    """One device: what it measured, how long it was busy, and what is the matter with it now.

    ``problem`` is empty while it is there; ``lost`` counts how often it went away.
    """

    name: str
    targets: tuple[str, ...]
    cells: int = 0
    networks: int = 0
    failures: int = 0
    busy_s: float = 0.0
    lost: int = 0
    problem: str = ""


class SchedulerLost(BackendUnavailable):
    """The connection to Dask's scheduler was lost: nothing more can be measured."""

    def __init__(self) -> None:
        super().__init__(
            "the connection to Dask's scheduler was lost: what was measured is kept, run the same "
            "again and it goes on"
        )


Result = TypeVar("Result")


class Fleet:
    """The devices of a fleet's file, at work while this context manager lasts.

    Entering raises MissingExtra without Dask, BackendUnavailable where its scheduler does not
    answer. ``on_progress`` gets that of all devices together, ``on_message`` a line about each
    device that goes or comes.
    """

    def __init__(
        self, file: FleetFile, on_progress: OnProgress | None = None, on_message: OnMessage = silent
    ) -> None:
        self.file, self.on_message, self._on_progress = file, on_message, on_progress
        self.client: Any = None
        self._reports = {
            d.name: DeviceReport(d.name, tuple(d.resources)) for d in file.device if not d.dask
        }
        self._there: dict[str, str] = {}  # the address of each device's worker
        self._unfit: set[str] = set()
        self._began = time.monotonic()
        self._done = self._total = 0  # cells and networks
        self._lock = threading.Lock()  # of the reports: targets are measured in threads
        self._stack = contextlib.ExitStack()

    @property
    def reports(self) -> list[DeviceReport]:
        """What each device did."""
        return list(self._reports.values())

    def __enter__(self) -> Fleet:
        try:
            import cryptography  # noqa: F401  of the certificates that Dask makes
            import distributed
        except ImportError as error:
            missing = error.name or "distributed"
            raise MissingExtra(missing, "fleet", "measuring on a fleet") from None
        with contextlib.ExitStack() as stack:
            for name in ("distributed", "distributed.client", "distributed.scheduler"):
                log = logging.getLogger(name)  # the messages are this module's
                stack.callback(log.setLevel, log.level)
                log.setLevel(logging.CRITICAL)
            self.client = stack.enter_context(self._connected(distributed, stack))
            nannies = self.client.sync(self._start, distributed.Nanny)
            stack.callback(self.client.sync, _close, nannies, callback_timeout=_CLOSE_S)
            self._look()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError, RuntimeError, TimeoutError):  # the scheduler is gone
            self._stack.close()

    def _connected(self, distributed: Any, stack: contextlib.ExitStack) -> Any:
        address = self.file.scheduler
        if address is None:
            return distributed.Client(stack.enter_context(distributed.LocalCluster(
                n_workers=0, processes=True, dashboard_address=None, silence_logs=logging.CRITICAL,
                security=True,  # on a machine of many users no other user runs code here
                scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
            )))  # fmt: skip
        try:
            return distributed.Client(address, timeout=CONNECT_S)
        except (OSError, TimeoutError) as error:
            raise BackendUnavailable(
                f"no scheduler of Dask answers at {address}: start one with `dask scheduler`, or "
                f"correct scheduler in the fleet's file ({error})"
            ) from None

    async def _start(self, nanny: Any) -> list[Any]:
        """A process for each device, which Dask starts again when it dies.

        The workers of hosts join when these answer.
        """
        import dask

        devices = [device for device in self.file.device if not device.dask]
        with dask.config.set(_QUIET):
            nannies = [
                nanny(
                    self.client.scheduler.address, name=device.name, nthreads=1, memory_limit=0,
                    host="127.0.0.1" if self.file.scheduler is None else None,
                    security=self.client.security, resources=device.resources,
                    preload=["hybridlat.measuring.fleet_device"], silence_logs=logging.CRITICAL,
                    env={**device.env, DEVICE: msgspec.json.encode(device).decode()},
                )
                for device in devices
            ]  # fmt: skip
            starts = [asyncio.ensure_future(one.start()) for one in nannies]
            await asyncio.gather(*(s for s, d in zip(starts, devices, strict=True) if not d.host))
        return nannies

    def _look(self) -> dict[str, str]:
        """The addresses of the workers, by name; those that went and came are reported.

        Raises SchedulerLost.
        """
        try:
            # Read anew: what the client remembers may be two seconds old.
            workers = self.client.sync(self.client.scheduler.identity, n_workers=-1)["workers"]
        except (OSError, KeyError, RuntimeError):  # the ways in which Dask's client says it
            raise SchedulerLost from None
        there: dict[str, str] = {}
        for address, worker in workers.items():
            if targets := tuple(t for t in map(str, self.file.targets) if t in worker["resources"]):
                name = str(worker["name"])
                there[name] = address
                self._reports.setdefault(name, DeviceReport(name, targets))
        is_early = time.monotonic() < self._began + CONNECT_S
        for name, report in self._reports.items():
            before, address = self._there.get(name), there.get(name)
            if before not in (None, address) or not (address or report.problem or is_early):
                report.lost += before is not None
                report.problem = self._why_away(name)
                self.on_message(f"{name} is away ({report.problem}): its work goes to others of "
                                f"its target, or waits {self.file.patience_s:.0f} s")  # fmt: skip
            if address and report.problem and name not in self._unfit:
                self.on_message(f"{name} is back")
                report.problem = ""
        self._there = there
        return there

    def _why_away(self, name: str) -> str:
        host = next((device.host for device in self.file.device if device.name == name), None)
        return (why_away(host) if host else "") or "its worker is gone"

    def _fit(self, resource: str) -> list[str]:
        """The addresses of the devices that are there and can measure what has a resource."""
        with self._lock:
            return [
                address for name, address in self._look().items()
                if resource in self._reports[name].targets and name not in self._unfit
            ]  # fmt: skip

    def count(self, resource: str) -> int:
        """How many devices measure what has a resource; they may still be on their way."""
        named = sum(resource in device.resources for device in self.file.device)
        return max(named, len(self._fit(resource)))

    def for_each_target(self, function: Callable[[Target], Result]) -> list[Result]:
        """What a function gives for each target, at once: the devices do the work."""
        import joblib

        threads = joblib.Parallel(n_jobs=len(self.file.targets), backend="threading")
        results: list[Result] = threads(joblib.delayed(function)(t) for t in self.file.targets)
        return results

    def ask(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """What ``registry.lower``, or what else ends in a target, gives on one of its devices.

        Where hosts alone have the engine, it goes by its rules here. Raises what ``function`` does.
        """
        resource = self._resource(arguments[-1])
        if all(d.host is not None for d in self.file.device if resource in d.resources):
            return function(*arguments)
        task = self._submit(function, resource, *arguments)
        answer: Any = next(iter(self._answers({task: None}, resource)))[1]
        if isinstance(answer, HybridlatError):
            raise answer
        return cast("Result", answer)

    def _resource(self, target: Target) -> str:
        """The resource of the devices that measure ``target``: theirs may be another precision."""
        for own in self.file.targets:
            if target == own or registry.at_precision(own, target.precision) == target:
                return str(own)
        choices = ", ".join(map(str, self.file.targets))
        raise InputError(f"no device of the fleet is {target}: choose from {choices}")

    def measure(
        self, target: Target, requests: Sequence[MeasureRequest], settings: MeasurementConfig,
        store: Store,
    ) -> tuple[list[Measurement], list[HybridlatError]]:  # fmt: skip
        """Share requests out to a target's devices, whatever of them come and go.

        The records are in ``store`` as soon as they are made; beside them what went wrong. Raises
        StoreError where the store cannot be written to.
        """
        resource = self._resource(target)
        hashes = [sign(network).hash for network in (null_network(1), reference_network())]
        constants = tuple(r for h in hashes for r in store.measurements(target, "cell", h))
        units = [
            Unit(target, part, settings, constants)
            for part in shares(requests, self.count(resource))
        ]
        self._total += sum(unit.size for unit in units)
        unit_of = {self._submit(measure_unit, resource, unit): unit for unit in units}
        pending: dict[Any, list[str] | None] = dict.fromkeys(unit_of)
        records: list[Measurement] = []
        problems: list[HybridlatError] = []
        for future, outcome in self._answers(pending, resource):
            unit = unit_of[future]
            error = outcome
            if isinstance(outcome, Outcome):
                self._keep(outcome, store)
                records += outcome.records
                error = outcome.error
                if isinstance(error, UnavailableError):  # it will be no better there
                    if outcome.device not in self._unfit:
                        self.on_message(f"{outcome.device} is left out: {error}")
                    self._unfit.add(outcome.device)
                    self._reports[outcome.device].problem = str(error)
                    if fit := self._fit(resource):
                        again = self._submit(measure_unit, resource, unit, workers=fit)
                        unit_of[again], pending[again] = unit, fit
                        continue
            if error is not None:
                problems.append(error)
            self._done += unit.size
            if self._on_progress is not None:
                left_s = (time.monotonic() - self._began) / self._done * (self._total - self._done)
                names = ", ".join(dict.fromkeys(r.name for r in unit.requests))
                self._on_progress(Progress(self._done, self._total, names, left_s))
        return records, problems

    def _answers(
        self, pending: dict[Any, list[str] | None], resource: str
    ) -> Iterator[tuple[Any, Any]]:
        """Each task with its answer as it ends, which may be an error; tasks may be added.

        A task is for some workers alone, or for all (None) that have the resource.
        """
        from distributed import wait

        there_at = time.monotonic()
        try:
            while pending:
                ended: set[Any] = set()
                with contextlib.suppress(TimeoutError):
                    ended = wait(list(pending), timeout=_POLL_S, return_when="FIRST_COMPLETED").done
                for future in ended:
                    del pending[future]
                    yield future, self._answer(future)
                fit = self._fit(resource)
                if any(set(fit).intersection(workers or fit) for workers in pending.values()):
                    there_at = time.monotonic()
                elif time.monotonic() > there_at + self.file.patience_s:
                    for future in list(pending):
                        del pending[future]
                        future.cancel()
                        yield future, self._nobody(resource)
        except CancelledError:
            raise SchedulerLost from None
        finally:
            with contextlib.suppress(Exception):  # the scheduler may be gone
                self.client.cancel(list(pending))

    def _submit(
        self, function: Callable[..., Any], resource: str, *arguments: object,
        workers: list[str] | None = None,
    ) -> Any:  # fmt: skip
        return self.client.submit(
            function, *arguments, pure=False, resources={resource: 1}, workers=workers
        )

    def _answer(self, future: Any) -> Any:
        """What a task returned, or an error for one that could not be run at all."""
        if future.status == "finished":
            return future.result()
        if future.status != "error":
            raise SchedulerLost
        error = future.exception()
        if isinstance(error, HybridlatError):
            return error
        kind = type(error).__name__
        if kind == "KilledWorker":
            return MeasurementError("it brings down every worker that measures it")
        reason = (str(error).strip().splitlines() or [kind])[0]
        return MeasurementError(f"a worker could not run it ({reason})")

    def _nobody(self, resource: str) -> BackendUnavailable:
        start = f'dask worker {self.file.scheduler} --nthreads 1 --resources "{resource}=1"'
        why = "; ".join(
            f"start one by: {start}" if device.dask
            else f"{device.name}: {self._why_away(device.name)}"
            for device in self.file.device if resource in device.resources
        )  # fmt: skip
        return BackendUnavailable(
            f"no device of {resource} is there ({why}): what was measured is kept, run the same "
            "again and it goes on"
        )

    def _keep(self, outcome: Outcome, store: Store) -> None:
        store.add_signatures(outcome.texts)
        store.add(outcome.records)
        store.add_breakdowns(outcome.breakdowns)
        report = self._reports[outcome.device]
        report.busy_s += outcome.seconds
        for record in outcome.records:
            report.failures += record.failure is not None
            report.cells += record.kind == "cell" and not record.labels.get("role")
            report.networks += record.kind == "network"


@dataclass(frozen=True)
class FleetMeasurer:
    """A target's engine and its measurer (see ``measurer.py``), both on its devices.

    ``problems`` are what kept parts of the requests from being measured.
    """

    fleet: Fleet
    target: Target
    problems: list[HybridlatError] = field(default_factory=list)

    @property
    def needs_network(self) -> bool:
        return registry.load_backend(self.target.engine).method is not Method.REPLICAS

    @property
    def contexts(self) -> Mapping[str, float]:
        return registry.load_backend(self.target.engine).contexts

    @property
    def devices(self) -> int:
        return self.fleet.count(str(self.target))

    def lower(self, network: Network) -> Lowered:
        """See Backend."""
        return self.fleet.ask(registry.lower, network, self.target)

    def measure(
        self, requests: Sequence[MeasureRequest], store: Store, settings: MeasurementConfig,
        on_progress: OnProgress | None = None,
    ) -> list[Measurement]:  # fmt: skip
        """See Measurer. Raises what stood in the way where nothing at all could be measured."""
        del on_progress  # the fleet reports on all its devices
        records, problems = self.fleet.measure(self.target, requests, settings, store)
        if problems and not records:
            raise problems[0]
        self.problems.extend(problems)
        return records


async def _close(nannies: Sequence[Any]) -> None:
    await asyncio.gather(*(nanny.close(timeout=_CLOSE_S / 2) for nanny in nannies))
