"""Networks measured on all devices of a fleet: planned once for each target, and shared out."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from hybridlat import onnx_io
from hybridlat.engines import registry
from hybridlat.errors import HybridlatError
from hybridlat.estimate.lookup.target_data import TargetData
from hybridlat.estimate.partition.partition import Partition, Partitioner
from hybridlat.graph.signature_reading import read
from hybridlat.measuring.fleet import DeviceReport, Fleet
from hybridlat.measuring.fleet_unit import Unit, shares
from hybridlat.measuring.measurer import MeasureRequest
from hybridlat.measuring.report import MeasureReport, What, report_of, sum_of_cells_us
from hybridlat.measuring.schedule import MeasurementConfig
from hybridlat.onnx_io import OnnxFile, Shapes
from hybridlat.schema.measurement import Breakdown
from hybridlat.schema.target import Target
from hybridlat.store import Store

CELLS_A_UNIT = 16
"""What a device measures in one go: little enough that little is lost with it."""


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


class _Task(NamedTuple):
    """One network on one target, in units."""

    target: Target
    file: OnnxFile
    partition: Partition
    known: int
    warnings: tuple[str, ...]
    units: list[Unit]


def measure_on_fleet(request: FleetRequest, fleet: Fleet, store: Store) -> FleetReport:
    """Measure networks on every target of the fleet; records are in ``store`` as they come.

    A network or device that fails costs itself. Raises StoreError where the store cannot be used.
    """
    began = time.perf_counter()
    report = FleetReport([], fleet.reports, [])
    tasks = [
        task for own in fleet.file.targets
        for task in _planned(request, fleet, own, store, report.problems)
    ]  # fmt: skip
    results = iter(fleet.measure([unit for task in tasks for unit in task.units], store))
    for target, file, partition, known, warnings, units in tasks:
        of_task = [next(results) for _ in units]
        errors = {str(error): error.exit_code for _, error in of_task if error is not None}
        report.problems.extend((f"{file.name} on {target}: {e}", c) for e, c in errors.items())
        records = [r for of_unit, _ in of_task for r in of_unit if not r.labels.get("role")]
        uses = [(use.signature, use.count) for use in partition.uses]
        report.reports.append(report_of(
            file.name, target, records, known=known, warnings=warnings,
            sum_of_cells_us=sum_of_cells_us(store, target, uses),
            elapsed_s=time.perf_counter() - began,
        ))  # fmt: skip
    return report._replace(devices=fleet.reports)


def _planned(
    request: FleetRequest, fleet: Fleet, own: Target, store: Store, problems: list[tuple[str, int]]
) -> Iterator[_Task]:
    """The networks on one target; a cell that several hold is measured with the first."""
    planned: set[tuple[Target, str]] = set()
    for path in request.networks:
        try:
            file = onnx_io.load(path)
            target = registry.at_precision(own, file.precision.name)
            partitioner = Partitioner(target, store, fleet.lower, fleet.identity)
            network = file.network(request.batch, request.shapes)
            partition = partitioner.partition(file, request.batch, request.shapes)
        except HybridlatError as error:
            problems.append((f"{path} on {own}: {error}", error.exit_code))
            continue
        uses = tuple((use.signature, use.count) for use in partition.uses)
        labels = {"network": file.label}
        store.add_breakdowns([Breakdown(target, file.label, partition.whole, uses, labels=labels)])
        data = TargetData(target, store)
        hashes = [h for h, _ in uses] if request.what != "network" else []
        known = {} if request.remeasure else data.known(hashes)
        new = [h for h in hashes if h not in known and (target, h) not in planned]
        planned.update((target, h) for h in new)
        texts = data.texts(partition, new)
        ops = {use.signature: " → ".join(use.ops)[:60] for use in partition.uses}
        whole = request.what != "cells" and (
            request.remeasure or not store.latencies(target, [partition.whole], "network")
        )
        cells = {h: read(texts[h], ops[h]) for h in new}
        parts = shares(
            [MeasureRequest(file.label, network, cells, whole)],
            math.ceil((len(cells) + whole) / CELLS_A_UNIT),
        )
        units = [Unit(str(own), target, part, request.settings) for part in parts]
        yield _Task(target, file, partition, len(known), registry.about(network), units)
