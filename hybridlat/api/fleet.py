"""Networks measured on all devices of a fleet, each target's shared out among its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from hybridlat.api.measure import MeasureService
from hybridlat.api.sources import Opened
from hybridlat.engines import registry
from hybridlat.errors import HybridlatError, StoreError
from hybridlat.estimate.lookup.target_data import TargetData
from hybridlat.estimate.partition import Partitioner
from hybridlat.measuring.fleet import DeviceReport, Fleet, FleetMeasurer, SchedulerLost
from hybridlat.measuring.report import MeasureReport, What
from hybridlat.measuring.schedule import MeasurementConfig
from hybridlat.onnx_io import Shapes, load
from hybridlat.schema.target import Target
from hybridlat.store import Store


@dataclass(frozen=True)
class FleetRequest:
    """What to measure: networks with the sizes left free in them, as ``Predictor.measure`` does.

    What the store knows, whole networks too, is measured again with ``remeasure`` alone.
    """

    networks: Sequence[str | Path]
    what: What = "both"
    batch: int | None = None
    shapes: Shapes | None = None
    remeasure: bool = False
    settings: MeasurementConfig = field(default_factory=MeasurementConfig)


class FleetReport(NamedTuple):
    """What a fleet measured: each network on each target, what each device did, and what is left.

    ``problems`` are sentences about networks that were not measured, or not all of them, with the
    exit code that each asks for.
    """

    reports: list[MeasureReport]
    devices: list[DeviceReport]
    problems: list[tuple[str, int]]


def measure_on_fleet(request: FleetRequest, fleet: Fleet, store: Store) -> FleetReport:
    """Measure networks on every target of the fleet; records are in ``store`` as they come.

    A network or device that fails costs itself. Raises StoreError where the store cannot be used,
    SchedulerLost where no device can.
    """
    reports: list[MeasureReport] = []
    problems: list[tuple[str, int]] = []

    def measure(path: str | Path, own: Target) -> None:
        began = time.perf_counter()
        file = load(path)
        devices = FleetMeasurer(fleet, registry.at_precision(own, file.facts.precision.name))
        target = devices.target
        partitioner = Partitioner(
            target, store, partial(fleet.ask, registry.lower),
            partial(fleet.ask, registry.lowering_identity),
        )  # fmt: skip
        partition = partitioner.partition(file, request.batch, request.shapes)
        service = MeasureService(
            target, devices, store, TargetData(target, store), request.settings, None
        )
        opened = Opened(file, request.batch, request.shapes)
        known = not request.remeasure and store.latencies(target, [partition.whole], "network")
        reports.append(service.report(
            opened, partition, request.what, request.remeasure, began, knows_whole=bool(known)
        ))  # fmt: skip
        problems.extend((f"{file.name} on {target}: {e}", e.exit_code) for e in devices.problems)

    def measure_all(own: Target) -> None:
        for path in request.networks:
            try:
                measure(path, own)
            except (SchedulerLost, StoreError):
                raise
            except HybridlatError as error:
                problems.append((f"{path} on {own}: {error}", error.exit_code))

    fleet.for_each_target(measure_all)
    return FleetReport(reports, fleet.reports, problems)
