"""The straight line for one target: a network in, an estimate out.

Predictor.predict   file → cells → look-up → prediction → gate → measurement → estimate
"""

from __future__ import annotations

import copy
import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from hybridlat.api.sources import (
    Item,
    Opened,
    Query,
    checked_shapes,
    one_batch,
    open_source,
    several_batches,
)
from hybridlat.api.workbench import Workbench
from hybridlat.engines import registry
from hybridlat.engines.device_sheets import read, with_sheet
from hybridlat.engines.resolution import ResolvedEngine, precision_notes, resolve
from hybridlat.errors import BackendUnavailable, HybridlatError, InputError
from hybridlat.estimate import known_files
from hybridlat.estimate.network_estimate import Request, estimate_network
from hybridlat.estimate.partition import Partition
from hybridlat.estimate.partitioner import Partitioner
from hybridlat.estimate.target_data import TargetData
from hybridlat.model.steady_sums import steady_sums
from hybridlat.schema.device import Device
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.progress import Progress
from hybridlat.schema.target import Target

if TYPE_CHECKING:
    from hybridlat.api.blocks import Blocks
    from hybridlat.api.sources import ManySource, Source
    from hybridlat.estimate.block_space import BlockSpace
    from hybridlat.measuring.report import MeasureReport, What
    from hybridlat.measuring.schedule import MeasurementConfig
    from hybridlat.onnx_io import OnnxFile, Shapes
    from hybridlat.onnx_io.torch_export import Example

MeasureMode = Literal["auto", "never", "always"]
_log = logging.getLogger(__name__)


