"""What a draft rests on: one pattern for what was done to each operator, and for what it reads.

A pattern leaves out the sizes that decide nothing, so that the engine's word for one network holds
for others that are built alike.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from hybridlat.engines.onnxruntime.draft_graph import BLOCKS, Attributes, DraftGraph, Kernel

Pattern = tuple[object, ...]
ALIGNMENT = 4
"""Channels that are no multiple of it are never brought into blocks."""
_CONVOLUTIONS = frozenset({"Conv", "FusedConv"})
_SIZES = frozenset({"kernel_shape", "pads", "strides", "dilations", "activation_params", "shape"})


Maker = tuple[str, str, bool, bool, bool, bool]
"""A kernel, as one that reads its result sees it: operator, domain, whether it gives blocks,
whether others read it too, whether it is activated, whether it adds."""
_Operand = tuple[tuple[int, ...], bool]
"""What a kernel reads that no kernel makes: the shape of a weight, and whether it is numbers."""


class _Stand(NamedTuple):
    """A kernel and all around it that a pattern may tell of.

    ``ops`` are the operators of the file in it; ``read`` what each of its inputs is, a word for one
    that is neither a kernel's nor a constant.
    """

    domain: str
    op: str
    version: int
    ops: tuple[str, ...]
    attributes: Attributes
    read: tuple[Maker | _Operand | str, ...]
    is_shared: bool
    is_output: bool
    is_left: bool


def patterns_of(graph: DraftGraph) -> frozenset[Pattern]:
    """What was done to each operator and what it reads, without sizes that decide nothing."""
    stands = {_stand(graph, kernel) for kernel in graph.kernels}
    return frozenset().union(*[_patterns(stand, graph.block) for stand in stands])


def _maker(kernel: Kernel) -> Maker:
    """A kernel as those see it that read its result."""
    shared, adds = kernel.uses > 1, len(kernel.inputs) > 3
    return kernel.op, kernel.domain, kernel.channels > 0, shared, kernel.is_activated, adds


def _stand(graph: DraftGraph, kernel: Kernel) -> _Stand:
    nodes, made, constants = graph.network.nodes, graph.made, graph.constants
    read: list[Maker | _Operand | str] = []
    for name in kernel.inputs:
        maker = made.get(name)
        if maker is not None:
            read.append(_maker(maker))
        elif (constant := constants.get(name)) is not None:
            read.append((constant.type.shape, constant.values is not None))
        else:
            read.append("input" if name else "")
    ops = tuple([nodes[i].op for i in kernel.origins])
    return _Stand(
        kernel.domain, kernel.op, kernel.version, ops, kernel.attributes, tuple(read),
        kernel.uses > 1, kernel.output.removesuffix(BLOCKS) in graph.outputs, kernel.left > 0,
    )  # fmt: skip


@lru_cache(maxsize=16_384)
def _patterns(stand: _Stand, block: int) -> frozenset[Pattern]:
    """Of one kernel; networks of a search space share most of them."""
    what = (stand.domain, stand.op, tuple(dict.fromkeys(stand.ops)))
    found: list[Pattern] = []
    read: list[object] = []
    for place, source in enumerate(stand.read):
        if isinstance(source, str):
            read.append(source)
        elif len(source) == 2:
            shape, has_values = source
            read.append((_sizes(shape, block), has_values))
        else:
            op, domain, is_blocked, *done = source
            read.append(is_blocked)
            # What a convolution may take in hangs on who else reads it, and what it has taken.
            tells = op in _CONVOLUTIONS and (stand.op not in _CONVOLUTIONS or place == 3)
            found.append((what, place, op, domain, tuple(done) if tells else None))
    kept = _kept(stand.attributes, block)
    ends = stand.is_output, stand.is_left
    found.append((what, stand.version, kept, tuple(read), stand.is_shared, ends))
    return frozenset(found)


def _kept(attributes: Attributes, block: int) -> tuple[tuple[str, object], ...]:
    """Attributes without the sizes that decide nothing."""
    return tuple(
        (name, None if name in _SIZES else _size(value, block) if type(value) is int else value)
        for name, value in attributes
    )


def _sizes(shape: tuple[int, ...], block: int) -> object:
    return tuple([_size(n, block) for n in shape[:2]]) if len(shape) == 4 else len(shape)


def _size(value: int, block: int) -> int:
    """Which of the engine's divisors a number of channels has, and whether it fills a block."""
    if value < 2:
        return value
    if value < block:
        return 2 if value % ALIGNMENT else 4
    return 16 if value % block == 0 else 8 if value % ALIGNMENT == 0 else 7
