"""Networks without weights written operator by operator, as the light models that ship with onnx.

Weights are ``ConstantOfShape`` nodes; those of one shape share one shape tensor.
"""

from functools import cache

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto
from onnx.helper import make_attribute, make_tensor, make_tensor_value_info


@cache
def window(kernel: int, stride: int, groups: int = 1) -> list[AttributeProto]:
    """Those of a convolution; attributes are the slow part of a node, and each set is made once."""
    return [
        make_attribute("dilations", [1, 1]),
        make_attribute("group", groups),
        make_attribute("kernel_shape", [kernel, kernel]),
        make_attribute("pads", [kernel // 2] * 4),
        make_attribute("strides", [stride, stride]),
    ]


@cache
def pool(kernel: int, stride: int) -> list[AttributeProto]:
    """Those of a pooling; an even window pads nothing."""
    return [
        make_attribute("kernel_shape", [kernel, kernel]),
        make_attribute("pads", [kernel // 2 if kernel % 2 else 0] * 4),
        make_attribute("strides", [stride, stride]),
    ]


@cache
def _attributes(operator: str) -> list[AttributeProto]:
    if operator == "ConstantOfShape":
        return [make_attribute("value", make_tensor("", TensorProto.FLOAT, [1], [0.01]))]
    if operator == "HardSigmoid":
        return [make_attribute("alpha", 1 / 6), make_attribute("beta", 0.5)]
    return [make_attribute("transB", 1)] if operator == "Gemm" else []


class OnnxWriter:
    """Appends operators to a graph; methods return the name of the value that they have made."""

    def __init__(self) -> None:
        self.graph = GraphProto()
        self._shapes: set[str] = set()

    def node(
        self,
        operator: str,
        inputs: list[str],
        name: str = "",
        attributes: list[AttributeProto] | None = None,
    ) -> str:
        """An operator with its usual attributes or those given."""
        name = name or f"{operator}_{len(self.graph.node)}"
        given = _attributes(operator) if attributes is None else attributes
        self.graph.node.append(
            NodeProto(op_type=operator, name=name, input=inputs, output=[name], attribute=given)
        )
        return name

    def shape(self, *shape: int) -> str:
        """The tensor that holds a shape."""
        name = "shape_" + "x".join(map(str, shape))
        if name not in self._shapes:
            self._shapes.add(name)
            tensor = make_tensor(name, TensorProto.INT64, [len(shape)], shape)
            self.graph.initializer.append(tensor)
        return name

    def weight(self, *shape: int, name: str = "") -> str:
        """A weight without values."""
        return self.node("ConstantOfShape", [self.shape(*shape)], name)

    def model(self, name: str, image: int, batch: int, classes: int, producer: str) -> ModelProto:
        """The network from ``input``, square images, to ``output``."""
        self.graph.name = name
        for values, tensor, shape in (
            (self.graph.input, "input", (batch, 3, image, image)),
            (self.graph.output, "output", (batch, classes)),
        ):
            values.append(make_tensor_value_info(tensor, TensorProto.FLOAT, shape))
        # Opset 17 came with version 8 of the file format: engines of 2022 and later read both.
        return ModelProto(
            ir_version=8,
            producer_name=producer,
            opset_import=[OperatorSetIdProto(version=17)],
            graph=self.graph,
        )
