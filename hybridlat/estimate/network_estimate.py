"""From cells to an estimate: look up, predict, let the gate measure, compose."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hybridlat.engines import registry
from hybridlat.errors import StoreError
from hybridlat.estimate import gate, priors
from hybridlat.estimate.composition import Composition, NetworkInterval, normal_quantile
from hybridlat.estimate.fallback import fill_in
from hybridlat.estimate.family_prior import FamilyAnswer
from hybridlat.estimate.posterior import CellPrior, ErrorPosterior
from hybridlat.schema.estimate import CellEstimate, CellPrediction, Estimate, LatencySource
from hybridlat.schema.structure import Structure

if TYPE_CHECKING:
    from hybridlat.estimate.partition import Partition
    from hybridlat.estimate.target_data import TargetData
    from hybridlat.graph.network import Network
    from hybridlat.onnx_io import OnnxFile
    from hybridlat.store import LatencyStats

_log = logging.getLogger(__name__)
MeasureCells = Callable[["OnnxFile", "Partition", Sequence[str]], None]


@dataclass(frozen=True)
class Request:
    """One network to be answered for, and what the answer has to be like.

    ``measure`` None means that nothing may be measured, and ``why_not`` says why in the warnings;
    ``remeasure`` measures every cell, known or not. ``started`` is the ``time.perf_counter()`` at
    which the call began; ``network`` reads the file's network, where more than its cells is asked
    for. ``describe`` asks for what the cells are made of too.
    """

    file: OnnxFile
    partition: Partition
    network: Callable[[], Network]
    tolerance: float
    confidence: float
    measure: MeasureCells | None = None
    remeasure: bool = False
    why_not: str = ""
    started: float = 0.0
    describe: bool = False


@dataclass
class _State:
    """How far an answer has got: what is believed of the cells, and what measuring came to.

    ``kin`` is what the engine's family said, where it was asked.
    """

    composition: Composition
    posterior: ErrorPosterior
    predicted: Mapping[str, CellPrediction]
    failures: dict[int, str]
    fresh: set[str] = field(default_factory=set)
    kin: FamilyAnswer | None = None


def estimate_network(request: Request, data: TargetData) -> Estimate:
    """The estimate of one network from what is known of its target."""
    hashes = [use.signature for use in request.partition.uses]
    fresh: set[str] = set()
    if request.remeasure and request.measure is not None:
        request.measure(request.file, request.partition, hashes)
        fresh.update(hashes)
    known = data.known(hashes)
    rows, predicted, kin = _priors(request, data, known)
    composition = _composition(request, data, kin)
    failures = {
        i: known[h].failure or "it could not be measured"
        for i, h in enumerate(hashes)
        if h in known and known[h].latency_us is None
    }
    state = _State(composition, composition.start(rows), predicted, failures, fresh, kin)
    if request.measure is not None:
        _let_the_gate_measure(request, request.measure, data, state)
    return _estimate(request, data, state)


def _let_the_gate_measure(
    request: Request, measure: MeasureCells, data: TargetData, state: _State
) -> None:
    """Measure what the gate asks for until it asks no more."""
    hashes = [use.signature for use in request.partition.uses]
    while chosen := gate.choose(
        state.posterior, state.composition, request.tolerance, state.failures.keys()
    ):
        wanted = [hashes[i] for i in chosen]
        measure(request.file, request.partition, wanted)
        # The first measurement on a machine also tells what entering its engine costs.
        state.composition = _composition(request, data, state.kin)
        state.fresh.update(wanted)
        stats = data.known(wanted)
        news: dict[int, tuple[float, float]] = {}
        for i in chosen:
            record = stats.get(hashes[i])
            if record is None or record.latency_us is None:
                reason = record.failure if record else None
                state.failures[i] = reason or "it was not measured in time"
            else:
                news[i] = (record.latency_us, record.spread_share)
        state.posterior = state.posterior.observe(news)


def _composition(request: Request, data: TargetData, kin: FamilyAnswer | None) -> Composition:
    """The target's own constants and width, else those of the family that was asked."""
    if kin is not None and not data.has_composition:
        return kin.composition()
    return data.composition.at(request.confidence)


