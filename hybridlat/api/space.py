"""``Predictor.space``: the latency of every block of a search space, each between others."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from hybridlat import onnx_io
from hybridlat.api.arguments import ManySource, Opened, Query, items_of
from hybridlat.api.session import Session, Sessions
from hybridlat.errors import InputError, NetworkError
from hybridlat.estimate.belief import composition_for
from hybridlat.estimate.block_space import Block, BlockSpace, cells_by_block
from hybridlat.estimate.partition import Partition
from hybridlat.estimate.predict.chain import cell_priors
from hybridlat.estimate.predict.source import NetworkCells
from hybridlat.graph.network import Constant, Network, Node, TensorType

Blocks: TypeAlias = "Mapping[str, ManySource | None]"
_Choices: TypeAlias = Mapping[str, Mapping[str, Network | None]]
DRAWN = 8
"""Networks that are drawn at random, to compare sums of blocks with."""


@dataclass(frozen=True)
class _Example:
    """A network of the space: the block at each position, and its cells by position."""

    opened: Opened
    partition: Partition
    cells: Mapping[str, Counter[str]]
    choice: Mapping[str, str]
    is_drawn: bool = False


def space_of(sessions: Sessions, blocks: Mapping[str, Blocks], query: Query) -> BlockSpace:
    """See ``Predictor.space``."""
    _check("a space is a mapping from positions to the blocks of each", blocks)
    if not blocks:
        raise InputError("a space has no positions: give the blocks of at least one")
    choices = {position: _read(position, named, query) for position, named in blocks.items()}
    examples = _examples(sessions, choices)
    by_target = {(one := sessions.of(example.opened.file)).target: one for example in examples}
    if len(by_target) > 1:
        targets = " and ".join(map(str, by_target))
        raise InputError(f"the networks of a space are of one precision, these are of {targets}")
    (session,) = by_target.values()
    order = [(position, name) for position, named in choices.items() for name in named]
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
    counts, texts = dict[str, int](), dict[str, str]()
    cells: dict[Block, Mapping[str, int]] = {}
    for example in examples:
        counts = example.partition.counts | counts
        texts.update(example.partition.texts)
        for position, name in example.choice.items():
            cells.setdefault((position, name), example.cells.get(position, {}))
    network = examples[0].opened.network()
    of_cells = tuple(counts), tuple([texts[h] for h in counts]), tuple(counts.values())
    known = NetworkCells(*of_cells, lambda: network.copied_bytes)
    priors = cell_priors(data, known, False)
    composition = composition_for(data, priors, options.confidence)
    warnings = [w for example in examples for w in example.partition.warnings]
    once = [replace(cell, count=1) for cell in priors.cells]
    start = composition.start(once, priors.block)
    by_block = {block: cells.get(block, {}) for block in order}
    drawn = [(e.choice, sum(e.cells.values(), Counter())) for e in examples if e.is_drawn]
    failures = {priors.cells[i].signature: reason for i, reason in priors.failures.items()}
    notes = tuple(dict.fromkeys((*data.model_warnings, *warnings)))
    about = options.aim, drawn, failures, notes
    return BlockSpace(str(session.target), composition, start, by_block, *about)


def _examples(sessions: Sessions, choices: _Choices) -> list[_Example]:
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
    return examples


def _check(sentence: str, mapping: object) -> None:
    if not isinstance(mapping, Mapping):
        raise InputError(f"{sentence}, not {type(mapping).__name__}")


def _read(position: str, blocks: Blocks, query: Query) -> dict[str, Network | None]:
    """The networks of the blocks of a position by name; None for a block that may be left out."""
    _check(f"the blocks at {position} are a mapping from their names to networks", blocks)
    networks: dict[str, Network | None] = dict.fromkeys(blocks)
    for name, source in blocks.items():
        if source is not None:
            (item,) = items_of([source])
            network = replace(item, name=name).opened(query).network()
            networks[name] = replace(network, name=f"{name} at {position}")
    if not any(networks.values()):
        raise InputError(f"there is no block at {position}: give at least one network")
    return networks


def _chained(sessions: Sessions, choices: _Choices, choice: Mapping[str, str]) -> _Example:
    standing = {p: one for p, name in choice.items() if (one := choices[p][name]) is not None}
    # As a file, so that the store keeps its partition.
    file = onnx_io.load(onnx_io.to_onnx(chain(list(standing.values())), seed=None), "space")
    opened = Opened(file)
    partition = sessions.of(file).partition(opened)
    parts = [name.partition("/") for name in file.facts.node_names]
    numbers = [int(n) if slash and n.isdecimal() else None for n, slash, _ in parts]
    positions = list(standing)
    cells = {positions[n]: counts for n, counts in cells_by_block(partition, numbers).items()}
    return _Example(opened, partition, cells, dict(choice))


def chain(blocks: Sequence[Network]) -> Network:
    """One network that runs ``blocks`` in turn; the names of block ``i`` begin with ``i/``."""
    nodes, first, last = list[Node](), "", ""
    types, constants = dict[str, TensorType](), dict[str, Constant]()
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
        for node in block.nodes:
            read = tuple([new[name] for name in node.inputs])
            made = tuple([new.get(name, f"{number}/{name}") for name in node.outputs])
            nodes.append(replace(node, name=f"{number}/{node.name}", inputs=read, outputs=made))
        first, last = first or new[source], new[result]
    return Network("space", tuple(nodes), (first,), (last,), types, constants)


def _ends(block: Network) -> tuple[str, str]:
    if len(block.inputs) != 1 or len(block.outputs) != 1:
        raise NetworkError(
            f"{block.name} has inputs and outputs, {len(block.inputs)} and {len(block.outputs)}: a "
            "block reads one tensor and gives one"
        )
    if block.left_out:
        raise NetworkError(
            f"{block.name} holds {block.left_out[0][1]}, whose size depends on data: the latency "
            "of such a block is not known"
        )
    return block.inputs[0], block.outputs[0]
