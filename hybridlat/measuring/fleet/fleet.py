"""Units measured by the devices of a fleet: handed out by Dask, taken up again, kept as they come.

with Fleet(read_fleet("fleet.toml")) as fleet:
    fleet.measure(units, store)                    what `measure --fleet` does
FleetMeasurer(fleet, target)                       what `onboard --fleet` measures by
"""

from __future__ import annotations

import contextlib
import platform
import time
import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from typing import Any

from hybridlat.engines import registry
from hybridlat.errors import (
    BackendUnavailable,
    HostUnreachable,
    HybridlatError,
    InputError,
    MeasurementError,
    StoreError,
    UnavailableError,
)
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.reference_networks import null_network, reference_network
from hybridlat.graph.signature import sign
from hybridlat.measuring.fleet.attendance import Attendance
from hybridlat.measuring.fleet.devices import FleetFile
from hybridlat.measuring.fleet.progress import FleetProgress
from hybridlat.measuring.fleet.report import DeviceReport
from hybridlat.measuring.fleet.unit import (
    Outcome,
    Unit,
    lower_network,
    lowering_identity,
    measure_unit,
)
from hybridlat.measuring.fleet.workers import LOST, Workers
from hybridlat.schema.measurement import Measurement
from hybridlat.schema.progress import OnMessage, OnProgress, silent
from hybridlat.schema.target import Target
from hybridlat.store import Store

_POLL_S = 1.0
_TRIES = 3
"""How often a unit is begun before it is given up: devices go away, and so do connections."""


@dataclass
class UnitResult:
    """What came of a unit: its records, and why not all of it, where something is left."""

    unit: Unit
    records: list[Measurement] = field(default_factory=list)
    problem: HybridlatError | None = None


