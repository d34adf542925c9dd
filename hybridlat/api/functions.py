"""The functions of the front door, each with its ``Predictor``, and a model as MLflow serves it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from inspect import Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

from hybridlat.api import arguments
from hybridlat.api.arguments import Batches, Item, PredictOptions, Query, check_many, items_of
from hybridlat.api.predictor import Predictor
from hybridlat.api.session import Session, Sessions, estimate
from hybridlat.engines.registry import resolve
from hybridlat.errors import InputError
from hybridlat.estimate.lookup.models import read_model, read_target
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.shown import Estimates
from hybridlat.schema.target import Target
from hybridlat.store import Store

if TYPE_CHECKING:
    from hybridlat.api.arguments import ManySource, PredictBatches, SizedOptions, Source
    from hybridlat.measuring.measurer import MeasureReport, What
    from hybridlat.onnx_io.torch_export import Example
    from hybridlat.report.compare import Comparison


@overload
def predict(
    source: Source,
    target: str | Target | None = None,
    input: Example | None = None,
    **options: Unpack[PredictOptions],
) -> Estimate: ...


@overload
def predict(
    source: Source,
    target: str | Target | None = None,
    input: Example | None = None,
    **options: Unpack[PredictBatches],
) -> Estimates[Estimate]: ...


def predict(source: Any, target: Any = None, input: Any = None, **options: Any) -> Any:
    """The estimate of one network; for a list of batches, a list of estimates.

        predict("resnet50.onnx")
        predict("resnet50.onnx", "v100/tensorrt/fp16", batch=[1, 2, 4])
        predict(module, input=(1, 3, 224, 224))

    Args:
        source: a path or the name of a shipped network (``"resnet18"``), the bytes of an ONNX
            file, a ModelProto or a ``torch.nn.Module``.
        target: device, engine and precision, such as ``"l4/tensorrt/fp16"``; see
            ``list_targets()``. None is this machine's CPU under ONNX Runtime.
        input: what a module is exported for, without its weights: a tensor, a shape, or a tuple
            with one of them for each input.
        batch: the batch size, or a list of them; None is that of the file.
        shapes: sizes by the name of an input, ``{"input": (1, 3, 224, 224)}``; -1 as
            the first is the batch.
        name: what the estimate calls the network; None is the name of the file or the class.
        describe: fill in the estimate's ``structure``, at the cost of some milliseconds; tables and
            pages say by it where a cell stands and what it does. Without it nothing warns of a
            precision that comes out slower than a wider one (``order``). True unless given.
        store: URL or path of the store; None is the default one.
        threads: threads of this machine's CPU, where no target is given.
        measure: ``"auto"`` measures what is needed if the target is this machine, ``"never"``
            looks up and predicts, ``"always"`` measures every cell anew.
        tolerance: the half width to reach, as a share of the latency (0.05 is 5 %). With None
            measuring works towards 0.05, and a wider interval is no fault.
        confidence: the probability that the interval holds the latency, 0..1.
        progress: a function that is called with a ``Progress`` while something is measured.
        settings: how much to measure; None is what suits the call.
        device: a ``Device`` or the path of a data sheet, for the target's device.
        known: latencies on the target that are known from elsewhere, in µs by the path of a
            network (``"net.onnx@8"`` for batch 8). They correct what is predicted for a GPU.

    Raises NetworkError for a file that makes no sense, TargetError for a target that is none,
    MeasurementError when the engine refuses the network. An estimate that is not within the
    tolerance is no error: see its ``trusted`` and ``warnings``.
    """
    words, known = Batches.__annotations__.keys() & options.keys(), options.pop("known", None)
    own = {"describe": True} | {word: options.pop(word) for word in words}
    with Predictor(target, **options) as predictor:
        predictor.give(known or {}, batch=own.get("batch"), shapes=own.get("shapes"))
        return predictor.predict(source, input, **own)


def compare(
    sources: Iterable[ManySource],
    target: str | Target | Sequence[str | Target] | None = None,
    input: Example | None = None,
    **options: Unpack[SizedOptions],
) -> Comparison:
    """Networks side by side, or one on several targets; the first is what others are compared with.

    ``sources`` are networks as ``predict`` takes them, and so are its other keywords; ``target``
    may be a list. InputError for fewer than two estimates.
    """
    check_many(sources, "compare")
    networks, how = list(sources), dict[str, Any](options)
    query = Query(how.pop("batch", None), how.pop("shapes", None), input)
    targets: Any = target if isinstance(target, list | tuple) else [target]
    if len(networks) * len(targets) < 2:
        raise InputError("compare takes two networks or more, or one on several targets: add one")
    known = how.pop("known", None) or {}
    with ExitStack() as stack:
        predictors = [stack.enter_context(Predictor(one, **how)) for one in targets]
        for predictor in predictors:
            predictor.give(known, batch=query.batch, shapes=query.shapes)
        return _compared(predictors, networks, query)


def _compared(
    predictors: Sequence[Predictor], sources: Sequence[ManySource], query: Query
) -> Comparison:
    from hybridlat.report.compare import Comparison  # loads the reports

    options: dict[str, Any] = {"input": query.example, "batch": query.batch}
    options |= {"shapes": query.shapes, "describe": True}
    estimates = tuple(one for each in predictors for one in each.predict_many(sources, **options))
    if not all(cell.source == "predicted" for one in estimates for cell in one.cells):
        return Comparison(estimates)
    opened = [item.opened(query) for item in items_of(sources)]
    pairs = [(each.sessions.of(one.file), one) for each in predictors for one in opened]
    laws = [law for session, _ in pairs if (law := session.law) is not None]
    if len(laws) < len(pairs) or len({law.model.tasks for law in laws}) > 1:
        return Comparison(estimates)
    # One family of GPUs predicts all of them: their errors go together.
    networks = [session.measured_network(opened, math.nan) for session, opened in pairs]
    each = list(zip(laws, networks, strict=True))
    return Comparison(estimates, tuple(laws[0].ratio_log_sds(each, estimates[0].confidence)))


def measure(
    source: Source,
    target: str | Target | None = None,
    input: Example | None = None,
    *,
    what: What = "both",
    remeasure: bool = False,
    **options: Unpack[SizedOptions],
) -> MeasureReport:
    """Measure a network's cells, the whole network, or both, and keep the records.

    ``what`` is ``"cells"``, ``"network"`` or ``"both"``; ``remeasure`` takes cells that are known
    as well. Everything else is as in ``predict``. Raises BackendUnavailable when the target is not
    this machine.
    """
    how = dict[str, Any](options)
    sizes = {word: how.pop(word, None) for word in ("batch", "shapes")}
    with Predictor(target, **how) as predictor:
        return predictor.measure(source, input, what=what, remeasure=remeasure, **sizes)


_WORDS = {**signature(Predictor.predict).parameters, **signature(Predictor).parameters}
_WORDS["describe"] = _WORDS["describe"].replace(default=True)
_SHOWN = ("source", "target", "input", *PredictOptions.__annotations__)
# What help and notebooks show in place of **options.
predict.__signature__ = Signature([_WORDS[word] for word in _SHOWN])  # type: ignore[attr-defined]


class ServedModel:
    """The pyfunc of the model files in ``folder``: networks in, latencies out.

    It answers from the folder alone: what this machine has measured or installed does not count.
    """

    def __init__(self, folder: Path) -> None:
        """StoreError where the files are damaged or of another format."""
        self.model, self.target = read_model(folder), read_target(folder)
        # The device is the one trained for, whatever is known of it here.
        options = arguments.Options(measure="never", device=self.model.device, models=(folder,))
        first = Session(resolve(self.target), self.target, options, Store("sqlite://"))
        self.sessions = Sessions(first, resolve)

    def predict(self, rows: Any, params: object = None) -> Any:
        """A data frame of latency and interval in µs, for each row of a data frame.

        ``path`` names an ONNX file or a shipped network, at ``batch`` where there is one; else
        ``cell`` is the text of a cell's signature. InputError for a network of another target.
        """
        if "path" in rows:
            batches = rows["batch"] if "batch" in rows else [None] * len(rows)
            rows_us = [self._network(*row) for row in zip(rows["path"], batches, strict=True)]
        elif "cell" in rows:
            cells = self.model.predict(list(rows["cell"]))
            rows_us = [(one.latency_us, *(one.interval_us or (None, None))) for one in cells]
        else:
            raise InputError(f"the columns are {list(rows)}: one must be path, or cell")
        return type(rows)(rows_us, rows.index, ["latency_us", "low_us", "high_us"], float)

    def _network(self, path: str, batch: Any) -> tuple[float | None, ...]:
        if isinstance(batch, float):  # as pandas has whole numbers beside a missing one
            batch = None if math.isnan(batch) else int(batch) if batch.is_integer() else batch
        opened, started = Item(path).opened(Query(batch)), time.perf_counter()
        session = self.sessions.of(opened.file)
        if session is not self.sessions.first:
            raise InputError(f"{path} is of {session.target}, the model of {self.target}")
        answer = estimate(session, opened, started)
        return answer.latency_us, answer.low_us, answer.high_us
