"""The names of the package, and where ``__init__.py`` loads each from."""

from hybridlat.graph.network import Shapes as Shapes
from hybridlat.onnx_io.file import ModelSource as ModelSource
from hybridlat.onnx_io.file import OnnxFile as OnnxFile
from hybridlat.onnx_io.file import Recall as Recall
from hybridlat.onnx_io.file import as_bytes as as_bytes
from hybridlat.onnx_io.file import is_model as is_model
from hybridlat.onnx_io.file import load as load
from hybridlat.onnx_io.file import read_network as read_network
from hybridlat.onnx_io.operator_form import local_form as local_form
from hybridlat.onnx_io.operator_form import plain_version as plain_version
from hybridlat.onnx_io.read import engine_network as engine_network
from hybridlat.onnx_io.tensorrt import readable as readable
from hybridlat.onnx_io.values import since_version as since_version
from hybridlat.onnx_io.write import random_array as random_array
from hybridlat.onnx_io.write import to_onnx as to_onnx
from hybridlat.onnx_io.write import zeros as zeros
