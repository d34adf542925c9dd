"""What the gate starts from: records of cells, predictions of the rest, or what stands in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hybridlat.estimate import priors
from hybridlat.estimate.posterior import CellPrior
from hybridlat.estimate.whole_networks import WholeLatency
from hybridlat.schema.estimate import CellPrediction

if TYPE_CHECKING:
    from hybridlat.estimate.family_prior import FamilyAnswer
    from hybridlat.estimate.network_estimate import Request
    from hybridlat.estimate.target_data import TargetData
    from hybridlat.store import LatencyStats

_LEAST_LEFT = 0.01  # of a measured network, for cells that nothing else is known of


def cell_priors(
    request: Request,
    data: TargetData,
    known: Mapping[str, LatencyStats],
    whole: WholeLatency | None,
) -> tuple[list[CellPrior], dict[str, CellPrediction], FamilyAnswer | None]:
    """What the gate starts from: records, for the rest what the model says, else the fallback.

    With it what the family of the engine said, None where it was not asked.
    """
    partition = request.partition
    missing = [use.signature for use in partition.uses if use.signature not in known]
    predicted: dict[str, CellPrediction] = {}
    texts: Mapping[str, str] = {}
    model = data.trained.model if missing else None
    if model is not None:
        # A measured cell's text matters only beside predicted ones, which it teaches about.
        texts = data.texts(partition, [use.signature for use in partition.uses])
        found = model.predict([texts[h] for h in missing])
        predicted = dict(zip(missing, found, strict=True))
    levels = dict.fromkeys(predicted, model.confidence if model is not None else 0.0)
    kin: FamilyAnswer | None = None
    exact = whole if whole is not None and whole.is_exact else None
    doubtful = [h for h in missing if _is_doubtful(predicted.get(h), request)]
    if doubtful:
        texts = data.texts(partition, [use.signature for use in partition.uses])
        filled, kin = _from_elsewhere(request, data, predicted, doubtful)
        predicted.update(filled)
        if exact is not None:
            predicted.update(_left_over(request, known, predicted, texts, exact))
        others = [*filled, *(predicted.keys() - levels.keys())]
        levels.update(dict.fromkeys(others, request.confidence))
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


def _is_doubtful(guess: CellPrediction | None, request: Request) -> bool:
    """Whether others are asked in place of the target's own model: what can be measured is not."""
    if guess is None or guess.latency_us is None:
        return True
    return not guess.trusted and request.measure is None


def _left_over(
    request: Request,
    known: Mapping[str, LatencyStats],
    predicted: Mapping[str, CellPrediction],
    texts: Mapping[str, str],
    whole: WholeLatency,
) -> dict[str, CellPrediction]:
    """Cells of which nothing is known: what a measured network leaves for them, by their work."""
    told: dict[str, float] = {h: s.latency_us for h, s in known.items() if s.latency_us}
    told.update((h, p.latency_us) for h, p in predicted.items() if p.latency_us is not None)
    uses = request.partition.uses
    rest = [use for use in uses if use.signature not in told]
    spoken_us = math.fsum(told[u.signature] * u.count for u in uses if u.signature in told)
    left_us = max(whole.latency_us - spoken_us, _LEAST_LEFT * whole.latency_us)
    works = {use.signature: priors.work_bytes(texts[use.signature]) for use in rest}
    total = math.fsum(works[use.signature] * use.count for use in rest)
    reason = "known only by what the measured network leaves for it"
    return {
        use.signature: CellPrediction(left_us * works[use.signature] / total, None, True, reason)
        for use in rest
    }


def _from_elsewhere(
    request: Request,
    data: TargetData,
    own: Mapping[str, CellPrediction],
    asked: Sequence[str],
) -> tuple[dict[str, CellPrediction], FamilyAnswer | None]:
    """What other targets and the device's data sheet say of cells that nobody here can speak for.

    On a machine that can measure them only the family speaks: a guess is not worth its doubt where
    the cell itself can be asked.
    """
    from hybridlat.estimate.fallback import fill_in, has_family

    if request.measure is not None and not has_family(data.target, data.trained.model):
        return {}, None
    fallback = data.fallback
    if fallback is None:
        return {}, None
    texts = data.texts(request.partition, [use.signature for use in request.partition.uses])
    uses = [(u.signature, texts[u.signature], u.count) for u in request.partition.uses]
    copied_bytes = 0.0
    if fallback.copies:
        network = request.network()
        outside = (*network.inputs, *network.outputs)
        copied_bytes = float(sum(network.type_of(name).bytes for name in outside))
    return fill_in(fallback, uses, own, asked, copied_bytes, request.confidence)
