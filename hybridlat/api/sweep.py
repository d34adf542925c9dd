"""``Predictor.sweep``: one network at several batches, input sizes or widths."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from hybridlat import onnx_io
from hybridlat.api.sources import Item, Opened, Query
from hybridlat.errors import HybridlatError, InputError
from hybridlat.graph.widths import scaled

if TYPE_CHECKING:
    from hybridlat.api.sources import Source
    from hybridlat.onnx_io.torch_export import Example
    from hybridlat.report.sweep import Over, Sweep
    from hybridlat.schema.estimate import Estimate

_COLOURS = (1, 3, 4)


def sweep_of(
    predict: Callable[..., Estimate],
    source: Source,
    input: Example | None,
    over: Over,
    values: Sequence[float],
    **sizes: Any,
) -> Sweep:
    """See ``Predictor.sweep``; ``sizes`` are batch and shapes, ``predict`` is that method."""
    from hybridlat.report.sweep import Over, Sweep  # loads the reports

    values = sorted(set(values))
    whole = over == "width" or all(float(value).is_integer() for value in values)
    if over not in get_args(Over) or len(values) < 2 or values[0] <= 0 or not whole:
        raise InputError(
            f"{values} makes no curve over {over}: give two or more batches, sizes or widths, "
            "all of them above zero and whole but for widths"
        )
    batch = None if over == "batch" else sizes.get("batch")
    opened = Item(source, example=input).opened(Query(batch, sizes.get("shapes")))
    network = opened.network() if over == "width" else None
    estimates, refused = {}, dict[float, HybridlatError]()
    for value in values:
        chosen: dict[str, Any] = {"name": f"{opened.file.label} at {over} {value:g}"}
        file: Any = source
        try:
            if network is not None:
                file = onnx_io.to_onnx(scaled(network, value), seed=None)
            elif over == "size":
                chosen |= {"batch": batch, "shapes": image_shapes(opened, int(value))}
            else:
                chosen = {"input": input, **sizes, "batch": int(value)}
            estimates[value] = predict(file, describe=True, **chosen)
        except HybridlatError as error:
            refused[value] = error
    if not estimates:
        raise next(iter(refused.values()))
    return Sweep(over, estimates, {value: str(error) for value, error in refused.items()})


def image_shapes(opened: Opened, size: int) -> Mapping[str, tuple[int, ...]]:
    """The shapes of a file with ``size`` as the longer side of its images; else InputError."""
    shapes = {}
    for name, written in opened.file.parsed.input_sizes.items():
        if len(written) != 4:
            continue
        start = 1 if written[3] in _COLOURS and written[1] not in _COLOURS else 2
        sides = [side or 1 for side in written[start : start + 2]]
        new = [side * size // max(sides) for side in sides]
        if any(side * size % max(sides) for side in sides):
            raise InputError(f"{name} of {sides[0]}x{sides[1]} has no whole sides at size {size}")
        bound = [opened.batch or written[0] or 1, *[each or 1 for each in written[1:]]]
        shapes[name] = (*bound[:start], *new, *bound[start + 2 :])
    if not shapes:
        raise InputError(f"{opened.file.name} reads no image, so --size says nothing: give --shape")
    return shapes
