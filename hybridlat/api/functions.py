"""The free functions of the front door: each opens a ``Predictor`` for one call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybridlat.api.predictor import Predictor, check_many
from hybridlat.api.sources import Query, checked_shapes, one_batch
from hybridlat.errors import InputError
from hybridlat.schema.device import Device
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.progress import OnProgress
from hybridlat.schema.target import Target

if TYPE_CHECKING:
    from hybridlat.api.session import MeasureMode
    from hybridlat.api.sources import ManySource, Source
    from hybridlat.measuring.report import MeasureReport, What
    from hybridlat.measuring.schedule import MeasurementConfig
    from hybridlat.onnx_io import Shapes
    from hybridlat.onnx_io.torch_export import Example
    from hybridlat.report.views import Comparison


def predict(
    source: Source, target: str | Target | None = None, input: Example | None = None, *,
    batch: int | Sequence[int] | None = None, shapes: Shapes | None = None,
    name: str | None = None, describe: bool = True, store: str | None = None,
    threads: int | None = None, measure: MeasureMode = "auto", tolerance: float | None = None,
    confidence: float = 0.9, progress: OnProgress | None = None,
    settings: MeasurementConfig | None = None, device: str | Path | Device | None = None,
    known: Mapping[Any, float] | None = None,
) -> Estimate | Any:  # fmt: skip
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
        shapes: sizes by the name of an input, ``{"input": (1, 3, 224, 224)}``.
        name: what the estimate calls the network; None is the name of the file or the class.
        describe: fill in the estimate's ``structure``, at the cost of some milliseconds; tables and
            pages say by it where a cell stands and what it does.
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
    with Predictor(
        target, store=store, threads=threads, measure=measure, tolerance=tolerance,
        confidence=confidence, progress=progress, settings=settings, device=device,
    ) as predictor:  # fmt: skip
        predictor.give(known or {}, batch=batch, shapes=shapes)
        return predictor.predict(
            source, input, batch=batch, shapes=shapes, name=name, describe=describe
        )


def compare(
    sources: Iterable[ManySource], target: str | Target | Sequence[str | Target] | None = None,
    input: Example | None = None, *, batch: int | None = None, shapes: Shapes | None = None,
    store: str | None = None, threads: int | None = None, measure: MeasureMode = "auto",
    tolerance: float | None = None, confidence: float = 0.9, progress: OnProgress | None = None,
    settings: MeasurementConfig | None = None, device: str | Path | Device | None = None,
    known: Mapping[Any, float] | None = None,
) -> Comparison:  # fmt: skip
    """Networks side by side, or one on several targets; the first is what others are compared with.

    ``sources`` are networks as ``predict`` takes them, and so is everything else; ``target`` may be
    a list. InputError for fewer than two estimates.
    """
    from hybridlat.api.comparing import compared  # loads the reports

    check_many(sources, "compare")
    networks = list(sources)
    targets: Any = target if isinstance(target, list | tuple) else [target]
    query = Query(one_batch(batch), checked_shapes(shapes), input)
    if len(networks) * len(targets) < 2:
        raise InputError("compare takes two networks or more, or one on several targets")
    with ExitStack() as stack:
        predictors = []
        for one in targets:
            predictor = Predictor(
                one, store=store, threads=threads, measure=measure, tolerance=tolerance,
                confidence=confidence, progress=progress, settings=settings, device=device,
            )  # fmt: skip
            predictors.append(stack.enter_context(predictor))
            predictor.give(known or {}, batch=batch, shapes=shapes)
        return compared(predictors, networks, query)


def measure(
    source: Source, target: str | Target | None = None, input: Example | None = None, *,
    what: What = "both", batch: int | None = None, shapes: Shapes | None = None,
    remeasure: bool = False, store: str | None = None, threads: int | None = None,
    progress: OnProgress | None = None, settings: MeasurementConfig | None = None,
) -> MeasureReport:  # fmt: skip
    """Measure a network's cells, the whole network, or both, and keep the records.

    ``what`` is ``"cells"``, ``"network"`` or ``"both"``; ``remeasure`` takes cells that are known
    as well. Everything else is as in ``predict``. Raises BackendUnavailable when the target is not
    this machine.
    """
    with Predictor(
        target, store=store, threads=threads, progress=progress, settings=settings
    ) as predictor:
        return predictor.measure(
            source, input, what=what, batch=batch, shapes=shapes, remeasure=remeasure
        )
