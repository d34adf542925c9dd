"""Sessions: one target with its records and models, and the estimate of a network there."""

from __future__ import annotations

import logging
import math
import os
import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeAlias

from hybridlat.api.arguments import Item, Opened, Options, Query
from hybridlat.engines.device_sheets import with_sheet
from hybridlat.engines.registry import ResolvedEngine, at_precision, precision_notes
from hybridlat.errors import BackendUnavailable, HybridlatError, InputError
from hybridlat.estimate.belief import SWITCHED_OFF, Request, surprise
from hybridlat.estimate.compose.target_composition import own_composition
from hybridlat.estimate.lookup.named_target import described, targets_on_record
from hybridlat.estimate.lookup.target_data import TargetData
from hybridlat.estimate.lookup.whole_networks import MeasuredNetwork
from hybridlat.estimate.network_estimate import estimate_network
from hybridlat.estimate.partition import Partition, Partitioner, known_file
from hybridlat.estimate.predict.chain import family_law
from hybridlat.estimate.predict.other_targets import is_alike
from hybridlat.estimate.warnings import sentence
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.shown import number_of
from hybridlat.schema.structure import EstimateWarning
from hybridlat.schema.target import Target
from hybridlat.schema.workers import steady_sums

if TYPE_CHECKING:
    from hybridlat.api.measure import MeasureService
    from hybridlat.estimate.predict.family import Family
    from hybridlat.onnx_io import OnnxFile, Shapes
    from hybridlat.store import Store

Answer: TypeAlias = "Estimate | HybridlatError"
_BESIDE = {"int8": "fp16", "fp16": "fp32", "bf16": "fp32", "fp32": "fp16"}
_MOST_APART = 1.2  # of repeated latencies of one network, be they of several files
_log = logging.getLogger(__name__)


