"""Operators out of fused kernels again: TensorRT can be given ONNX operators only.

A kernel of the domain ``fused`` names its operators in file order and keeps their attributes, but
not the wires between them. They are laid as they must have been: each operator reads what the one
before it made, a second operand comes from the kernel's inputs where one is left, else from inside
(x·sigmoid(x)).
"""

from __future__ import annotations

from dataclasses import replace

from hybridlat.core.network import AttributeValue, Constant, Network, Node, TensorType
from hybridlat.errors import MeasurementError
from hybridlat.lowering.fused import _BY_WEIGHT, DOMAIN

# Operators whose result has the type of what they read first (broadcasts aside).
_SAME_TYPE = frozenset(
    [
        "Relu",
        "LeakyRelu",
        "Clip",
        "Sigmoid",
        "Tanh",
        "PRelu",
        "Elu",
        "HardSwish",
        "HardSigmoid",
        "Erf",
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Sum",
        "Sqrt",
        "BatchNormalization",
        "Identity",
        "Softmax",
        "LayerNormalization",
        "InstanceNormalization",
        "Pow",
        "Exp",
        "Neg",
        "Abs",
        "Min",
        "Max",
        "Softplus",
        "Gelu",
        "Mish",
    ]
)
_BINARY = frozenset(["Add", "Sub", "Mul", "Div", "Sum", "Pow", "Min", "Max"])
_PARAMETERS = {"BatchNormalization": 4, "PRelu": 1, "LayerNormalization": 2,
               "InstanceNormalization": 2, "Clip": 2}  # fmt: skip
_VERSIONS = {
    "Conv": 11, "ConvTranspose": 11, "Gemm": 13, "MatMul": 13, "Relu": 14, "Clip": 13, "Add": 14,
    "Mul": 14, "Sub": 14, "Div": 14, "Sum": 13, "Sigmoid": 13, "Tanh": 13, "HardSwish": 14,
    "HardSigmoid": 6, "LeakyRelu": 16, "PRelu": 16, "Elu": 6, "BatchNormalization": 15, "Erf": 13,
    "Softmax": 13, "Sqrt": 13, "Pow": 15, "LayerNormalization": 17, "InstanceNormalization": 6,
}  # fmt: skip


def unfuse(network: Network) -> Network:
    """The network with every fused kernel written as the operators it holds.

    Raises MeasurementError for a kernel whose wires cannot be told from its operators.
    """
    nodes: list[Node] = []
    types = dict(network.types)
    for node in network.nodes:
        if node.domain != DOMAIN:
            nodes.append(node)
        else:
            nodes.extend(_operators(network, node, types))
    return replace(network, nodes=tuple(nodes), types=types)


def _operators(network: Network, kernel: Node, types: dict[str, TensorType]) -> list[Node]:
    ops = kernel.attribute("fused", ())
    if not isinstance(ops, tuple) or len(kernel.outputs) != 1:
        raise _cannot(kernel)
    names = [str(op) for op in ops]
    main = next((i for group in _BY_WEIGHT for i, op in enumerate(names) if op in group), 0)
    if any(op not in _SAME_TYPE for i, op in enumerate(names) if i != main) or main != 0:
        raise _cannot(kernel)
    left = list(kernel.inputs)
    out_type = network.types[kernel.outputs[0]]
    made: list[str] = []
    nodes = []
    for place, op in enumerate(names):
        inputs = _main_inputs(network, names, left) if place == main else [made[-1]]
        if place != main:
            inputs += _further_inputs(network, kernel, op, left, made)
        last = place == len(names) - 1
        out = kernel.outputs[0] if last else f"{kernel.outputs[0]}__{place}"
        types[out] = out_type
        made.append(out)
        nodes.append(
            Node(
                f"{kernel.name}__{place}",
                op,
                tuple(inputs),
                (out,),
                _attributes(kernel, op, place, place == main),
                version=_VERSIONS.get(op, 13),
            )
        )
    if left:
        raise _cannot(kernel)
    return nodes


def _main_inputs(network: Network, names: list[str], left: list[str]) -> list[str]:
    """The data, the weight, and a bias where a vector is left that no later operator needs."""
    op = names[0]
    inputs = [left.pop(0)]
    if op in ("Conv", "ConvTranspose", "Gemm", "MatMul") and left:
        inputs.append(left.pop(0))
        vectors = sum(1 for name in left if name in network.constants)
        needed = sum(_PARAMETERS.get(later, 0) for later in names[1:] if later != "Clip")
        bias = network.constants.get(left[0]) if left and op != "MatMul" else None
        if bias is not None and len(bias.type.shape) == 1 and vectors > needed:
            inputs.append(left.pop(0))
    elif op in _BINARY and left:
        inputs.append(left.pop(0))
    else:
        while left and left[0] in network.constants:
            inputs.append(left.pop(0))
    return inputs


def _further_inputs(
    network: Network, kernel: Node, op: str, left: list[str], made: list[str]
) -> list[str]:
    if op in _BINARY:
        if left:
            return [left.pop(0)]
        data = network.types.get(kernel.inputs[0])
        if op != "Mul" and data == network.types[kernel.outputs[0]]:
            return [kernel.inputs[0]]  # the kernel's own input is added to its result
        if len(made) > 1:
            return [made[-2]]
        raise _cannot(kernel)
    found: list[str] = []
    for _ in range(_PARAMETERS.get(op, 0)):
        constant: Constant | None = network.constants.get(left[0]) if left else None
        if constant is None:
            break
        found.append(left.pop(0))
    return found


def _attributes(
    kernel: Node, op: str, place: int, is_main: bool
) -> tuple[tuple[str, AttributeValue], ...]:
    prefix = f"{place}.{op}."
    if is_main:
        return tuple((k, v) for k, v in kernel.attributes if k != "fused" and "." not in k)
    return tuple((k.removeprefix(prefix), v) for k, v in kernel.attributes if k.startswith(prefix))


def _cannot(kernel: Node) -> MeasurementError:
    return MeasurementError(
        f"the kernel {kernel.op} cannot be built by itself from its signature: "
        "measure it from its file with `hybridlat plan`"
    )
