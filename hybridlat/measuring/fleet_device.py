"""The devices of a fleet, described by a TOML file, and what one of them does in one go.

A worker of Dask stands for each device; what it does is a task that it runs.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec

from hybridlat.engines.registry import resolve
from hybridlat.errors import BackendUnavailable, HostUnreachable, HybridlatError, InputError
from hybridlat.measuring.measurer import BackendMeasurer, MeasureRequest, measure_by_plan
from hybridlat.measuring.schedule import MeasurementConfig
from hybridlat.measuring.ssh import LIMIT_S, Board, check_target
from hybridlat.schema.measurement import Measurement
from hybridlat.schema.names import refuse_version
from hybridlat.schema.target import Target
from hybridlat.store import Store
from hybridlat.store.importers import ImportedRecords

HOST = "HYBRIDLAT_FLEET_HOST"
"""The variable by which a worker knows the host that it stands for."""
_KNOCK_EVERY_S, _ANSWER_S = 5.0, 20.0


class FleetDevice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One device, or with ``dask`` all workers of the scheduler that have a target's resource.

    A ``host`` is measured over ssh; ``local`` is this machine with variables ``env`` of its own. It
    measures one thing at a time, whatever the target.
    """

    target: str | list[str]
    host: str | None = None
    local: bool = False
    dask: bool = False
    env: dict[str, str] = {}

    def __post_init__(self) -> None:
        kinds = [kind for kind in ("host", "local", "dask") if getattr(self, kind)]
        if len(kinds) != 1:
            raise ValueError(
                f"it has {' and '.join(kinds) or 'none of host, local and dask'}: write one of "
                'host = "user@board", local = true and dask = true'
            )
        if self.env and not self.local:
            raise ValueError("env goes with local alone: leave it out")
        try:
            for target in self.targets:
                if not target.version:
                    written = f"{target.device}/{target.engine}-8.6/{target.precision}"
                    raise ValueError(f"{target} leaves the engine's version open: write {written}")
                refuse_version(target.engine, target.version)
                if self.host is not None:
                    check_target(target)
                    Board(self.host)
        except InputError as error:
            raise ValueError(str(error)) from None

    @property
    def name(self) -> str:
        return self.host or " ".join(["local", *(f"{k}={v}" for k, v in self.env.items())])

    @property
    def targets(self) -> tuple[Target, ...]:
        texts = [self.target] if isinstance(self.target, str) else self.target
        return tuple(map(Target.parse, dict.fromkeys(texts)))

    @property
    def resources(self) -> dict[str, float]:
        """What the device's worker of Dask has: one of each target."""
        return {str(target): 1.0 for target in self.targets}


class FleetFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fleet: ``scheduler`` is Dask's address, None where one is started for the call."""

    device: Annotated[tuple[FleetDevice, ...], msgspec.Meta(min_length=1)]
    scheduler: Annotated[str, msgspec.Meta(pattern=r"^[a-z]+://[^\s/]+$")] | None = None

    def __post_init__(self) -> None:
        if self.scheduler is None and any(device.dask for device in self.device):
            raise ValueError(
                "dask = true needs the scheduler's address at the head of the file: "
                'scheduler = "tcp://server:8786"'
            )
        names = [device.name for device in self.own]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(
                f'{twice[0]} stands there twice: write target = ["…", "…"] for several targets; '
                "local devices differ by env"
            )

    @property
    def own(self) -> tuple[FleetDevice, ...]:
        """The devices whose workers are started here."""
        return tuple(device for device in self.device if not device.dask)

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets of the devices, each once, in their order."""
        return tuple(dict.fromkeys(target for device in self.device for target in device.targets))


def read_fleet(file: str | Path) -> FleetFile:
    """The fleet in a TOML file; InputError says what is wrong with it, and where."""
    path = Path(file)
    try:
        return msgspec.toml.decode(path.read_text(encoding="utf-8"), type=FleetFile)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # of msgspec, of TOML, or of its encoding
        raise InputError(f"{path}: {error}") from None


@dataclass(frozen=True)
class Outcome:
    """What came of a part on ``device``, and the error that ended it."""

    device: str
    imported: ImportedRecords
    seconds: float
    error: HybridlatError | None


@dataclass
class DeviceReport:
    """One device: what it measured, and how long it was busy."""

    name: str
    targets: tuple[str, ...] = ()
    cells: int = 0
    networks: int = 0
    failures: int = 0
    busy_s: float = 0.0

    def add(self, outcome: Outcome) -> None:
        self.busy_s += outcome.seconds
        for record in outcome.imported.measurements:
            self.failures += record.failure is not None
            self.cells += record.kind == "cell" and not record.labels.get("role")
            self.networks += record.kind == "network"


def size_of(requests: Sequence[MeasureRequest]) -> int:
    """How many cells and networks are measured."""
    return sum(len(request.cells) + request.whole for request in requests)


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
    worker.http_server.stop()  # it answers without a certificate
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's to answer
    host, was_away = os.environ.get(HOST), False
    while host:
        try:
            await asyncio.to_thread(Board(host).run, "true", _ANSWER_S)
            break
        except HybridlatError as error:
            if not was_away:
                _say_away(error)
            was_away = True
            await asyncio.sleep(_KNOCK_EVERY_S)
    if was_away:
        os.write(2, f"{host} is back\n".encode())


def _say_away(why: HybridlatError) -> None:
    """A line on standard error, which is that of the command."""
    words = f"{os.environ[HOST]} is away ({why}): its work goes to others of its target, or waits\n"
    os.write(2, words.encode())


def measure_part(
    target: Target, requests: Sequence[MeasureRequest], settings: MeasurementConfig,
    constants: Sequence[Measurement],
) -> Outcome:  # fmt: skip
    """In a worker: measure requests in one go; an error is part of the outcome.

    ``constants`` are the target's own records. Where a host goes away, so does its worker: Dask
    gives the work to another one, or to this one when the host answers again, and it goes on from
    its journal.
    """
    from distributed import get_worker

    began = time.monotonic()
    error: HybridlatError | None = None
    with Store("sqlite://") as store:
        store.add(constants)
        try:
            _measure(target, requests, settings, store)
        except HostUnreachable as caught:
            _say_away(caught)
            os._exit(1)
        except HybridlatError as caught:
            error = caught
        known = {record.id for record in constants}
        records = [record for record in store.measurements() if record.id not in known]
        texts = store.signature_texts({record.signature for record in records})
        imported = ImportedRecords(texts, records, list(store.breakdowns()))
    return Outcome(str(get_worker().name), imported, time.monotonic() - began, error)


def _measure(
    target: Target, requests: Sequence[MeasureRequest], settings: MeasurementConfig, store: Store
) -> None:
    if host := os.environ.get(HOST):
        results = f"results-{re.sub(r'[^A-Za-z0-9._-]', '_', host)}.jsonl"
        board = Board(host, timeout_s=settings.budget_s or LIMIT_S, results=results)
        measure_by_plan(requests, target, settings, store, board.measure_and_forget)
        return
    engine = resolve(target)
    if engine.backend is None:
        raise BackendUnavailable(engine.why_not)
    try:
        BackendMeasurer(engine.backend, engine.options).measure(requests, store, settings)
    finally:
        engine.backend.close()
