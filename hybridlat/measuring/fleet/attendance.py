"""Who of a fleet is there: told when it changes, and how long a target has had nobody."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from hybridlat.measuring.fleet.devices import FleetFile
from hybridlat.measuring.fleet.report import DeviceReport
from hybridlat.schema.progress import OnMessage

_REMIND_S = 60.0


@dataclass(frozen=True, slots=True)
class Presence:
    """A worker that is there.

    ``place`` is where this process of it keeps its files: another one is another process, which
    took its name between two looks.
    """

    resources: Mapping[str, float]
    place: str


Present = Mapping[str, Presence]
"""The workers that are there, by name."""


class Attendance:
    """The devices of a fleet with their reports, and whether they are there.

    Hosts are told to be away and back (:meth:`away`, :meth:`back`), other workers are seen to be.
    """

    def __init__(self, file: FleetFile, on_message: OnMessage) -> None:
        self._file, self._say = file, on_message
        self.reports = {
            device.name: DeviceReport(device.name, tuple(map(str, device.targets)))
            for device in file.devices
            if not device.dask
        }
        self._hosts = {device.name for device in file.devices if device.host is not None}
        self._resources = set(map(str, file.targets))
        self._unfit: set[str] = set()
        self._there: dict[str, str] = {}  # and where: "" for hosts
        self._alone_since: dict[str, float] = {}
        self._reminded: dict[str, float] = {}
        self._lock = threading.RLock()

    def report(self, name: str, resources: Collection[str] = ()) -> DeviceReport:
        """The report on a device; a worker of Dask has one from when it is first heard of."""
        own = tuple(sorted(self._resources & set(resources)))
        return self.reports.setdefault(name, DeviceReport(name, own))

    def away(self, name: str, why: str) -> None:
        """A device does not answer, or not any more."""
        with self._lock:
            report = self.report(name)
            if name in self._there:
                del self._there[name]
                report.lost += 1
            report.problem = why
            patience = f"for up to {_span(self._file.patience_s)} where it is the only one"
            self._say(f"{name} is away ({why}): others take its work, which waits {patience}")

    def back(self, name: str, place: str = "") -> None:
        """A device answers, for the first time or again."""
        with self._lock:
            report = self.report(name)
            self._there[name] = place
            if report.problem and name not in self._unfit:
                self._say(f"{name} is back")
                report.problem = ""

    def unfit(self, name: str, why: str) -> None:
        """A device cannot measure what it was said to, and is not asked again."""
        with self._lock:
            if name not in self._unfit:
                self._say(f"{name} is left out: {why}")
            self._unfit.add(name)
            self.report(name).problem = why

    def fit(self, present: Present, resource: str) -> list[str]:
        """The devices that are there and can measure what has the resource, by name."""
        having = [name for name, worker in present.items() if resource in worker.resources]
        return [name for name in having if name not in self._unfit]

    def see(self, present: Present) -> None:
        """Take note of who is there."""
        with self._lock:
            own = {
                name: worker
                for name, worker in present.items()
                if name not in self._hosts and self._resources & set(worker.resources)
            }
            for name in sorted(self._there.keys() - self._hosts):
                if name not in own or own[name].place != self._there[name]:
                    self.away(name, "its worker is gone")
            for name in sorted(own.keys() - self._there.keys()):
                self.report(name, own[name].resources)
                self.back(name, own[name].place)

    def given_up(self, present: Present, resources: Collection[str]) -> dict[str, str]:
        """Of the resources whose work waits: those that nobody is waited for any more, and why."""
        with self._lock:
            self.see(present)
            now = time.monotonic()
            given_up = {}
            for resource in sorted(resources):
                if self.fit(present, resource):
                    self._alone_since.pop(resource, None)
                    self._reminded.pop(resource, None)
                    continue
                alone_s = now - self._alone_since.setdefault(resource, now)
                why = self._why(resource)
                if alone_s >= self._file.patience_s or not self._may_come(resource):
                    given_up[resource] = (
                        f"no device of {resource} is there{why}: what was measured is kept, run "
                        "the same again and it goes on"
                    )
                elif now - self._reminded.get(resource, -_REMIND_S) >= _REMIND_S:
                    self._reminded[resource] = now
                    left = _span(self._file.patience_s - alone_s)
                    self._say(f"waiting up to {left} for a device of {resource}{why}")
            return given_up

    def _may_come(self, resource: str) -> bool:
        """Whether some device that is not there may still turn out to be of use."""
        return any(
            device.dask or device.name not in self._unfit
            for device in self._file.devices
            if resource in device.resources
        )

    def _why(self, resource: str) -> str:
        known = [
            f"{report.name}: {report.problem}"
            for report in self.reports.values()
            if resource in report.targets and report.problem
        ]
        if known:
            return f" ({'; '.join(known)})"
        if any(device.dask and resource in device.resources for device in self._file.devices):
            start = f'dask worker {self._file.scheduler} --nthreads 1 --resources "{resource}=1"'
            return f" (start one by: {start})"
        return ""


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
