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

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

from hybridlat.schema.plugins import loader

__version__ = "0.2.0"

# Else ONNX Runtime keeps an identifier of the machine, and events to send: for children as well.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
logging.getLogger(__name__).addHandler(logging.NullHandler())

_NAMES = re.findall(
    r"^from (\S+) import (\w+) as", Path(__file__).with_suffix(".pyi").read_text("utf-8"), re.M
)
_HOMES = {name: module for module, name in _NAMES}
__all__ = ["__version__", *_HOMES]
__getattr__ = loader(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
