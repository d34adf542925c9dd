"""Whether intervals hold what they say: coverage and width at each confidence that may be asked."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hybridlat.estimate.compose.calibration import HeldOutNetwork
from hybridlat.estimate.compose.composition import CALIBRATED_AT, Composition, normal_quantile
from hybridlat.estimate.compose.posterior import ErrorPosterior
from hybridlat.evaluation.metrics import Prediction, score
from hybridlat.evaluation.replay import prediction_in, simulate_gate

Pair = tuple[HeldOutNetwork, Composition]
Posteriors = Mapping[str, ErrorPosterior]


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


def of_states(pairs: Sequence[Pair], posteriors: Posteriors) -> tuple[ConfidenceLevel, ...]:
    """Networks in a state of knowledge that does not depend on the confidence."""
    return levels(
        {
            level: [prediction_in(n, c.at(level), posteriors[n.name]) for n, c in pairs]
            for level in CALIBRATED_AT
        }
    )


def of_gate(
    pairs: Sequence[Pair], tolerance: float, known: Posteriors
) -> tuple[ConfidenceLevel, ...]:
    """Networks on which the gate worked towards ``tolerance`` at each confidence.

    ``known`` is where it ended at the compositions' own confidence.
    """

    def at(level: float, network: HeldOutNetwork, composition: Composition) -> Prediction:
        if level == composition.confidence:
            return prediction_in(network, composition, known[network.name])
        asked = composition.at(level)
        return prediction_in(network, asked, simulate_gate(network, asked, tolerance))

    return levels({level: [at(level, *pair) for pair in pairs] for level in CALIBRATED_AT})


def of_cells(predictions: Sequence[Prediction], confidence: float) -> tuple[ConfidenceLevel, ...]:
    """Predicted cells: their intervals of ``confidence``, stretched as users get to see them."""
    unit = normal_quantile(confidence)

    def at(level: float, prediction: Prediction) -> Prediction:
        if prediction.interval_us is None or not math.isfinite(prediction.predicted_us):
            return prediction
        low, high = prediction.interval_us
        ratio = normal_quantile(level) / unit
        us = prediction.predicted_us
        bounds = (us * (low / us) ** ratio, us * (high / us) ** ratio)
        return dataclasses.replace(prediction, interval_us=bounds)

    return levels({level: [at(level, a) for a in predictions] for level in CALIBRATED_AT})


def levels(predictions: Mapping[float, Sequence[Prediction]]) -> tuple[ConfidenceLevel, ...]:
    """The same answers with the intervals of each confidence."""
    levels_ = []
    for level, given in predictions.items():
        total = score(given)
        if total.coverage is not None and total.width is not None:
            levels_.append(
                ConfidenceLevel(
                    level, total.coverage, total.width,
                    sum(a.interval_us is not None for a in given),
                    total.measured_share, total.device_s,
                )
            )  # fmt: skip
    return tuple(levels_)
