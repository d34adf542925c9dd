"""The front door: a network in, an estimate out.

Predictor                    one target: predict, predict_many, measure
predict                      the same for one network, with everything at its default
list_targets, list_families  what can be predicted for

Each is loaded when it is first used: a prediction has no use for what lists targets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hybridlat.schema.plugins import loader

if TYPE_CHECKING:
    from hybridlat.api.predictor import Predictor, predict
    from hybridlat.api.session import MeasureMode
    from hybridlat.estimate.lookup.target_list import (
        FamilyInfo,
        TargetInfo,
        list_families,
        list_targets,
    )
    from hybridlat.measuring.report import MeasureReport
    from hybridlat.schema.progress import Progress

__all__ = [
    "FamilyInfo", "MeasureMode", "MeasureReport", "Predictor", "Progress", "TargetInfo",
    "list_families", "list_targets", "predict",
]  # fmt: skip

__getattr__ = loader(
    __name__,
    {
        "FamilyInfo": "hybridlat.estimate.lookup.target_list",
        "MeasureMode": "hybridlat.api.session",
        "MeasureReport": "hybridlat.measuring.report",
        "Predictor": "hybridlat.api.predictor",
        "Progress": "hybridlat.schema.progress",
        "TargetInfo": "hybridlat.estimate.lookup.target_list",
        "list_families": "hybridlat.estimate.lookup.target_list",
        "list_targets": "hybridlat.estimate.lookup.target_list",
        "predict": "hybridlat.api.predictor",
    },
)
