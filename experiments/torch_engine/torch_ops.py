"""ONNX operators in PyTorch: a table, and the graph run by it. Only what CNNs are made of."""

from typing import Any, Dict, List

from . import EngineError
from .onnx_graph import Node
from .torch_shapes import SHAPE_OPS, Op, given, ints, number, string


def _padded(torch: Any, x: Any, pads: List[int], value: float = 0.0) -> Any:
    top, left, bottom, right = pads
    return torch.nn.functional.pad(x, (left, right, top, bottom), value=value)


def _pads(node: Node) -> List[int]:
    pads = ints(node, "pads") or [0, 0, 0, 0]
    if string(node, "auto_pad") not in ("", "NOTSET", "VALID"):
        raise EngineError("the PyTorch engine has no %s with auto_pad" % node.op)
    if len(pads) != 4:
        raise EngineError("the PyTorch engine has no %s over %d axes" % (node.op, len(pads) // 2))
    return pads


def _conv(torch: Any, node: Node, x: List[Any]) -> Any:
    pads = _pads(node)
    data, padding = x[0], pads[:2]
    if pads[:2] != pads[2:]:
        data, padding = _padded(torch, data, pads), [0, 0]
    return torch.nn.functional.conv2d(
        data, x[1], x[2] if len(x) > 2 else None, ints(node, "strides") or [1, 1], padding,
        ints(node, "dilations") or [1, 1], node.integer("group", 1),
    )  # fmt: skip


def _conv_transpose(torch: Any, node: Node, x: List[Any]) -> Any:
    pads = _pads(node)
    if ints(node, "output_shape") or pads[:2] != pads[2:]:
        raise EngineError("the PyTorch engine has no ConvTranspose with such pads")
    return torch.nn.functional.conv_transpose2d(
        x[0], x[1], x[2] if len(x) > 2 else None, ints(node, "strides") or [1, 1], pads[:2],
        ints(node, "output_padding") or [0, 0], node.integer("group", 1),
        ints(node, "dilations") or [1, 1],
    )  # fmt: skip


def _pool(torch: Any, node: Node, x: List[Any]) -> Any:
    kernel, strides = ints(node, "kernel_shape") or [], ints(node, "strides") or [1, 1]
    ceil, pads = bool(node.integer("ceil_mode")), _pads(node)
    native = pads[:2] == pads[2:] and all(2 * p <= k for p, k in zip(pads, kernel))
    if node.op == "MaxPool":
        dilations = ints(node, "dilations") or [1, 1]
        if native:
            return torch.nn.functional.max_pool2d(
                x[0], kernel, strides, pads[:2], dilations, ceil_mode=ceil
            )
        data = _padded(torch, x[0], pads, float("-inf"))
        return torch.nn.functional.max_pool2d(data, kernel, strides, 0, dilations, ceil_mode=ceil)
    counted = bool(node.integer("count_include_pad"))
    if native:
        return torch.nn.functional.avg_pool2d(
            x[0], kernel, strides, pads[:2], ceil_mode=ceil, count_include_pad=counted
        )
    data = torch.nn.functional.avg_pool2d(_padded(torch, x[0], pads), kernel, strides, 0, ceil)
    if counted:
        return data
    return data / _inside(torch, x[0], kernel, strides, pads, ceil)


_shares: Dict[Any, Any] = {}


def _inside(
    torch: Any, x: Any, kernel: List[int], strides: List[int], pads: List[int], ceil: bool
) -> Any:
    """The share of every window that lies inside; made once, so that a graph only reads it."""
    key = (tuple(x.shape[2:]), tuple(kernel), tuple(strides), tuple(pads), ceil, x.dtype, x.device)
    if key not in _shares:
        ones = _padded(torch, torch.ones_like(x[:1, :1]), pads)
        _shares[key] = torch.nn.functional.avg_pool2d(ones, kernel, strides, 0, ceil)
    return _shares[key]


def _gemm(torch: Any, node: Node, x: List[Any]) -> Any:
    a = x[0].t() if node.integer("transA") else x[0]
    b = x[1].t() if node.integer("transB") else x[1]
    alpha, beta = number(node, "alpha", 1.0), number(node, "beta", 1.0)
    if len(x) > 2:
        return torch.addmm(x[2], a, b, beta=beta, alpha=alpha)
    return torch.mm(a, b) if alpha == 1.0 else torch.mm(a, b) * alpha


def _batch_norm(torch: Any, node: Node, x: List[Any]) -> Any:
    return torch.nn.functional.batch_norm(
        x[0], x[3], x[4], x[1], x[2], False, 0.0, number(node, "epsilon", 1e-5)
    )


def _instance_norm(torch: Any, node: Node, x: List[Any]) -> Any:
    return torch.nn.functional.instance_norm(
        x[0], weight=x[1], bias=x[2], eps=number(node, "epsilon", 1e-5)
    )


def _layer_norm(torch: Any, node: Node, x: List[Any]) -> Any:
    shape = tuple(x[0].shape[node.integer("axis", -1) :])
    bias = x[2].reshape(shape) if len(x) > 2 and x[2] is not None else None
    return torch.nn.functional.layer_norm(
        x[0], shape, x[1].reshape(shape), bias, number(node, "epsilon", 1e-5)
    )


def _reduce(name: str) -> Op:
    def reduce(torch: Any, node: Node, x: List[Any]) -> Any:
        axes = given(node, "axes", x, 1)
        if axes is None and node.integer("noop_with_empty_axes"):
            return x[0]
        keep = bool(node.integer("keepdims", 1))
        return getattr(torch, name)(
            x[0], dim=axes if axes is not None else list(range(x[0].dim())), keepdim=keep
        )

    return reduce


def _clip(torch: Any, node: Node, x: List[Any]) -> Any:
    low = float(x[1]) if len(x) > 1 and x[1] is not None else number(node, "min", float("-inf"))
    high = float(x[2]) if len(x) > 2 and x[2] is not None else number(node, "max", float("inf"))
    return torch.clamp(x[0], low, high)


def _gelu(torch: Any, node: Node, x: List[Any]) -> Any:
    return torch.nn.functional.gelu(x[0], approximate=string(node, "approximate", "none"))


def _binary(name: str) -> Op:
    return lambda torch, node, x: getattr(torch, name)(x[0], x[1])


def _unary(name: str) -> Op:
    return lambda torch, node, x: getattr(torch, name)(x[0])


OPS: Dict[str, Op] = {
    "Conv": _conv, "ConvTranspose": _conv_transpose, "MaxPool": _pool, "AveragePool": _pool,
    "Gemm": _gemm, "Clip": _clip, "Gelu": _gelu, "BatchNormalization": _batch_norm,
    "InstanceNormalization": _instance_norm, "LayerNormalization": _layer_norm,
    "ReduceMean": _reduce("mean"), "ReduceSum": _reduce("sum"), "ReduceMax": _reduce("amax"),
    "MatMul": _binary("matmul"), "Add": _binary("add"), "Sub": _binary("sub"),
    "Mul": _binary("mul"), "Div": _binary("div"), "Pow": _binary("pow"),
    "Max": _binary("maximum"), "Min": _binary("minimum"), "Relu": _unary("relu"),
    "Sigmoid": _unary("sigmoid"), "Tanh": _unary("tanh"), "Erf": _unary("erf"),
    "Sqrt": _unary("sqrt"), "Exp": _unary("exp"), "Abs": _unary("abs"), "Neg": _unary("neg"),
    "Sum": lambda torch, node, x: sum(x[1:], x[0]),
    "Where": lambda torch, node, x: torch.where(x[0], x[1], x[2]),
    "HardSwish": lambda torch, node, x: torch.nn.functional.hardswish(x[0]),
    "Mish": lambda torch, node, x: torch.nn.functional.mish(x[0]),
    "Softplus": lambda torch, node, x: torch.nn.functional.softplus(x[0]),
    "Elu": lambda torch, node, x: torch.nn.functional.elu(x[0], number(node, "alpha", 1.0)),
    "HardSigmoid": lambda torch, node, x: torch.clamp(
        x[0] * number(node, "alpha", 0.2) + number(node, "beta", 0.5), 0.0, 1.0),
    "LeakyRelu": lambda torch, node, x: torch.nn.functional.leaky_relu(
        x[0], number(node, "alpha", 0.01)),
    "PRelu": lambda torch, node, x: torch.where(x[0] > 0, x[0], x[0] * x[1]),
    "GlobalAveragePool": lambda torch, node, x: x[0].mean(dim=(2, 3), keepdim=True),
    "GlobalMaxPool": lambda torch, node, x: x[0].amax(dim=(2, 3), keepdim=True),
    "Softmax": lambda torch, node, x: torch.softmax(
        x[0], node.integer("axis", 1 if x[0].dim() == 4 else -1)
    ),
    "LRN": lambda torch, node, x: torch.nn.functional.local_response_norm(
        x[0], node.integer("size"), number(node, "alpha", 1e-4), number(node, "beta", 0.75),
        number(node, "bias", 1.0)),
}  # fmt: skip
OPS.update(SHAPE_OPS)


def missing(nodes: List[Node]) -> List[str]:
    """Operators of a graph that are not in the table, sorted."""
    return sorted({node.op for node in nodes if node.op not in OPS})


def run(torch: Any, nodes: List[Node], values: Dict[str, Any]) -> Dict[str, Any]:
    """All tensors of a graph, from its inputs and weights in ``values``."""
    values = dict(values)
    for node in nodes:
        op = OPS.get(node.op)
        if op is None:
            raise EngineError("the PyTorch engine has no %s" % ", ".join(missing(nodes)))
        result = op(torch, node, [values[name] if name else None for name in node.inputs])
        if not isinstance(result, (tuple, list)):
            result = [result]
        values.update(zip(node.outputs, result))
    return values
