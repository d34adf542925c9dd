"""``Predictor.explain``: which circumstance makes a network take what somebody measured.

Each suspect is predicted as the network itself is. Of several, the one under which the measured
latency is likelier is the likelier one (Bayes' rule). Most weigh alike: no one has counted how
often people meet them. A clock or another program may slow a network by any factor of a range. So
each single factor is less likely (Occam's factor: MacKay, "Information Theory, Inference, and
Learning Algorithms", 2003, chapter 28).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import NormalDist
from typing import Any

from hybridlat.api.arguments import Item, Opened, Query
from hybridlat.api.explain_log import REPLAYED, Circumstance, Run, clock_hz, modes_of, read_run
from hybridlat.api.questions import image_shapes
from hybridlat.errors import HybridlatError, InputError, NetworkError
from hybridlat.measuring.tables import plain_name
from hybridlat.model.conformal import normal_quantile
from hybridlat.onnx_io import Shapes
from hybridlat.report.explain import Explanation, Stated, Suspect, check_of
from hybridlat.report.units import count_text, latency_text, why_untrusted
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.plugins import shipped_table
from hybridlat.schema.shown import number_of
from hybridlat.schema.target import Target

PRIORS: Mapping[str, float] = shipped_table("explain")["priors"]
_SIZES = (128, 160, 192, 224, 256, 288, 320, 384, 416, 448, 512, 640, 768, 960, 1024, 1280)
# A network is slowed by no more than one of these, each as likely: the more, the rarer.
_SLOWER = {"clock": (1.4, 2.0), "busy": (1.4, 2.0, 4.0, 8.0)}
_OPTIONS = (0.25, 8.0)  # what an option of a run may do to it
_NOTED = 0.01  # copies of less are no circumstance
_COPIES = ((12e3, 20.0), (2e3, 200.0))  # bytes in a µs, and µs: pinned memory, then pageable
_HOST_LAUNCH_US = 10.0  # of a kernel that a slow host enqueues
_LEAST_SD, _ANY = 0.03, math.log(1e6)  # of ln(latency): no clock, and no reader, is nearer


@dataclass(frozen=True)
class _Case:
    """A suspect before it is weighed, slowed by a range of ``factor``."""

    kind: str
    text: str
    latency_us: float
    log_sd: float
    factor: tuple[float, float] = (1.0, 1.0)

    def density(self, run: Run) -> float:
        """Of ln(latency) at what was measured, and of what else its log says."""
        low, high = (math.log(run.gpu_us / self.latency_us / f) for f in reversed(self.factor))
        error, odds = NormalDist(0, self.log_sd), run.odds(self.kind)
        within = error.cdf(high) - error.cdf(low)
        return odds * (within / (high - low) if low < high else error.pdf(low))


def explain(
    predictor: Any, source: Any, measured: float | str | os.PathLike[str], query: Query
) -> Explanation:
    """See ``Predictor.explain``."""
    own: Target = predictor.target
    if isinstance(measured, str | os.PathLike):
        run = read_run(Path(measured), own)
    else:
        run = Run(number_of(measured), own)
    if not 0 < run.gpu_us < math.inf:
        raise InputError(f"measured_us={measured!r} is no latency: give microseconds")
    file = Item(source, example=query.example).opened(query, predictor.sessions.recall).file

    def predict(target: Target, query: Query, is_replayed: bool = False) -> Any:
        how: dict[str, Any] = {"batch": query.batch, "shapes": query.shapes}
        if target == predictor.target and not is_replayed:
            return predictor.predict(file, describe=query.describe, **how)
        sheet = predictor.options.device if target.device == predictor.target.device else None
        options: Any = {"store": predictor.store.url, "measure": "never", "device": sheet}
        with type(predictor)(target, **options) as other:
            other.sessions.first.data.user_networks = predictor.sessions.first.data.user_networks
            other.sessions.first.data.is_replayed = is_replayed
            return other.predict(file, **how)

    def case_of(one: Circumstance) -> _Case | None:
        try:
            by_graph = replayed or one.is_replayed
            case = _case(one.kind, one.text, predict(one.target, one.query, by_graph))
            return replace(case, latency_us=grown * case.latency_us)
        except HybridlatError:  # of a file that is fixed to its size: its latency grows with work
            if one.kind == "threads":  # no one has measured so many: they save all, or nothing
                ends = sorted((1.0, (own.threads or 1) / (one.target.threads or 1)))
                return replace(base, kind=one.kind, text=one.text, factor=(ends[0], ends[1]))
            us, text = one.work * base.latency_us, f"{one.text} (by its work)"
            by_work = replace(base, kind=one.kind, text=text, latency_us=us)
            return by_work if us and one.kind == "size" else None

    grown, stated, copies_us, replayed = 1.0, list[Stated](), run.copies_us, False
    try:
        estimate = predict(own, replace(query, describe=True))
    except NetworkError:  # sizes that the file leaves open are those of the run
        if not run.log.shapes or query.batch or query.shapes:
            raise
        query = replace(query, shapes=run.log.shapes)
        estimate = predict(own, replace(query, describe=True))
    base = _case("as predicted", "as predicted", estimate)
    for one in run.stated(own, query, file.inputs(query.batch, query.shapes)):
        changed = case_of(one) or base
        stated.append(Stated(one.kind, one.text, changed.latency_us))
        if changed.text == one.text:
            own, query, replayed = one.target, one.query, replayed or one.is_replayed
        else:
            grown *= changed.latency_us / base.latency_us
        base = replace(changed, kind="as predicted", text="as the log states")
    called = run.log.names[0] if "" not in run.log.names else ""
    if plain_name(called) not in ("", plain_name(file.label)):
        stated.append(Stated("network", f"of the network {called}", base.latency_us))
    if run.enqueue_us > base.latency_us:
        base = replace(base, latency_us=run.enqueue_us)
        stated.append(Stated("launches", "bound by the host's enqueueing", base.latency_us))
    if copies_us > _NOTED * run.gpu_us:
        text = f"{latency_text(copies_us)} of copies from and to the host"
        stated.append(Stated("host copies", text, base.latency_us + copies_us))
    opened = Opened(file, query.batch, query.shapes)
    now, copied = file.inputs(query.batch, query.shapes), opened.network().copied_bytes
    cases = [base, *_beside(base, estimate, copied, own.threads is None)]
    for one in _circumstances(own, opened, now, query, run.gpu_us / base.latency_us):
        same = (own, query.batch, query.shapes) == (one.target, one.query.batch, one.query.shapes)
        is_open = one.kind not in run.settled and (one.is_replayed or not same)
        case = case_of(one) if is_open else None
        if case and one.kind == "power mode":  # tables of modes have each its own constant
            agrees = (clock_hz(one.target) < clock_hz(own)) == (case.latency_us > base.latency_us)
            case = case if agrees and run.allows(one.target) else None
        if case and replace(case, kind=base.kind, text=base.text) != base:
            cases.append(case)  # else it changes nothing
    if (refusal := run.log.objection) is not None:
        text = f"{refusal.reason} ({refusal.value})"
        cases.append(replace(base, kind="options", text=text, factor=_OPTIONS))
    suspects = _weighed(cases, run, normal_quantile(estimate.confidence))
    nothing = PRIORS["nothing"] / _ANY
    total = sum(one.probability for one in suspects) + nothing
    ranked = sorted(suspects, key=lambda one: -one.probability)
    scaled = tuple(replace(one, probability=one.probability / total) for one in ranked)
    us = run.gpu_us + copies_us
    return Explanation(estimate, us, scaled, nothing / total, tuple(stated), run.spread)


def _weighed(cases: Sequence[_Case], run: Run, z: float) -> list[Suspect]:
    """Of each kind the likeliest case, with the weight of all; ``z``: the interval's quantile."""
    suspects = []
    for kind, prior in PRIORS.items():
        alike = [case for case in cases if case.kind == kind not in run.settled]
        if not alike:
            continue
        weights = [prior / len(alike) * case.density(run) for case in alike]
        best = alike[weights.index(max(weights))]
        reach, (least, most) = math.exp(z * best.log_sd), best.factor
        low_us, high_us = best.latency_us / reach * least, best.latency_us * reach * most
        ends_us = low_us + run.copies_us, high_us + run.copies_us
        suspects.append(Suspect(kind, best.text, ends_us, sum(weights), check_of(kind, run.target)))
    return suspects


