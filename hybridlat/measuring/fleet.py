"""Requests measured by the devices of a fleet: Dask shares them out, and starts workers again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from hybridlat.engines import registry
from hybridlat.engines.base import Method
from hybridlat.errors import BackendUnavailable, HybridlatError, MeasurementError, MissingExtra
from hybridlat.graph.builder import null_network, reference_network
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.signature import sign
from hybridlat.measuring.fleet_device import (
    HOST,
    DeviceReport,
    FleetFile,
    Outcome,
    measure_part,
    shares,
    size_of,
)
from hybridlat.measuring.measurer import BackendMeasurer, MeasureRequest
from hybridlat.measuring.process import safe_path
from hybridlat.measuring.schedule import MeasurementConfig
from hybridlat.schema.measurement import Measurement
from hybridlat.schema.progress import OnMessage, OnProgress, Progress, silent
from hybridlat.schema.target import Target
from hybridlat.store import Store

CONNECT_S = 15.0
PATIENCE_S = 600.0
"""Work whose devices have all gone away waits so long for one of them."""
_CLOSE_S = 5.0
# Nothing of Dask's own runs beside a measurement: no settings of the C library, no profiler.
_QUIET = {"distributed.nanny.pre-spawn-environ": {}, "distributed.worker.profile.enabled": False}


class SchedulerLost(BackendUnavailable):
    """The connection to Dask's scheduler was lost: nothing more can be measured."""

    def __init__(self) -> None:
        super().__init__(
            "the connection to Dask's scheduler was lost: what was measured is kept, run the same "
            "again and it goes on"
        )


