"""Cut a lowered network into cells: small runs of kernels with few tensors across their borders.

Where no single tensor is live, as inside a U-Net, a run is cut on into blocks. Its kernels are put
into an order that their listing does not decide: before each kernel what it reads, before that what
that reads. So the kernels of a branch, a block and a stage stand side by side. The order is split
into runs of at most ``MOST_KERNELS``, those that cost least:

- 12 for each tensor that a run reads, or gives out, beyond one each, and 48 for each beyond four;
- 2 for each run beyond one that reads, or writes, the same tensor;
- -1 for each run.

So a tensor that only passes by holds nothing together, the branches of a block stay in it, and what
goes on alone is cut everywhere. A concatenation whose parts are written in place is one tensor.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from hybridlat.graph.fused import joined_inputs
from hybridlat.graph.network import Lowered, Network, Node
from hybridlat.graph.operators import QUANTISERS, is_quantised
from hybridlat.graph.signature import canonical_order

MOST_KERNELS = 12
MOST_TENSORS = 4
Rank = list[tuple[int, int]]
"""Of each kernel an operator of the file, and how many kernels behind it."""
_FURTHER, _TOO_MANY, _SHARED = 12, 48, 2


@dataclass(frozen=True)
class Cell:
    """A sub-network of a lowered network.

    ``positions`` are its kernels there, ``origins`` the operators of the file that it computes,
    ``ops`` one label for each kernel (``Conv+Add+Relu``), in the order of the file.
    """

    network: Network
    positions: tuple[int, ...]
    origins: tuple[int, ...]
    ops: tuple[str, ...]


def cut_positions(network: Network) -> tuple[tuple[int, ...], ...]:
    """Positions of the kernels of each cell, in order: runs, the long ones cut on into blocks."""
    return tuple([cell for run in run_positions(network) for cell in cells_of_run(network, run)])


def cells_of_run(network: Network, run: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The cells of a run: itself, or its blocks if it has more than ``MOST_KERNELS`` kernels."""
    if len(run) <= MOST_KERNELS:
        return [run]
    blocks = block_positions(network.subnetwork(run))
    return [tuple([run[position] for position in block]) for block in blocks]


def run_positions(network: Network) -> tuple[tuple[int, ...], ...]:
    """Positions of the kernels of each run between two places where a single tensor is live.

    A border lies after a kernel, in the order of ``schedule``, when one activation is still to be
    read.
    """
    readers, order = network.consumers, schedule(network)
    step = {position: i for i, position in enumerate(order)}
    read = [positions for name, positions in readers.items() if name in network.types]
    last = Counter([max([step[position] for position in positions]) for positions in read])
    live = sum([name in readers for name in network.inputs])
    cells, begin = list[tuple[int, ...]](), 0
    for i, position in enumerate(order):
        live += sum([out in readers for out in network.nodes[position].outputs]) - last[i]
        if live <= 1:
            cells.append(tuple(sorted(order[begin : i + 1])))
            begin = i + 1
    return tuple(cells)


def schedule(network: Network) -> list[int]:
    """A topological order in which branches that lead nowhere else come first.

    Of the kernels that are ready the one with the fewest kernels behind it is next. So a side
    output is finished before the trunk, which can be cut behind it. Ties go by the canonical order.
    """
    readers = network.consumers
    made = [out for node in network.nodes for out in node.outputs if out]
    if len(network.outputs) == 1 and all(readers.get(o) or o in network.outputs for o in made):
        return list(range(len(network.nodes)))  # no side output: the borders are those of any order
    behind = [0] * len(network.nodes)  # bit sets of the kernels that depend on each
    for position in range(len(network.nodes) - 1, -1, -1):
        for out in network.nodes[position].outputs:
            for reader in readers.get(out, ()):
                behind[position] |= behind[reader] | 1 << reader
    # With one output the borders are the same in any order, and ranks would be for nothing.
    listed = range(len(network.nodes))
    order = canonical_order(network)[0] if len(network.outputs) > 1 else listed
    rank = {position: index for index, position in enumerate(order)}
    return network.order_by(lambda position: (behind[position].bit_count(), rank[position]))


def kernels(lowered: Lowered, file_network: Network | None = None) -> tuple[Cell, ...]:
    """Every kernel of ``lowered`` as a cell of its own."""
    return cut(lowered, file_network, [(i,) for i in range(len(lowered.network.nodes))])


