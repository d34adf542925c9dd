"""The devices of a fleet, described by a TOML file, and what one of them does in one go.

A worker of Dask stands for each device; what it does is a task that it runs.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec

from hybridlat.engines import registry
from hybridlat.engines.registry import resolve
from hybridlat.errors import BackendUnavailable, HostUnreachable, HybridlatError, InputError
from hybridlat.measuring.measurer import BackendMeasurer, MeasureRequest, measure_by_plan
from hybridlat.measuring.schedule import MeasurementConfig
from hybridlat.measuring.ssh import (
    LIMIT_S,
    RUNNERS,
    Connection,
    check_host,
    check_target,
    run_on,
)
from hybridlat.schema.measurement import Breakdown, Measurement
from hybridlat.schema.target import Target
from hybridlat.store import Store

DEVICE = "HYBRIDLAT_FLEET_DEVICE"
"""The variable by which a worker knows the device that it stands for, in JSON."""
_KNOCK_EVERY_S, _ANSWER_S = 5.0, 20.0
Text = Annotated[str, msgspec.Meta(min_length=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class FleetDevice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One device, or with ``dask`` all workers of the scheduler that have a target's resource.

    A ``host`` is measured over ssh by ``runner`` for at most ``limit_s`` at a time; ``local`` is
    this machine with variables ``env`` of its own. It measures one thing at a time, whatever the
    target.
    """

    target: Text | list[Text]
    name: str = ""
    host: str | None = None
    local: bool = False
    dask: bool = False
    runner: Text | None = None
    limit_s: Seconds | None = None
    env: dict[str, str] = {}

    def __post_init__(self) -> None:
        try:
            self._check()
        except HybridlatError as error:
            raise ValueError(str(error)) from None

    def _check(self) -> None:
        kinds = [kind for kind in ("host", "local", "dask") if getattr(self, kind)]
        if len(kinds) != 1:
            raise InputError(
                f"it has {' and '.join(kinds) or 'none of host, local and dask'}: write one of "
                'host = "user@board", local = true and dask = true'
            )
        for target in self.targets:
            if not target.version:
                written = f"{target.device}/{target.engine}-8.6/{target.precision}"
                raise InputError(
                    f"target {target} leaves the engine's version open: write it, such as {written}"
                )
        for key, owner in (("runner", "host"), ("limit_s", "host"), ("env", "local")):
            if getattr(self, key) and not getattr(self, owner):
                raise InputError(f"{key} goes with {owner} alone: leave it out")
        if self.host is not None:
            check_host(self.host)
            for target in self.targets:
                check_target(target)
        if self.runner not in (None, *RUNNERS):
            raise InputError(f"unknown runner {self.runner!r}: choose from {', '.join(RUNNERS)}")

    @property
    def targets(self) -> tuple[Target, ...]:
        texts = [self.target] if isinstance(self.target, str) else self.target
        return tuple(map(Target.parse, dict.fromkeys(texts)))

    @property
    def resources(self) -> dict[str, float]:
        """What the device's worker of Dask has: one of each target."""
        return {str(target): 1.0 for target in self.targets}


class FleetFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fleet: ``scheduler`` is Dask's address, None where one is started for the call.

    Work whose devices have all gone away waits ``patience_s`` for one of them.
    """

    device: Annotated[tuple[FleetDevice, ...], msgspec.Meta(min_length=1)]
    scheduler: Annotated[str, msgspec.Meta(pattern=r"^[a-z]+://[^\s/]+$")] | None = None
    patience_s: Seconds = 600.0

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets of the devices, each once, in their order."""
        return tuple(dict.fromkeys(target for device in self.device for target in device.targets))


def read_fleet(file: str | Path) -> FleetFile:
    """The fleet in a TOML file; InputError names the device, the key and the choices."""
    path = Path(file)
    try:
        fleet = msgspec.toml.decode(path.read_text(encoding="utf-8"), type=FleetFile)
        return msgspec.structs.replace(fleet, device=_named(fleet))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: {_sentence(str(error))}") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except ValueError as error:  # of TOML, or of its encoding
        raise InputError(f"{path} is not TOML: {error}") from None


def _named(fleet: FleetFile) -> tuple[FleetDevice, ...]:
    """The devices, each with a name; InputError where one is another, or measured by another."""
    named: list[FleetDevice] = []
    for number, device in enumerate(fleet.device, 1):
        if device.dask and fleet.scheduler is None:
            raise InputError(
                f"device {number}: dask = true needs the scheduler's address at the head of the "
                'file: scheduler = "tcp://server:8786"'
            )
        name = device.name or device.host or f"{'dask' if device.dask else 'local'}-{number}"
        for place, other in enumerate(named, 1):
            is_same = not device.dask and (other.host, other.env) == (device.host, device.env)
            if (is_same and not other.dask) or other.name == name:
                raise InputError(
                    f"device {number}: it is device {place} a second time, or has its name: write "
                    'target = ["…", "…"] for several targets; local devices differ by env'
                )
        named.append(msgspec.structs.replace(device, name=name))
    return tuple(named)


