"""Cut a network in which no single tensor is live anywhere, such as the inside of a U-Net.

Its kernels are put into an order that their listing does not decide: before each kernel what it
reads, before that what that reads. So the kernels of a branch, a block and a stage stand side by
side. The order is split into runs of at most ``MOST_KERNELS``, those that cost least:

- 12 for each tensor that a run reads, or gives out, beyond one each, and 48 for each beyond four;
- 2 for each run beyond one that reads, or writes, the same tensor;
- -1 for each run.

So a tensor that only passes by holds nothing together, the branches of a block stay in it, and what
goes on alone is cut everywhere. A concatenation whose parts are written in place is one tensor.
"""

from __future__ import annotations

import json

from hybridlat.graph.network import Network, Node
from hybridlat.graph.signature import canonical_order

MOST_KERNELS = 12
MOST_TENSORS = 4
_FURTHER, _TOO_MANY, _SHARED = 12, 48, 2


def block_positions(network: Network) -> list[tuple[int, ...]]:
    """Positions of the kernels of each block, in an order in which the blocks can run."""
    order, parts = _order(network), _written_in_place(network)
    read = [{n for n in network.nodes[p].inputs if n in network.types} for p in order]
    made = [set(filter(None, network.nodes[p].outputs)) for p in order]
    last_read = {parts.get(name, name): step for step, names in enumerate(read) for name in names}
    last_read.update((parts.get(name, name), len(order)) for name in network.outputs)
    last_made = {parts.get(name, name): step for step, names in enumerate(made) for name in names}
    best = [(0, 0)]  # of the kernels before each step: the cost, and where the last block begins
    for end in range(1, len(order) + 1):
        inputs: set[str] = set()
        outputs: set[str] = set()
        choices = []
        for begin in range(end - 1, max(-1, end - 1 - MOST_KERNELS), -1):
            inputs |= read[begin]
            inputs -= made[begin]
            outputs.update([parts.get(n, n) for n in made[begin]])
            sources = {parts.get(n, n) for n in inputs} if parts else inputs
            results = [n for n in outputs if last_read.get(n, -1) >= end]
            whole = sum(last_made[n] < end for n in results)
            choices.append((best[begin][0] + _cost(len(sources), len(results), whole), begin))
        best.append(min(choices))
    blocks, end = [], len(order)
    while end:
        begin = best[end][1]
        blocks.append(tuple(sorted(order[begin:end])))
        end = begin
    return blocks[::-1]


def _cost(inputs: int, outputs: int, whole: int) -> int:
    """Of one block; ``whole`` of its outputs are written by no block behind it.

    The readers and writers of each tensor, less two, sum up to those beyond one each.
    """
    further = max(inputs - 1, 0) + max(outputs - 1, 0)
    beyond = max(inputs + outputs - MOST_TENSORS, 0)
    return _FURTHER * further + _TOO_MANY * beyond + _SHARED * (inputs + outputs - 2 * whole) - 1


def _order(network: Network) -> list[int]:
    """Every kernel right before what reads it, inputs in the order in which they are named."""
    nodes, producers, readers = network.nodes, network.producers, network.consumers
    ends = [i for i, node in enumerate(nodes) if not any(map(readers.get, node.outputs))]
    if len(ends) > 1:
        rank = {position: index for index, position in enumerate(canonical_order(network))}
        ends.sort(key=rank.__getitem__)
    order: dict[int, None] = {}
    waiting = ends[::-1]
    while waiting:
        position = waiting[-1]
        ahead = (producers.get(name) for name in nodes[position].inputs)
        needed = next((p for p in ahead if p is not None and p not in order), None)
        if needed is None or position in order:
            order.setdefault(waiting.pop())
        else:
            waiting.append(needed)
    return list(order)


def _written_in_place(network: Network) -> dict[str, str]:
    """Of each tensor that the engine writes as a part of a longer one: what the longer one goes by.

    The names of two that share a part are one.
    """
    whole: dict[str, str] = {}
    for node in network.nodes:
        for parts in _eliminated_concats(node):
            old = {whole.get(name, name) for name in parts}
            whole.update(dict.fromkeys([n for n, name in whole.items() if name in old], parts[0]))
            whole.update(dict.fromkeys(parts, parts[0]))
    return whole


def _eliminated_concats(kernel: Node) -> list[list[str]]:
    """The inputs that a kernel reads as one; see ``fusion.expand`` for how its wires say so."""
    wires, fused = kernel.attribute("wires"), kernel.attribute("fused", ())
    if not isinstance(wires, tuple) or not isinstance(fused, tuple) or "Concat" in fused:
        return []
    found = {f"i{index}": [name] for index, name in enumerate(kernel.inputs)}
    for place, wire in enumerate(wires):
        if str(wire).startswith('["Concat"'):
            found[f"{place}.0"] = [n for i in json.loads(str(wire))[2] for n in found.get(i, ())]
    return [parts for name, parts in found.items() if parts and not name.startswith("i")]
