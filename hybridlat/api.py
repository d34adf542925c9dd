"""The straight line as functions: a network in, an estimate out.

Predictor.predict   file → cells → look-up → prediction → gate → measurement → estimate
predict             the same for one network, with everything at its default
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hybridlat import onnx_io
from hybridlat.engines import registry
from hybridlat.engines.device_sheets import read, with_sheet
from hybridlat.engines.resolution import ResolvedEngine, precision_notes, resolve
from hybridlat.errors import BackendUnavailable, InputError
from hybridlat.estimate.network_estimate import Request, estimate_network
from hybridlat.estimate.partition import Partition, Partitioner
from hybridlat.estimate.target_data import TargetData
from hybridlat.estimate.target_list import FamilyInfo, TargetInfo, list_families, list_targets
from hybridlat.measuring.report import MeasureReport, What
from hybridlat.measuring.schedule import MeasurementConfig
from hybridlat.schema.device import Device
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.progress import Progress
from hybridlat.schema.target import Target

if TYPE_CHECKING:
    from hybridlat.graph.network import Network
    from hybridlat.measuring.measurer import MeasureRequest
    from hybridlat.onnx_io import ModelSource, OnnxFile, Shapes
    from hybridlat.schema.measurement import Measurement

# Somebody waits for the answer: one visit in each of two processes.
ON_DEMAND = MeasurementConfig(rounds=1, processes=2, max_processes=2, differential_rounds=1)
MeasureMode = Literal["auto", "never", "always"]
_log = logging.getLogger(__name__)

__all__ = [
    "FamilyInfo", "MeasureReport", "Predictor", "Progress", "TargetInfo", "list_families",
    "list_targets", "predict",
]  # fmt: skip


class Predictor:
    """Predicts latencies on one target; keeps what it has loaded, so later calls are quick.

    ``target`` None is this machine's CPU under ONNX Runtime with ``threads`` threads. ``store`` is
    a URL or path (None: the default one). ``measure``: ``auto`` measures what the gate asks for if
    the target is this machine, ``never`` looks up and predicts only, ``always`` measures every cell
    anew. ``tolerance`` (0.05 = 5 %) and ``confidence`` are what the gate works towards. ``device``,
    a data sheet's path or a ``Device``, stands for the target's device.
    """

    def __init__(
        self,
        target: str | Target | None = None,
        *,
        store: str | None = None,
        threads: int | None = None,
        measure: MeasureMode = "auto",
        tolerance: float = 0.05,
        confidence: float = 0.9,
        progress: Callable[[Progress], None] | None = None,
        settings: MeasurementConfig | None = None,
        device: str | Path | Device | None = None,
    ) -> None:
        from hybridlat.store import Store

        if not 0 < tolerance < 10:
            raise InputError(f"a tolerance of {tolerance} makes no sense: give 0.05 or 5%")
        if not 0 < confidence < 1:
            raise InputError(f"a confidence of {confidence} makes no sense: give 0.9")
        if measure not in ("auto", "never", "always"):
            raise InputError(f"measure={measure!r}: choose auto, never or always")
        if device is not None and target is None:
            raise InputError("device says what the target's device is: give a target as well")
        self._sheet = read(device) if isinstance(device, str | Path) else device
        self.tolerance, self.confidence, self.mode = tolerance, confidence, measure
        self.progress, self.settings = progress, settings
        self.store = Store(store)
        self._at_precision: dict[str, Predictor] = {}
        self._aim(resolve(target, threads))
        self._asked = None if target is None else self.target

    def _aim(self, engine: ResolvedEngine) -> None:
        """Answer for this target from now on."""
        self.backend, self.options, self.target = engine.backend, engine.options, engine.target
        if self.mode == "always" and self.backend is None:
            raise BackendUnavailable(engine.why_not)
        self._why_not = engine.why_not
        self._partitioner = Partitioner(self.target, self.store)
        self._data = TargetData(self.target, self.store)

    def _for(self, file: OnnxFile) -> Predictor:
        """What answers for the file: this, or the same engine at the precision of the file."""
        target = registry.at_precision(self.target, file.precision.name)
        if target == self.target:
            return self
        found = self._at_precision.get(target.precision)
        if found is None:
            found = copy.copy(self)
            found._at_precision = {self.target.precision: self}
            found._aim(resolve(target))
            self._at_precision[target.precision] = found
        return found

    def __enter__(self) -> Predictor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the store, and of what the backend has started."""
        self.store.close()
        for one in (self, *self._at_precision.values()):
            if one.backend is not None:
                one.backend.close()

    def predict(
        self,
        source: ModelSource,
        *,
        batch: int | None = None,
        shapes: Shapes | None = None,
        name: str | None = None,
    ) -> Estimate:
        """The latency of one network: a path, the bytes of a file, or a ModelProto.

        Raises NetworkError for a file that makes no sense, MeasurementError when the engine refuses
        it. An estimate that is not within the tolerance is returned all the same: see its
        ``within_tolerance``, ``to_measure`` and ``warnings``.
        """
        started = time.perf_counter()
        file = onnx_io.load(source, name)
        estimate = self._for(file)._predict(file, batch, shapes, started)
        answered = Target.parse(estimate.target)
        notes = precision_notes(self._asked or answered, file.precision.name, str(file.precision))
        return replace(estimate, warnings=(*notes, *estimate.warnings)) if notes else estimate

    def _predict(
        self, file: OnnxFile, batch: int | None, shapes: Shapes | None, started: float
    ) -> Estimate:
        partition = self._partition(file, batch, shapes)
        request = Request(
            file,
            partition,
            tolerance=self.tolerance,
            confidence=self.confidence,
            measure=partial(self._measure_cells, batch, shapes) if self._may_measure else None,
            remeasure=self.mode == "always",
            why_not=self._why_not if self.mode != "never" else "measuring is switched off",
            started=started,
            network=partial(file.network, batch, shapes),
        )
        with self._device():
            estimate = estimate_network(request, self._data)
        _log.info(
            "%s on %s: %s µs from %d cells, %.0f %% of the time measured, %d cells now, in %.3f s",
            estimate.network, estimate.target, _rounded(estimate.latency_us), len(estimate.cells),
            100 * estimate.measured_share, estimate.measured_now, estimate.elapsed_s,
        )  # fmt: skip
        return estimate

    def _device(self) -> AbstractContextManager[object]:
        """The data sheet given, in force for the target's device."""
        if self._sheet is None:
            return nullcontext()
        return with_sheet(self._sheet, self.target.device)

    @property
    def _may_measure(self) -> bool:
        return self.mode != "never" and self.backend is not None

    def predict_many(
        self,
        sources: Iterable[ModelSource],
        *,
        batch: int | None = None,
        shapes: Shapes | None = None,
    ) -> Iterator[Estimate]:
        """One estimate per source, in order, as they come; memory does not grow with the count."""
        for place, source in enumerate(sources):
            is_path = not isinstance(source, bytes) and not hasattr(source, "graph")
            name = None if is_path else f"network {place}"
            if hasattr(source, "graph") and source.graph.name:
                name = None
            yield self.predict(source, batch=batch, shapes=shapes, name=name)

    def measure(
        self,
        source: ModelSource,
        *,
        what: What = "both",
        batch: int | None = None,
        shapes: Shapes | None = None,
        remeasure: bool = False,
    ) -> MeasureReport:
        """Measure a network's cells, the whole network, or both, and keep the records.

        Cells that are known are not measured again unless ``remeasure``. Raises BackendUnavailable
        when the target is not this machine.
        """
        from hybridlat.graph.signature import sign
        from hybridlat.measuring.measurer import MeasureRequest
        from hybridlat.measuring.report import report_of, sum_of_cells_us
        from hybridlat.schema.measurement import Breakdown

        if self.backend is None:
            raise BackendUnavailable(self._why_not)
        started = time.perf_counter()
        file = onnx_io.load(source)
        if (right := self._for(file)) is not self:
            return right.measure(source, what=what, batch=batch, shapes=shapes, remeasure=remeasure)
        network = file.network(batch, shapes)
        partition = self._partition(file, batch, shapes)
        missing: list[str] = []
        known = 0
        if what in ("cells", "both"):
            hashes = [use.signature for use in partition.uses]
            have = {} if remeasure else self._data.known(hashes)
            known = len(have)
            missing = [h for h in hashes if h not in have]
        whole = what in ("network", "both")
        request = MeasureRequest(file.label, network, self._cells(partition, missing), whole)
        records = self._measure(request, self.settings or MeasurementConfig())
        cells = tuple((use.signature, use.count) for use in partition.uses)
        labels = {"network": file.label}
        breakdown = Breakdown(self.target, file.label, sign(network).hash, cells, labels=labels)
        self.store.add_breakdowns([breakdown])
        self._data.forget([record.signature for record in records])
        return report_of(
            file.name,
            self.target,
            records,
            known=known,
            sum_of_cells_us=sum_of_cells_us(self.store, self.target, cells),
            elapsed_s=time.perf_counter() - started,
        )

    def _partition(self, file: OnnxFile, batch: int | None, shapes: Shapes | None) -> Partition:
        return self._partitioner.partition(file, batch, shapes)

    def _cells(self, partition: Partition, hashes: Sequence[str]) -> dict[str, Network]:
        """Cells as the engine runs them, by signature hash."""
        from hybridlat.graph import signature

        texts = self._data.texts(partition, hashes)
        ops = {use.signature: " → ".join(use.ops) for use in partition.uses}
        return {h: signature.read(texts[h], ops[h][:60]) for h in hashes}

    def _measure_cells(
        self, batch: int | None, shapes: Shapes | None, file: OnnxFile, partition: Partition,
        hashes: Sequence[str],
    ) -> None:  # fmt: skip
        """Measure these cells now and keep the records; the knowledge sees them afterwards."""
        from hybridlat.measuring.measurer import MeasureRequest

        network = file.network(batch, shapes)
        request = MeasureRequest(file.label, network, self._cells(partition, hashes))
        self._measure(request, self.settings or ON_DEMAND)
        self._data.forget(hashes)

    def _measure(self, request: MeasureRequest, settings: MeasurementConfig) -> list[Measurement]:
        from hybridlat.measuring.measurer import measurer_of

        assert self.backend is not None
        measurer = measurer_of(self.backend, self.options)
        return measurer.measure([request], self.store, settings, self.progress)


def _rounded(latency_us: float | None) -> str:
    return "no" if latency_us is None else f"{latency_us:.1f}"


def predict(
    source: ModelSource,
    target: str | Target | None = None,
    *,
    batch: int | None = None,
    shapes: Shapes | None = None,
    name: str | None = None,
    tolerance: float = 0.05,
    confidence: float = 0.9,
    measure: MeasureMode = "auto",
    store: str | None = None,
    threads: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    settings: MeasurementConfig | None = None,
    device: str | Path | Device | None = None,
) -> Estimate:
    """The latency of one network: ``Predictor(...).predict(...)``, with their keywords."""
    with Predictor(
        target,
        store=store,
        threads=threads,
        measure=measure,
        tolerance=tolerance,
        confidence=confidence,
        progress=progress,
        settings=settings,
        device=device,
    ) as predictor:
        return predictor.predict(source, batch=batch, shapes=shapes, name=name)
