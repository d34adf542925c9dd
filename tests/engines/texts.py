"""Networks for rules of fusion, written in ONNX's text format."""

import onnx.parser

from hybridlat.engines.tensorrt.lowering import lower
from hybridlat.graph.network import Lowered, Network
from hybridlat.onnx_io import read_network
from hybridlat.schema.target import Target

CONV = "Conv<kernel_shape=[3,3], pads=[1,1,1,1]>"
POINT = "Conv<kernel_shape=[1,1]>"

MAPS = "float[1,64,28,28] x"
CONSTANTS = """
  float[64,64,3,3] w, float[64,64,3,3] w2, float[64,64,1,1] point, float[64] v,
  float[64,3,3,3] stem, float[64,1,3,3] deep, float[1,64,1,1] single, float[64,1,1] gamma,
  float[10,64] row, float[64,10] head, float[20,20] plane, float[32,64,1,1] few,
  float[3,64,1,1] three, float[192,64,3,3] qkv, float[32,32,3,3] half,
  float[32,32,1,1] half1, float[1] factor, float scalar = {0.5}, float unit = {1.0},
  float root = {1.414}, float gain = {20.0}, float[4] ones = {1.0, 1.0, 1.0, 1.0},
  int64[1] first = {1}, int64[2] parts = {32, 32}, int64[4] heads = {1, 2, 96, 784},
  int64[4] maps = {1, 64, 28, 28}, int64[4] batch = {2, 64, 28, 28},
  int64[5] split = {1, 2, 32, 28, 28}, int64[5] dealt = {2, 2, 32, 28, 28},
  int64[5] apart = {1, 28, 28, 2, 32}, int64[8] below = {0, 0, 0, 0, 0, 0, 1, 1}"""
"""What texts may read: those without values are weights."""


def model_of(
    body: str, inputs: str = MAPS, outputs: str = "y", opset: int = 18, constants: str = CONSTANTS
) -> onnx.ModelProto:
    """A model whose outputs have the sizes that follow; all but the first name their types."""
    opsets = f'["": {opset}, "com.microsoft": 1]'
    head = f"<ir_version: 8, opset_import: {opsets}> g ({inputs}) => (float[] {outputs})"
    model = onnx.parser.parse_model(f"{head} <{constants}> {{ {body} }}")
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    for info in model.graph.value_info:
        kind = info.type.tensor_type
        dims = [size.dim_value for size in kind.shape.dim]
        weight = onnx.TensorProto(name=info.name, data_type=kind.elem_type, dims=dims)
        model.graph.initializer.append(weight)
    del model.graph.value_info[:]
    return model


def network(
    body: str, inputs: str = MAPS, outputs: str = "y", opset: int = 18, constants: str = CONSTANTS
) -> Network:
    return read_network(model_of(body, inputs, outputs, opset, constants))


def by_rules(net: Network, version: str = "10.7", precision: str = "fp32") -> Lowered:
    """The kernels by TensorRT's table of rules."""
    return lower(net, Target.parse(f"t4/tensorrt-{version}/{precision}"))
