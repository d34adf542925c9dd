"""What an estimate warns of, the worst first: a sentence each, with the command that helps."""

import math
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hybridlat.engines import device_sheets, registry
from hybridlat.engines.host import cpu
from hybridlat.estimate.belief import MOST_RATIO, SWITCHED_OFF, Belief, Request
from hybridlat.estimate.compose import target_composition
from hybridlat.estimate.compose.target_composition import LARGE_SHARE
from hybridlat.estimate.gate import MeasurementPlan
from hybridlat.estimate.lookup.target_data import TargetData
from hybridlat.estimate.predict.source import Origin
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.measurement import MachineLoad
from hybridlat.schema.names import engine_text
from hybridlat.schema.shown import count_text, latency_text, part_text
from hybridlat.schema.structure import EstimateWarning, WarningCode, half_width_share
from hybridlat.schema.target import Target

_ENOUGH_NETWORKS = 10  # of its own: an interval no longer says whose it is
_NARROW = ("measured", "good")
_MOST_NAMED = 3
_UNLIKE = 2.0  # so many times as wide as is typical of the target
_HOST_SHARE = 0.3  # of the latency: there it makes nearly half of the variance on an L4
Warnings = Iterator[EstimateWarning]


def warnings_of(
    request: Request,
    data: TargetData,
    belief: Belief,
    estimate: Estimate,
    load: MachineLoad | None,  # of the machine while it measured, unless it was quiet
    plan: MeasurementPlan | None,
) -> tuple[EstimateWarning, ...]:
    """All warnings of an estimate; ``plan`` is what the gate would measure next, if that helps."""
    # An operator of ONNX without a fusion rule (pooling, softmax) is its own kernel anyway.
    about = [w for w in request.partition.warnings if "no fusion rule covers" not in w or "::" in w]
    return (
        *_of_missing_cells(request, data.target, estimate),
        *_of_measurements(request, data.target, belief, load),
        *[sentence("file", text) for text in about],
        *[sentence("model-unreadable", text) for text in data.model_warnings],
        *([] if belief.exact is not None else _of_predictions(request, data, belief, estimate)),
        *_of_pace(data),
        *(_ways_to_measure(request, data.target, plan) if plan and not estimate.left_out else ()),
    )


def sentence(code: WarningCode, text: str, fix: str = "") -> EstimateWarning:
    """A warning whose text is made a sentence."""
    whole = text if text.endswith((".", "?")) else f"{text}."
    return EstimateWarning(code, whole[:1].upper() + whole[1:], fix)


def _command(verb: str, request: Request, target: Target, more: str = "") -> str:
    name = shlex.quote(request.file.word)
    if verb in ("measure", "plan"):  # a board has a version of its own, unless the user has said it
        target = replace(target, runtime=request.runtime or target.runtime)
        target = registry.board_target(target)
    for tensor, shape in request.bound.items():
        name += f" --shape {shlex.quote(tensor)}:{'x'.join(map(str, shape))}"
    return f"hybridlat {verb} {name} --target {target}{more}"


def _of_missing_cells(request: Request, target: Target, estimate: Estimate) -> Warnings:
    missing = [cell for cell in estimate.cells if cell.source == "unsupported"]
    if not missing or estimate.source == "measured":
        return
    have = count_text(len(missing), "cell", "has", "have")
    reasons = "; ".join(dict.fromkeys(cell.reason for cell in missing if cell.reason))
    why = f" ({reasons})" if reasons else ""
    rest = "" if estimate.latency_us is None else ", so the network takes longer than the others do"
    yield sentence("missing-cells", f"{have} no latency{why}{rest}")
    if target.device not in device_sheets.names():
        fix = _command("predict", request, target, " --device-sheet FILE.toml")
        text = f"no data sheet describes {target.device}"
        yield sentence("no-data-sheet", text, fix)


def _of_measurements(
    request: Request, target: Target, belief: Belief, load: MachineLoad | None
) -> Warnings:
    again = ""
    if _is_planned(target):
        again = _command("measure", request, target, " --remeasure --host USER@HOST")
    elif registry.can_measure(target):
        again = _command("predict", request, target, " --measure always")
    if load is not None:
        yield sentence("busy", load.sentence, again)
    excess_share, exact = belief.disagreement, belief.exact
    if excess_share is not None and exact is not None and load is None:
        cells_us = exact.latency_us / (1 + excess_share)
        text = (
            f"the network took {latency_text(exact.latency_us)} as a whole and "
            f"{latency_text(cells_us)} by its cells, so one of the two was disturbed"
        )
        yield sentence("contradicted", text, again)
    elif exact is not None and exact.is_contradictory:
        text = f"{exact.times} records of the network contradict each other"
        yield sentence("contradicted", text, f"hybridlat store forget --target {target}")


def _is_planned(target: Target) -> bool:
    return target.engine == "tensorrt" and target.precision in registry.PLANNED


