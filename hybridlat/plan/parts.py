"""Which part of a file's network a lowered cell computes, so that an engine can be given it."""

from __future__ import annotations

from collections.abc import Iterable

from hybridlat.core.network import Lowered, Network


def file_part(network: Network, lowered: Lowered, origins: Iterable[int]) -> Network:
    """The operators at ``origins`` and what the engine removes around them, as a network.

    Removed operators (Identity, folded shape arithmetic) come along where the part reads what they
    make; the engine removes them there too. Without them a part could fall into pieces. What
    remains an input of the part is what the cell before it gives out.
    """
    removed = set(lowered.removed)
    producers = network.producers()
    chosen: set[int] = set()
    waiting = list(origins)
    while waiting:
        position = waiting.pop()
        if position in chosen:
            continue
        chosen.add(position)
        for name in network.nodes[position].inputs:
            maker = producers.get(name)
            if maker is not None and maker in removed:
                waiting.append(maker)
    return network.subnetwork(tuple(sorted(chosen)))