def cut(
    lowered: Lowered,
    file_network: Network | None = None,
    parts: Iterable[tuple[int, ...]] | None = None,
) -> tuple[Cell, ...]:
    """The cells of ``lowered``, those of ``parts`` if stated; they hold every kernel once."""
    rank, cells = file_rank(lowered), []
    for part in cut_positions(lowered.network) if parts is None else parts:
        origins = tuple(sorted(i for position in part for i in lowered.origins[position]))
        ops = labels(lowered, part, file_network, rank)
        cells.append(Cell(lowered.network.subnetwork(part), part, origins, ops))
    return tuple(cells)


def file_rank(lowered: Lowered) -> Rank:
    """Where each kernel belongs in the order of the file: engines list branches as they please.

    A kernel that computes no operator of the file comes behind what it reads.
    """
    producers = lowered.network.producers
    rank: Rank = []
    for node, origins in zip(lowered.network.nodes, lowered.origins, strict=True):
        before = [rank[producers[n]] for n in node.inputs if n in producers]
        place, steps = max(before, default=(-1, 0))
        rank.append((min(origins), 0) if origins else (place, steps + 1))
    return rank


def labels(
    lowered: Lowered, positions: Iterable[int], file_network: Network | None, rank: Rank
) -> tuple[str, ...]:
    """One label for each of these kernels, in the order of the file (``rank``: ``file_rank``)."""
    nodes, origins = lowered.network.nodes, lowered.origins
    ordered = sorted(positions, key=rank.__getitem__)
    return tuple([label(nodes[p], origins[p], file_network) for p in ordered])


def label(node: Node, origins: tuple[int, ...], file_network: Network | None) -> str:
    """What a kernel is called in reports: the file's operators it computes, joined by ``+``.

    A layout change goes by its own name. What quantises inside another kernel is called ``int8``.
    """
    if file_network is None or not origins:
        return node.op
    ops = [file_network.nodes[i].op for i in origins]
    others = [op for op in ops if op not in QUANTISERS]
    if not others or len(others) == len(ops):
        return "+".join(ops)
    return ("int8 " if is_quantised(node.op) else "") + "+".join(others)


def file_part(network: Network, lowered: Lowered, origins: Iterable[int]) -> Network:
    """The file's operators at ``origins`` and what the engine removes around them, as a network.

    Without removed ones, whose results the part reads, it could fall into pieces.
    """
    removed, producers = frozenset(lowered.removed), network.producers
    chosen, waiting = set[int](), [*origins]
    while waiting:
        chosen.add(position := waiting.pop())
        makers = {producers.get(name) for name in network.nodes[position].inputs}
        waiting += removed.intersection(makers) - chosen
    return network.subnetwork(tuple(sorted(chosen)))


# ---- blocks ----


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
        inputs, outputs, choices = set[str](), set[str](), list[tuple[int, int]]()
        for begin in range(end - 1, max(-1, end - 1 - MOST_KERNELS), -1):
            inputs |= read[begin]
            inputs -= made[begin]
            outputs.update([parts.get(n, n) for n in made[begin]])
            sources = {parts.get(n, n) for n in inputs} if parts else inputs
            results = [n for n in outputs if last_read.get(n, -1) >= end]
            whole = sum(last_made[n] < end for n in results)
            reads, makes = len(sources), len(results)
            cost = _FURTHER * (max(reads - 1, 0) + max(makes - 1, 0)) - 1
            cost += _TOO_MANY * max(reads + makes - MOST_TENSORS, 0)
            cost += _SHARED * (reads + makes - 2 * whole)  # none behind it writes these
            choices.append((best[begin][0] + cost, begin))
        best.append(min(choices))
    blocks, end = [], len(order)
    while end:
        begin = best[end][1]
        blocks.append(tuple(sorted(order[begin:end])))
        end = begin
    return blocks[::-1]


def _order(network: Network) -> list[int]:
    """Every kernel right before what reads it, inputs in the order in which they are named."""
    nodes, readers = network.nodes, network.consumers
    ends = {i for i, node in enumerate(nodes) if not any(map(readers.get, node.outputs))}
    order = canonical_order(network)[0] if len(ends) > 1 else ends
    return network.order_before(position for position in order if position in ends)


def _written_in_place(network: Network) -> dict[str, str]:
    """Of each part that is written into a longer tensor, one name for that tensor.

    The names of two that share a part are one.
    """
    whole: dict[str, str] = {}
    for node in network.nodes:
        for parts in joined_inputs(node):
            old = {whole.get(name, name) for name in parts}
            whole.update(dict.fromkeys([n for n, name in whole.items() if name in old], parts[0]))
            whole.update(dict.fromkeys(parts, parts[0]))
    return whole