def _of_predictions(
    request: Request, data: TargetData, belief: Belief, estimate: Estimate
) -> Warnings:
    predicted = [i for i, cell in enumerate(estimate.cells) if cell.source == "predicted"]
    origins = [*filter(None, map(belief.priors.origins.get, predicted))]
    width = half_width_share(estimate.latency_us, estimate.interval_us)
    for origin, _ in Counter(origins).most_common():
        yield EstimateWarning(origin.code, origin.text)
    if estimate.grade not in _NARROW:
        yield from _of_distance(estimate, width, origins)
        if any(origin.typical_share for origin in origins):
            yield sentence("known-network", "a latency known there narrows this: --known NET=1.2ms")
    strange = [c for c in map(estimate.cells.__getitem__, predicted) if not c.trusted]
    if strange:
        are = f"{count_text(len(strange), 'cell', 'is', 'are')} unlike all that was measured"
        yield sentence("unlike-known", f"{are} ({strange[0].reason})")
    if belief.whole is not None and not estimate.busy:
        text = f"a measurement of this network is used as a hint only ({belief.whole.basis})"
        yield sentence("network-hint", text)
    yield from _of_physics(belief, estimate.latency_us)
    # The family, or another target that answered, is named as the cells' origin.
    if belief.priors.composition is None and estimate.cells and not estimate.busy:
        yield from _of_interval(data)
    is_aimed = request.measure is not None and request.tolerance_given and estimate.supported
    if is_aimed and not estimate.within_tolerance and width is not None:
        text = f"measuring more cells cannot narrow the interval below ±{100 * width:.1f} %"
        yield sentence("tolerance-out-of-reach", text)


def _of_distance(estimate: Estimate, width: float | None, origins: Sequence[Origin]) -> Warnings:
    ranges, batch = {origin.batches for origin in origins}, estimate.batch
    known = next(iter(ranges)) if len(ranges) == 1 else None
    typical = min((o.typical_share for o in origins if o.typical_share is not None), default=None)
    code: WarningCode = "batch-outside"
    if known is not None and not known[0] <= batch <= known[1]:
        there = str(known[0]) if known[0] == known[1] else f"{known[0]} – {known[1]}"
        why = f"measurements are known at batch {there}, not {batch}"
    elif typical is None or width is None or width <= _UNLIKE * typical:
        return
    elif estimate.beside_share > _HOST_SHARE:
        part = part_text(estimate.beside_share)
        code, why = "host", f"a run costs {part} of it beside its kernels, by an unknown host"
    else:
        why = "the kernels are unlike those of networks known here, "
        code, why = "unlike-known", f"{why}where ±{100 * typical:.0f} % is typical"
    yield sentence(code, f"the interval is wide because {why}")


def _of_physics(belief: Belief, latency_us: float | None) -> Warnings:
    if latency_us is None or not math.isfinite(latency_us):
        return
    best_us, least_us = belief.priors.best_us, belief.priors.least_us
    ratio, needs = latency_us / best_us if best_us else 1.0, ""
    if not 1 / MOST_RATIO <= ratio <= MOST_RATIO:
        times = f"{ratio:.0f} times" if ratio > 1 else f"only {100 * ratio:.2g} % of"
        needs = f"{times} the {latency_text(best_us)} that device and host need by peak, bandwidth "
        needs += "and launch time"
    elif latency_us < least_us:
        needs = f"below the {latency_text(least_us)} that the device needs by its peak and "
        needs += "bandwidth"
    if needs:
        text = f"the estimate is {needs}: do not rely on it without a measurement"
        yield sentence("beyond-physics", text)
    if unknown := belief.priors.unknown_work:
        names = " and ".join(unknown[:_MOST_NAMED]) + " …" * (len(unknown) > _MOST_NAMED)
        text = f"how much {names} computes cannot be told from shapes: the estimate may be off by "
        yield sentence("beyond-physics", f"{text}an order of magnitude")


def _of_interval(data: TargetData) -> Warnings:
    """Whose interval it is, unless whole networks of this target tell."""
    own = target_composition.composition_of(data).networks
    if target_composition.own_composition(data) is None and own < _ENOUGH_NETWORKS:
        lender, _ = target_composition.lent_composition(data)
        lent = f"the interval of {lender}, widened" if lender else "a first guess"
        networks = count_text(own, "whole network") if own else "no whole network"
        text = f"the interval rests on {lent}, with {networks} measured on {data.target} yet"
        yield sentence("uncalibrated", text)


def _of_pace(data: TargetData) -> Warnings:
    share = target_composition.pace_drift(data).share
    if share > LARGE_SHARE:
        text = f"this machine's pace varies by ±{100 * share:.0f} % from run to run, which the "
        yield sentence("pace", f"{text}interval includes")


def _ways_to_measure(request: Request, target: Target, plan: MeasurementPlan) -> Warnings:
    """The commands that would narrow the interval, with what they cost."""
    if not registry.can_measure(target):
        at = f" at {target.precision}" if registry.refuses(target) else ""
        text = f"nothing measures {engine_text(target.engine)}{at} yet: import timings of your own"
        fix = f"hybridlat import TABLE.csv --nets DIR --target {target}"
        yield sentence("cannot-measure", text, fix)
        return
    if _is_planned(target):  # there it is measured whole, in no more time than its cells
        text = "measuring it over ssh, some minutes, takes the place of this estimate"
        fix = _command("measure", request, target, " --network --host USER@HOST")
        yield sentence("to-measure", text, fix)
        folder = _command("plan", request, target, " --network -o plan")
        yield sentence("plan", "or take a folder there and run it", folder)
        return
    here = target.device == cpu().name
    if here and request.why_not != SWITCHED_OFF:
        yield sentence("cannot-measure", f"nothing was measured: {request.why_not}")
    else:
        there = "" if here else f" on {target.device}"
        cost = f"about {plan.cost_s / 60:.0f} min" if plan.cost_s >= 30 else "some seconds"
        text = f"measuring {count_text(len(plan.positions), 'cell')}{there}, {cost}, would narrow "
        text += f"this to about ±{max(100 * plan.half_width_share, 1):.0f} %"
        yield sentence("to-measure", text, _command("predict", request, target))
