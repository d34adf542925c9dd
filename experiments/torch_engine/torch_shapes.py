"""ONNX operators that move, resize or pick values, in PyTorch; and how attributes are read.

What decides shapes (axes, sizes, pads, limits) is read on the CPU: a CUDA graph is captured while
these run, and waiting for the device in between would end the capture.
"""

import struct
from typing import Any, Callable, Dict, List, Optional, Set

from . import EngineError, wire
from .onnx_graph import Node

Op = Callable[[Any, Node, List[Any]], Any]

# A longer list of integers is data, and lies on the device.
MOST_PARAMETERS = 64
# Inputs that say how to compute, not what: they stay on the CPU.
PARAMETERS = {
    "Clip": (1, 2), "Dropout": (1, 2), "Expand": (1,), "Gather": (1,), "Pad": (1, 2, 3),
    "ReduceMax": (1,), "ReduceMean": (1,), "ReduceSum": (1,), "Reshape": (1,), "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4), "Split": (1,), "Squeeze": (1,), "Tile": (1,), "Unsqueeze": (1,),
    "Upsample": (1,),
}  # fmt: skip


def parameters(nodes: List[Node]) -> Set[str]:
    """Names of the tensors that are read as parameters."""
    return {
        node.inputs[place]
        for node in nodes
        for place in PARAMETERS.get(node.op, ())
        if place < len(node.inputs)
    }


def ints(node: Node, name: str, default: Optional[List[int]] = None) -> Optional[List[int]]:
    """A list-of-integers attribute."""
    value = node.attributes.get(name)
    return wire.integers(value, 8) if value else default


def number(node: Node, name: str, default: float) -> float:
    """A float attribute."""
    for field, _, value in node.attributes.get(name, []):
        if field == 2 and isinstance(value, bytes):
            return float(struct.unpack("<f", value)[0])
    return default


def string(node: Node, name: str, default: str = "") -> str:
    """A text attribute."""
    value = node.attributes.get(name)
    return wire.text(value, 4) if value else default


def given(node: Node, name: str, x: List[Any], place: int) -> Optional[List[int]]:
    """Integers that older operator sets have as an attribute and newer ones as an input."""
    result = ints(node, name)
    if result is None and len(x) > place and x[place] is not None:
        result = [int(n) for n in x[place].tolist()]
    return result


def _refuse(node: Node, what: str) -> EngineError:
    return EngineError("the PyTorch engine has no %s with %s" % (node.op, what))


def _slice(torch: Any, node: Node, x: List[Any]) -> Any:
    starts, ends = given(node, "starts", x, 1) or [], given(node, "ends", x, 2) or []
    axes = given(node, "axes", x, 3) or list(range(len(starts)))
    steps = given(node, "steps", x, 4) or [1] * len(starts)
    if any(step < 1 for step in steps):
        raise _refuse(node, "a step below 1")
    places = [slice(None)] * x[0].dim()
    for axis, start, end, step in zip(axes, starts, ends, steps):
        places[axis] = slice(start, end, step)
    return x[0][tuple(places)]


def _pad(torch: Any, node: Node, x: List[Any]) -> Any:
    pads = given(node, "pads", x, 1) or []
    if len(x) > 3 and x[3] is not None:
        raise _refuse(node, "axes")
    value = float(x[2]) if len(x) > 2 and x[2] is not None else number(node, "value", 0.0)
    mode = {"constant": "constant", "reflect": "reflect", "edge": "replicate"}.get(
        string(node, "mode", "constant")
    )
    if mode is None:
        raise _refuse(node, "mode " + string(node, "mode"))
    half = len(pads) // 2
    pairs = [p for axis in reversed(range(half)) for p in (pads[axis], pads[half + axis])]
    if mode == "constant":
        return torch.nn.functional.pad(x[0], pairs, value=value)
    if any(pairs[4:]):
        raise _refuse(node, "mode %s over channels" % mode)
    return torch.nn.functional.pad(x[0], pairs[:4], mode=mode)


def _resize(torch: Any, node: Node, x: List[Any]) -> Any:
    sizes = [int(n) for n in x[3].tolist()] if len(x) > 3 and x[3] is not None else None
    scales = x[1] if node.op == "Upsample" else x[2] if len(x) > 2 else None
    if sizes is None:
        assert scales is not None
        sizes = [int(size * scale) for size, scale in zip(x[0].shape, scales.tolist())]
    if sizes[:2] != list(x[0].shape[:2]) or len(sizes) != 4:
        raise _refuse(node, "sizes %s of %s" % (sizes, list(x[0].shape)))
    mode = string(node, "mode", "nearest")
    how = string(node, "coordinate_transformation_mode", "half_pixel")
    whole = all(new % old == 0 for new, old in zip(sizes, x[0].shape))
    if mode == "nearest" and (whole or how == "asymmetric"):
        return torch.nn.functional.interpolate(x[0], sizes[2:], mode="nearest")
    if mode == "linear" and how in ("half_pixel", "pytorch_half_pixel", "align_corners"):
        return torch.nn.functional.interpolate(
            x[0], sizes[2:], mode="bilinear", align_corners=how == "align_corners"
        )
    raise _refuse(node, "mode %s, %s" % (mode, how))


