"""``Predictor.explain``: which circumstance makes a network take what somebody measured.

Each suspect is predicted as the network itself is. Of several, the one under which the measured
latency is likelier is the likelier one (Bayes' rule), by how often people meet it: the priors are
judgement. A clock or another program may slow a network by any factor of a range, so that each
single factor is less likely (Occam's factor: MacKay, "Information Theory, Inference, and Learning
Algorithms", 2003, chapter 28).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from statistics import NormalDist
from typing import Any

from hybridlat.api.sources import Item, Opened, Query
from hybridlat.api.sweep import image_shapes
from hybridlat.engines import device_sheets
from hybridlat.errors import HybridlatError, InputError
from hybridlat.estimate.predict.source import copied_bytes
from hybridlat.measuring.tables import MODE
from hybridlat.model.conformal import normal_quantile
from hybridlat.report.explain import Explanation, Suspect
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.target import Target

PRIORS = {
    "as predicted": 2.0, "precision": 1.0, "power mode": 1.0, "host copies": 0.8, "busy": 0.8,
    "threads": 0.6, "batch": 0.6, "size": 0.6, "clock": 0.4, "launches": 0.4, "nothing": 0.5,
}  # fmt: skip
_BATCHES = (1, 2, 4, 8, 16, 32, 64)
_SIZES = (128, 160, 192, 224, 256, 288, 320, 384, 416, 448, 512, 640, 768, 960, 1024, 1280)
# A network is slowed by no more than one of these, each as likely: the more, the rarer.
_SLOWER = {"clock": (1.4, 2.0), "busy": (1.4, 2.0, 4.0, 8.0)}
_FIXED = 0.15  # a file that is fixed to its sizes runs at no others: of what somebody else measured
_COPIES = ((12e3, 20.0), (2e3, 200.0))  # bytes in a µs, and µs: pinned memory, then pageable
_HOST_LAUNCH_US = 10.0  # of a kernel that a slow host enqueues
_LEAST_SD, _ANY = 0.03, math.log(1e6)  # of ln(latency): no clock, and no reader, is nearer


@dataclass(frozen=True)
class _Case:
    """A suspect before it is weighed: ``factor`` is the range that it slows the network by."""

    kind: str
    text: str
    latency_us: float
    log_sd: float
    factor: tuple[float, float] = (1.0, 1.0)

    def density(self, measured_us: float) -> float:
        """Of ln(latency) at what was measured."""
        low, high = (math.log(measured_us / self.latency_us / f) for f in reversed(self.factor))
        error = NormalDist(0, self.log_sd)
        return (error.cdf(high) - error.cdf(low)) / (high - low) if low < high else error.pdf(low)


def explain(predictor: Any, source: Any, measured_us: float, query: Query) -> Explanation:
    """See ``Predictor.explain``."""
    if not 0 < measured_us < math.inf:
        raise InputError(f"measured_us={measured_us!r} is no latency: give microseconds")
    opened = Item(source).opened(query)

    def predict(target: Target | None = None, **sizes: Any) -> Estimate:
        chosen = {"batch": query.batch, "shapes": query.shapes, **sizes}
        if target is None:
            result: Estimate = predictor.predict(source, describe=not sizes, **chosen)
            return result
        with type(predictor)(target, store=predictor.store.url, measure="never") as other:
            other.sessions.first.data.given = predictor.sessions.first.data.given
            result = other.predict(source, **chosen)
            return result

    estimate = predict()
    base, own = _case("as predicted", "as predicted", estimate), predictor.target
    cases, ratio = [base], measured_us / base.latency_us
    for kind, text, target, sizes, work in _circumstances(own, opened, estimate.batch, ratio):
        if target == own or sizes.get("batch") == estimate.batch or work == 1:
            continue
        try:
            case = _case(kind, text, predict(target, **sizes))
            is_slower = case.latency_us > base.latency_us
            if kind != "power mode" or _is_slower(target, own) == is_slower:
                cases.append(case)  # else they rest on tables of which each has its own constant
        except HybridlatError:
            if work:  # of a file that is fixed to its size: its work grows so
                us = work * base.latency_us
                cases.append(
                    replace(base, kind=kind, text=f"{text} (by its pixels)", latency_us=us)
                )
    cases += _beside(base, estimate, opened, own.threads is None)
    nothing = PRIORS["nothing"] / _ANY
    suspects, z = [], normal_quantile(estimate.confidence)
    images = [sizes for sizes in opened.file.parsed.input_sizes.values() if len(sizes) > 2]
    for kind, prior in PRIORS.items():
        alike = [case for case in cases if case.kind == kind]
        axes = {"batch": slice(1), "size": slice(2, None)}.get(kind)
        if axes is not None and not any(None in sizes[axes] for sizes in images):
            prior *= _FIXED
        weights = [prior / len(alike) * case.density(measured_us) for case in alike]
        if alike:
            best = alike[weights.index(max(weights))]
            reach, (least, most) = math.exp(z * best.log_sd), best.factor
            ends = best.latency_us / reach * least, best.latency_us * reach * most
            suspects.append(Suspect(kind, best.text, ends, sum(weights)))
    total = sum(one.probability for one in suspects) + nothing
    ranked = sorted(suspects, key=lambda one: -one.probability)
    scaled = [replace(one, probability=one.probability / total) for one in ranked]
    return Explanation(estimate, measured_us, tuple(scaled), nothing / total)


def _case(kind: str, text: str, estimate: Estimate) -> _Case:
    low_us, high_us = estimate.low_us or 0.0, estimate.finite_high_us or 0.0
    if not estimate.latency_us or not 0 < low_us <= high_us:
        raise InputError(f"{estimate.network} has no latency on {estimate.target} to compare with")
    spread = math.log(high_us / low_us) / 2 / normal_quantile(estimate.confidence)
    return _Case(kind, text, estimate.latency_us, math.hypot(spread, _LEAST_SD))


def _is_slower(target: Target | None, own: Target) -> bool:
    """Whether a board's mode has the lower clock."""
    clocks = [device_sheets.load(one.device).clock_hz for one in (target or own, own)]
    return clocks[0] < clocks[1]


