"""``Predictor.space``: the latency of every block of a search space, seen in networks that hold it.

Whole networks show the blocks that their modules name. Blocks that are given by position are
chained, so that each is seen at its position between others.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from hybridlat import onnx_io
from hybridlat.api.session import Session, Sessions
from hybridlat.api.sources import ManySource, Opened, Query, items_of
from hybridlat.errors import InputError, NetworkError
from hybridlat.estimate.block_space import (
    UNPLACED,
    Block,
    BlockSpace,
    cells_by_position,
    key_of,
    positions_of,
)
from hybridlat.estimate.network_estimate import composition_for
from hybridlat.estimate.partition import Partition
from hybridlat.estimate.predict.chain import cell_priors
from hybridlat.estimate.predict.source import NetworkCells, copied_bytes
from hybridlat.estimate.structure import network_structure
from hybridlat.graph.network import Constant, Network, Node, TensorType
from hybridlat.report.cell_texts import what_text
from hybridlat.schema.block_table import NONE
from hybridlat.schema.estimate import CellStructure

Blocks: TypeAlias = "Mapping[str, ManySource | None] | Sequence[ManySource | None]"
DRAWN = 8
"""Networks of given blocks that are drawn at random, to compare sums of blocks with."""


@dataclass(frozen=True)
class _Example:
    """A network of the space: the block at each position, and its cells by position."""

    opened: Opened
    partition: Partition
    cells: Mapping[str, Counter[str]]
    blocks: Mapping[str, str]
    is_drawn: bool = False


def space_of(
    sessions: Sessions,
    blocks: Mapping[str, Blocks] | Iterable[ManySource],
    query: Query,
    pattern: str | None,
) -> BlockSpace:
    """See ``Predictor.space``."""
    if not isinstance(blocks, Mapping):
        order, examples = _of_networks(sessions, blocks, query, pattern)
    elif pattern is None:
        order, examples = _of_blocks(sessions, blocks, query)
    else:
        raise InputError(
            f"the pattern {pattern!r} finds blocks in whole networks: blocks that are given "
            "by position have theirs already"
        )
    by_target = {(one := sessions.of(example.opened.file)).target: one for example in examples}
    if len(by_target) > 1:
        targets = " and ".join(map(str, by_target))
        raise InputError(f"the networks of a space are of one precision, these are of {targets}")
    (session,) = by_target.values()
    with session.device_sheet():
        space = _space(session, order, examples)
        anew = session.options.measure == "always"
        hashes = (list(space.cells) if anew else space.unsure()) if session.may_measure else []
        if hashes:
            networks = [(example.opened, example.partition) for example in examples]
            session.measuring().measure_cells(networks, hashes)
            space = _space(session, order, examples)
    return space


def _space(session: Session, order: Sequence[Block], examples: Sequence[_Example]) -> BlockSpace:
    """The space as its cells are believed now, as in one network that holds them all."""
    options, data = session.options, session.data
    data.refresh()
    counts: dict[str, int] = {}
    texts: dict[str, str] = {}
    cells: dict[Block, Mapping[str, int]] = {}
    for example in examples:
        own = {use.signature: use.count for use in example.partition.uses}
        counts = own | counts
        texts.update(data.texts(example.partition, list(own)))
        for position, name in example.blocks.items():
            cells.setdefault((position, name), example.cells.get(position, {}))
    opened = examples[0].opened
    network = opened.file.network(opened.batch, opened.shapes)
    together = NetworkCells(
        tuple(counts), tuple(counts.values()), options.confidence,
        lambda: texts, lambda: copied_bytes(network),
    )  # fmt: skip
    priors = cell_priors(data, together, can_measure=False)
    composition = composition_for(data, priors, options.confidence)
    warnings = [w for example in examples for w in example.partition.warnings]
    return BlockSpace(
        str(session.target),
        examples[0].partition.batch,
        composition,
        composition.start([replace(prior, count=1) for prior in priors.cells]),
        {block: cells.get(block, {}) for block in order},
        len(examples),
        options.tolerance,
        Counter(block for example in examples for block in example.blocks.items()),
        [(e.blocks, sum(e.cells.values(), Counter())) for e in examples if e.is_drawn],
        {together.signatures[i]: reason for i, reason in priors.failures.items()},
        tuple(dict.fromkeys((*data.model_warnings, *warnings))),
    )


# ---- whole networks ----------------------------------------------------------------------------


def _of_networks(
    sessions: Sessions, sources: Iterable[ManySource], query: Query, pattern: str | None
) -> tuple[list[Block], list[_Example]]:
    """Whole networks, their blocks found by the modules that operators come from."""
    examples: list[_Example] = []
    names: dict[str, dict[str, str]] = {}  # position → key of a block → its name
    order: list[str] = []  # each position behind the one that it follows where it is first met
    for item in items_of(sources):
        opened = item.opened(query)
        session = sessions.of(opened.file)
        partition = session.partition(opened)
        cells = cells_by_position(partition, positions_of(opened.file.facts.module_paths, pattern))
        if set(cells) == {UNPLACED}:
            raise InputError(
                f"nothing in {opened.file.name} tells which module an operator comes from: name "
                "nodes as exporters do (/blocks.1/conv/Conv), or give the blocks of each position "
                "to Predictor.space"
            )
        place = 0
        for position, text in _texts(session, opened, partition, cells).items():
            known = names.setdefault(position, {})
            known.setdefault(key_of(cells[position]), _unique(text, known.values()))
            if position not in order:
                order.insert(place, position)
            place = order.index(position) + 1
        blocks = {position: names[position][key_of(held)] for position, held in cells.items()}
        examples.append(_Example(opened, partition, cells, blocks))
    if not examples:
        raise InputError("a space has no networks: give at least one")
    examples = [
        replace(example, blocks={p: example.blocks.get(p, NONE) for p in order})
        for example in examples
    ]
    held = dict.fromkeys((p, example.blocks[p]) for p in order for example in examples)
    return list(held), examples


def _unique(text: str, taken: Iterable[str]) -> str:
    """The text, with a number behind it where another block of the position has it."""
    used, number, name = set(taken), 2, text
    while name in used:
        name, number = f"{text} ({number})", number + 1
    return name


def _texts(
    session: Session, opened: Opened, partition: Partition, cells: Mapping[str, Counter[str]]
) -> dict[str, str]:
    """What the block at each position does, in the words of a report's rows."""
    hashes = [use.signature for use in partition.uses]
    texts, precision = session.data.texts(partition, hashes), session.target.precision
    structure = network_structure(
        opened.file, partition, [texts[h] for h in hashes], None, precision
    )
    kernels = {h: cell.kernels for h, cell in zip(hashes, structure.cells, strict=True)}
    return {
        position: what_text(CellStructure(tuple(k for h in counts for k in kernels[h])))
        for position, counts in cells.items()
    }


