"""From cells to an estimate: look up, predict, let the gate measure, compose."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from hybridlat.estimate import gate, priors
from hybridlat.estimate.composition import Composition, NetworkInterval, normal_quantile
from hybridlat.estimate.posterior import Belief, CellFacts
from hybridlat.schema.estimate import CellEstimate, CellPrediction, Estimate, Source

if TYPE_CHECKING:
    from hybridlat.estimate.partition import Split
    from hybridlat.estimate.target_data import Knowledge
    from hybridlat.onnx_io import OnnxFile
    from hybridlat.store import Known

MeasureCells = Callable[["OnnxFile", "Split", Sequence[str]], None]


def answer(
    file: OnnxFile,
    split: Split,
    knowledge: Knowledge,
    *,
    tolerance: float,
    confidence: float,
    measure: MeasureCells | None,
    anew: bool,
    why_not: str,
    started: float,
) -> Estimate:
    """The estimate of one network; ``measure`` None means that nothing may be measured.

    ``why_not`` says why in the warnings; ``anew`` measures every cell, known or not. ``started``
    is the ``time.perf_counter()`` at which the call began.
    """
    hashes = [use.signature for use in split.uses]
    fresh: set[str] = set()
    if anew and measure is not None:
        measure(file, split, hashes)
        fresh.update(hashes)
    known = knowledge.known(hashes)
    rows, predicted = _facts(split, knowledge, known)
    composition = knowledge.composition.at(confidence)
    belief = composition.start(rows)
    refused = {i for i, h in enumerate(hashes) if h in known and known[h].latency_us is None}
    failures = {i: known[hashes[i]].failure or "it could not be measured" for i in refused}
    while measure is not None:
        chosen = gate.choose(belief, composition, tolerance, refused)
        if not chosen:
            break
        wanted = [hashes[i] for i in chosen]
        measure(file, split, wanted)
        composition = knowledge.composition.at(confidence)
        fresh.update(wanted)
        found = knowledge.known(wanted)
        news: dict[int, tuple[float, float]] = {}
        for i in chosen:
            record = found.get(hashes[i])
            if record is None or record.latency_us is None:
                refused.add(i)
                failures[i] = (record.failure if record else None) or "it was not measured in time"
            else:
                news[i] = (record.latency_us, record.spread_share)
        belief = belief.observe(news)
    return _estimate(
        file, split, belief, composition, predicted, failures, fresh,
        tolerance=tolerance, confidence=confidence, why_not=why_not,
        refused=refused, started=started, may_measure=measure is not None,
        target=str(knowledge.target),
        borrowed=knowledge.borrowed[0] if knowledge.borrowed else None,
        about_model=tuple(knowledge.warnings),
    )  # fmt: skip


def _facts(
    split: Split, knowledge: Knowledge, known: Mapping[str, Known]
) -> tuple[list[CellFacts], dict[str, CellPrediction]]:
    """What the gate starts from: records, and for the rest what the model says."""
    missing = [use.signature for use in split.uses if use.signature not in known]
    predicted: dict[str, CellPrediction] = {}
    texts: Mapping[str, str] = {}
    model = knowledge.model if missing else None
    if model is not None:
        # A measured cell's text matters only beside predicted ones, which it teaches about.
        texts = knowledge.texts(split, [use.signature for use in split.uses])
        found = model.predict([texts[h] for h in missing])
        predicted = dict(zip(missing, found, strict=True))
    rows = []
    for use in split.uses:
        record, guess = known.get(use.signature), predicted.get(use.signature)
        text = texts.get(use.signature)
        if record is not None and record.latency_us is not None:
            rows.append(
                priors.measured(
                    use.signature, text, use.count, record.latency_us, record.spread_share
                )
                if text is not None
                else CellFacts(
                    use.signature, use.count, record.latency_us, record.spread_share,
                    source="measured",
                )
            )  # fmt: skip
        elif guess is not None and text is not None and model is not None:
            rows.append(priors.predicted(use.signature, text, use.count, guess, model.confidence))
        else:
            rows.append(CellFacts(use.signature, use.count, None, 1.0, trusted=False))
    return rows, predicted


def _estimate(
    file: OnnxFile,
    split: Split,
    belief: Belief,
    composition: Composition,
    predicted: dict[str, CellPrediction],
    failures: dict[int, str],
    fresh: set[str],
    *,
    tolerance: float,
    confidence: float,
    why_not: str,
    refused: set[int],
    started: float,
    may_measure: bool,
    target: str,
    borrowed: str | None,
    about_model: tuple[str, ...],
) -> Estimate:
    interval: NetworkInterval = composition.interval(belief)
    rows = _rows(file, split, belief, predicted, failures, confidence, why_not)
    supported = all(row.source != "unsupported" for row in rows)
    something = belief.sum_us > 0
    within = supported and not belief.required and interval.half_width_share <= tolerance
    to_measure: tuple[str, ...] = ()
    warnings = [*about_model, *split.warnings]
    if not within and not may_measure:
        plan = gate.plan(belief, composition, tolerance, refused)
        to_measure = tuple(split.uses[i].signature for i in plan.positions)
        if to_measure:
            warnings.append(f"{len(to_measure)} cells would have to be measured, but {why_not}")
    elif not within and supported:
        warnings.append(
            f"the interval stays at ±{100 * interval.half_width_share:.1f} % with every cell "
            f"measured, wider than the tolerance of {100 * tolerance:.1f} %"
        )
    if not supported:
        count = sum(row.count for row in rows if row.source == "unsupported")
        warnings.append(f"{count} cells have no latency: the latency given is that of the others")
    if borrowed is not None:
        warnings.append(
            f"the interval is that of {borrowed}: whole networks were not measured on {target} yet"
        )
    elif not composition.networks:
        warnings.append("the interval is not calibrated on whole networks of this target yet")
    if split.gone:
        names = ", ".join(file.node_names[i] for i in split.gone)
        warnings.append(f"removed by the engine or folded to constants: {names}")
    return Estimate(
        network=file.name,
        target=target,
        batch=split.batch,
        latency_us=interval.latency_us if something else None,
        interval_us=interval.interval_us if something else None,
        confidence=confidence,
        within_tolerance=within,
        sum_of_cells_us=belief.sum_us,
        measured_share=belief.measured_share,
        measured_now=len(fresh),
        elapsed_s=time.perf_counter() - started,
        cells=rows,
        to_measure=to_measure,
        warnings=tuple(warnings),
    )


def _rows(
    file: OnnxFile,
    split: Split,
    belief: Belief,
    predicted: dict[str, CellPrediction],
    failures: dict[int, str],
    confidence: float,
    why_not: str,
) -> tuple[CellEstimate, ...]:
    total = belief.sum_us
    reach = normal_quantile(confidence)
    rows = []
    for i, use in enumerate(split.uses):
        latency: float | None = float(belief.latencies_us[i])
        source: Source = "measured" if belief.is_measured(i) else "predicted"
        reason = ""
        interval = None
        guess = predicted.get(use.signature)
        if latency is None or math.isnan(latency):
            latency, source = None, "unsupported"
            reason = failures.get(i) or (guess.reason if guess else "") or (
                f"it was never measured, and {why_not}" if why_not else "it was never measured"
            )  # fmt: skip
        else:
            spread = math.sqrt(max(float(belief.covariance[i, i]), 0.0))
            factor = math.exp(min(reach * spread, 20.0))
            interval = (latency / factor, latency * factor)
            if source == "predicted" and guess is not None and not guess.trusted:
                reason = guess.reason
        rows.append(
            CellEstimate(
                signature=use.signature,
                ops=use.ops,
                nodes=tuple(file.node_names[n] for n in use.nodes),
                count=use.count,
                latency_us=latency,
                interval_us=interval,
                share=float(belief.uses_us[i]) / total if total > 0 else 0.0,
                source=source,
                reason=reason,
            )
        )
    return tuple(rows)