class Session:
    """One target with its engine, its store, and the records and models of it.

    ``requested`` is the target that the user named, ``backend`` what measures here; each may be
    None. ``surprising`` says which of the ``user_networks`` are far from what is believed.
    """

    def __init__(
        self, engine: ResolvedEngine, requested: Target | None, options: Options, store: Store
    ) -> None:
        """BackendUnavailable if it must measure and cannot."""
        if options.measure == "always" and engine.backend is None:
            raise BackendUnavailable(engine.why_not)
        self.engine, self.requested, self.options, self.store = engine, requested, options, store
        self.target, self.backend = engine.target, engine.backend
        self._data = TargetData(engine.target, store, options.models)
        self._doubted = self._data.doubted() if engine.backend is not None else None
        self.surprising: Sequence[str] = ()
        self.partitioner = Partitioner(engine.target, store)

    @property
    def data(self) -> TargetData:
        """What is known of the target. A pack is no more than another machine's before this one has
        measured cells that agree with it."""
        if self._doubted is None:
            return self._data
        self._doubted.refresh()
        return self._data if is_alike(self._doubted) else self._doubted

    @property
    def may_measure(self) -> bool:
        """Whether the gate may measure; not unless it must where no store would keep it."""
        measure = self.options.measure if self.backend is not None else "never"
        return measure == "always" or (measure == "auto" and not self.store.is_read_only)

    @property
    def why_not(self) -> str:
        """Why nothing is measured; empty where the gate may measure."""
        if self.backend is not None and not self.may_measure and self.options.measure == "auto":
            return "the store cannot be written, so nothing is measured"
        return SWITCHED_OFF if self.options.measure == "never" else self.engine.why_not

    def device_sheet(self) -> AbstractContextManager[object]:
        if (device := self.options.device) is None:
            return nullcontext()
        return with_sheet(replace(device, name=self.target.device))

    def measuring(self) -> MeasureService:
        """What measures on the target; BackendUnavailable when it is not this machine."""
        from hybridlat.api.measure import MeasureService  # loads onnx
        from hybridlat.measuring.measurer import Measurer

        if self.backend is None:
            raise BackendUnavailable(self.engine.why_not)
        measurer = Measurer(self.backend)
        return MeasureService(measurer, self.data, self.options.settings, self.options.progress)

    def partition(self, opened: Opened) -> Partition:
        with self.device_sheet():  # the device decides what is fused
            return self.partitioner.partition(opened.file, opened.batch, opened.shapes)

    def check(self) -> None:
        """TargetError where nothing is known of the target's device."""
        if self.backend is None and self.options.device is None:
            described(self.target.device, targets_on_record(self.store)[1])

    def give(self, known: Mapping[Any, Any], batch: Any, shapes: Shapes | None) -> None:
        """See ``Predictor.give``."""
        hint = 'give µs by path, as in known={"resnet50.onnx": 1210.0}'
        if not isinstance(known, Mapping):
            raise InputError(f"known={known!r} does not say what takes how long: {hint}")
        if known:
            self.check()
            if self.law is None:
                raise InputError(
                    f"a known latency corrects what a family of GPUs predicts, and {self.target} "
                    "is not predicted so: measure the network there (`hybridlat measure`), or keep "
                    "its latency (`hybridlat import`)"
                )
        networks, latencies_us = dict[str, MeasuredNetwork](), dict[str, list[float]]()
        before, far = TargetData(self.target, self.store), list[str]()
        for key, latency_us in known.items():
            us = number_of(latency_us)
            if not (0 < us < math.inf and isinstance(key, str | os.PathLike)):
                raise InputError(f"{latency_us!r} is no latency of {key}: {hint}")
            path, sizes = os.fspath(key), batch if isinstance(batch, list | tuple) else [batch]
            if stated := re.fullmatch("(.+)@([0-9]{1,9})", path):
                path, sizes = stated[1], [int(stated[2])]
            if len(sizes) != 1:
                raise InputError(f"{path} has one latency: say at which batch, as in {path}@8")
            opened = Item(path).opened(Query(sizes[0], shapes))
            precision = opened.file.facts.precision.name
            if notes := precision_notes(self.target, precision, precision):
                raise InputError(f"{path} is not known at {self.target.precision}: {notes[0]}")
            one = self.measured_network(opened, us)
            repeated = [*latencies_us.get(one.signature, ()), us]
            if max(repeated) > _MOST_APART * min(repeated):
                first = f"{us:g} µs where its network has {repeated[0]:g}"
                raise InputError(f"{key} is given a second latency, {first}: give one")
            latencies_us[one.signature] = repeated
            networks[one.signature] = replace(one, latency_us=fmean(repeated))
            with self.device_sheet():
                text = surprise(before, one, opened.batch or 1)
            far += [f"the latency given for {key} is far off: {text}"] if text else []
        self.data.user_networks, self.surprising = networks, far

    @property
    def law(self) -> Family | None:
        """The family that predicts here; None where something nearer to the target does."""
        with self.device_sheet():
            return None if self.may_measure or own_composition(self.data) else family_law(self.data)

    def measured_network(self, opened: Opened, latency_us: float) -> MeasuredNetwork:
        partition, law = self.partition(opened), self.law
        copied = opened.network().copied_bytes if law is not None and law.task.copies else 0.0
        breakdown = partition.breakdown(self.target, opened.file.label)
        one = MeasuredNetwork.of(breakdown, partition.texts, latency_us)
        return replace(one, copied_bytes=copied, by_user=True)