# ---- blocks by position ------------------------------------------------------------------------


def _of_blocks(
    sessions: Sessions, blocks: Mapping[str, Blocks], query: Query
) -> tuple[list[Block], list[_Example]]:
    """Networks that hold every block once or more, and some that are drawn at random."""
    if not blocks:
        raise InputError("a space has no positions: give the blocks of at least one")
    choices = {position: _read(position, given, query) for position, given in blocks.items()}
    standing = {p: [name for name, one in named.items() if one] for p, named in choices.items()}
    examples = [
        _chained(sessions, choices, {p: names[i % len(names)] for p, names in standing.items()})
        for i in range(max(map(len, standing.values())))
    ]
    rng = random.Random(0)
    for _ in range(DRAWN):
        choice = {position: rng.choice(list(named)) for position, named in choices.items()}
        if any(choices[position][name] for position, name in choice.items()):
            examples.append(replace(_chained(sessions, choices, choice), is_drawn=True))
    return [(position, name) for position, named in choices.items() for name in named], examples


def _read(position: str, blocks: Blocks, query: Query) -> dict[str, Network | None]:
    """The networks of the blocks of a position by name; None for a block that may be left out."""
    if isinstance(blocks, str | bytes) or not isinstance(blocks, Mapping | Sequence):
        raise InputError(
            f"the blocks at {position} are a list of networks or a mapping from their names, not "
            f"{type(blocks).__name__}"
        )
    named = blocks.items() if isinstance(blocks, Mapping) else ((None, one) for one in blocks)
    networks: dict[str, Network | None] = {}
    for number, (name, source) in enumerate(named):
        if source is None:
            networks[name or NONE] = None
            continue
        (item,) = items_of([source])
        opened = replace(item, name=name or item.name).opened(query)
        label = name or (opened.file.label if item.name is None else str(number))
        if label in networks:
            raise InputError(f"two blocks at {position} are called {label!r}: name them apart")
        network = opened.file.network(query.batch, query.shapes)
        networks[label] = replace(network, name=f"{label} at {position}")
    if not any(networks.values()):
        raise InputError(f"there is no block at {position}: give at least one network")
    return networks


def _chained(
    sessions: Sessions,
    choices: Mapping[str, Mapping[str, Network | None]],
    choice: Mapping[str, str],
) -> _Example:
    """The network with these blocks. A cell over several of them belongs to the first."""
    standing = {p: one for p, name in choice.items() if (one := choices[p][name]) is not None}
    # As a file, so that the store keeps its partition.
    file = onnx_io.load(onnx_io.to_onnx(chain(list(standing.values())), seed=None), "space")
    opened = Opened(file)
    partition = sessions.of(file).partition(opened)
    parts = [name.partition("/") for name in file.facts.node_names]
    numbers = [number if slash and number.isdecimal() else "" for number, slash, _ in parts]
    cells: dict[str, Counter[str]] = {}
    for ends, counts in cells_by_position(partition, numbers).items():
        position = list(standing)[int(ends.partition("…")[0])]
        cells.setdefault(position, Counter()).update(counts)
    return _Example(opened, partition, cells, dict(choice))


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
