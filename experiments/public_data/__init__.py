"""Readers of public data sets, which the project does not hold: a folder in, records out."""

from collections.abc import Callable
from pathlib import Path

from experiments.public_data.convolutions import conv_cdecatapult, conv_neusight, v100_tensorrt_conv
from experiments.public_data.networks import fbnet, nasbench201
from hybridlat.store.importers import ImportedRecords

READERS: dict[str, Callable[[Path], ImportedRecords]] = {
    "conv_cdecatapult": conv_cdecatapult,
    "conv_neusight": conv_neusight,
    "fbnet": fbnet,
    "nasbench201": nasbench201,
    "v100_tensorrt_conv": v100_tensorrt_conv,
}
