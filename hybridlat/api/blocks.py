"""``Predictor.space``: from blocks, or whole networks, to the latency of every block in its place.

Blocks that are given alone are put into networks: the first of every position stands there while
those of one position take turns. What a turn changes anywhere in the network (a change of layout
that a neighbour needs now) is the block's.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from hybridlat import onnx_io
from hybridlat.api.sources import Opened, Query, items_of, open_source
from hybridlat.errors import InputError
from hybridlat.estimate.block_positions import UNPLACED, cells_by_position, positions_of
from hybridlat.estimate.block_space import Block, BlockSpace, believed, key_of
from hybridlat.estimate.network_estimate import Request
from hybridlat.graph.chaining import chain, place_in_chain
from hybridlat.schema.block_table import NONE

if TYPE_CHECKING:
    from hybridlat.api.session import Session, Sessions
    from hybridlat.api.sources import ManySource
    from hybridlat.estimate.block_positions import CellCounts
    from hybridlat.estimate.partition import Partition
    from hybridlat.graph.network import Network

Blocks: TypeAlias = "Mapping[str, ManySource | None] | Sequence[ManySource | None]"
DRAWN = 8
"""Networks that are put together at random, to see how far sums of blocks are from them."""


@dataclass(frozen=True)
class _Seen:
    """A network that was lowered: its cells by position."""

    opened: Opened
    partition: Partition
    cells: Mapping[str, Counter[str]]

    @property
    def total(self) -> Counter[str]:
        """All of its cells."""
        return sum(self.cells.values(), Counter())


@dataclass
class _Found:
    """The blocks of a space, the networks that show them, and how many of those hold each."""

    seen: list[_Seen]
    blocks: dict[Block, CellCounts]
    held: dict[Block, int] = field(default_factory=dict)
    drawn: list[tuple[dict[str, str], CellCounts]] = field(default_factory=list)


def space_of(
    sessions: Sessions,
    given: Mapping[str, Blocks] | Iterable[ManySource],
    query: Query,
    pattern: str | None,
) -> BlockSpace:
    """See ``Predictor.space``."""
    if isinstance(given, Mapping):
        if pattern is not None:
            raise InputError(
                f"the pattern {pattern!r} finds blocks in whole networks: blocks that are given "
                "by position have theirs already"
            )
        found = _of_blocks(sessions, given, query)
    else:
        found = _of_networks(sessions, given, query, pattern)
    right = _only(sessions, [seen.opened for seen in found.seen])
    with right.device_sheet():
        space = _believed(right, found)
        wanted = right.may_measure and (
            list(space.cells) if right.options.measure == "always" else space.unsure()
        )
        if wanted:
            networks = [(seen.opened, seen.partition) for seen in found.seen]
            right.measuring().measure_cells(networks, wanted)
            space = _believed(right, found)
    return space


def _only(sessions: Sessions, opened: Sequence[Opened]) -> Session:
    """What answers for all of the networks; InputError where they differ in precision."""
    if not opened:
        raise InputError("a space has no networks: give at least one")
    right = {sessions.of(one.file).target: sessions.of(one.file) for one in opened}
    if len(right) > 1:
        targets = " and ".join(map(str, right))
        raise InputError(f"the networks of a space are of one precision, these are of {targets}")
    return next(iter(right.values()))


def _believed(right: Session, found: _Found) -> BlockSpace:
    requests = (
        Request(
            seen.opened.file,
            seen.partition,
            partial(seen.opened.file.network, seen.opened.batch, seen.opened.shapes),
            right.options.tolerance,
            right.options.confidence,
            why_not=right.why_not,
        )
        for seen in found.seen
    )
    composition, posterior, reasons = believed(requests, right.data)
    about_model = right.data.trained.warnings
    notes = (*about_model, *(w for seen in found.seen for w in seen.partition.warnings))
    return BlockSpace(
        str(right.target),
        found.seen[0].partition.batch,
        composition,
        posterior,
        found.blocks,
        len(found.seen),
        right.options.tolerance,
        found.held,
        found.drawn,
        reasons,
        tuple(dict.fromkeys(notes)),
    )


# ---- whole networks ----------------------------------------------------------------------------


def _of_networks(
    sessions: Sessions, sources: Iterable[ManySource], query: Query, pattern: str | None
) -> _Found:
    """The blocks of whole networks, found by the modules that their operators come from."""
    found = _Found([], {})
    names: dict[str, dict[str, str]] = {}  # position → key of a block → its name
    held: Counter[tuple[str, str]] = Counter()
    for item in items_of(sources):
        opened = item.opened(query)
        partition = sessions.of(opened.file).partition(opened)
        cells = cells_by_position(partition, positions_of(opened.file.module_paths, pattern))
        if set(cells) == {UNPLACED}:
            raise InputError(
                f"nothing in {opened.file.name} tells which module an operator comes from: name "
                "nodes as exporters do (/blocks.1/conv/Conv), or give the blocks of each position "
                "to Predictor.space"
            )
        seen = _Seen(opened, partition, cells)
        found.seen.append(seen)
        words = _words(sessions, seen)
        for position, counts in cells.items():
            known, key = names.setdefault(position, {}), key_of(counts)
            if key not in known:
                known[key] = _told_apart(words[position], known.values())
                found.blocks[position, known[key]] = counts
            held[position, known[key]] += 1
    in_place = {position: rank for rank, position in enumerate(_in_order(found.seen))}
    found.blocks = dict(sorted(found.blocks.items(), key=lambda pair: in_place[pair[0][0]]))
    found.held = dict(held)
    for position in in_place:
        lacking = sum(position not in seen.cells for seen in found.seen)
        if lacking:
            found.blocks[position, NONE] = {}
            found.held[position, NONE] = lacking
    return found


def _in_order(networks: Sequence[_Seen]) -> list[str]:
    """All positions, each behind the one that it follows in the first network that has it."""
    order: list[str] = []
    for seen in networks:
        place = 0
        for position in seen.cells:
            if position in order:
                place = order.index(position) + 1
            else:
                order.insert(place, position)
                place += 1
    return order


def _told_apart(words: str, taken: Iterable[str]) -> str:
    """The words, with a number behind them where another block of the position has them."""
    used, number, name = set(taken), 2, words
    while name in used:
        name, number = f"{words} ({number})", number + 1
    return name


def _words(sessions: Sessions, seen: _Seen) -> dict[str, str]:
    """What the block at each position is, as reports say it of cells."""
    from hybridlat.estimate.network_structure import network_structure
    from hybridlat.report.cell_texts import what_text
    from hybridlat.schema.structure import CellStructure

    right = sessions.of(seen.opened.file)
    uses, precision = seen.partition.uses, right.target.precision
    texts = right.data.texts(seen.partition, [use.signature for use in uses])
    ordered = [texts[use.signature] for use in uses]
    structure = network_structure(seen.opened.file, seen.partition, ordered, None, precision)
    made_of = {use.signature: structure.cells[i].kernels for i, use in enumerate(uses)}
    return {
        position: what_text(CellStructure(tuple(k for h in counts for k in made_of[h])))
        for position, counts in seen.cells.items()
    }


# ---- blocks by position ------------------------------------------------------------------------


def _of_blocks(sessions: Sessions, given: Mapping[str, Blocks], query: Query) -> _Found:
    """The blocks that can stand at each position, seen one after another between the others."""
    choices = {position: _read(position, blocks, query) for position, blocks in given.items()}
    if not choices:
        raise InputError("a space has no positions: give the blocks of at least one")
    usual = {
        position: next((name for name, block in blocks.items() if block is not None), NONE)
        for position, blocks in choices.items()
    }
    look = partial(_chained, sessions, choices)
    usually = look(usual)
    found = _Found([usually], {})
    for position, blocks in choices.items():
        for name in blocks:
            counts = Counter(usually.cells.get(position, Counter()))
            if name != usual[position]:
                seen = look({**usual, position: name})
                found.seen.append(seen)
                counts.update(seen.total)
                counts.subtract(usually.total)
            found.blocks[position, name] = {h: count for h, count in counts.items() if count}
    rng = random.Random(0)
    for _ in range(DRAWN):
        choice = {position: rng.choice(list(blocks)) for position, blocks in choices.items()}
        if any(choices[position][name] is not None for position, name in choice.items()):
            seen = look(choice)
            found.seen.append(seen)
            found.drawn.append((choice, seen.total))
    return found


def _read(position: str, blocks: Blocks, query: Query) -> dict[str, Network | None]:
    """The networks of the blocks of a position by name; None for a block that may be left out."""
    if isinstance(blocks, str | bytes) or not isinstance(blocks, Mapping | Sequence):
        raise InputError(
            f"the blocks at {position} are a list of networks or a mapping from their names, not "
            f"{type(blocks).__name__}"
        )
    named = blocks.items() if isinstance(blocks, Mapping) else ((None, one) for one in blocks)
    found: dict[str, Network | None] = {}
    for number, (name, source) in enumerate(named):
        if source is None:
            found[name or NONE] = None
            continue
        (item,) = items_of([source])
        example = item.example if item.example is not None else query.example
        opened = open_source(
            item.source, example if item.is_module else None, query.batch, query.shapes,
            name or item.name,
        )  # fmt: skip
        label = name or (opened.file.label if item.name is None else str(number))
        if label in found:
            raise InputError(f"two blocks at {position} are called {label!r}: name them apart")
        network = opened.file.network(query.batch, query.shapes)
        found[label] = replace(network, name=f"{label} at {position}")
    if not any(found.values()):
        raise InputError(f"there is no block at {position}: give at least one network")
    return found


def _chained(
    sessions: Sessions,
    choices: Mapping[str, Mapping[str, Network | None]],
    choice: Mapping[str, str],
) -> _Seen:
    """The network with these blocks, and its cells by position."""
    standing = [
        (position, network)
        for position, name in choice.items()
        if (network := choices[position][name]) is not None
    ]
    network = chain([network for _, network in standing], "space")
    # A file like any other, so that its partition is kept in the store.
    file = onnx_io.load(onnx_io.to_onnx(network, seed=None), "space")
    places = [place_in_chain(name) for name in file.node_names]
    positions = ["" if place is None else standing[place][0] for place in places]
    opened = Opened(file)
    partition = sessions.of(opened.file).partition(opened)
    return _Seen(opened, partition, cells_by_position(partition, positions))
