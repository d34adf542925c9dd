"""``Predictor``: a network in, an estimate out."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Unpack, overload

from hybridlat.api import arguments
from hybridlat.api.arguments import Item, ManySource, MeasureMode, Query, Sizes, Source
from hybridlat.api.session import Answer, Session, Sessions, answer_of, raising
from hybridlat.engines.device_sheets import is_gpu
from hybridlat.engines.registry import resolve
from hybridlat.errors import InputError, TargetError
from hybridlat.estimate.lookup.named_target import named_target, newest_on_record, targets_on_record
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.shown import Estimates
from hybridlat.schema.target import Device, Target
from hybridlat.schema.workers import OnProgress
from hybridlat.store import Store

if TYPE_CHECKING:
    from hybridlat.api.space import Blocks
    from hybridlat.estimate.block_space import BlockSpace
    from hybridlat.measuring.measurer import MeasureReport, What
    from hybridlat.measuring.schedule import MeasurementConfig
    from hybridlat.onnx_io import Shapes
    from hybridlat.onnx_io.torch_export import Example
    from hybridlat.report.explain import Explanation
    from hybridlat.report.sweep import Over, Sweep


class Predictor(AbstractContextManager["Predictor"]):
    """Predicts latencies on one target; keeps what it has loaded, so later calls are quick.

    The arguments are those of ``hybridlat.predict``: ``target``, ``store``, ``threads``,
    ``measure``, ``tolerance``, ``confidence``, ``progress``, ``settings``, ``device``, ``known``.
    """

    def __init__(
        self,
        target: str | Target | None = None,
        *,
        store: str | None = None,
        threads: int | None = None,
        measure: MeasureMode = "auto",
        tolerance: float | None = None,
        confidence: float = 0.9,
        progress: OnProgress | None = None,
        settings: MeasurementConfig | None = None,
        device: str | Path | Device | None = None,
        known: Mapping[Any, float] | None = None,
    ) -> None:
        if not (target is None or isinstance(target, str | Target)):
            raise InputError(
                f"{target!r} is no target: give its name, such as 'v100/tensorrt/fp16', or a Target"
            )
        count = arguments.whole_number(threads)
        if threads is not None and (count is None or count < 1):
            raise InputError(f"threads={threads!r}: give a whole number of threads, from 1")
        sheet = arguments.sheet_of(device, target)
        options = arguments.Options(tolerance, confidence, measure, sheet, settings, progress)
        self.store = Store(store)
        if isinstance(target, str):
            named: Target | None = named_target(target, self.store)
        else:
            named = target and Target.parse(str(target))
        if named is not None and threads and is_gpu(named):
            raise TargetError(f"{named} is a GPU's, and threads={threads} goes with CPUs alone")
        self.options = replace(options, runtime=named.runtime if named else "")
        engine = resolve(named, count)
        if engine.backend is None and isinstance(target, str):
            newest = newest_on_record(engine.target, targets_on_record(self.store), count)
            why_not = engine.why_not.replace(str(engine.target), str(newest), 1)
            engine = replace(engine, target=newest, why_not=why_not)
        requested = None if target is None else engine.target
        self.sessions = Sessions(Session(engine, requested, self.options, self.store), resolve)
        self.give(known or {})

    @property
    def target(self) -> Target:
        """The target that it predicts for; a file of another precision is answered at its own."""
        return self.sessions.first.target

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        fix = "make one in each process, or give predict_many its jobs"
        raise InputError(f"a Predictor holds an open store and cannot be copied or sent: {fix}")

    def close(self) -> None:
        """Close the store, and stop what the backend has started."""
        self.sessions.close()

    def give(
        self,
        known: Mapping[Any, float],
        *,
        batch: int | Sequence[int] | None = None,
        shapes: Shapes | None = None,
    ) -> None:
        """Correct the target's family by networks whose latency is ``known``, and by those alone.

        Paths that name no batch are read at ``batch`` and ``shapes``. Of latencies of one network
        the mean counts. InputError where they are over a fifth apart, where no family of GPUs
        answers, and what ``predict`` raises.
        """
        self._token = os.urandom(8)  # names what workers load for it
        self.sessions.first.give(known, batch, shapes)

    def most_telling(
        self, sources: Iterable[Source], **sizes: Unpack[Sizes]
    ) -> tuple[int, float] | None:
        """Which of these networks, measured and then ``known``, would narrow the others most.

        Its position, and what share (0..1) of the variance of the others' log-latencies it tells.
        None for an empty list, and where no family of GPUs predicts. Raises what ``predict`` does.
        """
        arguments.check_many(sources, "most_telling")
        query = Query(**sizes)
        opened = [item.opened(query, self.sessions.recall) for item in arguments.items_of(sources)]
        first = self.sessions.first
        if first.law is None or not opened:
            return None
        return first.law.most_telling([first.measured_network(one, math.nan) for one in opened])

    @overload
    def predict(
        self, source: Source, input: Example | None = None, **options: Unpack[arguments.OneBatch]
    ) -> Estimate: ...

    @overload
    def predict(
        self, source: Source, input: Example | None = None, **options: Unpack[arguments.Batches]
    ) -> Estimates[Estimate]: ...

    def predict(
        self,
        source: Source,
        input: Example | None = None,
        *,
        batch: int | Sequence[int] | None = None,
        shapes: Shapes | None = None,
        name: str | None = None,
        describe: bool = False,
    ) -> Estimate | Estimates[Estimate]:
        """The estimate of one network, or of each batch; see ``hybridlat.predict``."""
        if isinstance(source, list | tuple):
            raise InputError("predict takes one network: for several there is predict_many")
        several = isinstance(batch, Sequence) and not isinstance(batch, str | bytes)
        if several and not batch:
            raise InputError("the list of batch sizes is empty: give at least one")
        sizes: Any = batch if several else [batch]
        item, each = Item(source, name, input), (Query(s, shapes, describe=describe) for s in sizes)
        estimates = list(raising(answer_of(self.sessions, item, query) for query in each))
        return Estimates(estimates) if several else estimates[0]

    @overload
    def predict_many(
        self,
        sources: Iterable[ManySource],
        input: Example | None = None,
        *,
        errors: Literal["raise"] = "raise",
        **options: Unpack[arguments.ManyOptions],
    ) -> Iterator[Estimate]: ...

    @overload
    def predict_many(
        self,
        sources: Iterable[ManySource],
        input: Example | None = None,
        *,
        errors: Literal["return"],
        **options: Unpack[arguments.ManyOptions],
    ) -> Iterator[Answer]: ...

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
        dedupe: bool = False,
    ) -> Iterator[Answer]:
        """One estimate per source, in order, as they come; memory does not grow with the count.

        Modules go with ``input``, or each in a tuple with its own. ``jobs`` processes predict (-1:
        one a core; None: as joblib is configured), this one alone where measuring is allowed. With
        ``errors="return"`` an error takes the place of its network's estimate. With ``dedupe`` a
        network that equals an earlier one but for names and weights has that one's answer: its
        operators and commands are the earlier one's.
        """
        if errors not in ("raise", "return"):
            raise InputError(f"errors={errors!r}: choose raise or return")
        if jobs is not None and not arguments.whole_number(jobs):
            raise InputError(f"jobs={jobs!r}: give a number of workers, or -1 for one a core")
        arguments.check_many(sources, "predict_many")
        query = Query(batch, shapes, input, describe, dedupe)
        self.sessions.twins.clear()
        items, sessions = arguments.items_of(sources), self.sessions
        if jobs == 1 or sessions.first.may_measure or self.store.place.is_in_memory:
            answers = (answer_of(sessions, item, query) for item in items)
        else:
            from hybridlat.api.parallel import answers_by_workers  # loads joblib

            answers = answers_by_workers(sessions, items, query, jobs, self._token)
        return raising(answers) if errors == "raise" else answers

    def space(
        self, blocks: Mapping[str, Blocks], input: Example | None = None, **sizes: Unpack[Sizes]
    ) -> BlockSpace:
        """The latency of every block of a search space at every position, as an additive table.

        ``blocks`` maps each position, in the order in which they run, to networks of one input and
        one output by name; None among them leaves the position out.

            space = predictor.space({"stem": {"s": a}, "1.0": {"3x3": b, "5x5": c, "none": None}})
            space.latency({"stem": "s", "1.0": "5x5"}).interval_us

        A block's row holds the engine's layout changes before it. Cells of blocks that are not
        within the tolerance are measured where that is allowed. InputError for blocks that do not
        fit, and what ``predict`` raises.
        """
        from hybridlat.api.space import space_of  # one network starts without it

        return space_of(self.sessions, blocks, Query(example=input, **sizes))

    def sweep(
        self,
        source: Source,
        over: Over,
        values: Sequence[float],
        input: Example | None = None,
        **sizes: Unpack[Sizes],
    ) -> Sweep:
        """The latency of one network at several values of its ``batch``, ``size`` or ``width``.

        A size is the longer side of every input image. A width is a factor for all channels but
        those of inputs and outputs. Values that the network cannot have are ``refused`` in the
        result; it raises what ``predict`` does where none is left.
        """
        from hybridlat.api.questions import sweep_of

        return sweep_of(self.predict, source, input, over, values, **sizes)

    def explain(
        self,
        source: Source,
        measured_us: float | str | Path,
        input: Example | None = None,
        **sizes: Unpack[Sizes],
    ) -> Explanation:
        """Whether ``measured_us`` is normal for a network here, and what explains it best.

        The path of trtexec's log in its place settles what the log states. Raises what ``predict``
        raises, and InputError where the network or the log has no latency.
        """
        from hybridlat.api.explain import explain

        return explain(self, source, measured_us, Query(**sizes, example=input))

    def measure(
        self,
        source: Source,
        input: Example | None = None,
        *,
        what: What = "both",
        remeasure: bool = False,
        **sizes: Unpack[Sizes],
    ) -> MeasureReport:
        """See ``hybridlat.measure``."""
        started = time.perf_counter()
        if what not in ("cells", "network", "both"):
            raise InputError(f"what={what!r}: choose cells, network or both")
        self.sessions.first.measuring()  # an error of the target comes before one of the file
        opened = Item(source, example=input).opened(Query(**sizes))
        session = self.sessions.of(opened.file)
        partition = session.partition(opened)
        return session.measuring().report(opened, partition, what, remeasure, started)
