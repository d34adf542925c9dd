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
    from hybridlat.api.predictor import Predictor as Predictor
    from hybridlat.api.predictor import predict as predict
    from hybridlat.errors import HybridlatError as HybridlatError
    from hybridlat.schema.estimate import CellEstimate as CellEstimate
    from hybridlat.schema.estimate import Estimate as Estimate
    from hybridlat.schema.target import Target as Target

__version__ = "0.2.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())

_HOMES = {
    "CellEstimate": "hybridlat.schema.estimate",
    "Estimate": "hybridlat.schema.estimate",
    "HybridlatError": "hybridlat.errors",
    "Predictor": "hybridlat.api.predictor",
    "Target": "hybridlat.schema.target",
    "predict": "hybridlat.api.predictor",
}
__all__ = ["__version__", *_HOMES]
__getattr__ = loader(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