class Sessions:
    """The sessions of one predictor, one for each precision of the files that it estimates."""

    def __init__(self, first: Session, resolve: Callable[[Target], ResolvedEngine]) -> None:
        self.first = first
        self._resolve = resolve
        self._by_target: dict[Target, Session] = {}
        self.recall = partial(known_file, first.store)
        self.twins: dict[tuple[object, ...], Estimate] = {}
        """What equal networks take, by what they are."""

    def of(self, file: OnnxFile, precision: str = "") -> Session:
        """The session at a file's precision or another; TargetError where no device is known."""
        first = self.first
        target = at_precision(first.target, file.facts.precision.name)
        target = replace(target, precision=precision or target.precision)
        if target not in self._by_target:
            first.check()
            more = first.requested, first.options, first.store
            is_first = target == first.target
            self._by_target[target] = first if is_first else Session(self._resolve(target), *more)
        return self._by_target[target]

    def in_order(self, session: Session, opened: Opened, one: Estimate) -> Estimate:
        """The estimate, which warns where it is quicker at a precision that should be slower."""
        law, beside = session.law, _BESIDE.get(session.target.precision, "")
        if law is None or one.source == "measured" or beside not in law.device.peak_flops:
            return one
        from hybridlat.report.prediction_table import order_note  # loads the reports

        other = self.of(opened.file, beside)
        other.data.user_networks = session.data.user_networks  # at one precision they tell of all
        # Few orders turn: the kernels at hand tell that quickly, its own decide where they do.
        for partition in (session.partition(opened), None):
            coarse = estimate(other, opened, time.perf_counter(), partition=partition)
            if not (text := order_note([one, coarse])):
                return one
        return one.warned((EstimateWarning("order", text), *one.warnings))

    def close(self) -> None:
        for session in {self.first, *self._by_target.values()}:
            session.partitioner.keep()
            if session.backend is not None:
                session.backend.close()
        self.first.store.close()


def answer_of(sessions: Sessions, item: Item, query: Query) -> Answer:
    """The estimate of a network by this process, or its error."""
    key: tuple[object, ...]
    partition: Partition | None
    started = time.perf_counter()
    try:
        opened = item.opened(query, sessions.recall)
        session = sessions.of(opened.file)
        partition, key = None, ()
        if query.dedupe:
            partition = session.partition(opened)
            key = (session.target, partition.whole, partition.batch, query.describe)
        one = sessions.twins.get(key)  # another thread may clear them
        if one is None:
            one = estimate(session, opened, started, query.describe, partition)
            one = sessions.in_order(session, opened, one) if query.describe else one
            if query.dedupe:
                sessions.twins[key] = one
        return replace(one, network=opened.file.name)
    except HybridlatError as error:
        return error


def raising(answers: Generator[Answer]) -> Iterator[Estimate]:
    """The estimates; the first error among the answers is raised."""
    with closing(answers):  # what is left of it would stop the workers of a later call
        for answer in answers:
            if isinstance(answer, HybridlatError):
                raise answer
            yield answer


def estimate(
    session: Session,
    opened: Opened,
    started: float,
    describe: bool = False,
    partition: Partition | None = None,
) -> Estimate:
    """The estimate of a network; the call began at ``time.perf_counter()`` ``started``."""
    file, options, may_measure = opened.file, session.options, session.may_measure
    partition = partition or session.partition(opened)
    request = Request(
        file,
        partition,
        tolerance=options.aim,
        tolerance_given=options.tolerance is not None,
        confidence=options.confidence,
        measure=partial(session.measuring().for_gate, opened, partition) if may_measure else None,
        remeasure=options.measure == "always",
        why_not=session.why_not,
        started=started,
        network=opened.network,
        describe=describe,
        bound=file.inputs(opened.batch, opened.shapes) if opened.batch or opened.shapes else {},
        runtime=options.runtime,
    )
    with session.device_sheet(), steady_sums(alone=not may_measure):
        result = estimate_network(request, session.data)
    seconds = time.perf_counter() - started
    _log.info("%r, %d cells measured now, in %.3f s", result, result.measured_now, seconds)
    precision = file.facts.precision
    notes = precision_notes(session.requested or session.target, precision.name, str(precision))
    own = [sentence("surprising", text) for text in session.surprising]
    own += [sentence("precision", text) for text in notes]
    return result.warned((*own, *result.warnings)) if own else result