def _gather(torch: Any, node: Node, x: List[Any]) -> Any:
    axis, index = node.integer("axis"), x[1]
    if index.dim() == 0:
        return x[0].select(axis, int(index))
    if index.dim() > 1 or index.numel() > MOST_PARAMETERS:
        return x[0][(slice(None),) * (axis % x[0].dim()) + (index.to(x[0].device),)]
    return torch.stack([x[0].select(axis, int(i)) for i in index.tolist()], axis)


def _depth_to_space(torch: Any, node: Node, x: List[Any]) -> Any:
    size = node.integer("blocksize")
    if string(node, "mode", "DCR") == "CRD":
        return torch.nn.functional.pixel_shuffle(x[0], size)
    n, c, h, w = x[0].shape
    apart = x[0].reshape(n, size, size, c // size**2, h, w).permute(0, 3, 4, 1, 5, 2)
    return apart.reshape(n, c // size**2, h * size, w * size)


def _space_to_depth(torch: Any, node: Node, x: List[Any]) -> Any:
    size = node.integer("blocksize")
    n, c, h, w = x[0].shape
    apart = x[0].reshape(n, c, h // size, size, w // size, size).permute(0, 3, 5, 1, 2, 4)
    return apart.reshape(n, c * size**2, h // size, w // size)


def _squeeze(torch: Any, node: Node, x: List[Any]) -> Any:
    axes = given(node, "axes", x, 1)
    if axes is None:
        return x[0].squeeze()
    rank = x[0].dim()
    gone = {axis % rank for axis in axes}
    return x[0].reshape([size for axis, size in enumerate(x[0].shape) if axis not in gone])


def _unsqueeze(torch: Any, node: Node, x: List[Any]) -> Any:
    axes = given(node, "axes", x, 1) or []
    rank = x[0].dim() + len(axes)
    made = x[0]
    for axis in sorted(axis % rank for axis in axes):
        made = made.unsqueeze(axis)
    return made


def _reshape(torch: Any, node: Node, x: List[Any]) -> Any:
    shape = [int(n) for n in x[1].tolist()]
    return x[0].reshape([x[0].shape[i] if n == 0 else n for i, n in enumerate(shape)])


def _split(torch: Any, node: Node, x: List[Any]) -> Any:
    axis, count = node.integer("axis"), len(node.outputs)
    return torch.split(x[0], given(node, "split", x, 1) or -(-x[0].shape[axis] // count), axis)


def _shape(torch: Any, node: Node, x: List[Any]) -> Any:
    sizes = list(x[0].shape)
    return torch.tensor(sizes[node.integer("start") : node.integer("end", len(sizes))])


def _cast(torch: Any, node: Node, x: List[Any]) -> Any:
    kinds = {1: None, 10: None, 6: torch.int32, 7: torch.int64, 9: torch.bool}
    to = node.integer("to")
    if to not in kinds:
        raise _refuse(node, "the type %d" % to)
    if kinds[to] is not None:
        return x[0].to(kinds[to])
    return x[0] if x[0].is_floating_point() else x[0].float()


SHAPE_OPS: Dict[str, Op] = {
    "Slice": _slice, "Pad": _pad, "Resize": _resize, "Upsample": _resize, "Gather": _gather,
    "DepthToSpace": _depth_to_space, "SpaceToDepth": _space_to_depth, "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze, "Reshape": _reshape, "Split": _split, "Shape": _shape, "Cast": _cast,
    "Identity": lambda torch, node, x: x[0], "Dropout": lambda torch, node, x: x[0],
    "Concat": lambda torch, node, x: torch.cat(x, node.integer("axis")),
    "Flatten": lambda torch, node, x: x[0].reshape(
        [_product(x[0].shape[: node.integer("axis", 1)]), -1]),
    "Transpose": lambda torch, node, x: x[0].permute(
        ints(node, "perm") or list(range(x[0].dim()))[::-1]).contiguous(),
    "Expand": lambda torch, node, x: x[0].expand(
        torch.broadcast_shapes(tuple(x[0].shape), tuple(int(n) for n in x[1].tolist()))),
    "Tile": lambda torch, node, x: x[0].repeat([int(n) for n in x[1].tolist()]),
}  # fmt: skip


def _product(sizes: Any) -> int:
    total = 1
    for size in sizes:
        total *= int(size)
    return total
