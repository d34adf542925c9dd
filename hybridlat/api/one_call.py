"""``hybridlat.predict``: one network, in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

from hybridlat.api.predictor import MeasureMode, Predictor
from hybridlat.errors import InputError
from hybridlat.schema.device import Device
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.progress import Progress
from hybridlat.schema.target import Target

if TYPE_CHECKING:
    from hybridlat.api.sources import Source
    from hybridlat.measuring.schedule import MeasurementConfig
    from hybridlat.onnx_io import Shapes
    from hybridlat.onnx_io.torch_export import Example


class PredictorOptions(TypedDict, total=False):
    """The keywords of :class:`Predictor`."""

    tolerance: float
    confidence: float
    measure: MeasureMode
    store: str | None
    threads: int | None
    progress: Callable[[Progress], None] | None
    settings: MeasurementConfig | None
    device: str | Path | Device | None


@overload
def predict(
    source: Source, *target_or_input: str | Target | Example | None, batch: int | None = None,
    target: str | Target | None = None, input: Example | None = None,
    shapes: Shapes | None = None, name: str | None = None, describe: bool = False,
    **options: Unpack[PredictorOptions],
) -> Estimate: ...  # fmt: skip


@overload
def predict(
    source: Source, *target_or_input: str | Target | Example | None, batch: Sequence[int],
    target: str | Target | None = None, input: Example | None = None,
    shapes: Shapes | None = None, name: str | None = None, describe: bool = False,
    **options: Unpack[PredictorOptions],
) -> list[Estimate]: ...  # fmt: skip


def predict(
    source: Source,
    *target_or_input: str | Target | Example | None,
    batch: int | Sequence[int] | None = None,
    target: str | Target | None = None,
    input: Example | None = None,
    shapes: Shapes | None = None,
    name: str | None = None,
    describe: bool = False,
    **options: Unpack[PredictorOptions],
) -> Estimate | list[Estimate]:
    """The latency of one network: ``Predictor(target, ...).predict(source, ...)`` in one call.

        predict("resnet50.onnx")
        predict("resnet50.onnx", "v100/tensorrt/fp16", batch=[1, 2, 4])
        predict(module, torch.zeros(1, 3, 224, 224))
        predict(module, (1, 3, 224, 224), "v100/tensorrt/fp16")

    Behind the source stand, in any order and by keyword if you like, the target and the ``input``
    of a ``torch.nn.Module``: a tensor, a shape, or a tuple with one of them for each input. The
    other keywords are those of ``Predictor`` (``tolerance``, ``confidence``, ``measure``,
    ``store``, ``threads``, ``progress``, ``settings``, ``device``) and of ``Predictor.predict``.
    """
    target, input = _told_apart(target_or_input, target, input)
    with Predictor(target, **options) as predictor:
        return predictor.predict(
            source, input, batch=batch, shapes=shapes, name=name, describe=describe
        )


def _told_apart(
    positional: Sequence[Any], target: str | Target | None, example: Example | None
) -> tuple[str | Target | None, Example | None]:
    """The target and the example among what was given without a keyword."""
    for value in positional:
        if value is None:
            continue
        if isinstance(value, str | Target):
            if target is not None:
                raise InputError(f"two targets are given, {target} and {value}: one is enough")
            target = value
        elif isinstance(value, int | float):
            raise InputError(
                f"{value!r} is neither a target nor an example input: a batch size is given with "
                f"batch={value!r}"
            )
        elif example is not None:
            raise InputError("two inputs are given: put those of a module with several in a tuple")
        else:
            example = value
    return target, example