def _circumstances(
    target: Target, opened: Opened, batch: int, ratio: float
) -> Iterator[tuple[str, str, Target | None, dict[str, Any], float]]:
    """What the predictor can be asked for: kind, words, target, sizes, and how much more work."""
    if target.threads is None:
        for precision in ("fp32", "fp16", "int8"):
            text = f"computed in {precision.upper()}"
            yield "precision", text, replace(target, precision=precision), {}, 0.0
        for name in device_sheets.names():
            if MODE.sub("", name) == MODE.sub("", target.device):
                yield "power mode", f"the mode of {name}", replace(target, device=name), {}, 0.0
    else:
        for threads in (1, 2, 4, 8):
            text = f"with {threads} thread{'s' * (threads > 1)}"
            yield "threads", text, replace(target, threads=threads), {}, 0.0
    low, high = ratio / 4, ratio * 10  # of work, that the latency may come of
    for other in _BATCHES:
        if low < other / batch < high:
            yield "batch", f"at batch {other}", None, {"batch": other}, 0.0
    now = {name: opened.network().types[name].shape for name in opened.network().inputs}
    for size in _SIZES:
        with suppress(InputError):
            shapes = {**now, **image_shapes(opened, size)}
            work = math.prod(chain(*shapes.values())) / math.prod(chain(*now.values()))
            if low < work < high:
                yield "size", f"at size {size}", None, {"shapes": shapes}, work


def _beside(base: _Case, estimate: Estimate, opened: Opened, is_gpu: bool) -> Iterator[_Case]:
    """What comes on top of the prediction: copies, launches, a lower clock, other programs."""
    for kind, text in (("busy", "another program beside it"), ("clock", "a lower clock")):
        yield from (replace(base, kind=kind, text=text, factor=(1.05, x)) for x in _SLOWER[kind])
    if is_gpu:
        kernels, us = sum(len(cell.ops) * cell.uses for cell in estimate.cells), base.latency_us
        copied = copied_bytes(opened.network())
        pinned, pageable = (1 + (copied / rate + start_us) / us for rate, start_us in _COPIES)
        slowest = max(_HOST_LAUNCH_US * kernels / us, 1.01)
        yield replace(base, kind="host copies", text="with copies from and to the host",
                      factor=(pinned, pageable))  # fmt: skip
        yield replace(base, kind="launches", text=f"waiting for the host's {kernels} launches",
                      factor=(1.0, slowest))  # fmt: skip