def _number(value: Any) -> float:
    """The value where it is a number, else NaN."""
    try:
        return math.nan if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        return math.nan


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

        if not (target is None or isinstance(target, str | Target)):
            raise InputError(
                f"{target!r} is no target: give its name, such as 'v100/tensorrt/fp16', or a Target"
            )
        if not 0 < _number(tolerance) < 10:
            raise InputError(f"a tolerance of {tolerance!r} makes no sense: give 0.05 for 5 %")
        if not 0 < _number(confidence) < 1:
            raise InputError(f"a confidence of {confidence!r} makes no sense: give 0.9 for 90 %")
        if measure not in ("auto", "never", "always"):
            raise InputError(f"measure={measure!r}: choose auto, never or always")
        if device is not None and target is None:
            raise InputError("device says what the target's device is: give a target as well")
        self._sheet = read(device) if isinstance(device, str | Path) else device
        self.tolerance, self.confidence, self.mode = tolerance, confidence, measure
        self.progress, self.settings = progress, settings
        self.store = Store(store)
        self._at_precision: dict[str, Predictor] = {}
        self._aim(self._resolved(target, threads))
        self.asked = None if target is None else self.target

    def _aim(self, engine: ResolvedEngine) -> None:
        """Answer for this target from now on."""
        self.backend, self.options, self.target = engine.backend, engine.options, engine.target
        if self.mode == "always" and self.backend is None:
            raise BackendUnavailable(engine.why_not)
        self._why_not = engine.why_not
        self._partitioner = Partitioner(self.target, self.store)
        self._data = TargetData(self.target, self.store)
        self._loaded = os.urandom(8)  # names what workers load for it

    def _resolved(self, target: str | Target | None, threads: int | None) -> ResolvedEngine:
        return resolve(target, threads)

    def _for(self, file: OnnxFile) -> Predictor:
        """What answers for the file: this, or the same engine at the precision of the file."""
        precision = file.precision.name
        found = self._at_precision.get(precision)
        if found is None:
            target = registry.at_precision(self.target, precision)
            found = self
            if target != self.target:
                found = copy.copy(self)
                found._at_precision = {self.target.precision: self}
                found._aim(self._resolved(target, None))
            self._at_precision[precision] = found
        return found

    def __enter__(self) -> Predictor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the store, and of what the backend has started."""
        self.store.close()
        for one in {id(one): one for one in (self, *self._at_precision.values())}.values():
            if one.backend is not None:
                one.backend.close()

    @overload
    def predict(
        self, source: Source, input: Example | None = None, *, batch: int | None = None,
        shapes: Shapes | None = None, name: str | None = None, describe: bool = False,
    ) -> Estimate: ...  # fmt: skip

    @overload
    def predict(
        self, source: Source, input: Example | None = None, *, batch: Sequence[int],
        shapes: Shapes | None = None, name: str | None = None, describe: bool = False,
    ) -> list[Estimate]: ...  # fmt: skip

    @overload
    def predict(
        self, source: Source, input: Example | None = None, *,
        batch: int | Sequence[int] | None = None, shapes: Shapes | None = None,
        name: str | None = None, describe: bool = False,
    ) -> Estimate | list[Estimate]: ...  # fmt: skip

    def predict(
        self,
        source: Source,
        input: Example | None = None,
        *,
        batch: int | Sequence[int] | None = None,
        shapes: Shapes | None = None,
        name: str | None = None,
        describe: bool = False,
    ) -> Estimate | list[Estimate]:
        """The latency of one network: a path, the bytes of a file, a ModelProto or a module.

        A ``torch.nn.Module`` goes with ``input``, which it is exported for without its weights: a
        tensor, a shape, or a tuple with one of them for each input. A list of batch sizes gives an
        estimate for each.

        ``describe`` fills in the estimate's ``structure``: what its cells are made of, where they
        stand, and what limits them. It costs some milliseconds.

        Raises NetworkError for a file that makes no sense, MeasurementError when the engine refuses
        it. An estimate that is not within the tolerance is returned all the same: see its
        ``within_tolerance``, ``to_measure`` and ``warnings``.
        """
        started = time.perf_counter()
        sizes = several_batches(batch)
        recall = partial(known_files.recall, self.store)
        item = Item(source, name, input)
        if sizes is None:
            query = Query(one_batch(batch), shapes)
            return self._estimate_of(item.opened(query, recall), started, describe)
        estimates = []
        for size in sizes:
            query = Query(size, shapes)
            estimates.append(self._estimate_of(item.opened(query, recall), started, describe))
            started = time.perf_counter()
        return estimates

    def _estimate_of(self, opened: Opened, started: float, describe: bool = False) -> Estimate:
        """The estimate of a network that is open; the call began at ``started``."""
        file = opened.file
        right = self._for(file)
        estimate = right._estimate(opened, started, describe)
        answered = Target.parse(estimate.target)
        notes = precision_notes(self.asked or answered, file.precision.name, str(file.precision))
        return replace(estimate, warnings=(*notes, *estimate.warnings)) if notes else estimate

    def _estimate(self, opened: Opened, started: float, describe: bool) -> Estimate:
        file, batch, shapes = opened.file, opened.batch, opened.shapes
        partition = self._partition(opened)
        request = Request(
            file,
            partition,
            tolerance=self.tolerance,
            confidence=self.confidence,
            measure=self._workbench.for_gate(opened) if self._may_measure else None,
            remeasure=self.mode == "always",
            why_not=self._reason,
            started=started,
            network=partial(file.network, batch, shapes),
            describe=describe,
        )
        with self._device(), steady_sums(alone=not self._may_measure):
            estimate = estimate_network(request, self._data)
        _log.info(
            "%s on %s: %s µs from %d cells, %.0f %% of the time measured, %d cells now, in %.3f s",
            estimate.network, estimate.target, _rounded(estimate.latency_us), len(partition.uses),
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
        """Whether the gate may ask for measurements."""
        return self.mode != "never" and self.backend is not None

    @property
    def _reason(self) -> str:
        """Why nothing is measured, where nothing is."""
        return "measuring is switched off" if self.mode == "never" else self._why_not

    @property
    def _is_calibrating(self) -> bool:
        """Whether whole networks are measured besides their cells."""
        return self._data.is_calibrating

    def _remember(self, key: str, partition: Partition) -> None:
        """Take over how a network falls into cells, which another process found out."""
        self._partitioner.remember(key, partition)

    @overload
    def predict_many(
        self, sources: Iterable[ManySource], input: Example | None = None, *,
        batch: int | None = None, shapes: Shapes | None = None, describe: bool = False,
        jobs: int | None = 1,
        errors: Literal["raise"] = "raise",
    ) -> Iterator[Estimate]: ...  # fmt: skip

    @overload
    def predict_many(
        self, sources: Iterable[ManySource], input: Example | None = None, *,
        batch: int | None = None, shapes: Shapes | None = None, describe: bool = False,
        jobs: int | None = 1,
        errors: Literal["return"],
    ) -> Iterator[Estimate | HybridlatError]: ...  # fmt: skip

    def predict_many(
        self,
        sources: Iterable[ManySource],
        input: Example | None = None,
        *,
        batch: int | None = None,
        shapes: Shapes | None = None,
        describe: bool = False,
        jobs: int | None = 1,
        errors: Literal["raise", "return"] = "raise",
    ) -> Iterator[Estimate] | Iterator[Estimate | HybridlatError]:
        """One estimate per source, in order, as they come; memory does not grow with the count.

        Modules go with ``input``, or each in a tuple with its own. ``jobs`` workers of joblib read,
        lower and predict (-1: one a core; None: as joblib's configuration says), processes of this
        machine or whatever backend is in force: ``with joblib.parallel_config("dask")``. The
        answers are the same as with one; all measuring is done by this process, one at a time.
        Workers on other machines need a store that they reach under the same name.

        With ``errors="return"`` a network that cannot be answered for costs only itself: its error
        stands in its place. With ``"raise"`` the first error ends it all.
        """
        from hybridlat.api.many import predict_many

        return predict_many(
            self,
            sources,
            Query(one_batch(batch), checked_shapes(shapes), input, describe),
            jobs,
            errors,
        )

    def space(
        self,
        blocks: Mapping[str, Blocks] | Iterable[ManySource],
        input: Example | None = None,
        *,
        batch: int | None = None,
        shapes: Shapes | None = None,
        pattern: str | None = None,
    ) -> BlockSpace:
        """The latency of every block of a search space at every position, as an additive table.

        ``blocks`` says what can stand at each position, in the order in which they run: a mapping
        from positions to networks of one input and one output, by name or as a list; None among
        them stands for a position left out. Or whole networks of the space, whose blocks are the
        modules that exporters name (``pattern``, such as ``stages.*.blocks.*``, says which).

            space = predictor.space({"stem": [stem], "1.0": {"3x3": a, "5x5": b, "none": None}})
            space.latency({"stem": "stem", "1.0": "5x5"}).interval_us
            space.table.rows

        Each block is seen inside a network, so what the engine adds at its borders is in it; what
        sums leave out is told by ``table.check`` on networks drawn at random. Where measuring is
        allowed, the cells of blocks that are not within the tolerance are measured. Raises what
        ``predict`` raises, and InputError for blocks that do not fit one another.
        """
        from hybridlat.api.blocks import space_of

        query = Query(one_batch(batch), checked_shapes(shapes), input)
        return space_of(self, blocks, query, pattern)

    def measure(
        self,
        source: Source,
        input: Example | None = None,
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
        workbench = self._workbench
        started = time.perf_counter()
        opened = open_source(source, input, one_batch(batch), shapes)
        if (right := self._for(opened.file)) is not self:
            return right.measure(
                source, input, what=what, batch=batch, shapes=shapes, remeasure=remeasure
            )
        return workbench.report(opened, self._partition(opened), what, remeasure, started)

    def _partition(self, opened: Opened) -> Partition:
        """How a network falls into cells on this target, at the precision of its file."""
        partitioner = self._for(opened.file)._partitioner
        return partitioner.partition(opened.file, opened.batch, opened.shapes)

    @property
    def _workbench(self) -> Workbench:
        """Where it measures; BackendUnavailable when the target is not this machine."""
        if self.backend is None:
            raise BackendUnavailable(self._why_not)
        return Workbench(
            self.target, self.backend, self.options, self.store, self._data, self.settings,
            self.progress,
        )  # fmt: skip


def _rounded(latency_us: float | None) -> str:
    return "no" if latency_us is None else f"{latency_us:.1f}"
