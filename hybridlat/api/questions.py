"""Which GPU keeps a budget, and what less of a network buys: ``recommend`` and ``sweep``."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from hybridlat import onnx_io
from hybridlat.api.arguments import Item, Opened, Options, Query, Source
from hybridlat.api.session import Session, estimate
from hybridlat.engines import registry
from hybridlat.errors import HybridlatError, InputError, UnavailableError
from hybridlat.estimate.belief import cells_of
from hybridlat.estimate.lookup.named_target import newest_on_record, targets_on_record
from hybridlat.estimate.lookup.target_list import fitting
from hybridlat.estimate.partition import Partition, known_file
from hybridlat.estimate.predict.chain import family_law
from hybridlat.estimate.predict.family import foresee
from hybridlat.graph.network import pixels_of
from hybridlat.graph.widths import scaled
from hybridlat.onnx_io import Shapes
from hybridlat.onnx_io.file import shipped_networks
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.names import precision_name
from hybridlat.schema.shown import Estimates, number_of
from hybridlat.store import Store

if TYPE_CHECKING:
    from hybridlat.onnx_io.torch_export import Example
    from hybridlat.report.sweep import Over, Sweep

_ORDER = {"within": 0, None: 0, "unsure": 1, "over": 2}


def recommend(
    source: Source,
    pattern: str = "*",
    input: Example | None = None,
    *,
    max_latency_us: float | None = None,
    fps: float | None = None,
    batch: int | None = None,
    shapes: Shapes | None = None,
    precision: str | None = None,
    confidence: float = 0.9,
    store: str | None = None,
) -> Estimates[Estimate]:
    """The estimate of a network on every GPU, mode and precision, the first to choose first.

    Those that keep the budget come before those that may and those that do not, each by the power
    of the board, then by its memory. Answers are those of ``predict`` with ``measure="never"``.

    Args:
        source: a network, as ``predict`` takes it; so are input, batch, shapes, confidence, store.
        pattern: of devices (``orin-*``, ``RTX 40*``, ``jetson``) under TensorRT, or with an engine
            and a precision (``l4/torch``, ``*/*/int8``).
        max_latency_us: the budget of one batch; ``fps`` is one in images a second instead.
        precision: this one alone, such as ``"fp16"``.

    InputError where the pattern fits nothing, and what ``predict`` raises for the network.
    """
    if not isinstance(pattern, str):
        raise InputError(f"pattern={pattern!r}: write it as 'orin-*' or 'l4/torch'")
    started, query = time.perf_counter(), Query(batch, shapes)
    if pattern in shipped_networks() or Path(pattern).suffix.lower() == ".onnx":
        fix = "behind it stands a pattern of devices, such as 'orin-*'"
        raise InputError(f"{pattern!r} is a second network, but recommend takes one: {fix}")
    precision = precision and precision_name(str(precision))
    sessions = list[tuple[Session, Partition]]()
    with Store(store) as kept:
        every = fitting(pattern, kept)
        chosen = [target for target in every if precision in (None, target.precision)]
        if not chosen:
            others = ", ".join(sorted({target.precision for target in every}))
            at = f" at {precision}, but at {others}" if others else ""
            fix = "write it as 'orin-*' or 'l4/torch' (as in `hybridlat targets`, no versions)"
            raise InputError(f"{pattern!r} fits no target{at}: {fix}")
        opened = Item(source, example=input).opened(query, lambda digest: known_file(kept, digest))
        known, partitions = targets_on_record(kept), dict[str, Partition]()
        for target in chosen:
            options = Options(confidence=confidence, measure="never", runtime=target.runtime)
            newest = newest_on_record(target, known)
            session = Session(registry.ResolvedEngine(newest), newest, options, kept)
            with suppress(UnavailableError):  # an engine that is not here
                if (rules := session.partitioner.rules) not in partitions:
                    partitions[rules] = session.partition(opened)
                sessions.append((session, partitions[rules]))
        laws = [(family_law(session.data), partition) for session, partition in sessions]
        foresee([(law, cells_of(parts, opened.network)) for law, parts in laws if law])
        estimates = [estimate(one, opened, started, partition=parts) for one, parts in sessions]
    if (max_latency_us, fps) != (None, None):
        estimates = [one.against(max_latency_us, fps=fps) for one in estimates]
    return Estimates(sorted(estimates, key=_rank))


def _rank(one: Estimate) -> tuple[float, ...]:
    order = 2 if one.is_too_large else _ORDER[one.verdict]
    most = (one.memory and one.memory.device_bytes) or math.inf
    return order, one.power_w or math.inf, most, one.latency_us or math.inf


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

    numbers = [number_of(value) for value in (values if isinstance(values, Iterable) else ())]
    points, whole = sorted(set(numbers)), over == "width" or all(map(float.is_integer, numbers))
    if over not in get_args(Over):
        raise InputError(f"{over!r} cannot be swept: choose {', '.join(get_args(Over))}")
    if not (len(points) > 1 and all(0 < value < 2**31 for value in points) and whole):
        is_known = bool(numbers) and not any(map(math.isnan, numbers))
        shown = ", ".join(f"{number:g}" for number in numbers) if is_known else repr(values)
        raise InputError(
            f"{shown} makes no curve over {over}: give two or more batches, sizes or widths, "
            "all of them above zero and whole but for widths"
        )
    batch = sizes.get("batch")
    if over == "batch" and batch is not None:
        raise InputError(f"batch={batch!r} contradicts the batches of the sweep: leave it out")
    opened = Item(source, example=input).opened(Query(batch, sizes.get("shapes")))
    network = opened.network() if over == "width" else None
    estimates, refused = {}, dict[float, HybridlatError]()
    for value in points:
        chosen: dict[str, Any] = {"name": f"{opened.file.label} at {over} {value:g}"}
        file: Any = source
        try:
            if network is not None:
                file = onnx_io.to_onnx(scaled(network, value), seed=None)
            elif over == "size":
                images, others = image_shapes(opened, int(value)), sizes.get("shapes") or {}
                if both := images.keys() & others.keys():
                    fix = "give the batch alone, and shapes of other inputs"
                    raise InputError(f"the shape of {min(both)!r} contradicts its size: {fix}")
                chosen |= {"batch": batch, "shapes": {**others, **images}}
                file = source if input is None else opened.file.parsed.model
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
        pixels = pixels_of(written)
        sides = [side or 1 for side in [*written][pixels]]
        if any(side * size % max(sides) for side in sides):
            raise InputError(f"{name} of {sides[0]}x{sides[1]} has no whole sides at size {size}")
        first = (opened.shapes or {}).get(name, written)[0]
        bound = [opened.batch or first or 1, *[each or 1 for each in written[1:]]]
        bound[pixels] = [side * size // max(sides) for side in sides]
        shapes[name] = tuple(bound)
    if not shapes:
        raise InputError(f"{opened.file.name} reads no image, so --size says nothing: give --shape")
    return shapes
