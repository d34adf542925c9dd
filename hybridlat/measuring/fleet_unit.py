"""What one device does in one go: a task of Dask, run by the worker that stands for the device."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec

from hybridlat.engines import registry
from hybridlat.engines.registry import resolve
from hybridlat.errors import BackendUnavailable, HostUnreachable, HybridlatError
from hybridlat.measuring.fleet_file import FleetDevice
from hybridlat.measuring.measurer import BackendMeasurer, MeasureRequest, measure_by_plan
from hybridlat.measuring.schedule import MeasurementConfig
from hybridlat.measuring.ssh import LIMIT_S, Connection, run_on
from hybridlat.schema.measurement import Breakdown, Measurement
from hybridlat.schema.target import Target
from hybridlat.store import Store

DEVICE = "HYBRIDLAT_FLEET_DEVICE"
"""The variable by which a worker knows the device that it stands for, in JSON."""
_KNOCK_EVERY_S, _ANSWER_S = 5.0, 20.0


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
    """The records of a unit on ``device``, failures included, and the error that ended it."""

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
