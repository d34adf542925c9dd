"""Measuring on a target: for the gate, for a search space, on request, or on a fleet."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hybridlat.api.sources import Opened
from hybridlat.engines import registry
from hybridlat.errors import HybridlatError, StoreError
from hybridlat.estimate.belief import MeasureNow
from hybridlat.estimate.compose.target_composition import composition_of
from hybridlat.estimate.lookup.target_data import TargetData
from hybridlat.estimate.partition import Partition, Partitioner
from hybridlat.graph import signature_reading
from hybridlat.graph.network import Network
from hybridlat.measuring.fleet import Fleet, FleetMeasurer, SchedulerLost
from hybridlat.measuring.measurer import Measurer, MeasureRequest
from hybridlat.measuring.report import MeasureReport, What, report_of, sum_of_cells_us
from hybridlat.measuring.schedule import ON_DEMAND, MeasurementConfig
from hybridlat.onnx_io import OnnxFile, Shapes, load
from hybridlat.schema.measurement import Breakdown
from hybridlat.schema.progress import OnProgress
from hybridlat.schema.target import Target
from hybridlat.store import Store


@dataclass(frozen=True)
class MeasureService:
    """Measures on a target by its ``measurer`` and keeps the records in ``store``.

    ``data`` is refreshed by them. ``settings`` None: those that suit the request.
    """

    target: Target
    measurer: Measurer
    store: Store
    data: TargetData
    settings: MeasurementConfig | None
    progress: OnProgress | None

    def for_gate(self, opened: Opened, partition: Partition) -> MeasureNow:
        """Measures cells of the network for the gate."""

        def measure(hashes: Sequence[str], whole: bool) -> None:
            request = self._request(opened, partition, hashes, whole)
            settings = self.settings or ON_DEMAND
            self.measurer.measure([request], self.store, settings, self.progress)
            if whole:
                self._keep_breakdown(opened.file, partition)
            self.data.refresh()

        return measure

    def measure_cells(
        self, networks: Iterable[tuple[Opened, Partition]], hashes: Sequence[str]
    ) -> None:
        """Measure cells, each inside the first of the networks that holds it."""
        missing = set(hashes)
        requests = []
        for opened, partition in networks:
            cells = [use.signature for use in partition.uses if use.signature in missing]
            if cells:
                requests.append(self._request(opened, partition, cells))
                missing.difference_update(cells)
        settings = self.settings or ON_DEMAND
        self.measurer.measure(requests, self.store, settings, self.progress)
        self.data.refresh()

    def report(
        self, opened: Opened, partition: Partition, what: What, remeasure: bool, started: float,
        knows_whole: bool = False,
    ) -> MeasureReport:  # fmt: skip
        """See ``Predictor.measure``; the call began at ``time.perf_counter()`` ``started``."""
        self.data.refresh()
        hashes = [use.signature for use in partition.uses] if what in ("cells", "both") else []
        known = {} if remeasure else self.data.known(hashes)
        missing = [h for h in hashes if h not in known]
        whole = what in ("network", "both") and not knows_whole
        request = self._request(opened, partition, missing, whole)
        settings = self.settings or MeasurementConfig()
        records = self.measurer.measure([request], self.store, settings, self.progress)
        self._keep_breakdown(opened.file, partition)
        self.data.refresh()
        uses = [(use.signature, use.count) for use in partition.uses]
        return report_of(
            opened.file.name,
            self.target,
            records,
            known=len(known),
            sum_of_cells_us=sum_of_cells_us(self.store, self.target, uses),
            elapsed_s=time.perf_counter() - started,
            warnings=registry.about(request.network),
            shown_ratio=composition_of(self.data).shown_ratio,
        )

    def cells(self, partition: Partition, hashes: Sequence[str]) -> dict[str, Network]:
        """Cells as the engine runs them, by signature hash."""
        texts = self.data.texts(partition, hashes)
        ops = {use.signature: " → ".join(use.ops) for use in partition.uses}
        return {h: signature_reading.read(texts[h], ops[h][:60]) for h in hashes}

    def _request(
        self, opened: Opened, partition: Partition, hashes: Sequence[str], whole: bool = False
    ) -> MeasureRequest:
        network = opened.file.network(opened.batch, opened.shapes)
        return MeasureRequest(opened.file.label, network, self.cells(partition, hashes), whole)

    def _keep_breakdown(self, file: OnnxFile, partition: Partition) -> None:
        cells = tuple((use.signature, use.count) for use in partition.uses)
        labels = {"network": file.label}
        breakdown = Breakdown(self.target, file.label, partition.whole, cells, labels=labels)
        self.store.add_breakdowns([breakdown])


def measure_on_fleet(
    fleet: Fleet,
    networks: Sequence[str | Path],
    store: Store,
    *,
    what: What = "both",
    batch: int | None = None,
    shapes: Shapes | None = None,
    remeasure: bool = False,
    settings: MeasurementConfig | None = None,
) -> tuple[list[MeasureReport], list[tuple[str, int]]]:
    """Measure networks on every target of the fleet; records are in ``store`` as they come.

    What the store knows, whole networks too, is measured again with ``remeasure`` alone. Beside the
    reports: sentences about networks that were not measured, or not all of them, with the exit code
    that each asks for. Raises StoreError where the store cannot be used, SchedulerLost where no
    device can.
    """
    reports: list[MeasureReport] = []
    problems: list[tuple[str, int]] = []

    def measure(path: str | Path, own: Target) -> None:
        began = time.perf_counter()
        file = load(path)
        target = registry.at_precision(own, file.facts.precision.name)
        devices = FleetMeasurer(fleet, target, str(own))
        partitioner = Partitioner(
            target, store, partial(devices.ask, registry.lower),
            partial(devices.ask, registry.lowering_identity),
        )  # fmt: skip
        partition = partitioner.partition(file, batch, shapes)
        data = TargetData(target, store)
        service = MeasureService(target, devices, store, data, settings, None)
        known = not remeasure and store.latencies(target, [partition.whole], "network")
        reports.append(service.report(
            Opened(file, batch, shapes), partition, what, remeasure, began, knows_whole=bool(known)
        ))  # fmt: skip
        problems.extend((f"{file.name} on {target}: {e}", e.exit_code) for e in devices.problems)

    def measure_all(own: Target) -> None:
        for path in networks:
            try:
                measure(path, own)
            except (SchedulerLost, StoreError):
                raise
            except HybridlatError as error:
                problems.append((f"{path} on {own}: {error}", error.exit_code))

    with ThreadPoolExecutor(len(fleet.file.targets)) as pool:  # the devices do the work
        list(pool.map(measure_all, fleet.file.targets))
    return reports, problems
