"""The front door: a network in, an estimate out.

Predictor                    one target: predict, predict_many, measure
predict                      the same for one network, with everything at its default
list_targets, list_families  what can be predicted for
"""

from __future__ import annotations

from hybridlat.api.one_call import predict
from hybridlat.api.predictor import MeasureMode, Predictor
from hybridlat.estimate.target_list import FamilyInfo, TargetInfo, list_families, list_targets
from hybridlat.measuring.report import MeasureReport
from hybridlat.schema.progress import Progress

__all__ = [
    "FamilyInfo", "MeasureMode", "MeasureReport", "Predictor", "Progress", "TargetInfo",
    "list_families", "list_targets", "predict",
]  # fmt: skip
