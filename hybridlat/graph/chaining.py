"""Blocks put one after another, so that each is seen in its place between others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hybridlat.errors import NetworkError
from hybridlat.graph.network import Constant, Network, Node, TensorType


def chain(blocks: Sequence[Network]) -> Network:
    """One network that runs ``blocks`` in turn; the names of block ``i`` begin with ``i/``.

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
        new = {name: f"{number}/{name}" for name in (*block.types, *block.constants)} | {"": ""}
        if number:
            new[source] = last
        types |= {new[name]: type_ for name, type_ in block.types.items()}
        constants |= {new[name]: value for name, value in block.constants.items()}
        nodes += [
            replace(
                node,
                name=f"{number}/{node.name}",
                inputs=tuple([new[name] for name in node.inputs]),
                outputs=tuple([new.get(name, f"{number}/{name}") for name in node.outputs]),
            )
            for node in block.nodes
        ]
        first, last = first or new[source], new[result]
    return Network("space", tuple(nodes), (first,), (last,), types, constants)


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
