"""``Predictor`` and ``predict``: a network in, an estimate out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hybridlat.api.session import Answer, MeasureMode, Options, Session, Sessions, answer_of
from hybridlat.api.sources import (
    Item,
    Query,
    checked_shapes,
    items_of,
    one_batch,
    open_source,
)
from hybridlat.engines.device_sheets import read
from hybridlat.engines.registry import resolve
from hybridlat.errors import HybridlatError, InputError
from hybridlat.estimate.partition import known_file
from hybridlat.schema.device import Device
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.progress import Progress
from hybridlat.schema.target import Target
from hybridlat.store import Store

if TYPE_CHECKING:
    from hybridlat.api.sources import ManySource, Source
    from hybridlat.api.space import Blocks
    from hybridlat.engines.base import Backend
    from hybridlat.estimate.block_space import BlockSpace
    from hybridlat.measuring.report import MeasureReport, What
    from hybridlat.measuring.schedule import MeasurementConfig
    from hybridlat.onnx_io import Shapes
    from hybridlat.onnx_io.torch_export import Example


class Predictor:
    """Predicts latencies on one target; keeps what it has loaded, so later calls are quick.

    ``target`` None is this machine's CPU under ONNX Runtime with ``threads`` threads. ``store`` is
    a URL or path (None: the default one). ``measure``: ``auto`` measures what the gate selects if
    the target is this machine, ``never`` looks up and predicts only, ``always`` measures every cell
    anew. The gate works towards an interval of ``tolerance`` (0.05 is ±5 %, as where none is given)
    at this ``confidence``; an estimate that misses a tolerance that you give is not trusted.
    ``device``, a data sheet's path or a ``Device``, replaces that of the target's device.
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
        progress: Callable[[Progress], None] | None = None,
        settings: MeasurementConfig | None = None,
        device: str | Path | Device | None = None,
    ) -> None:
        if not (target is None or isinstance(target, str | Target)):
            raise InputError(
                f"{target!r} is no target: give its name, such as 'v100/tensorrt/fp16', or a Target"
            )
        if device is not None and target is None:
            raise InputError("device says what the target's device is: give a target as well")
        sheet = read(device) if isinstance(device, str | Path) else device
        self.options = Options(tolerance, confidence, measure, sheet, settings, progress)
        self.store = Store(store)
        engine = resolve(target, threads)
        first = Session.open(
            engine, None if target is None else engine.target, self.options, self.store
        )
        self.sessions = Sessions(first, resolve)
        self._token = os.urandom(8)  # names what workers load for it

    @property
    def target(self) -> Target:
        """The target that it predicts for; a file of another precision is answered at its own."""
        return self.sessions.first.target

    @property
    def backend(self) -> Backend | None:
        """What measures on the target; None where that is not this machine."""
        return self.sessions.first.backend

    def __enter__(self) -> Predictor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store, and stop what the backend has started."""
        self.sessions.close()

    def predict(
        self,
        source: Source,
        input: Example | None = None,
        *,
        batch: int | Sequence[int] | None = None,
        shapes: Shapes | None = None,
        name: str | None = None,
        describe: bool = False,
    ) -> Estimate | Any:
        """The estimate of one network: a path, the bytes of a file, a ModelProto or a module.

        A ``torch.nn.Module`` is exported without its weights for ``input``: a tensor, a shape, or a
        tuple with one of them for each input. A list of batch sizes gives a list of estimates.
        ``describe`` fills in the estimate's ``structure``, at the cost of some milliseconds.

        Raises NetworkError for a file that makes no sense, MeasurementError when the engine refuses
        it. An estimate that is not within the tolerance is returned all the same: see its
        ``within_tolerance``, ``to_measure`` and ``warnings``.
        """
        several = isinstance(batch, Sequence) and not isinstance(batch, str | bytes)
        if several and not batch:
            raise InputError("the list of batch sizes is empty: give at least one")
        sizes: Any = batch if several else [batch]
        queries = [Query(one_batch(size), shapes, describe=describe) for size in sizes]
        item, recall = Item(source, name, input), partial(known_file, self.store)
        estimates = list(_raising(answer_of(self.sessions, item, q, recall) for q in queries))
        return estimates if several else estimates[0]

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
    ) -> Iterator[Any]:
        """One estimate per source, in order, as they come; memory does not grow with the count.

        Modules go with ``input``, or each in a tuple with its own. ``jobs`` workers of joblib read,
        lower and predict (-1: one a core; None: as joblib's configuration says), processes of this
        machine or whatever backend is in force: ``with joblib.parallel_config("dask")``. Where
        measuring is allowed, this process answers alone, one network after another. Workers on
        other machines need a store that they reach under the same name. With ``errors="return"`` an
        error takes the place of its network's estimate; with ``"raise"`` the first one is raised.
        """
        if errors not in ("raise", "return"):
            raise InputError(f"errors={errors!r}: choose raise or return")
        if jobs == 0 or isinstance(jobs, bool):
            raise InputError(f"jobs={jobs!r}: give a number of workers, or -1 for one a core")
        if isinstance(sources, str | bytes | bytearray | os.PathLike) or not isinstance(
            sources, Iterable
        ):
            raise InputError(
                "predict_many takes a list of networks: for a single one there is predict"
            )
        query = Query(one_batch(batch), checked_shapes(shapes), input, describe)
        items, sessions = items_of(sources), self.sessions
        if jobs == 1 or sessions.first.may_measure or self.store.place.is_in_memory:
            answers = (answer_of(sessions, item, query) for item in items)
        else:
            from hybridlat.api.many import answers_by_workers  # loads joblib

            answers = answers_by_workers(sessions, items, query, jobs, self._token)
        return _raising(answers) if errors == "raise" else answers

    def space(
        self,
        blocks: Mapping[str, Blocks],
        input: Example | None = None,
        *,
        batch: int | None = None,
        shapes: Shapes | None = None,
    ) -> BlockSpace:
        """The latency of every block of a search space at every position, as an additive table.

        ``blocks`` lists the blocks of each position, in the order in which they run: a mapping
        from positions to networks of one input and one output by name; None among them leaves
        the position out.

            space = predictor.space({"stem": [stem], "1.0": {"3x3": a, "5x5": b, "none": None}})
            space.latency({"stem": "stem", "1.0": "5x5"}).interval_us

        Each block is seen inside a network, so its row holds the engine's layout changes before it.
        Where measuring is allowed, the cells of blocks that are not within the tolerance are
        measured. Raises what ``predict`` raises, and InputError for blocks that do not fit.
        """
        from hybridlat.api.space import space_of  # one network starts without it

        query = Query(one_batch(batch), checked_shapes(shapes), input)
        return space_of(self.sessions, blocks, query)

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
        started = time.perf_counter()
        self.sessions.first.measuring()  # an error of the target comes before one of the file
        opened = open_source(source, input, one_batch(batch), shapes)
        session = self.sessions.of(opened.file)
        partition = session.partition(opened)
        return session.measuring().report(opened, partition, what, remeasure, started)


def _raising(answers: Generator[Answer]) -> Iterator[Estimate]:
    with closing(answers):  # what is left of it would stop the workers of a later call
        for answer in answers:
            if isinstance(answer, HybridlatError):
                raise answer
            yield answer


def predict(
    source: Source,
    *target_or_input: str | Target | Example | None,
    target: str | Target | None = None,
    input: Example | None = None,
    batch: int | Sequence[int] | None = None,
    shapes: Shapes | None = None,
    name: str | None = None,
    describe: bool = False,
    **options: Any,
) -> Estimate | Any:
    """The estimate of one network: ``Predictor(target, ...).predict(source, ...)`` in one call.

        predict("resnet50.onnx")
        predict("resnet50.onnx", "v100/tensorrt/fp16", batch=[1, 2, 4])
        predict(module, torch.zeros(1, 3, 224, 224))
        predict(module, (1, 3, 224, 224), "v100/tensorrt/fp16")

    Behind the source stand, in any order and by keyword if you like, the target and the ``input``
    of a ``torch.nn.Module``. ``options`` are the keywords of ``Predictor``.
    """
    for value in target_or_input:
        if isinstance(value, str | Target):
            target = value
        elif value is not None:
            input = value
    with Predictor(target, **options) as predictor:
        return predictor.predict(
            source, input, batch=batch, shapes=shapes, name=name, describe=describe
        )
