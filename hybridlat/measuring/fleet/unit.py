"""What one device does in one go: a task of Dask, run by the worker that stands for the device."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from hybridlat.engines import registry
from hybridlat.engines.base import Backend, Method, Session
from hybridlat.engines.resolution import resolve
from hybridlat.errors import BackendUnavailable, HostUnreachable, HybridlatError
from hybridlat.graph.network import Lowered, Network
from hybridlat.measuring.measurer import MeasureRequest, measurer_of
from hybridlat.measuring.schedule import MeasurementConfig
from hybridlat.measuring.ssh import Board, Connection
from hybridlat.schema.measurement import Breakdown, Measurement
from hybridlat.schema.target import Target
from hybridlat.store import Store

HOST = "HYBRIDLAT_FLEET_HOST"
"""The variable by which a worker knows the host that it stands for."""
_KNOCK_EVERY_S, _ANSWER_S = 5.0, 20.0


class Host(msgspec.Struct, frozen=True):
    """A board behind ssh: how it is reached, what measures there, and for how long at most."""

    address: str
    runner: str
    limit_s: float


@dataclass(frozen=True)
class Unit:
    """Requests that one device of ``target`` measures in one go.

    ``resource`` is what a device's worker has: another target where an engine computes in the
    precision of a file. ``constants`` are the target's own records.
    """

    resource: str
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
    records: Sequence[Measurement] = ()
    texts: Mapping[str, str] | None = None
    breakdowns: Sequence[Breakdown] = ()
    seconds: float = 0.0
    error: HybridlatError | None = None


class FarBackend(Backend):
    """An engine on another machine: ``lower`` answers for it, and a ``host`` runs its plans."""

    name = "far"
    method: ClassVar[Method] = Method.PLAN

    def __init__(
        self, target: Target, lower: Callable[[Network, Target], Lowered] = registry.lower,
        host: Host | None = None,
    ) -> None:  # fmt: skip
        self._target, self._lower, self._host = target, lower, host
        self.contexts = registry.load_backend(target.engine).contexts

    @property
    def target(self) -> Target:
        return self._target

    def environment(self) -> Mapping[str, str]:
        return {}

    def lower(self, network: Network) -> Lowered:
        return self._lower(network, self._target)

    def build(self, network: Network, *, seed: int, lowered: bool) -> Session:
        raise BackendUnavailable(f"{self._target} is on another machine")

    def run_plan(
        self, folder: Path, progress: Callable[[int, int, str], None] | None = None
    ) -> None:
        host = self._host
        if host is None:
            raise BackendUnavailable(f"{self._target} is on another machine")
        name = re.sub(r"[^A-Za-z0-9._-]", "_", host.address)
        board = Board(host.address, folder, results=f"results-{name}.jsonl")
        board.measure(host.runner, host.limit_s)


async def dask_setup(worker: Any) -> None:
    """Called by Dask where a worker of a fleet starts, before the scheduler knows of it.

    The worker of a host joins once the host answers. Ctrl-C is the caller's to answer.
    """
    del worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    host = _host()
    while host is not None and (await asyncio.to_thread(why_away, host.address)) != "":
        await asyncio.sleep(_KNOCK_EVERY_S)


def why_away(address: str) -> str:
    """Why a host does not answer; empty where it does."""
    try:
        Connection(address).ask("true", _ANSWER_S)
    except HybridlatError as error:
        return str(error)
    return ""


def _host() -> Host | None:
    text = os.environ.get(HOST)
    return msgspec.json.decode(text, type=Host) if text else None


def measure_unit(unit: Unit) -> Outcome:
    """In a worker: measure the unit; an error is part of the outcome.

    Where a host goes away, so does its worker: Dask gives the unit to another worker, or to this
    one when the host answers again, which goes on from its journal.
    """
    from distributed import get_worker

    began = time.monotonic()
    error: HybridlatError | None = None
    with Store("sqlite://") as store:
        store.add(unit.constants)
        try:
            backend, options = _engine(unit)
            try:
                measurer_of(backend, options).measure(unit.requests, store, unit.settings)
            finally:
                backend.close()
        except HostUnreachable:
            os._exit(1)
        except HybridlatError as caught:
            error = caught
        known = {record.id for record in unit.constants}
        records = [record for record in store.measurements() if record.id not in known]
        texts = store.signature_texts({record.signature for record in records})
        breakdowns = list(store.breakdowns())
    seconds = time.monotonic() - began
    return Outcome(str(get_worker().name), records, texts, breakdowns, seconds, error)


def _engine(unit: Unit) -> tuple[Backend, Mapping[str, int | str]]:
    """The engine of the worker's device, and what starts it anew."""
    host = _host()
    if host is not None:
        limit_s = min(host.limit_s, unit.settings.budget_s or host.limit_s)
        return FarBackend(unit.target, host=msgspec.structs.replace(host, limit_s=limit_s)), {}
    engine = resolve(unit.target)
    if engine.backend is None:
        raise BackendUnavailable(engine.why_not)
    return engine.backend, engine.options


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
