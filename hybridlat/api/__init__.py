"""The front door: a network in, an estimate out.

Predictor                    one target: predict, predict_many, measure
predict                      the same for one network, with everything at its default
list_targets, list_families  what can be predicted for

Each is loaded when it is first used: a prediction has no use for what lists targets.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hybridlat.api.one_call import predict
    from hybridlat.api.predictor import MeasureMode, Predictor
    from hybridlat.estimate.target_list import FamilyInfo, TargetInfo, list_families, list_targets
    from hybridlat.measuring.report import MeasureReport
    from hybridlat.schema.progress import Progress

__all__ = [
    "FamilyInfo", "MeasureMode", "MeasureReport", "Predictor", "Progress", "TargetInfo",
    "list_families", "list_targets", "predict",
]  # fmt: skip

_HOMES = {
    "FamilyInfo": "estimate.target_list",
    "MeasureMode": "api.predictor",
    "MeasureReport": "measuring.report",
    "Predictor": "api.predictor",
    "Progress": "schema.progress",
    "TargetInfo": "estimate.target_list",
    "list_families": "estimate.target_list",
    "list_targets": "estimate.target_list",
    "predict": "api.one_call",
}


def __getattr__(name: str) -> object:
    """Load a public name from where it lives, once."""
    if name not in _HOMES:
        raise AttributeError(f"module 'hybridlat.api' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"hybridlat.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
