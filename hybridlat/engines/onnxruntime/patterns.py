"""What a draft rests on: one pattern for what was done to each operator, and for what it reads.

A pattern leaves out the sizes that decide nothing, so that the engine's word for one network holds
for others that are built alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from hybridlat.engines.onnxruntime.draft_graph import BLOCKS, Attributes, DraftGraph

Pattern = tuple[object, ...]
ALIGNMENT = 4
"""Channels that are no multiple of it are never brought into blocks."""
_CONVOLUTIONS = frozenset({"Conv", "FusedConv"})
_SIZES = frozenset({"kernel_shape", "pads", "strides", "dilations", "activation_params", "shape"})


def patterns_of(graph: DraftGraph) -> Iterator[Pattern]:
    """What was done to each operator and what it reads, without sizes that decide nothing."""
    nodes, made, outputs, block = graph.network.nodes, graph.made, graph.outputs, graph.block
    for kernel in graph.kernels:
        ops = tuple([nodes[i].op for i in kernel.origins])
        what = (kernel.domain, kernel.op, ops if len(ops) < 2 else tuple(dict.fromkeys(ops)))
        read = []
        for place, name in enumerate(kernel.inputs):
            maker = made.get(name)
            if maker is None:
                read.append(_operand(graph, name))
                continue
            read.append(maker.channels > 0)
            # What a convolution may take in hangs on who else reads it, and what it has taken.
            state = None
            if maker.op in _CONVOLUTIONS and (kernel.op not in _CONVOLUTIONS or place == 3):
                state = maker.uses > 1, maker.is_activated, len(maker.inputs) > 3
            yield what, place, maker.op, maker.domain, state
        ends = kernel.output.removesuffix(BLOCKS) in outputs, kernel.left > 0
        kept = _kept(kernel.attributes, block)
        yield what, kernel.version, kept, tuple(read), kernel.uses > 1, ends


def _operand(graph: DraftGraph, name: str) -> object:
    """What a kernel reads that no kernel makes: a weight, numbers, an input of the network."""
    constant = graph.constants.get(name)
    if constant is None:
        return "input" if name else ""
    return _sizes(constant.type.shape, graph.block), constant.values is not None


@lru_cache(maxsize=4096)
def _kept(attributes: Attributes, block: int) -> tuple[tuple[str, object], ...]:
    """Attributes without the sizes that decide nothing."""
    return tuple(
        (name, None if name in _SIZES else _size(value, block) if type(value) is int else value)
        for name, value in attributes
    )


@lru_cache(maxsize=4096)
def _sizes(shape: tuple[int, ...], block: int) -> object:
    return tuple([_size(n, block) for n in shape[:2]]) if len(shape) == 4 else len(shape)


def _size(value: int, block: int) -> int:
    """Which of the engine's divisors a number of channels has, and whether it fills a block."""
    if value < 2:
        return value
    if value < block:
        return 2 if value % ALIGNMENT else 4
    return 16 if value % block == 0 else 8 if value % ALIGNMENT == 0 else 7