def _case(kind: str, text: str, estimate: Estimate) -> _Case:
    low_us, high_us = estimate.low_us or 0.0, estimate.finite_high_us or 0.0
    if not estimate.latency_us or not 0 < low_us <= high_us:
        raise InputError(
            f"no latency of {estimate.network} on {estimate.target} is known to compare with "
            f"({why_untrusted(estimate)}): measure it first, by `hybridlat measure`"
        )
    spread = math.log(high_us / low_us) / 2 / normal_quantile(estimate.confidence)
    return _Case(kind, text, estimate.latency_us, math.hypot(spread, _LEAST_SD))


def _circumstances(
    target: Target, opened: Opened, now: Shapes, query: Query, ratio: float
) -> Iterator[Circumstance]:
    if target.threads is None:
        for precision in ("fp32", "fp16", "int8"):
            text, other = f"computed in {precision.upper()}", replace(target, precision=precision)
            yield Circumstance("precision", text, other, query)
        if "tensorrt" in target.runtime:
            yield Circumstance("launches", REPLAYED, target, query, is_replayed=True)
        for other in modes_of(target):
            yield Circumstance("power mode", f"the mode of {other.device}", other, query)
    else:
        for threads in (1, 2, 4, 8):
            text, other = f"with {count_text(threads, 'thread')}", replace(target, threads=threads)
            yield Circumstance("threads", text, other, query)
    low, high = ratio / 4, ratio * 10  # of work, that the latency may come of
    inside = opened.file.batch_inside(query.batch, query.shapes)
    batch = query.batch or inside or next((shape[0] for shape in now.values() if shape), 1)
    for size in (2**power for power in range(9)):  # published tables go to 256
        if size != batch and low < size / batch < high:
            batched = {
                name: (size, *shape[1:]) if shape[:1] == (batch,) else shape
                for name, shape in (query.shapes or {}).items()
            }
            bound = replace(query, batch=size, shapes=batched or None)
            yield Circumstance("batch", f"at batch {size}", target, bound, size / batch)
    for size in _SIZES:
        with suppress(InputError):
            shapes = {**now, **image_shapes(opened, size)}
            work = math.prod(chain(*shapes.values())) / math.prod(chain(*now.values()))
            if work != 1 and low < work < high:
                sized = replace(query, shapes=shapes)
                yield Circumstance("size", f"at size {size}", target, sized, work)


def _beside(base: _Case, estimate: Estimate, copied: float, is_gpu: bool) -> Iterator[_Case]:
    """What comes on top of the prediction: copies, launches, a lower clock, other programs."""
    for kind, text in (("busy", "another program beside it"), ("clock", "a lower clock")):
        yield from (replace(base, kind=kind, text=text, factor=(1.05, x)) for x in _SLOWER[kind])
    if is_gpu:
        kernels, us = sum(len(cell.ops) * cell.uses for cell in estimate.cells), base.latency_us
        pinned, pageable = (1 + (copied / rate + start_us) / us for rate, start_us in _COPIES)
        slowest = max(_HOST_LAUNCH_US * kernels / us, 1.01)
        text = "with copies from and to the host"
        yield replace(base, kind="host copies", text=text, factor=(pinned, pageable))
        text = f"waiting for the host's {kernels} launches"
        yield replace(base, kind="launches", text=text, factor=(1.0, slowest))