class Fleet:
    """The devices of a fleet's file, at work while this context manager lasts.

    Entering raises MissingExtra without Dask, BackendUnavailable where its scheduler does not
    answer. ``on_progress`` gets that of all devices together, ``on_message`` a line where no device
    of a target is there; ``reports`` says by its name what each device did.
    """

    def __init__(
        self, file: FleetFile, on_progress: OnProgress | None = None, on_message: OnMessage = silent
    ) -> None:
        self.file, self._on_message, self._on_progress = file, on_message, on_progress
        self.client: Any = None
        self.reports = {d.name: DeviceReport(d.name, tuple(d.resources)) for d in file.own}
        self._missed: set[str] = set()  # resources of which no device is there
        self._began = time.monotonic()
        self._done = self._total = 0  # cells and networks
        self._stack = contextlib.ExitStack()

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
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError, RuntimeError, TimeoutError):  # the scheduler is gone
            self._stack.close()

    def _connected(self, distributed: Any, stack: contextlib.ExitStack) -> Any:
        import dask

        address = self.file.scheduler
        if address is None:
            with dask.config.set({"distributed.scheduler.no-workers-timeout": PATIENCE_S}):
                cluster = distributed.LocalCluster(
                    n_workers=0, processes=True, dashboard_address=None,
                    silence_logs=logging.CRITICAL,
                    security=True,  # on a machine of many users no other user runs code here
                    scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
                )  # fmt: skip
            stack.enter_context(cluster)
            # Its pages answer without a certificate.
            cluster.loop.add_callback(cluster.scheduler.http_server.stop)
            return distributed.Client(cluster)
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

        with dask.config.set(_QUIET), safe_path():
            nannies = [
                nanny(
                    self.client.scheduler.address, name=device.name, nthreads=1, memory_limit=0,
                    host="127.0.0.1" if self.file.scheduler is None else None,
                    security=self.client.security, resources=device.resources,
                    preload=["hybridlat.measuring.fleet_device"], silence_logs=logging.CRITICAL,
                    env={**device.env, HOST: device.host or ""},
                )
                for device in self.file.own
            ]  # fmt: skip
            starts = [asyncio.ensure_future(one.start()) for one in nannies]
            own = zip(starts, self.file.own, strict=True)
            await asyncio.gather(*(start for start, device in own if not device.host))
        return nannies

    def count(self, resource: str) -> int:
        """How many devices measure what has a resource, at least one.

        Says once where none is there. Raises SchedulerLost.
        """
        try:
            workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        except (OSError, KeyError, RuntimeError):  # the ways in which Dask's client says it
            raise SchedulerLost from None
        there = sum(resource in worker["resources"] for worker in workers)
        named = sum(resource in device.resources for device in self.file.own)
        if not there and not named and resource not in self._missed:
            self._missed.add(resource)
            start = f'dask worker {self.file.scheduler} --nthreads 1 --resources "{resource}=1"'
            self._on_message(f"no device of {resource} is there: start one by: {start}")
        return max(1, there, named)

    def answers(self, resource: str, calls: Iterable[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """The place and the answer, which may be an error, of each call as it ends.

        A call is a function and its arguments, made on a device that has the resource.
        """
        from distributed import as_completed

        self.count(resource)
        how = {"pure": False, "resources": {resource: 1}}
        tasks = [self.client.submit(*call, **how) for call in calls]
        places = {task.key: place for place, task in enumerate(tasks)}
        try:
            for task in as_completed(tasks):
                yield places[task.key], _answer(task, resource)
        except CancelledError:
            raise SchedulerLost from None
        finally:
            with contextlib.suppress(Exception):  # the scheduler may be gone
                self.client.cancel(tasks)

    def begin(self, size: int) -> None:
        """Count what is ahead: the time left is that of all targets."""
        self._total += size

    def end(self, requests: Sequence[MeasureRequest]) -> None:
        self._done += size_of(requests)
        if self._on_progress is not None:
            left_s = (time.monotonic() - self._began) / self._done * (self._total - self._done)
            names = ", ".join(dict.fromkeys(request.name for request in requests))
            self._on_progress(Progress(self._done, self._total, names, left_s))


@dataclass(frozen=True)
class FleetMeasurer:
    """An engine and its measurer (see BackendMeasurer), both on the devices of a target.

    ``resource`` names them: a target of the file, perhaps of another precision. ``problems`` are
    what kept parts of the requests from being measured.
    """

    fleet: Fleet
    target: Target
    resource: str
    problems: list[HybridlatError] = field(default_factory=list)

    @property
    def needs_network(self) -> bool:
        return registry.load_backend(self.target.engine).method is not Method.REPLICAS

    @property
    def contexts(self) -> Mapping[str, float]:
        return registry.load_backend(self.target.engine).contexts

    @property
    def devices(self) -> int:
        return self.fleet.count(self.resource)

    def ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function of the engine gives on one of the devices; raises what it does.

        Where hosts alone have the engine, it goes by its rules here.
        """
        devices = (d for d in self.fleet.file.device if self.resource in d.resources)
        if all(device.host is not None for device in devices):
            return function(*arguments)
        [(_, answer)] = self.fleet.answers(self.resource, [(function, *arguments)])
        if isinstance(answer, HybridlatError):
            raise answer
        return answer

    def lower(self, network: Network) -> Lowered:
        return cast("Lowered", self.ask(registry.lower, network, self.target))

    def measure(
        self, requests: Sequence[MeasureRequest], store: Store, settings: MeasurementConfig,
        on_progress: OnProgress | None = None,
    ) -> list[Measurement]:  # fmt: skip
        """See BackendMeasurer: shared out to the target's devices, whatever of them come and go.

        Raises what stood in the way where nothing at all could be measured.
        """
        del on_progress  # the fleet reports on all its devices
        hashes = [sign(network).hash for network in (null_network(1), reference_network())]
        constants = tuple(r for h in hashes for r in store.measurements(self.target, "cell", h))
        parts = shares(requests, self.devices)
        calls = [(measure_part, self.target, part, settings, constants) for part in parts]
        self.fleet.begin(size_of(requests))
        records: list[Measurement] = []
        problems: list[HybridlatError] = []
        for place, answer in self.fleet.answers(self.resource, calls):
            error = answer
            if isinstance(answer, Outcome):
                store.add_all(answer.imported)
                report = DeviceReport(answer.device, (self.resource,))
                self.fleet.reports.setdefault(answer.device, report).add(answer)
                records += answer.imported.measurements
                error = answer.error
            if error is not None:
                problems.append(error)
            self.fleet.end(parts[place])
        if problems and not records:
            raise problems[0]
        self.problems.extend(problems)
        return records


Measurer: TypeAlias = BackendMeasurer | FleetMeasurer


def _answer(task: Any, resource: str) -> Any:
    """What a task returned, or an error for one that could not be run at all."""
    if task.status == "finished":
        try:
            return task.result()
        except OSError:  # it died while the answer was on its way
            raise SchedulerLost from None
    if task.status != "error":
        raise SchedulerLost
    error = task.exception()
    kind = type(error).__name__
    if isinstance(error, HybridlatError):
        return error
    if kind == "KilledWorker":
        return MeasurementError("it brings down every worker that measures it")
    if kind in ("NoValidWorkerError", "NoWorkerError"):
        return BackendUnavailable(
            f"no device of {resource} is there: what was measured is kept, run the same again and "
            "it goes on"
        )
    reason = (str(error).strip().splitlines() or [kind])[0]
    return MeasurementError(f"a worker could not run it ({reason})")


async def _close(nannies: Sequence[Any]) -> None:
    await asyncio.gather(*(nanny.close(timeout=_CLOSE_S / 2) for nanny in nannies))