def _priors(
    request: Request, data: TargetData, known: Mapping[str, LatencyStats]
) -> tuple[list[CellPrior], dict[str, CellPrediction], FamilyAnswer | None]:
    """What the gate starts from: records, for the rest what the model says, else the fallback.

    With it what the family of the engine said, None where it was not asked.
    """
    partition = request.partition
    missing = [use.signature for use in partition.uses if use.signature not in known]
    predicted: dict[str, CellPrediction] = {}
    texts: Mapping[str, str] = {}
    model = data.model if missing else None
    if model is not None:
        # A measured cell's text matters only beside predicted ones, which it teaches about.
        texts = data.texts(partition, [use.signature for use in partition.uses])
        predictions = model.predict([texts[h] for h in missing])
        predicted = dict(zip(missing, predictions, strict=True))
    levels = dict.fromkeys(predicted, model.confidence if model is not None else 0.0)
    kin: FamilyAnswer | None = None
    if any(h not in predicted or predicted[h].latency_us is None for h in missing):
        filled, kin = _from_elsewhere(request, data, predicted, missing)
        predicted.update(filled)
        levels.update(dict.fromkeys(filled, request.confidence))
        texts = data.texts(partition, [use.signature for use in partition.uses])
    rows = []
    for use in partition.uses:
        record, guess = known.get(use.signature), predicted.get(use.signature)
        text = texts.get(use.signature)
        if record is not None and record.latency_us is not None:
            rows.append(
                priors.measured(
                    use.signature, text, use.count, record.latency_us, record.spread_share
                )
                if text is not None
                else CellPrior(
                    use.signature, use.count, record.latency_us, record.spread_share,
                    source="measured",
                )
            )  # fmt: skip
        elif guess is not None and text is not None:
            level = levels[use.signature]
            rows.append(priors.predicted(use.signature, text, use.count, guess, level))
        else:
            rows.append(CellPrior(use.signature, use.count, None, 1.0, trusted=False))
    return rows, predicted, kin


def _from_elsewhere(
    request: Request,
    data: TargetData,
    own: Mapping[str, CellPrediction],
    missing: Sequence[str],
) -> tuple[dict[str, CellPrediction], FamilyAnswer | None]:
    """What other targets and the device's data sheet say of cells that nobody here can speak for.

    On a machine that can measure them only the family speaks: a guess is not worth its doubt where
    the cell itself can be asked.
    """
    fallback = data.fallback
    if fallback is None or (request.measure is not None and fallback.family is None):
        return {}, None
    texts = data.texts(request.partition, [use.signature for use in request.partition.uses])
    uses = [(u.signature, texts[u.signature], u.count) for u in request.partition.uses]
    copied_bytes = 0.0
    if fallback.copies:
        network = request.network()
        outside = (*network.inputs, *network.outputs)
        copied_bytes = float(sum(network.type_of(name).bytes for name in outside))
    return fill_in(fallback, uses, own, missing, copied_bytes, request.confidence)


def _estimate(request: Request, data: TargetData, state: _State) -> Estimate:
    posterior, partition = state.posterior, request.partition
    interval = state.composition.interval(posterior)
    rows = _rows(request, state)
    supported = all(row.source != "unsupported" for row in rows)
    something = posterior.sum_us > 0
    tight = interval.half_width_share <= request.tolerance
    within = supported and not posterior.required and tight
    to_measure: tuple[str, ...] = ()
    if not within and request.measure is None:
        plan = gate.plan(posterior, state.composition, request.tolerance, state.failures.keys())
        to_measure = tuple(partition.uses[i].signature for i in plan.positions)
    return Estimate(
        network=request.file.name,
        target=str(data.target),
        batch=partition.batch,
        latency_us=interval.latency_us if something else None,
        interval_us=interval.interval_us if something else None,
        confidence=request.confidence,
        within_tolerance=within,
        sum_of_cells_us=posterior.sum_us,
        measured_share=posterior.measured_share,
        measured_now=len(state.fresh),
        elapsed_s=time.perf_counter() - request.started,
        cells=rows,
        removed=tuple(request.file.node_names[i] for i in _removed(request)),
        constants=len(request.file.constant_nodes.intersection(partition.removed)),
        to_measure=to_measure,
        tolerance=request.tolerance,
        structure=_structure(request, data) if request.describe else None,
        warnings=(
            *data.warnings,
            *partition.warnings,
            *_about_cells(
                request, rows, interval, within, data.target.engine if to_measure else ""
            ),
            *_about_origins(rows),
            *_about_interval(data, state.kin),
        ),
    )


