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
import os
from typing import TYPE_CHECKING

from hybridlat.schema.plugins import loader

if TYPE_CHECKING:
    from hybridlat.api.functions import compare as compare
    from hybridlat.api.functions import measure as measure
    from hybridlat.api.functions import predict as predict
    from hybridlat.api.predictor import Predictor as Predictor
    from hybridlat.api.session import MeasureMode as MeasureMode
    from hybridlat.api.sources import ManySource as ManySource
    from hybridlat.api.sources import Source as Source
    from hybridlat.errors import HybridlatError as HybridlatError
    from hybridlat.estimate.block_space import BlockLatency as BlockLatency
    from hybridlat.estimate.block_space import BlockSpace as BlockSpace
    from hybridlat.estimate.block_space import BlockTable as BlockTable
    from hybridlat.estimate.block_space import SumCheck as SumCheck
    from hybridlat.estimate.lookup.target_list import TargetInfo as TargetInfo
    from hybridlat.estimate.lookup.target_list import list_targets as list_targets
    from hybridlat.graph.network import Shapes as Shapes
    from hybridlat.measuring.report import MeasureReport as MeasureReport
    from hybridlat.measuring.schedule import MeasurementConfig as MeasurementConfig
    from hybridlat.onnx_io.torch_export import Example as Example
    from hybridlat.report.views import Comparison as Comparison
    from hybridlat.report.views import to_frame as to_frame
    from hybridlat.report.views import to_html as to_html
    from hybridlat.schema.device import Device as Device
    from hybridlat.schema.estimate import CellEstimate as CellEstimate
    from hybridlat.schema.estimate import Estimate as Estimate
    from hybridlat.schema.estimate import EstimateWarning as EstimateWarning
    from hybridlat.schema.measurement import Measurement as Measurement
    from hybridlat.schema.progress import Progress as Progress
    from hybridlat.schema.structure import CellPosition as CellPosition
    from hybridlat.schema.structure import CellStructure as CellStructure
    from hybridlat.schema.structure import Kernel as Kernel
    from hybridlat.schema.structure import Roofs as Roofs
    from hybridlat.schema.structure import Structure as Structure
    from hybridlat.schema.structure import Work as Work
    from hybridlat.schema.target import Target as Target

__version__ = "0.2.0"

# Else ONNX Runtime keeps an identifier of the machine, and events to send: for children as well.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
logging.getLogger(__name__).addHandler(logging.NullHandler())

_NAMES = {
    "hybridlat.api.functions": "compare measure predict",
    "hybridlat.api.predictor": "Predictor",
    "hybridlat.api.session": "MeasureMode",
    "hybridlat.api.sources": "ManySource Source",
    "hybridlat.errors": "HybridlatError",
    "hybridlat.estimate.block_space": "BlockLatency BlockSpace BlockTable SumCheck",
    "hybridlat.estimate.lookup.target_list": "TargetInfo list_targets",
    "hybridlat.graph.network": "Shapes",
    "hybridlat.measuring.report": "MeasureReport",
    "hybridlat.measuring.schedule": "MeasurementConfig",
    "hybridlat.onnx_io.torch_export": "Example",
    "hybridlat.report.views": "Comparison to_frame to_html",
    "hybridlat.schema.device": "Device",
    "hybridlat.schema.estimate": "CellEstimate Estimate EstimateWarning",
    "hybridlat.schema.measurement": "Measurement",
    "hybridlat.schema.progress": "Progress",
    "hybridlat.schema.structure": "CellPosition CellStructure Kernel Roofs Structure Work",
    "hybridlat.schema.target": "Target",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = ["__version__", *_HOMES]
__getattr__ = loader(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