class Fleet:
    """The devices of a fleet's file, at work while this context manager lasts.

    ``on_progress`` hears how far all of them are together, ``on_message`` who went away and came
    back. Entering raises MissingExtra without Dask, BackendUnavailable where its scheduler does
    not answer.
    """

    def __init__(
        self, file: FleetFile, on_progress: OnProgress | None = None, on_message: OnMessage = silent
    ) -> None:
        self.file = file
        self.progress = FleetProgress(on_progress)
        self._attendance = Attendance(file, on_message)
        self._workers = Workers(file, self._attendance)
        self._topic = f"hybridlat-{uuid.uuid4().hex}"

    def __enter__(self) -> Fleet:
        self._workers.__enter__()
        self._client.subscribe_topic(self._topic, lambda event: self.progress.at(*event[1]))
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.__exit__()

    @property
    def _client(self) -> Any:
        return self._workers.client

    @property
    def reports(self) -> list[DeviceReport]:
        """What each device did, in the order of the file; Dask's workers as they came."""
        return list(self._attendance.reports.values())

    def count(self, target: Target) -> int:
        """How many devices of a target are there, and at least 1."""
        return max(1, len(self._fit(self._resource(target))))

    # ---- asking devices what they run ----------------------------------------------------------

    def lower(self, network: Network, target: Target) -> Lowered:
        """The kernels that the target's engine runs: one of its devices is asked.

        Where only hosts have it, which run an engine whose rules are known, they tell. Raises what
        ``registry.lower`` does.
        """
        if self._is_far(target):
            return registry.lower(network, target)
        lowered: Lowered = self._ask(lower_network, target, network, target)
        return lowered

    def identity(self, target: Target) -> str:
        """What the answers of :meth:`lower` depend on."""
        if self._is_far(target):
            return registry.lowering_identity(target)
        return str(self._ask(lowering_identity, target, target))

    def _is_far(self, target: Target) -> bool:
        resource = self._resource(target)
        return all(d.host is not None for d in self.file.devices if resource in d.resources)

    def _ask(self, function: Any, target: Target, *arguments: object) -> Any:
        resource = self._resource(target)
        future = self._submit(function, resource, *arguments)
        while not self._finished([future]):
            for why in self._given_up({resource}).values():
                future.cancel()
                raise BackendUnavailable(why)
        answer = self._answer(future)
        if isinstance(answer, HybridlatError):
            raise answer
        return answer

    def _resource(self, target: Target) -> str:
        """The resource of the devices that measure ``target``: theirs may be another precision."""
        for own in self.file.targets:
            if target == own or registry.at_precision(own, target.precision) == target:
                return str(own)
        choices = ", ".join(map(str, self.file.targets))
        raise InputError(f"no device of the fleet is {target}: choose of {choices}")

    # ---- measuring -----------------------------------------------------------------------------

    def measure(self, units: Sequence[Unit], store: Store) -> list[UnitResult]:
        """Measure all units, whatever devices come and go; a result of each, in order.

        Records are in ``store`` as soon as their unit is done. What no device could be found for
        has its reason. Raises StoreError where the store cannot be written to.
        """
        results = [UnitResult(unit) for unit in units]
        tries: Counter[int] = Counter()
        todo: dict[Any, int] = {}
        deadline = {
            place: time.monotonic() + unit.settings.budget_s
            for place, unit in enumerate(units)
            if unit.settings.budget_s is not None
        }
        self.progress.add(sum(unit.size for unit in units))

        def submit(place: int) -> None:
            tries[place] += 1
            unit = self._prepared(results[place].unit, store)
            if place in deadline and tries[place] > 1:
                left_s = max(deadline[place] - time.monotonic(), 1.0)
                unit = replace(unit, settings=replace(unit.settings, budget_s=left_s))
            todo[self._submit(measure_unit, unit.resource, unit)] = place

        try:
            for place in range(len(units)):
                submit(place)
            while todo:
                for future in self._finished(list(todo)):
                    place = todo.pop(future)
                    result = results[place]
                    outcome = self._taken(future, result, store)
                    if outcome.error is None:
                        self.progress.done(outcome.device, result.unit.size)
                        continue
                    left = result.unit.left(store)
                    late = time.monotonic() >= deadline.get(place, float("inf"))
                    if not left.requests or late:
                        self.progress.done(outcome.device, result.unit.size)
                    elif tries[place] < _TRIES and self._may_go_on(outcome, left):
                        self.progress.done(outcome.device, result.unit.size - left.size)
                        result.unit = left
                        submit(place)
                    else:
                        self.progress.done(outcome.device, result.unit.size)
                        result.problem = outcome.error
                waiting = {results[place].unit.resource for place in todo.values()}
                for resource, why in self._given_up(waiting).items():
                    for future, place in list(todo.items()):
                        if results[place].unit.resource == resource:
                            del todo[future]
                            future.cancel()
                            results[place].problem = BackendUnavailable(why)
            with contextlib.suppress(BackendUnavailable):  # all has been answered
                self._attendance.see(self._workers.present())
        finally:
            with contextlib.suppress(OSError, RuntimeError):  # the scheduler may be gone
                self._client.cancel(list(todo))
        return results

    def _prepared(self, unit: Unit, store: Store) -> Unit:
        own = self.file.scheduler is None
        url = f"sqlite:///{store.file}" if store.file else store.url if own else None
        hashes = [sign(network).hash for network in (null_network(1), reference_network())]
        constants = [r for h in hashes for r in store.measurements(unit.target, "cell", h)]
        return replace(
            unit, store=None if store.is_in_memory else url, node=platform.node(),
            constants=tuple(constants), topic=self._topic,
        )  # fmt: skip

    def _taken(self, future: Any, result: UnitResult, store: Store) -> Outcome:
        """What came of a task, its records kept."""
        answer = self._answer(future)
        if isinstance(answer, HybridlatError):
            return Outcome("", error=answer)
        outcome: Outcome = answer
        store.add_signatures(outcome.texts or {})
        store.add(outcome.records)
        store.add_breakdowns(outcome.breakdowns)
        result.records += outcome.records
        report = self._attendance.report(outcome.device, (result.unit.resource,))
        report.busy_s += outcome.seconds
        for record in outcome.records:
            report.failures += record.failure is not None
            report.cells += record.kind == "cell" and not record.labels.get("role")
            report.networks += record.kind == "network"
        return outcome

    def _may_go_on(self, outcome: Outcome, left: Unit) -> bool:
        """Whether what is left of a unit is worth another try, by this device or by others."""
        if not outcome.device:
            return False
        if isinstance(outcome.error, HostUnreachable):
            self._workers.lose(outcome.device, str(outcome.error))
        elif isinstance(outcome.error, UnavailableError | StoreError):  # it will be no better
            self._attendance.unfit(outcome.device, str(outcome.error))
            self._workers.dismiss(outcome.device)
            return bool(self._fit(left.resource))
        return True

    # ---- Dask, and who is there ----------------------------------------------------------------

    def _submit(self, function: Any, resource: str, *arguments: object) -> Any:
        key = f"{function.__name__}-{uuid.uuid4().hex}"
        return self._client.submit(function, *arguments, key=key, resources={resource: 1})

    def _finished(self, futures: Sequence[Any]) -> list[Any]:
        """Those that have ended, after waiting a moment for one to."""
        from distributed import wait

        try:
            return list(wait(futures, timeout=_POLL_S, return_when="FIRST_COMPLETED").done)
        except TimeoutError:
            return []
        except CancelledError:
            raise BackendUnavailable(LOST) from None

    def _answer(self, future: Any) -> Any:
        """What a task returned, or an error for one that could not be run at all."""
        if future.status == "finished":
            return future.result()
        if future.status != "error":
            raise BackendUnavailable(LOST)
        error = future.exception()
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if type(error).__name__ == "KilledWorker":
            return MeasurementError("it brings down every worker that measures it")
        return MeasurementError(f"a worker could not run it ({said})")

    def _fit(self, resource: str) -> list[str]:
        """The devices that are there and have a resource, by name."""
        return self._attendance.fit(self._workers.present(), resource)

    def _given_up(self, resources: Collection[str]) -> Mapping[str, str]:
        """For each of the resources that nobody is waited for any more, why."""
        return self._attendance.given_up(self._workers.present(), resources)
