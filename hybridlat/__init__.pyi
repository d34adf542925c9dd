"""The public names: their types for checkers, and where ``__init__.py`` loads each from."""

from hybridlat.api.arguments import ManySource as ManySource
from hybridlat.api.arguments import MeasureMode as MeasureMode
from hybridlat.api.arguments import Source as Source
from hybridlat.api.functions import compare as compare
from hybridlat.api.functions import measure as measure
from hybridlat.api.functions import predict as predict
from hybridlat.api.predictor import Predictor as Predictor
from hybridlat.api.questions import recommend as recommend
from hybridlat.errors import HybridlatError as HybridlatError
from hybridlat.estimate.block_space import BlockLatency as BlockLatency
from hybridlat.estimate.block_space import BlockSpace as BlockSpace
from hybridlat.estimate.block_space import BlockTable as BlockTable
from hybridlat.estimate.block_space import SumCheck as SumCheck
from hybridlat.estimate.lookup.target_list import TargetInfo as TargetInfo
from hybridlat.estimate.lookup.target_list import list_targets as list_targets
from hybridlat.graph.network import Shapes as Shapes
from hybridlat.measuring.measurer import MeasureReport as MeasureReport
from hybridlat.measuring.schedule import MeasurementConfig as MeasurementConfig
from hybridlat.onnx_io.torch_export import Example as Example
from hybridlat.report.compare import Comparison as Comparison
from hybridlat.report.explain import Explanation as Explanation
from hybridlat.report.explain import Stated as Stated
from hybridlat.report.explain import Suspect as Suspect
from hybridlat.report.sweep import Sweep as Sweep
from hybridlat.report.views import to_frame as to_frame
from hybridlat.report.views import to_html as to_html
from hybridlat.schema.estimate import Estimate as Estimate
from hybridlat.schema.measurement import Measurement as Measurement
from hybridlat.schema.shown import Estimates as Estimates
from hybridlat.schema.structure import CellEstimate as CellEstimate
from hybridlat.schema.structure import CellPosition as CellPosition
from hybridlat.schema.structure import CellStructure as CellStructure
from hybridlat.schema.structure import EstimateWarning as EstimateWarning
from hybridlat.schema.structure import Kernel as Kernel
from hybridlat.schema.structure import Roofs as Roofs
from hybridlat.schema.structure import Structure as Structure
from hybridlat.schema.structure import Work as Work
from hybridlat.schema.target import Device as Device
from hybridlat.schema.target import Target as Target
from hybridlat.schema.workers import Progress as Progress

__all__: list[str]
__version__: str
