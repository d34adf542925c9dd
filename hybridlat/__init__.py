"""The latency of a CNN: from measurements where they exist, from predictions where they do not.

    import hybridlat

    estimate = hybridlat.predict("resnet50.onnx")
    print(estimate.latency_us, estimate.interval_us)

    with hybridlat.Predictor("v100/tensorrt/fp16") as predictor:
        for estimate in predictor.predict_many(models):
            ...

Importing loads none of the engines; each public name, of which ``__init__.pyi`` is the list, is
loaded when it is first used. Messages go to loggers below ``hybridlat``, and nowhere until a
program sends them somewhere.
"""

import logging
import os
from typing import Any

from hybridlat.schema.plugins import lazy
from hybridlat.schema.shown import Shown

__version__ = "0.2.0"

# Else ONNX Runtime keeps an identifier of the machine, and events to send: for children as well.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
logging.getLogger(__name__).addHandler(logging.NullHandler())


def _reports() -> Any:
    from hybridlat.report import views

    return views


def _load_pyfunc(data_path: str) -> Any:
    """A model of MLflow's registry, which calls this name."""
    from pathlib import Path

    from hybridlat.api.functions import ServedModel

    return ServedModel(Path(data_path))


Shown.reports = _reports
__getattr__, _HOMES = lazy(__name__)
__all__ = ["__version__", *_HOMES]


def __dir__() -> list[str]:
    return sorted(__all__)
