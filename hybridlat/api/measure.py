"""Measuring on a target: for the gate, for a search space, on request, on a board."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hybridlat.api.arguments import Opened
from hybridlat.engines import registry
from hybridlat.estimate.compose.target_composition import composition_of
from hybridlat.estimate.lookup.target_data import TargetData
from hybridlat.estimate.partition import Partition
from hybridlat.graph.network import Network
from hybridlat.measuring.measurer import (
    Measurer,
    MeasureReport,
    MeasureRequest,
    What,
    measure_draft,
    unknown_to,
)
from hybridlat.measuring.plans import draft_for
from hybridlat.measuring.schedule import ON_DEMAND, MeasurementConfig
from hybridlat.measuring.ssh import RemoteHost, check_target
from hybridlat.schema.measurement import Measurement, busiest
from hybridlat.schema.target import Target
from hybridlat.schema.workers import OnProgress
from hybridlat.store import Store


@dataclass(frozen=True)
class MeasureService:
    """Measures on the target of ``data`` by its ``measurer``, and keeps the records in its store.

    ``settings`` None: those that suit the request.
    """

    measurer: Measurer
    data: TargetData
    settings: MeasurementConfig | None
    progress: OnProgress | None

    def for_gate(
        self, opened: Opened, partition: Partition, hashes: Sequence[str], whole: bool
    ) -> None:
        """Measure cells of the network, and the ``whole``, for the gate."""
        requests = [self._request(opened, partition, hashes, whole)]
        self._measure(requests, ON_DEMAND, partition if whole else None)

    def measure_cells(
        self, networks: Iterable[tuple[Opened, Partition]], hashes: Sequence[str]
    ) -> None:
        """Measure cells, each inside the first of the networks that holds it."""
        missing, requests = set(hashes), []
        for opened, partition in networks:
            if cells := [hash_ for hash_ in partition.counts if hash_ in missing]:
                requests.append(self._request(opened, partition, cells))
                missing.difference_update(cells)
        self._measure(requests, ON_DEMAND)

    def report(
        self, opened: Opened, partition: Partition, what: What, remeasure: bool, started: float
    ) -> MeasureReport:
        """See ``Predictor.measure``; the call began at ``time.perf_counter()`` ``started``."""
        self.data.refresh()
        hashes = [] if what == "network" else [*partition.counts]
        known = {} if remeasure else self.data.known(hashes)
        missing = [h for h in hashes if h not in known]
        request = self._request(opened, partition, missing, what != "cells")
        records = self._measure([request], MeasurementConfig(), partition)
        ratio = composition_of(self.data).shown_ratio
        of, name = (request.network, self.data, records), opened.file.name
        return _report(name, *of, partition.counts, len(known), started, ratio)

    def _request(
        self, opened: Opened, partition: Partition, hashes: Sequence[str], whole: bool = False
    ) -> MeasureRequest:
        """Cells as the engine runs them, by signature hash, and the network that holds them."""
        return MeasureRequest(opened.file.label, opened.network(), partition.cells(hashes), whole)

    def _measure(
        self,
        requests: Sequence[MeasureRequest],
        usual: MeasurementConfig,
        partition: Partition | None = None,
    ) -> list[Measurement]:
        """The records, which the data know of then; the cells of ``partition`` are kept too."""
        store, settings = self.data.store, self.settings or usual
        records = self.measurer.measure(requests, store, settings, self.progress)
        if partition is not None:
            store.add_signatures(partition.texts)
            store.add_breakdowns([partition.breakdown(self.data.target, requests[0].name)])
        self.data.refresh()
        return records


def _report(
    name: str,
    network: Network,
    data: TargetData,
    records: Sequence[Measurement],
    uses: Mapping[str, int],
    known: int,
    started: float,
    shown_ratio: float = 1.0,
) -> MeasureReport:
    """What measuring a network added; it ``uses`` each cell, by hash, so often."""
    each_us = {h: us for h, stats in data.known(uses).items() if (us := stats.latency_us)}
    sum_us = None
    if each_us.keys() == uses.keys():
        sum_us = data.dispatch_overhead_us + sum(n * each_us[h] for h, n in uses.items())
    whole_us = next((r.latency_us for r in records if r.kind == "network"), None)
    warnings, load = registry.about(network), busiest(r.environment for r in records)
    whole_us, sum_us = (None if us is None else shown_ratio * us for us in (whole_us, sum_us))
    failures = {r.signature: r.failure for r in records if r.failure is not None}
    warnings = warnings if load is None else (*warnings, load.sentence)
    return MeasureReport(
        network=name,
        target=str(data.target),
        records=tuple(records),
        known=known,
        latency_us=whole_us,
        sum_of_cells_us=sum_us,
        elapsed_s=time.perf_counter() - started,
        failures=failures,
        warnings=warnings,
    )


def measure_on_host(
    networks: Sequence[tuple[str, Network]],
    target: Target,
    store: Store,
    host: RemoteHost,
    *,
    what: What = "both",
    remeasure: bool = False,
) -> list[MeasureReport]:
    """Measure (name, network) pairs on a host, all in one plan; a report on each, in order.

    ``target`` may leave the engine's version to the board. Raises InputError for one that boards
    cannot measure, and what ``RemoteHost.measure`` does; what was measured until then stays.
    """
    check_target(target)
    began = time.perf_counter()
    draft = draft_for(networks, target, unknown_to(store, target, what, remeasure))

    def run(plan: Path) -> None:
        host.measure(plan)
        host.forget(plan)

    records = measure_draft(draft, target, store, run)
    data = TargetData(records[0].target if records else target, store)
    measured = {record.signature for record in records}
    reports = []
    for (name, network), item in zip(networks, draft.manifest()["breakdowns"], strict=True):
        cells, whole = dict(item["cells"]), item["signature"]
        own = [r for r in records if r.kind == "network" and r.signature == whole]
        met = (r for r in records if r.kind == "cell" and r.labels.get("network") == name)
        own += [record for record in met if record.signature in cells]
        known = len(cells.keys() - measured) if what != "network" else 0
        reports.append(_report(name, network, data, own, cells, known, began))
    return reports
