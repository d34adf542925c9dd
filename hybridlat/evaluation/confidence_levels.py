"""Whether intervals hold what they say: coverage and width at each confidence that may be asked."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hybridlat.estimate.calibration import JudgedNetwork
from hybridlat.estimate.composition import CALIBRATED_AT, Composition, normal_quantile
from hybridlat.estimate.posterior import Belief
from hybridlat.evaluation.metrics import Answer, score
from hybridlat.evaluation.replay import answer, play_gate

Pair = tuple[JudgedNetwork, Composition]
Beliefs = Mapping[str, Belief]


@dataclass(frozen=True, slots=True)
class ConfidenceLevel:
    """What was found where intervals of this ``confidence`` were asked for.

    ``coverage`` is the share of truths inside, ``width`` the mean relative width, ``judged`` how
    many had an interval. ``measured_share`` and ``device_s`` say what was measured for it: the gate
    measures more, the surer an answer has to be.
    """

    confidence: float
    coverage: float
    width: float
    judged: int
    measured_share: float = 0.0
    device_s: float = 0.0

    def to_json(self) -> dict[str, float]:
        """The object in ``calibration`` of ``evaluate --json``."""
        digits = {"coverage": 4, "width": 4, "measured_share": 4, "device_s": 2}
        return {
            name: round(value, digits[name]) if name in digits else value
            for name, value in dataclasses.asdict(self).items()
        }


def of_states(pairs: Sequence[Pair], beliefs: Beliefs) -> tuple[ConfidenceLevel, ...]:
    """Networks in a state of knowledge that does not depend on the confidence."""
    return _levels(
        {
            level: [answer(n, c.at(level), beliefs[n.name]) for n, c in pairs]
            for level in CALIBRATED_AT
        }
    )


def of_gate(pairs: Sequence[Pair], tolerance: float, known: Beliefs) -> tuple[ConfidenceLevel, ...]:
    """Networks on which the gate worked towards ``tolerance`` at each confidence.

    ``known`` is where it ended at the compositions' own confidence.
    """

    def at(level: float, network: JudgedNetwork, composition: Composition) -> Answer:
        if level == composition.confidence:
            return answer(network, composition, known[network.name])
        asked = composition.at(level)
        return answer(network, asked, play_gate(network, asked, tolerance))

    return _levels({level: [at(level, *pair) for pair in pairs] for level in CALIBRATED_AT})


def of_cells(answers: Sequence[Answer], confidence: float) -> tuple[ConfidenceLevel, ...]:
    """Predicted cells: their intervals of ``confidence``, stretched as users get to see them."""
    unit = normal_quantile(confidence)

    def at(level: float, said: Answer) -> Answer:
        if said.interval_us is None or not math.isfinite(said.predicted_us):
            return said
        low, high = said.interval_us
        ratio = normal_quantile(level) / unit
        us = said.predicted_us
        bounds = (us * (low / us) ** ratio, us * (high / us) ** ratio)
        return dataclasses.replace(said, interval_us=bounds)

    return _levels({level: [at(level, a) for a in answers] for level in CALIBRATED_AT})


def _levels(answers: Mapping[float, Sequence[Answer]]) -> tuple[ConfidenceLevel, ...]:
    found = []
    for level, given in answers.items():
        total = score(given)
        if total.coverage is not None and total.width is not None:
            found.append(
                ConfidenceLevel(
                    level, total.coverage, total.width,
                    sum(a.interval_us is not None for a in given),
                    total.measured_share, total.device_s,
                )
            )  # fmt: skip
    return tuple(found)
