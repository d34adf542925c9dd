"""The memory that a network needs: weights, activations, and what the engine adds.

A tensor lives from the kernel that makes it to the last that reads it, in the order of the file;
the caller's inputs and outputs live throughout. A view is its source, and a pointwise kernel writes
over an operand that no other kernel reads. Held against ONNX Runtime in experiments/memory.md.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from operator import itemgetter

from hybridlat.engines import registry
from hybridlat.graph.cells import file_rank
from hybridlat.graph.network import Lowered, Network, TensorType
from hybridlat.graph.operators import KINDS, VIEWS, kind_of, named
from hybridlat.model.family.shipped import FAMILY_OF
from hybridlat.schema.structure import Memory
from hybridlat.schema.target import Device, Target

# What ONNX Runtime writes over its operand (MayInplace in its activations.cc): no sum or product.
_IN_PLACE = named(
    "Relu Sigmoid Tanh HardSigmoid LeakyRelu Elu Selu Softplus Softsign ThresholdedRelu Clip "
    "Softmax LogSoftmax"
)
_FLOATS = ("float32", "float16", "bfloat16")
_ITEM_BYTES = {"fp16": 2, "bf16": 2, "amp": 2, "int8": 1}
_MOST_BLOCKS = 3000
_MIB = 1 << 20
_ADDED = {"tensorrt": (200, 700), "onnxruntime": (20, 100)}
_ADDED |= dict.fromkeys(("torch", "torch-compile"), (400, 1000))
"""MiB that engines take besides: context, kernels and libraries. Processes of TensorRT 8.6 took 283
MiB on a T4 (github.com/NVIDIA/TensorRT/issues/3743), cuBLAS and cuDNN of 8.4 423 MiB (issues/2217),
a PyTorch process 723 MiB (discuss.pytorch.org/t/73021); ONNX Runtime: experiments/memory.md."""
_SYSTEM = (0.05, 0.2)
"""The system's share of a device's memory, and of a Jetson's: 0.3 to 1.5 of 4 GB there
(github.com/microsoft/onnxruntime/issues/4259)."""


@dataclass(eq=False)
class _Block:
    """Memory of a tensor and of those that take it over; ``left`` are reads to come."""

    type: TensorType
    bytes: int
    begin: int
    end: int = 0
    left: int = 0


def footprint(lowered: Lowered, target: Target, of_file: Network) -> tuple[int, int]:
    """Bytes of a lowered network's weights, and of the activations that live at once.

    Floats count as in the target's precision, unless its engine keeps that of the file. ONNX
    Runtime gives a tensor the block of a dead one of its shape, and puts each block into the
    smallest gap of an arena (its allocation_planner.cc and mem_pattern_planner.h).
    """
    rank, network = file_rank(lowered), lowered.network
    order: Sequence[int] = range(len(rank))
    if rank != sorted(rank):
        order = network.order_by(rank.__getitem__)
    keeps = registry.entry(target.engine).keeps_precision
    item_bytes = None if keeps else _ITEM_BYTES.get(target.precision, 4)

    @cache
    def size(type_: TensorType) -> int:
        is_float = item_bytes is not None and type_.dtype in _FLOATS
        return type_.elements * (item_bytes or 0) if is_float else type_.bytes

    def weight(type_: TensorType) -> int:
        is_cast = item_bytes and target.precision == "amp" and type_.dtype in _FLOATS
        return size(type_) * (3 if is_cast else 1)  # in FP32, and a copy in FP16

    plans = target.engine == "onnxruntime" and len(network.nodes) <= _MOST_BLOCKS
    blocks = _blocks(network, order, size, plans)
    callers = sum(size(network.type_of(name)) for name in {*network.inputs, *network.outputs})
    weights = sum([weight(constant.type) for constant in network.constants.values()])
    # An engine's answer does not tell which of its weights the file holds once for several readers.
    copies = [of_file.constants[n].type for n, first in of_file.held_as.items() if n != first]
    weights -= sum(map(weight, copies))
    return weights, callers + (_arena(blocks) if plans else _most_alive(blocks))


def memory_of(sizes: tuple[int, int], target: Target, device: Device | None) -> Memory:
    """The memory of a network under a target's engine, beside that of its device."""
    weights, activations = sizes
    added = _ADDED.get(FAMILY_OF.get(target.engine, target.engine))
    total = None
    if added is not None:
        low, high = (weights + activations + mib * _MIB for mib in added)
        # Kernels may keep weights in a form of their own as well; PyTorch writes over no operand.
        total = low, high + (activations if "torch" in target.engine else weights)
    of_device = None if device is None else device.memory_bytes
    share = _SYSTEM[1 if device is not None and device.shares_memory else 0]
    return Memory(weights, activations, total, of_device, round((of_device or 0) * share))


def _blocks(
    network: Network, order: Sequence[int], size: Callable[[TensorType], int], reuses: bool
) -> list[_Block]:
    blocks: list[_Block] = []
    place: dict[str, _Block] = {}
    dead: defaultdict[TensorType, list[_Block]] = defaultdict(list)
    outputs, types, readers = set(network.outputs), network.types, network.consumers
    for i, node in enumerate([network.nodes[position] for position in order]):
        read = [place[name] for name in dict.fromkeys(node.inputs) if name in place]
        for block in read:
            block.left -= 1
        kind = kind_of(node.qualified_op) if read[1:] or not reuses else -1
        in_place = node.op in _IN_PLACE if reuses else kind == KINDS["pointwise"]
        over = read if in_place else read[1:] if kind == KINDS["conv"] else []
        for name in node.outputs:
            if name not in types or name in outputs:
                continue
            type_, own = types[name], size(types[name])
            if node.op in VIEWS:
                if not read:  # of what is the caller's
                    continue
                block = read[0]
            elif free := [b for b in over if not b.left and b.bytes == own]:
                block = free[0]
            elif reuses and dead[type_]:
                block = dead[type_].pop()
            else:
                block = _Block(type_, own, i)
                blocks.append(block)
            place[name] = block
            block.left += len(readers.get(name, ()))
        for block in [*read, *(place[name] for name in node.outputs if name in place)]:
            block.end = i
            if not block.left and block not in dead[block.type]:
                dead[block.type].append(block)
    return blocks


def _most_alive(blocks: Sequence[_Block]) -> int:
    change: Counter[int] = Counter()
    for block in blocks:
        change[block.begin] += block.bytes
        change[block.end + 1] -= block.bytes
    return max(itertools.accumulate(change[i] for i in sorted(change)), default=0)


def _arena(blocks: Sequence[_Block]) -> int:
    """The size of an arena in which each block lies in the smallest gap that holds it."""
    arena = 0
    placed: list[tuple[int, _Block]] = []
    for block in blocks:
        placed = sorted((p for p in placed if p[1].end >= block.begin), key=itemgetter(0))
        gaps, end = [], 0
        for offset, other in placed:
            gaps.append((offset - end, end))
            end = max(end, offset + other.bytes)
        gaps.append((arena - end, end))
        offset = min((gap for gap in gaps if gap[0] >= block.bytes), default=(0, end))[1]
        placed.append((offset, block))
        arena = max(arena, offset + block.bytes)
    return arena