def _sentence(text: str) -> str:
    """An error of msgspec with the device's number and the key in front."""
    text, _, place = text.partition(" - at `$")
    device = re.match(r"\.device\[(\d+)\]", place)
    key = re.search(r"\.(?!device\[)(\w+)", place)
    table = FleetDevice if device else FleetFile
    if unknown := re.search(r"unknown field `(.*)`", text):
        keys = ", ".join(table.__struct_fields__)
        text = f"unknown key {unknown[1]!r}: choose from {keys}"
    text = re.sub(r"Object missing required field `(.*)`", r"\1 is missing", text)
    number = f"device {int(device[1]) + 1}: " if device else ""
    return number + (f"{key[1]}: " if key else "") + text


@dataclass(frozen=True)
class Unit:
    """Requests that one device measures in one go; ``constants`` are the target's own records."""

    target: Target
    requests: tuple[MeasureRequest, ...]
    settings: MeasurementConfig
    constants: tuple[Measurement, ...] = ()

    @property
    def size(self) -> int:
        """How many cells and networks are measured."""
        return sum(len(request.cells) + request.whole for request in self.requests)


@dataclass(frozen=True)
class Outcome:
    """The records of a unit on ``device``, and the error that ended it."""

    device: str
    records: Sequence[Measurement]
    texts: Mapping[str, str]
    breakdowns: Sequence[Breakdown]
    seconds: float
    error: HybridlatError | None


def shares(requests: Sequence[MeasureRequest], count: int) -> list[tuple[MeasureRequest, ...]]:
    """Requests dealt out in ``count`` parts of about as many cells and networks; none is empty."""
    items = [(place, h) for place, r in enumerate(requests) for h in [""] * r.whole + [*r.cells]]
    dealt = []
    for hand in (items[start::count] for start in range(min(count, len(items)))):
        dealt.append(tuple(
            replace(
                requests[place], whole=(place, "") in hand,
                cells={h: requests[place].cells[h] for other, h in hand if other == place and h},
            )
            for place in dict.fromkeys(place for place, _ in hand)
        ))  # fmt: skip
    return dealt


async def dask_setup(worker: Any) -> None:
    """Called by Dask where a worker starts, which joins once its host, if it has one, answers."""
    del worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's to answer
    while (host := _device().host) and await asyncio.to_thread(why_away, host):
        await asyncio.sleep(_KNOCK_EVERY_S)


def why_away(host: str) -> str:
    """Why a host does not answer; empty where it does."""
    try:
        Connection(host).run("true", _ANSWER_S)
    except HybridlatError as error:
        return str(error)
    return ""


def _device() -> FleetDevice:
    text = os.environ.get(DEVICE, '{"target": [], "dask": true}')
    return msgspec.json.decode(text, type=FleetDevice)


def measure_unit(unit: Unit) -> Outcome:
    """In a worker: measure the unit; an error is part of the outcome.

    Where a host goes away, so does its worker: Dask gives the unit to another one, or to this one
    when the host answers again, and it goes on from its journal.
    """
    from distributed import get_worker

    began = time.monotonic()
    error: HybridlatError | None = None
    with Store("sqlite://") as store:
        store.add(unit.constants)
        try:
            _measure(unit, _device(), store)
        except HostUnreachable:
            os._exit(1)
        except HybridlatError as caught:
            error = caught
        known = {record.id for record in unit.constants}
        records = [record for record in store.measurements() if record.id not in known]
        texts = store.signature_texts({record.signature for record in records})
        breakdowns = list(store.breakdowns())
    device = str(get_worker().name)
    return Outcome(device, records, texts, breakdowns, time.monotonic() - began, error)


def _measure(unit: Unit, device: FleetDevice, store: Store) -> None:
    if device.host is not None:
        limit_s = min(device.limit_s or LIMIT_S, unit.settings.budget_s or LIMIT_S)
        results = f"results-{re.sub(r'[^A-Za-z0-9._-]', '_', device.host)}.jsonl"
        run = run_on(device.host, device.runner or "auto", limit_s, results=results)
        lower = partial(registry.lower, target=unit.target)
        measure_by_plan(unit.requests, unit.target, lower, unit.settings, store, run)
        return
    engine = resolve(unit.target)
    if engine.backend is None:
        raise BackendUnavailable(engine.why_not)
    try:
        BackendMeasurer(engine.backend, engine.options).measure(unit.requests, store, unit.settings)
    finally:
        engine.backend.close()
