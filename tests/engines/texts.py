"""Networks for rules of fusion, written in ONNX's text format."""

import onnx.parser

from hybridlat.engines.tensorrt.lowering import lower
from hybridlat.graph.network import Lowered, Network
from hybridlat.onnx_io import read_network
from hybridlat.schema.target import Target

CONV = "Conv<kernel_shape=[3,3], pads=[1,1,1,1]>"
POINT = "Conv<kernel_shape=[1,1]>"


MAPS = "float[1,64,28,28] x"


def model_of(
    body: str, inputs: str = MAPS, outputs: str = "y", opset: int = 18, constants: str = ""
) -> onnx.ModelProto:
    """A model whose outputs have the sizes that follow; ``constants`` without values are weights.

    Outputs after the first and constants have their types before their names.
    """
    head = f'<ir_version: 8, opset_import: ["": {opset}]> g ({inputs}) => (float[] {outputs})'
    model = onnx.parser.parse_model(f"{head} {f'<{constants}>' * bool(constants)} {{ {body} }}")
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
    body: str, inputs: str = MAPS, outputs: str = "y", opset: int = 18, constants: str = ""
) -> Network:
    return read_network(model_of(body, inputs, outputs, opset, constants))


def by_rules(net: Network, version: str = "10.7", precision: str = "fp32") -> Lowered:
    """The kernels by TensorRT's table of rules."""
    return lower(net, Target.parse(f"t4/tensorrt-{version}/{precision}"))


def weights(**shapes: tuple[int, ...]) -> str:
    """Weights made by ConstantOfShape: text needs no values."""
    lines = []
    for name, shape in shapes.items():
        dims = ",".join(map(str, shape))
        lines.append(f"{name}_s = Constant<value = int64[{len(shape)}] {{{dims}}}>()")
        lines.append(f"{name} = ConstantOfShape<value = float[1] {{0.5}}>({name}_s)")
    return " ".join(lines)


W3 = weights(w=(64, 64, 3, 3), w2=(64, 64, 3, 3), p=(64, 64, 1, 1), v=(64,))
