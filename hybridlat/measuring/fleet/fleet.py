"""Units measured by the devices of a fleet: Dask hands them out, and starts workers again.

with Fleet(read_fleet("fleet.toml")) as fleet:
    fleet.measure(units, store)                    what `measure --fleet` does
FleetMeasurer(fleet, target)                       what `onboard --fleet` measures by
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from typing import Any

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
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.reference_networks import null_network, reference_network
from hybridlat.graph.signature import sign
from hybridlat.measuring.fleet.devices import FleetDevice, FleetFile
from hybridlat.measuring.fleet.unit import HOST, Host, Outcome, Unit, measure_unit, shares, why_away
from hybridlat.measuring.measurer import MeasureRequest
from hybridlat.measuring.schedule import MeasurementConfig
from hybridlat.schema.measurement import Measurement
from hybridlat.schema.progress import OnMessage, OnProgress, Progress, silent
from hybridlat.schema.target import Target
from hybridlat.store import Store

CONNECT_S = 15.0
_POLL_S, _CLOSE_S = 1.0, 5.0
_LOST = (
    "the connection to Dask's scheduler was lost: what was measured is kept, run the same again "
    "and it goes on"
)
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


@dataclass
class UnitResult:
    """The records of a unit, and the error where a part of it is left."""

    unit: Unit
    records: list[Measurement] = field(default_factory=list)
    problem: HybridlatError | None = None


class Fleet:
    """The devices of a fleet's file, at work while this context manager lasts.

    Entering raises MissingExtra without Dask, BackendUnavailable where its scheduler does not
    answer. ``on_progress`` hears of all devices together, ``on_message`` of those that go and come.
    """

    def __init__(
        self, file: FleetFile, on_progress: OnProgress | None = None, on_message: OnMessage = silent
    ) -> None:
        self.file = file
        self.client: Any = None
        self._on_progress, self._on_message = on_progress, on_message
        self._reports: dict[str, DeviceReport] = {}
        self._there: dict[str, str] = {}  # the folder of each worker's process
        self._unfit: set[str] = set()
        self._stack = contextlib.ExitStack()

    @property
    def reports(self) -> list[DeviceReport]:
        """What each device did."""
        return list(self._reports.values())

    # ---- workers -------------------------------------------------------------------------------

    def __enter__(self) -> Fleet:
        try:
            import cryptography  # noqa: F401  of the certificates that Dask makes
            import distributed
        except ImportError as error:
            missing = error.name or "distributed"
            raise MissingExtra(missing, "fleet", "measuring on a fleet") from None
        own = [device for device in self.file.devices if not device.dask]
        for device in own:
            self._report(device.name, device.resources)
        with contextlib.ExitStack() as stack:
            for name in ("distributed", "distributed.client"):  # the messages are this module's
                log = logging.getLogger(name)
                stack.callback(log.setLevel, log.level)
                log.setLevel(logging.CRITICAL)
            self.client = stack.enter_context(self._connected(distributed, stack))
            nannies = self.client.sync(self._start, distributed.Nanny, own)
            stack.callback(self.client.sync, _close, nannies, callback_timeout=4 * _CLOSE_S)
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

    async def _start(self, nanny: Any, devices: Sequence[FleetDevice]) -> list[Any]:
        """A process for each device, which Dask starts again when it dies."""
        import dask

        with dask.config.set(_QUIET):
            nannies = [
                nanny(
                    self.client.scheduler.address, name=device.name, nthreads=1, memory_limit=0,
                    host="127.0.0.1" if self.file.scheduler is None else None,
                    security=self.client.security, resources=device.resources,
                    preload=["hybridlat.measuring.fleet.unit"], silence_logs=logging.CRITICAL,
                    env={**device.env, HOST: _host_text(device)},
                )
                for device in devices
            ]  # fmt: skip
            starts = [asyncio.ensure_future(one.start()) for one in nannies]
            # Workers of hosts join when the host answers.
            here = (s for s, device in zip(starts, devices, strict=True) if device.host is None)
            await asyncio.gather(*here)
        return nannies

    def _look(self) -> dict[str, str]:
        """The addresses of the workers of this fleet, by name; those that go and come are reported.

        Raises BackendUnavailable when the scheduler is gone.
        """
        try:
            # Asked anew: what the client remembers may be two seconds old.
            identity = self.client.sync(self.client.scheduler.identity, n_workers=-1)
            workers = identity["workers"]
        except (OSError, KeyError, RuntimeError):  # the ways in which Dask's client says it
            raise BackendUnavailable(_LOST) from None
        wanted = set(map(str, self.file.targets))
        addresses, there = {}, {}
        for address, worker in workers.items():
            if wanted & set(worker["resources"]):
                name = str(worker["name"])
                addresses[name], there[name] = address, worker["local_directory"]
                self._report(name, worker["resources"])
        for name, report in self._reports.items():
            if self._there.get(name, there.get(name)) != there.get(name):
                report.lost += 1
                report.problem = self._why_away(name)
                self._on_message(f"{name} is away ({report.problem}): its work goes to others of "
                                 f"its target, or waits {self.file.patience_s:.0f} s")  # fmt: skip
            if name in there and report.problem and name not in self._unfit:
                self._on_message(f"{name} is back")
                report.problem = ""
        self._there = there
        return addresses

    def _why_away(self, name: str) -> str:
        hosts = (device.host for device in self.file.devices if device.name == name)
        return (why_away(host) if (host := next(hosts, None)) else "") or "its worker is gone"

    def _report(self, name: str, resources: Collection[str]) -> DeviceReport:
        targets = tuple(t for t in map(str, self.file.targets) if t in resources)
        return self._reports.setdefault(name, DeviceReport(name, targets))

    def _fit(self, resource: str) -> list[str]:
        """The addresses of the devices that are there and can measure what has a resource."""
        return [
            address for name, address in self._look().items()
            if resource in self._reports[name].targets and name not in self._unfit
        ]  # fmt: skip

    # ---- questions to devices ------------------------------------------------------------------

    def count(self, target: Target) -> int:
        """How many devices of a target are there, and at least 1."""
        return max(1, len(self._fit(self._resource(target))))

    def lower(self, network: Network, target: Target) -> Lowered:
        """The kernels that the target's engine runs, asked of one of its devices.

        Where hosts alone have it, by its rules. Raises what ``registry.lower`` does.
        """
        lowered: Lowered = self._ask(registry.lower, target, network, target)
        return lowered

    def identity(self, target: Target) -> str:
        """What the answers of :meth:`lower` depend on."""
        return str(self._ask(registry.lowering_identity, target, target))

    def _ask(self, function: Callable[..., Any], target: Target, *arguments: object) -> Any:
        resource = self._resource(target)
        if all(d.host is not None for d in self.file.devices if resource in d.resources):
            return function(*arguments)
        asked = {self._submit(function, resource, *arguments): 0}
        ((_, answer),) = self._answers(asked, [resource])
        if isinstance(answer, HybridlatError):
            raise answer
        return answer

    def _resource(self, target: Target) -> str:
        """The resource of the devices that measure ``target``: theirs may be another precision."""
        for own in self.file.targets:
            if target == own or registry.at_precision(own, target.precision) == target:
                return str(own)
        choices = ", ".join(map(str, self.file.targets))
        raise InputError(f"no device of the fleet is {target}: choose from {choices}")

    # ---- measuring -----------------------------------------------------------------------------

    def measure(self, units: Sequence[Unit], store: Store) -> list[UnitResult]:
        """Measure all units, whatever devices come and go; a result of each, in order.

        Records are in ``store`` as soon as their unit is done. What no device was there for has its
        reason. Raises StoreError where the store cannot be written to.
        """
        results = [UnitResult(unit) for unit in units]
        total, done, began = sum(unit.size for unit in units), 0, time.monotonic()
        pending = {
            self._submit(measure_unit, unit.resource, _with_constants(unit, store)): place
            for place, unit in enumerate(units)
        }
        for place, outcome in self._answers(pending, [unit.resource for unit in units]):
            result = results[place]
            if isinstance(outcome, HybridlatError):
                result.problem = outcome
            else:
                self._keep(outcome, result, store)
                if isinstance(outcome.error, UnavailableError):  # it will be no better there
                    self._leave_out(outcome.device, str(outcome.error))
                    fit = self._fit(result.unit.resource)
                    if fit:
                        unit = _with_constants(result.unit, store)
                        again = self._submit(measure_unit, unit.resource, unit, workers=fit)
                        pending[again] = place
                        continue
                result.problem = outcome.error
            done += result.unit.size
            if self._on_progress is not None:
                left_s = (time.monotonic() - began) / max(done, 1) * (total - done)
                names = ", ".join(dict.fromkeys(r.name for r in result.unit.requests))
                self._on_progress(Progress(done, total, names, left_s))
        return results

    def _answers(self, pending: dict[Any, int], resources: Sequence[str]) -> Any:
        """(place, answer) of each task as it ends; an error for what no device was there for."""
        from distributed import wait

        alone_since: dict[str, float] = {}
        try:
            while pending:
                try:
                    ended = wait(list(pending), timeout=_POLL_S, return_when="FIRST_COMPLETED").done
                except TimeoutError:
                    ended = ()
                except CancelledError:
                    raise BackendUnavailable(_LOST) from None
                for future in ended:
                    yield pending.pop(future), _answer(future)
                there = {t for name in self._look() for t in self._reports[name].targets}
                for resource in {resources[place] for place in pending.values()}:
                    if resource in there:
                        alone_since.pop(resource, None)
                        continue
                    if resource not in alone_since:
                        self._on_message(f"waiting up to {self.file.patience_s:.0f} s for a device "
                                         f"of {resource}{self._why(resource)}")  # fmt: skip
                    since = alone_since.setdefault(resource, time.monotonic())
                    if time.monotonic() - since >= self.file.patience_s:
                        problem = BackendUnavailable(
                            f"no device of {resource} is there{self._why(resource)}: what was "
                            "measured is kept, run the same again and it goes on"
                        )
                        gone = [f for f, place in pending.items() if resources[place] == resource]
                        for future in gone:
                            future.cancel()
                            yield pending.pop(future), problem
        finally:
            with contextlib.suppress(OSError, RuntimeError):  # the scheduler may be gone
                self.client.cancel(list(pending))

    def _submit(
        self, function: Callable[..., Any], resource: str, *arguments: object,
        workers: Collection[str] | None = None,
    ) -> Any:  # fmt: skip
        key = f"{function.__name__}-{uuid.uuid4().hex}"
        return self.client.submit(
            _caught, function, *arguments, key=key, resources={resource: 1}, workers=workers
        )

    def _keep(self, outcome: Outcome, result: UnitResult, store: Store) -> None:
        store.add_signatures(outcome.texts or {})
        store.add(outcome.records)
        store.add_breakdowns(outcome.breakdowns)
        result.records += outcome.records
        report = self._report(outcome.device, (result.unit.resource,))
        report.busy_s += outcome.seconds
        for record in outcome.records:
            report.failures += record.failure is not None
            report.cells += record.kind == "cell" and not record.labels.get("role")
            report.networks += record.kind == "network"

    def report_problem(self, problem: HybridlatError) -> None:
        """Say what a part was not measured for, where other parts were."""
        self._on_message(str(problem))

    def _leave_out(self, name: str, why: str) -> None:
        if name not in self._unfit:
            self._on_message(f"{name} is left out: {why}")
        self._unfit.add(name)
        self._reports[name].problem = why

    def _why(self, resource: str) -> str:
        """What is known of the devices that could measure a resource, in brackets."""
        own = [d for d in self.file.devices if resource in d.resources]
        if any(device.dask for device in own):
            start = f'dask worker {self.file.scheduler} --nthreads 1 --resources "{resource}=1"'
            return f" (start one by: {start})"
        return f" ({'; '.join(f'{d.name}: {self._why_away(d.name)}' for d in own)})"


@dataclass(frozen=True)
class FleetMeasurer:
    """A measurer (see ``measurer.py``) that shares each call out to the devices of a target."""

    fleet: Fleet
    target: Target

    @property
    def needs_network(self) -> bool:
        return registry.load_backend(self.target.engine).method is not Method.REPLICAS

    @property
    def devices(self) -> int:
        return self.fleet.count(self.target)

    def measure(
        self, requests: Sequence[MeasureRequest], store: Store, settings: MeasurementConfig,
        on_progress: OnProgress | None = None,
    ) -> list[Measurement]:  # fmt: skip
        """See Measurer. Raises what stood in the way where nothing at all could be measured."""
        del on_progress  # the fleet reports on all its devices
        parts = shares(requests, self.devices)
        units = [Unit(str(self.target), self.target, part, settings) for part in parts]
        results = self.fleet.measure(units, store)
        records = [record for result in results for record in result.records]
        for result in results:
            if result.problem is not None and not records:
                raise result.problem
            if result.problem is not None:
                self.fleet.report_problem(result.problem)
        return records


def _with_constants(unit: Unit, store: Store) -> Unit:
    """The unit with what the store knows of the target itself: overhead and pace."""
    hashes = [sign(network).hash for network in (null_network(1), reference_network())]
    records = [r for h in hashes for r in store.measurements(unit.target, "cell", h)]
    return replace(unit, constants=tuple(records))


def _caught(function: Callable[..., Any], *arguments: object) -> Any:
    """In a worker: what a function returns, or the error that a user is to read."""
    try:
        return function(*arguments)
    except HybridlatError as error:
        return error


def _answer(future: Any) -> Any:
    """What a task returned, or an error for one that could not be run at all."""
    if future.status == "finished":
        return future.result()
    if future.status != "error":
        raise BackendUnavailable(_LOST)
    error = future.exception()
    if type(error).__name__ == "KilledWorker":
        return MeasurementError("it brings down every worker that measures it")
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return MeasurementError(f"a worker could not run it ({reason})")


async def _close(nannies: Sequence[Any]) -> None:
    await asyncio.gather(*(nanny.close(timeout=_CLOSE_S) for nanny in nannies))


def _host_text(device: FleetDevice) -> str:
    if device.host is None:
        return ""
    return msgspec.json.encode(Host(device.host, device.runner, device.limit_s)).decode()
