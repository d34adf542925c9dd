"""Blocks put one after another, so that each is seen in its place between others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from hybridlat.errors import NetworkError
from hybridlat.graph.network import Constant, Network, Node, TensorType


def chain(blocks: Sequence[Network], name: str = "chain") -> Network:
    """One network that runs ``blocks`` in turn, each reading what the one before it gives.

    The names of block ``i`` begin with ``i/``: ``place_in_chain`` tells an operator's block.
    NetworkError for a block that does not read one tensor and give one, that does not fit behind
    the one before it, or that holds operators of a size that only data tell.
    """
    nodes: list[Node] = []
    types: dict[str, TensorType] = {}
    constants: dict[str, Constant] = {}
    first = last = ""
    for number, block in enumerate(blocks):
        source, result = _ends(block)
        if number and types[last] != block.types[source]:
            raise NetworkError(
                f"{block.name} reads {block.types[source]}, but {blocks[number - 1].name} before "
                f"it gives {types[last]}: the blocks of a position must fit those of the next"
            )
        names = {"": "", source: last} if number else {"": ""}
        renamed = partial(_renamed, names, number)
        first = first or renamed(source)
        types.update((renamed(old), kind) for old, kind in block.types.items())
        constants.update((renamed(old), value) for old, value in block.constants.items())
        nodes += (
            replace(
                node,
                name=f"{number}/{node.name}",
                inputs=tuple(map(renamed, node.inputs)),
                outputs=tuple(map(renamed, node.outputs)),
            )
            for node in block.nodes
        )
        last = renamed(result)
    return Network(name, tuple(nodes), (first,), (last,), types, constants)


def _renamed(names: Mapping[str, str], number: int, old: str) -> str:
    return names.get(old, f"{number}/{old}")


def place_in_chain(node: str) -> int | None:
    """The block of a chain that an operator of this name belongs to; None for one of no block."""
    number, slash, _ = node.partition("/")
    return int(number) if slash and number.isdecimal() else None


def _ends(block: Network) -> tuple[str, str]:
    """The tensor that a block reads and the one that it gives."""
    if len(block.inputs) != 1 or len(block.outputs) != 1:
        raise NetworkError(
            f"{block.name} has {len(block.inputs)} inputs and {len(block.outputs)} outputs: a "
            "block reads one tensor and gives one"
        )
    if block.left_out:
        raise NetworkError(
            f"{block.name} holds {block.left_out[0][1]}, whose size depends on data: the latency "
            "of such a block is not known"
        )
    return block.inputs[0], block.outputs[0]
