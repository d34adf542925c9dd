"""ONNX operators in PyTorch: a table, and the graph run by it. Only what CNNs are made of."""

from typing import Any, Callable, Dict, List, Optional

from .errors import EngineError
from .onnx_graph import Node

Op = Callable[[Any, Node, List[Any]], Any]


def ints(node: Node, name: str, default: Optional[List[int]] = None) -> Optional[List[int]]:
    """A list-of-integers attribute."""
    from . import wire

    found = node.attributes.get(name)
    return wire.integers(found, 8) if found else default


def number(node: Node, name: str, default: float) -> float:
    """A float attribute."""
    import struct

    for field, _, value in node.attributes.get(name, []):
        if field == 2 and isinstance(value, bytes):
            return float(struct.unpack("<f", value)[0])
    return default


def _string(node: Node, name: str) -> str:
    from . import wire

    found = node.attributes.get(name)
    return wire.text(found, 4) if found else ""


def _padded(torch: Any, x: Any, node: Node, value: float = 0.0) -> Any:
    pads = ints(node, "pads") or [0, 0, 0, 0]
    if _string(node, "auto_pad") not in ("", "NOTSET"):
        raise EngineError("PyTorch is not given auto_pad models")
    top, left, bottom, right = pads
    if not any(pads):
        return x
    return torch.nn.functional.pad(x, (left, right, top, bottom), value=value)


def _conv(torch: Any, node: Node, x: List[Any]) -> Any:
    pads = ints(node, "pads") or [0, 0, 0, 0]
    data, padding = x[0], pads[:2]
    if pads[:2] != pads[2:]:
        data, padding = _padded(torch, data, node), [0, 0]
    return torch.nn.functional.conv2d(
        data, x[1], x[2] if len(x) > 2 else None, ints(node, "strides") or [1, 1], padding,
        ints(node, "dilations") or [1, 1], node.integer("group", 1),
    )  # fmt: skip


def _pool(torch: Any, node: Node, x: List[Any]) -> Any:
    kernel, strides = ints(node, "kernel_shape"), ints(node, "strides") or [1, 1]
    ceil = bool(node.integer("ceil_mode"))
    pads = ints(node, "pads") or [0, 0, 0, 0]
    if node.op == "MaxPool":
        data = _padded(torch, x[0], node, float("-inf"))
        return torch.nn.functional.max_pool2d(data, kernel, strides, ceil_mode=ceil)
    counted = bool(node.integer("count_include_pad"))
    if pads[:2] == pads[2:]:
        return torch.nn.functional.avg_pool2d(
            x[0], kernel, strides, pads[:2], ceil_mode=ceil, count_include_pad=counted
        )
    return torch.nn.functional.avg_pool2d(_padded(torch, x[0], node), kernel, strides)


def _gemm(torch: Any, node: Node, x: List[Any]) -> Any:
    a = x[0].t() if node.integer("transA") else x[0]
    b = x[1].t() if node.integer("transB") else x[1]
    return torch.addmm(x[2], a, b) if len(x) > 2 else torch.mm(a, b)


def _norm(torch: Any, node: Node, x: List[Any]) -> Any:
    return torch.nn.functional.batch_norm(
        x[0], x[3], x[4], x[1], x[2], False, 0.0, number(node, "epsilon", 1e-5)
    )


def _reshape(torch: Any, node: Node, x: List[Any]) -> Any:
    shape = [int(n) for n in x[1].tolist()]
    return x[0].reshape([x[0].shape[i] if n == 0 else n for i, n in enumerate(shape)])


def _mean(torch: Any, node: Node, x: List[Any]) -> Any:
    axes = ints(node, "axes") or ([int(n) for n in x[1].tolist()] if len(x) > 1 else None)
    return x[0].mean(dim=axes, keepdim=bool(node.integer("keepdims", 1)))


def _clip(torch: Any, node: Node, x: List[Any]) -> Any:
    low = float(x[1]) if len(x) > 1 and x[1] is not None else number(node, "min", float("-inf"))
    high = float(x[2]) if len(x) > 2 and x[2] is not None else number(node, "max", float("inf"))
    return torch.clamp(x[0], low, high)


def _split(torch: Any, node: Node, x: List[Any]) -> Any:
    axis = node.integer("axis")
    sizes = ints(node, "split") or ([int(n) for n in x[1].tolist()] if len(x) > 1 else None)
    count = len(node.outputs)
    return torch.split(x[0], sizes or -(-x[0].shape[axis] // count), axis)


def _binary(name: str) -> Op:
    return lambda torch, node, x: getattr(torch, name)(x[0], x[1])


def _unary(name: str) -> Op:
    return lambda torch, node, x: getattr(torch, name)(x[0])


OPS = {
    "Conv": _conv, "MaxPool": _pool, "AveragePool": _pool, "Gemm": _gemm, "Clip": _clip,
    "BatchNormalization": _norm, "Reshape": _reshape, "ReduceMean": _mean, "Split": _split,
    "MatMul": _binary("matmul"), "Add": _binary("add"), "Sub": _binary("sub"),
    "Mul": _binary("mul"), "Div": _binary("div"), "Relu": _unary("relu"),
    "Sigmoid": _unary("sigmoid"), "Tanh": _unary("tanh"), "Erf": _unary("erf"),
    "Sqrt": _unary("sqrt"), "Exp": _unary("exp"),
    "Identity": lambda torch, node, x: x[0], "Dropout": lambda torch, node, x: x[0],
    "Sum": lambda torch, node, x: sum(x[1:], x[0]),
    "HardSwish": lambda torch, node, x: torch.nn.functional.hardswish(x[0]),
    "HardSigmoid": lambda torch, node, x: torch.clamp(
        x[0] * number(node, "alpha", 0.2) + number(node, "beta", 0.5), 0.0, 1.0),
    "LeakyRelu": lambda torch, node, x: torch.nn.functional.leaky_relu(
        x[0], number(node, "alpha", 0.01)),
    "PRelu": lambda torch, node, x: torch.where(x[0] > 0, x[0], x[0] * x[1]),
    "GlobalAveragePool": lambda torch, node, x: x[0].mean(dim=(2, 3), keepdim=True),
    "GlobalMaxPool": lambda torch, node, x: x[0].amax(dim=(2, 3), keepdim=True),
    "Concat": lambda torch, node, x: torch.cat(x, node.integer("axis")),
    "Flatten": lambda torch, node, x: x[0].flatten(node.integer("axis", 1)),
    "Softmax": lambda torch, node, x: torch.softmax(
        x[0], node.integer("axis", 1 if x[0].dim() == 4 else -1)
    ),
    "Transpose": lambda torch, node, x: x[0].permute(
        ints(node, "perm") or list(range(x[0].dim()))[::-1]).contiguous(),
    "LRN": lambda torch, node, x: torch.nn.functional.local_response_norm(
        x[0], node.integer("size"), number(node, "alpha", 1e-4), number(node, "beta", 0.75),
        number(node, "bias", 1.0)),
}  # type: Dict[str, Op]  # fmt: skip


def run(torch: Any, nodes: List[Node], values: Dict[str, Any]) -> Dict[str, Any]:
    """All tensors of a graph, from its inputs and weights in ``values``."""
    values = dict(values)
    for node in nodes:
        op = OPS.get(node.op)
        if op is None:
            raise EngineError("the PyTorch engine has no %s" % node.op)
        result = op(torch, node, [values[name] if name else None for name in node.inputs])
        if not isinstance(result, (tuple, list)):
            result = [result]
        values.update(zip(node.outputs, result))
    return values
