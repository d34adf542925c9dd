"""Networks measured on all devices of a fleet: planned once for each target, and shared out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hybridlat import onnx_io
from hybridlat.engines import registry
from hybridlat.errors import HybridlatError
from hybridlat.estimate.partition import Partition
from hybridlat.estimate.partitioner import Partitioner
from hybridlat.estimate.target_data import TargetData
from hybridlat.graph.signature_reading import read
from hybridlat.measuring.fleet import DeviceReport, Fleet
from hybridlat.measuring.fleet.unit import Unit
from hybridlat.measuring.measurer import MeasureRequest
from hybridlat.measuring.report import MeasureReport, What, report_of, sum_of_cells_us
from hybridlat.measuring.schedule import MeasurementConfig
from hybridlat.schema.measurement import Breakdown
from hybridlat.schema.target import Target
from hybridlat.store import Store

if TYPE_CHECKING:
    from hybridlat.graph.network import Network
    from hybridlat.onnx_io import OnnxFile, Shapes

CELLS_A_UNIT = 16
"""What a device measures in one go: little enough that little is lost with it."""


@dataclass(frozen=True)
class FleetRequest:
    """What to measure: networks with the sizes left free in them, as ``Predictor.measure`` does.

    Nothing that the store knows is measured again, whole networks neither, unless ``remeasure``.
    """

    networks: Sequence[str | Path]
    what: What = "both"
    batch: int | None = None
    shapes: Shapes | None = None
    remeasure: bool = False
    settings: MeasurementConfig = field(default_factory=MeasurementConfig)


@dataclass(frozen=True)
class FleetReport:
    """What a fleet measured: each network on each target, what each device did, and what is left.

    ``problems`` are sentences about networks that were not measured, or not all of them, with the
    exit code that each asks for.
    """

    reports: tuple[MeasureReport, ...]
    devices: tuple[DeviceReport, ...]
    problems: tuple[tuple[str, int], ...]


@dataclass
class _Task:
    """One network on one target."""

    file: OnnxFile
    network: Network
    partition: Partition
    target: Target
    known: int
    units: list[Unit]


def measure_on_fleet(request: FleetRequest, fleet: Fleet, store: Store) -> FleetReport:
    """Measure networks on every target of the fleet; records are in ``store`` as they come.

    A network or device that fails costs itself. Raises StoreError where the store cannot be used.
    """
    began = time.perf_counter()
    problems: list[tuple[str, int]] = []
    tasks = [
        task for target in fleet.file.targets for task in _planned(request, fleet, target, store,
                                                                   problems)
    ]  # fmt: skip
    results = iter(fleet.measure([unit for task in tasks for unit in task.units], store))
    reports = []
    for task in tasks:
        own = [next(results) for _ in task.units]
        for problem in dict.fromkeys(str(r.problem) for r in own if r.problem is not None):
            code = max(r.problem.exit_code for r in own if r.problem is not None)
            problems.append((f"{task.file.name} on {task.target}: {problem}", code))
        uses = [(use.signature, use.count) for use in task.partition.uses]
        reports.append(
            report_of(
                task.file.name,
                task.target,
                [r for result in own for r in result.records if not r.labels.get("role")],
                known=task.known,
                sum_of_cells_us=sum_of_cells_us(store, task.target, uses),
                elapsed_s=time.perf_counter() - began,
                warnings=registry.about(task.network),
            )
        )
    return FleetReport(tuple(reports), tuple(fleet.reports), tuple(problems))


def _planned(
    request: FleetRequest, fleet: Fleet, target: Target, store: Store,
    problems: list[tuple[str, int]],
) -> Iterator[_Task]:  # fmt: skip
    """The networks on one target; a cell that several hold is measured with the first."""
    met: set[tuple[str, str]] = set()
    data: dict[Target, tuple[Partitioner, TargetData]] = {}
    for path in request.networks:
        try:
            file = onnx_io.load(path)
            right = registry.at_precision(target, file.precision.name)
            if right not in data:
                partitioner = Partitioner(right, store, fleet.lower, fleet.identity)
                data[right] = partitioner, TargetData(right, store)
            partitioner, known = data[right]
            network = file.network(request.batch, request.shapes)
            partition = partitioner.partition(file, request.batch, request.shapes)
            yield _task(request, (file, network, partition), (target, right), known, met)
        except HybridlatError as error:
            problems.append((f"{path} on {target}: {error}", error.exit_code))
            continue
        cells = tuple((use.signature, use.count) for use in partition.uses)
        labels = {"network": file.label}
        store.add_breakdowns([Breakdown(right, file.label, partition.whole, cells, labels=labels)])


def _task(
    request: FleetRequest,
    found: tuple[OnnxFile, Network, Partition],
    targets: tuple[Target, Target],
    data: TargetData,
    met: set[tuple[str, str]],
) -> _Task:
    """Units of so many cells by their place in the network, so that a rerun makes the same."""
    file, network, partition = found
    target, right = targets
    hashes = [use.signature for use in partition.uses] if request.what != "network" else []
    have = {} if request.remeasure else data.known(hashes)
    texts = data.texts(partition, hashes)
    ops = {use.signature: " → ".join(use.ops) for use in partition.uses}
    whole = request.what != "cells" and (
        request.remeasure or not data.store.latencies(right, [partition.whole], "network")
    )
    units = []
    for place in range(0, max(len(hashes), 1), CELLS_A_UNIT):
        wanted = [
            h for h in hashes[place : place + CELLS_A_UNIT]
            if h not in have and (str(right), h) not in met
        ]  # fmt: skip
        cells = {h: read(texts[h], ops[h][:60]) for h in wanted}
        asked = MeasureRequest(file.label, network, cells, whole and place == 0)
        if not asked.is_empty:
            units.append(Unit(str(target), right, (asked,), request.settings, request.remeasure))
    met.update((str(right), h) for h in hashes)
    return _Task(file, network, partition, right, len(have), units)
