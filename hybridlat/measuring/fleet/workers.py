"""The devices of a fleet as workers of Dask: each is one exactly while its device answers.

Dask does the rest: work goes to whoever has the resource named after its target, one thing at a
time, and what a worker leaves undone goes to the next, or waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from typing import Any

from hybridlat.errors import BackendUnavailable, HybridlatError, InputError, MissingExtra
from hybridlat.measuring.fleet.attendance import Attendance, Presence
from hybridlat.measuring.fleet.devices import FleetDevice, FleetFile
from hybridlat.measuring.ssh import Connection

KNOCK_EVERY_S = 5.0
_ANSWER_S = 20.0
_CONNECT_S = 15.0
_CLOSE_S = 5.0
LOST = (
    "the connection to Dask's scheduler was lost: what was measured is kept, run the same again "
    "and it goes on"
)
_WORKER = "hybridlat.measuring.fleet.unit"
# Nothing of Dask's own beside what is measured: no settings of the C library, no profiler.
_QUIET = {"distributed.nanny.pre-spawn-environ": {}, "distributed.worker.profile.enabled": False}


class Workers:
    """The workers of the hosts and of this machine, at the file's scheduler or at one of its own.

    A context manager; MissingExtra without Dask, BackendUnavailable where its scheduler does not
    answer.
    """

    def __init__(self, fleet: FleetFile, attendance: Attendance) -> None:
        try:
            import cryptography  # noqa: F401  of the certificates that Dask makes
            import distributed
        except ImportError as error:
            missing = error.name or "distributed"
            raise MissingExtra(missing, "fleet", "measuring on a fleet") from None
        self._distributed: Any = distributed
        self._fleet, self._attendance = fleet, attendance
        self._hosts = {d.name: d for d in fleet.devices if d.host is not None}
        self._workers: dict[str, Any] = {}
        self._locks = {name: threading.Lock() for name in self._hosts}
        self._closed = threading.Event()
        self._stack = contextlib.ExitStack()
        self.client: Any = None

    def __enter__(self) -> Workers:
        with contextlib.ExitStack() as stack:
            self.client = stack.enter_context(self._connected(stack))
            stack.callback(self._leave)
            taken = set(self.present())
            for device in self._fleet.devices:
                if not device.dask and device.name in taken:
                    raise InputError(
                        f"the scheduler {self._fleet.scheduler} has a worker {device.name!r} "
                        "already: give the device another name"
                    )
            here = [d for d in self._fleet.devices if d.host is None and not d.dask]
            self.client.sync(self._start_here, here)
            self._attendance.see(self.present())  # who is gone is missed from here on
            for device in self._hosts.values():
                self._knock(device, 0.0)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _connected(self, stack: contextlib.ExitStack) -> Any:
        address = self._fleet.scheduler
        for name in ("distributed", "distributed.client"):  # what happens is told in our own words
            log = logging.getLogger(name)
            stack.callback(log.setLevel, log.level)
            log.setLevel(logging.CRITICAL)
        if address is None:
            cluster = self._distributed.LocalCluster(
                n_workers=0, processes=True, dashboard_address=None, silence_logs=logging.CRITICAL,
                security=True,  # on a machine of many users nobody else runs code here
                scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
            )  # fmt: skip
            stack.enter_context(cluster)
            return self._distributed.Client(cluster)
        try:
            return self._distributed.Client(address, timeout=_CONNECT_S)
        except (OSError, TimeoutError) as error:
            raise BackendUnavailable(
                f"no scheduler of Dask answers at {address}: start one with `dask scheduler`, or "
                f"correct scheduler in the fleet's file ({error})"
            ) from None

    def present(self) -> dict[str, Presence]:
        """The workers that are there, by name.

        BackendUnavailable when the scheduler is gone.
        """
        try:
            # Asked anew: what the client remembers may be two seconds old.
            said = self.client.sync(self.client.scheduler.identity, n_workers=-1)
            workers = said["workers"].values()
        except (OSError, KeyError, RuntimeError):  # Dask's client says it in each of these ways
            raise BackendUnavailable(LOST) from None
        return {
            str(worker["name"]): Presence(worker["resources"], worker["local_directory"])
            for worker in workers
        }

    def lose(self, name: str, why: str) -> None:
        """A host went away: its worker leaves, until the host answers again."""
        worker = self._workers.pop(name, None)
        if worker is None:
            return
        self._attendance.away(name, why)
        self.client.sync(_close, worker)
        self._knock(self._hosts[name], KNOCK_EVERY_S)

    def dismiss(self, name: str) -> None:
        """A device is not to be asked again: its worker leaves, unless it is somebody else's."""
        worker = self._workers.pop(name, None)
        if worker is not None:
            self.client.sync(_close, worker)

    def _knock(self, device: FleetDevice, first_s: float) -> None:
        thread = threading.Thread(
            target=self._until_it_answers, args=(device, first_s), daemon=True
        )
        thread.start()

    def _until_it_answers(self, device: FleetDevice, first_s: float) -> None:
        assert device.host is not None
        wait_s, told = first_s, first_s > 0
        while not self._closed.wait(wait_s):
            wait_s = KNOCK_EVERY_S
            try:
                Connection(device.host).ask("true", _ANSWER_S)
            except HybridlatError as error:
                if not told:
                    self._attendance.away(device.name, str(error))
                told = True
                continue
            if not self._closed.is_set():
                with contextlib.suppress(OSError, RuntimeError):  # the call has ended meanwhile
                    self.client.sync(self._start_host, device)
                    self._attendance.back(device.name)
            return

    async def _start_host(self, device: FleetDevice) -> None:
        """A worker in this process: all that it does is to wait for ssh."""
        worker = self._distributed.Worker(**self._options(device))
        worker.fleet_device, worker.fleet_lock = device, self._locks[device.name]
        self._workers[device.name] = await worker

    async def _start_here(self, devices: list[FleetDevice]) -> None:
        """A worker for each in a process of its own, which is started again when it dies."""
        import dask

        with dask.config.set(_QUIET):
            nannies = {
                device.name: self._distributed.Nanny(
                    env=dict(device.env),
                    silence_logs=logging.CRITICAL,
                    preload=[_WORKER],
                    **self._options(device),
                )
                for device in devices
            }
            self._workers.update(nannies)
            await asyncio.gather(*nannies.values())

    def _options(self, device: FleetDevice) -> dict[str, Any]:
        """One thing at a time; at a scheduler of our own nobody but this machine is listened to."""
        return {
            "scheduler_ip": self.client.scheduler.address,
            "host": "127.0.0.1" if self._fleet.scheduler is None else None,
            "security": self.client.security,
            "name": device.name,
            "nthreads": 1,
            "resources": device.resources,
            "memory_limit": 0,
        }

    def _leave(self) -> None:
        self._closed.set()
        with contextlib.suppress(OSError, RuntimeError):
            self.client.sync(self._close_all, callback_timeout=4 * _CLOSE_S)

    async def _close_all(self) -> None:
        workers, self._workers = list(self._workers.values()), {}
        await asyncio.gather(*map(_close, workers))


async def _close(worker: Any) -> None:
    """End a worker, at once: what it is at goes to the next."""
    if hasattr(worker, "fleet_device"):  # in this process: its thread ends by itself
        await worker.close(timeout=_CLOSE_S, executor_wait=False)
    else:
        await worker.close(timeout=_CLOSE_S)
