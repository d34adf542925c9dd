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

import logging
from typing import TYPE_CHECKING

from hybridlat.schema.plugins import loader

if TYPE_CHECKING:
    from hybridlat.api import Predictor, predict
    from hybridlat.errors import HybridlatError
    from hybridlat.schema.estimate import CellEstimate, Estimate
    from hybridlat.schema.target import Target

__version__ = "0.2.0"

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

__getattr__ = loader(
    __name__,
    {
        "CellEstimate": "hybridlat.schema.estimate",
        "Estimate": "hybridlat.schema.estimate",
        "HybridlatError": "hybridlat.errors",
        "Predictor": "hybridlat.api.predictor",
        "Target": "hybridlat.schema.target",
        "predict": "hybridlat.api.predictor",
    },
)


def __dir__() -> list[str]:
    return sorted(__all__)
