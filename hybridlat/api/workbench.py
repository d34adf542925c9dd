"""Where a predictor measures: for the gate, for a search space, or because it was told to."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from hybridlat.engines import registry
from hybridlat.schema.progress import Continued

if TYPE_CHECKING:
    from hybridlat.api.sources import Opened
    from hybridlat.engines.base import Backend
    from hybridlat.estimate.network_estimate import MeasureNow
    from hybridlat.estimate.partition import Partition
    from hybridlat.estimate.target_data import TargetData
    from hybridlat.graph.network import Network
    from hybridlat.measuring.measurer import MeasureRequest
    from hybridlat.measuring.report import MeasureReport, What
    from hybridlat.measuring.schedule import MeasurementConfig
    from hybridlat.onnx_io import OnnxFile, Shapes
    from hybridlat.schema.measurement import Measurement
    from hybridlat.schema.progress import OnProgress
    from hybridlat.schema.target import Target
    from hybridlat.store import Store


@dataclass(frozen=True)
class Workbench:
    """Measures on one target, and keeps the records in ``store``; ``data`` reads them anew.

    ``options`` start the backend anew in another process. ``settings`` None: those that suit what
    is measured.
    """

    target: Target
    backend: Backend
    options: Mapping[str, int | str]
    store: Store
    data: TargetData
    settings: MeasurementConfig | None
    progress: OnProgress | None

    def for_gate(self, opened: Opened) -> MeasureNow:
        """What measures the network as the gate asks; its progress is counted as one."""
        progress = None if self.progress is None else Continued(self.progress)
        return partial(self._measure_now, progress, opened.batch, opened.shapes)

    def measure_cells(
        self, networks: Iterable[tuple[Opened, Partition]], wanted: Sequence[str]
    ) -> None:
        """Measure cells, each inside the first network that holds it, and keep the records."""
        from hybridlat.measuring.measurer import MeasureRequest
        from hybridlat.measuring.schedule import ON_DEMAND

        left = dict.fromkeys(wanted)
        requests = []
        for opened, partition in networks:
            mine = [use.signature for use in partition.uses if use.signature in left]
            if mine:
                network = opened.file.network(opened.batch, opened.shapes)
                cells = self.cells(partition, mine)
                requests.append(MeasureRequest(opened.file.label, network, cells))
                left = {signature: None for signature in left if signature not in cells}
        self._measure(requests, self.settings or ON_DEMAND, self.progress)
        self.data.forget(wanted)

    def report(
        self, opened: Opened, partition: Partition, what: What, remeasure: bool, started: float
    ) -> MeasureReport:
        """See ``Predictor.measure``; the call began at ``started``."""
        from hybridlat.measuring.measurer import MeasureRequest
        from hybridlat.measuring.report import report_of, sum_of_cells_us
        from hybridlat.measuring.schedule import MeasurementConfig

        file, network = opened.file, opened.file.network(opened.batch, opened.shapes)
        missing: list[str] = []
        known = 0
        if what in ("cells", "both"):
            hashes = [use.signature for use in partition.uses]
            have = {} if remeasure else self.data.known(hashes)
            known = len(have)
            missing = [h for h in hashes if h not in have]
        whole = what in ("network", "both")
        request = MeasureRequest(file.label, network, self.cells(partition, missing), whole)
        records = self._measure([request], self.settings or MeasurementConfig(), self.progress)
        self._keep_breakdown(file, partition)
        self.data.forget([record.signature for record in records])
        return report_of(
            file.name,
            self.target,
            records,
            known=known,
            sum_of_cells_us=sum_of_cells_us(
                self.store, self.target, [(use.signature, use.count) for use in partition.uses]
            ),
            elapsed_s=time.perf_counter() - started,
            warnings=registry.about(network),
            shown_ratio=self.data.composition.shown_ratio,
        )

    def cells(self, partition: Partition, hashes: Sequence[str]) -> dict[str, Network]:
        """Cells as the engine runs them, by signature hash."""
        from hybridlat.graph import signature_reading

        texts = self.data.texts(partition, hashes)
        ops = {use.signature: " → ".join(use.ops) for use in partition.uses}
        return {h: signature_reading.read(texts[h], ops[h][:60]) for h in hashes}

    def _measure_now(
        self, progress: Continued | None, batch: int | None, shapes: Shapes | None,
        file: OnnxFile, partition: Partition, hashes: Sequence[str], whole: bool,
    ) -> None:  # fmt: skip
        """Measure these cells, and the network if ``whole``, and keep the records."""
        from hybridlat.measuring.measurer import MeasureRequest
        from hybridlat.measuring.schedule import ON_DEMAND

        network = file.network(batch, shapes)
        request = MeasureRequest(file.label, network, self.cells(partition, hashes), whole)
        if progress is not None:
            progress.begin()
        self._measure([request], self.settings or ON_DEMAND, progress)
        if whole:
            self._keep_breakdown(file, partition)
        self.data.forget(hashes)

    def _keep_breakdown(self, file: OnnxFile, partition: Partition) -> None:
        """How the network falls into cells: what makes its latency teach about them."""
        from hybridlat.schema.measurement import Breakdown

        cells = tuple((use.signature, use.count) for use in partition.uses)
        labels = {"network": file.label}
        breakdown = Breakdown(self.target, file.label, partition.whole, cells, labels=labels)
        self.store.add_breakdowns([breakdown])

    def _measure(
        self,
        requests: Sequence[MeasureRequest],
        settings: MeasurementConfig,
        progress: OnProgress | None,
    ) -> list[Measurement]:
        from hybridlat.measuring.measurer import measurer_of

        measurer = measurer_of(self.backend, self.options)
        return measurer.measure(requests, self.store, settings, progress)
