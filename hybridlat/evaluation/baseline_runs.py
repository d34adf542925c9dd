"""The baselines on the same held-out networks, from the same records."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence

from hybridlat.estimate.posterior import Belief
from hybridlat.evaluation.cross_fitting import CrossFitted, Setting
from hybridlat.evaluation.dataset import Records, Thing, WholeNetwork
from hybridlat.evaluation.metrics import Answer
from hybridlat.evaluation.results import Judgement
from hybridlat.model import baselines
from hybridlat.model.baselines import Baseline

_UNSEEN = "unseen"
_MEASURED = "measured"


def judge_baselines(
    records: Records,
    fitted: CrossFitted,
    setting: Setting,
    gated: Mapping[str, Mapping[str, Belief]],
    names: Sequence[str],
) -> list[Judgement]:
    """Every named baseline in every regime.

    ``unseen``: it learned from all records but the held-out networks'. ``measured``: it learned
    from those too. Gated regimes: as unseen, and of the cells that our gate measured it is told the
    truth; a baseline of layers cannot use those.
    """
    found: list[Judgement] = []
    for name in names:
        kind = baselines.load(name)
        if not _things(kind, records):
            continue
        seen_all = _fit(kind, records, (), setting)
        answers: dict[str, list[Answer]] = {}
        spent, asked = 0.0, 0
        for members in fitted.folds.values():
            unseen = _fit(kind, records, records.forbidden(members), setting)
            for network in members:
                parts = network.cells if kind.unit == "cell" else network.layers
                texts = _parts(kind, records, parts)
                if texts is None:
                    continue
                began = time.perf_counter()
                guess = [float(v) for v in unseen.predict(texts)]
                spent += time.perf_counter() - began
                asked += 1
                known = [float(v) for v in seen_all.predict(texts)]
                every = range(len(parts))
                for regime, values, measured in (
                    (_UNSEEN, guess, ()),
                    (_MEASURED, known, every),
                    *_with_gate(kind, records, network, guess, gated),
                ):
                    answers.setdefault(regime, []).append(
                        _answer(kind, records, network, values, measured)
                    )
        predict_ms = 1e3 * spent / asked if asked else None
        found.extend(
            Judgement(regime, name, tuple(given), predict_ms) for regime, given in answers.items()
        )
    return found


def _things(kind: type[Baseline], records: Records) -> Mapping[str, Thing]:
    return records.cells if kind.unit == "cell" else records.layers


def _parts(
    kind: type[Baseline], records: Records, parts: Sequence[tuple[str, int]]
) -> list[str] | None:
    things = _things(kind, records)
    if not parts or any(h not in things for h, _ in parts):
        return None
    return [things[h].text for h, _ in parts]


def _fit(
    kind: type[Baseline], records: Records, forbidden: Collection[str], setting: Setting
) -> Baseline:
    groups = records.groups() if kind.unit == "cell" else {}
    rows = [
        baselines.Row(t.text, t.latency_us, groups.get(h) or t.labels.get("network", h))
        for h, t in sorted(_things(kind, records).items())
        if h not in forbidden
    ]
    model = kind(setting.device, setting.precision, setting.seed)
    model.fit(rows)
    return model


def _with_gate(
    kind: type[Baseline],
    records: Records,
    network: WholeNetwork,
    guess: Sequence[float],
    gated: Mapping[str, Mapping[str, Belief]],
) -> list[tuple[str, list[float], Collection[int]]]:
    found: list[tuple[str, list[float], Collection[int]]] = []
    for regime, beliefs in gated.items():
        measured = beliefs[network.name].measured if kind.unit == "cell" else {}
        values = [
            records.cells[network.cells[i][0]].latency_us if i in measured else us
            for i, us in enumerate(guess)
        ]
        found.append((regime, values, measured))
    return found


def _answer(
    kind: type[Baseline],
    records: Records,
    network: WholeNetwork,
    values: Sequence[float],
    measured: Collection[int],
) -> Answer:
    parts = network.cells if kind.unit == "cell" else network.layers
    things = _things(kind, records)
    uses = [count * us for (_, count), us in zip(parts, values, strict=True)]
    total = math.fsum(uses)
    return Answer(
        name=network.name,
        true_us=network.latency_us,
        predicted_us=total,
        measured_share=math.fsum(uses[i] for i in measured) / total if total > 0 else 0.0,
        device_s=math.fsum(things[parts[i][0]].cost_s for i in measured),
        cells=len(parts),
        cells_measured=len(measured),
    )