def _removed(request: Request) -> list[int]:
    """Operators that the engine does not run, those that only make constants last."""
    constants = request.file.constant_nodes
    return sorted(request.partition.removed, key=lambda position: position in constants)


def _structure(request: Request, data: TargetData) -> Structure | None:
    """What the cells are made of; None where the store has lost the text of one."""
    from hybridlat.estimate.known_device import known_device
    from hybridlat.estimate.network_structure import network_structure

    hashes = [use.signature for use in request.partition.uses]
    try:
        texts = data.texts(request.partition, hashes)
        ordered = [texts[h] for h in hashes]
        device = known_device(data.target, data.store)
        return network_structure(
            request.file, request.partition, ordered, device, data.target.precision
        )
    except (StoreError, ValueError) as error:
        _log.warning("%s is not drawn: %s", request.file.name, error)
        return None


def _about_cells(
    request: Request,
    rows: Sequence[CellEstimate],
    interval: NetworkInterval,
    within: bool,
    engine: str,
) -> list[str]:
    """What keeps the estimate from its tolerance, and what its latency leaves out.

    ``engine`` would have to measure cells; empty where none would help.
    """
    missing = sum(row.source == "unsupported" for row in rows)
    warnings = []
    if engine:
        warnings.append(f"nothing was measured: {request.why_not}")
        if engine in registry.backends():
            warnings.append(
                "to measure what is needed: --measure auto on that machine, or hybridlat plan here"
            )
    if not within and request.measure is not None and not missing:
        warnings.append(
            f"the interval stays at ±{100 * interval.half_width_share:.1f} % with every cell "
            f"measured, wider than the tolerance of {100 * request.tolerance:.1f} %"
        )
    if missing:
        have = "cell has" if missing == 1 else "cells have"
        warnings.append(f"{missing} {have} no latency: the latency given is that of the others")
    return warnings


def _about_interval(data: TargetData, kin: FamilyAnswer | None) -> list[str]:
    """Where the interval comes from, unless it is from whole networks of this target."""
    if kin is not None and not data.has_composition:
        return []  # it is that of the family, which is named as the cells' origin
    if data.borrowed is not None:
        return [
            f"the interval is that of {data.borrowed[0]}: whole networks were not measured on "
            f"{data.target} yet"
        ]
    if not data.composition.networks:
        return ["the interval is not calibrated on whole networks of this target yet"]
    return []


def _about_origins(rows: Sequence[CellEstimate]) -> list[str]:
    """What predictions rest on that are not the target's own model's, and how many they are."""
    others = Counter(r.reason for r in rows if r.source == "predicted" and r.trusted and r.reason)
    return [
        f"{count} {'cell is' if count == 1 else 'cells are'} {reason}"
        for reason, count in others.items()
    ]


def _rows(request: Request, state: _State) -> tuple[CellEstimate, ...]:
    posterior, file, why_not = state.posterior, request.file, request.why_not
    total = posterior.sum_us
    z = normal_quantile(request.confidence)
    rows = []
    for i, use in enumerate(request.partition.uses):
        latency: float | None = float(posterior.latencies_us[i])
        source: LatencySource = "measured" if posterior.is_measured(i) else "predicted"
        reason, trusted = "", True
        interval = None
        guess = state.predicted.get(use.signature)
        if latency is None or math.isnan(latency):
            latency, source = None, "unsupported"
            reason = state.failures.get(i) or (guess.reason if guess else "") or (
                f"it was never measured, and {why_not}" if why_not else "it was never measured"
            )  # fmt: skip
        else:
            spread = math.sqrt(max(float(posterior.covariance[i, i]), 0.0))
            factor = math.exp(min(z * spread, 20.0))
            interval = (latency / factor, latency * factor)
            if source == "predicted" and guess is not None:
                reason, trusted = guess.reason, guess.trusted
        rows.append(
            CellEstimate(
                signature=use.signature,
                ops=use.ops,
                nodes=tuple(file.node_names[n] for n in use.nodes),
                count=use.count,
                latency_us=latency,
                interval_us=interval,
                share=float(posterior.uses_us[i]) / total if total > 0 else 0.0,
                source=source,
                reason=reason,
                trusted=trusted,
            )
        )
    return tuple(rows)
