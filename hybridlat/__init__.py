"""The latency of a CNN: from measurements where they exist, from predictions where they do not.

    import hybridlat

    estimate = hybridlat.predict("resnet50.onnx")
    print(estimate.latency_us, estimate.interval_us)

    with hybridlat.Predictor("v100/tensorrt/fp16") as predictor:
        for estimate in predictor.predict_many(models):
            ...

Importing loads none of the engines; each name below is loaded when it is first used. Messages go
to loggers below ``hybridlat``, and nowhere until a program sends them somewhere.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hybridlat.api import Predictor, predict
    from hybridlat.errors import HybridlatError
    from hybridlat.schema.estimate import CellEstimate, Estimate
    from hybridlat.schema.target import Target

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = [
    "CellEstimate",
    "Estimate",
    "HybridlatError",
    "Predictor",
    "Target",
    "__version__",
    "predict",
]

_HOMES = {
    "CellEstimate": "schema.estimate",
    "Estimate": "schema.estimate",
    "HybridlatError": "errors",
    "Predictor": "api",
    "Target": "schema.target",
    "predict": "api",
}


def __getattr__(name: str) -> object:
    """Load a public name from where it lives, once."""
    if name not in _HOMES:
        raise AttributeError(f"module 'hybridlat' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"hybridlat.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
