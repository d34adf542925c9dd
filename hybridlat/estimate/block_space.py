"""A search space as blocks at positions, and what is believed of every cell of it at once.

A network of the space is the sum of its blocks' cells, composed as any network is: a candidate
costs a few additions and one product of a vector with a matrix, and a cell measured for one
candidate teaches about the cells of all others.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property

import numpy as np

from hybridlat.errors import InputError
from hybridlat.estimate.compose.composition import Composition, NetworkInterval
from hybridlat.estimate.compose.posterior import ErrorPosterior
from hybridlat.estimate.partition import Partition
from hybridlat.schema.block_table import BlockLatency, BlockTable, SumCheck

Block = tuple[str, str]
"""(position, name of the block)."""
CellCounts = Mapping[str, int]
"""How often each cell is run, by signature hash."""
UNPLACED = "other"
"""The position of cells whose module nothing tells."""


@dataclass(frozen=True)
class BlockSpace:
    """Blocks by position and name, each with the cells that it adds to a network.

    ``posterior`` is over all distinct cells of the space; ``held`` counts the networks that hold a
    block, of ``networks``; ``drawn`` are networks drawn at random, with all of their cells, to hold
    sums against. ``reasons`` say what the predictions of cells rest on.
    """

    target: str
    batch: int
    composition: Composition
    posterior: ErrorPosterior
    blocks: Mapping[Block, CellCounts]
    networks: int
    tolerance: float
    held: Mapping[Block, int] = field(default_factory=dict)
    drawn: Sequence[tuple[Mapping[str, str], CellCounts]] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @cached_property
    def positions(self) -> dict[str, tuple[str, ...]]:
        """The names of the blocks that can stand at each position, in order."""
        names: dict[str, tuple[str, ...]] = {}
        for position, block in self.blocks:
            names[position] = (*names.get(position, ()), block)
        return names

    @cached_property
    def cells(self) -> dict[str, int]:
        """Where each cell stands in the posterior, by signature hash."""
        return {prior.signature: i for i, prior in enumerate(self.posterior.priors)}

    def counts_of(self, choice: Mapping[str, str]) -> Counter[str]:
        """How often a network with these blocks runs each cell.

        InputError for a position or a block that the space does not have, or one left out.
        """
        counts: Counter[str] = Counter()
        for position in (*choice, *self.positions):
            blocks = self.positions.get(position)
            if blocks is None:
                known = ", ".join(self.positions)
                raise InputError(f"the space has no position {position!r}: choose among {known}")
            if choice.get(position) not in blocks:
                raise InputError(
                    f"{choice.get(position)!r} is no block at {position}: choose one of "
                    f"{', '.join(blocks)}"
                )
        for block in choice.items():
            counts.update(self.blocks[block])
        return counts

    def cells_of(self, choice: Mapping[str, str]) -> ErrorPosterior:
        """What is believed of the cells of the network with these blocks: what a gate works on."""
        return self._part(self.counts_of(choice))

    def _part(self, counts: CellCounts) -> ErrorPosterior:
        whole, held = self.posterior, [self.cells[signature] for signature in counts]
        rank, block = {position: i for i, position in enumerate(held)}, np.ix_(held, held)
        return ErrorPosterior(
            tuple(
                [replace(whole.priors[i], count=counts[whole.priors[i].signature]) for i in held]
            ),
            whole.correlation,
            {rank[i]: known for i, known in whole.measured.items() if i in rank},
            whole.prior_covariance[block],
            whole.mean[held],
            whole.covariance[block],
        )

    def latency(self, choice: Mapping[str, str]) -> NetworkInterval:
        """The latency of the network with these blocks, one at each position: the sum of its rows.

        NaN where a cell of it has no latency. InputError as ``counts_of`` raises it.
        """
        return self._interval(self.cells_of(choice))

    def _interval(self, cells: ErrorPosterior) -> NetworkInterval:
        if not cells.complete:
            return NetworkInterval(math.nan, (math.nan, math.nan), math.nan, math.nan)
        return self.composition.interval(cells)

    def observe(self, news: Mapping[str, tuple[float, float]]) -> BlockSpace:
        """The space once cells were measured: (µs, relative noise) by signature hash."""
        measured = {self.cells[signature]: found for signature, found in news.items()}
        return replace(self, posterior=self.posterior.observe(measured))

    def unsure(self) -> list[str]:
        """Cells without a record, of blocks whose latency is not within the tolerance."""
        doubtful = {(row.position, row.block) for row in self.table.rows if not row.trusted}
        wanted = dict.fromkeys(h for block in doubtful for h in self.blocks[block])
        return [h for h in wanted if not self.posterior.is_measured(self.cells[h])]

    @cached_property
    def table(self) -> BlockTable:
        """The latency of every block, with what all of them leave out."""
        return BlockTable(
            self.target,
            self.batch,
            self.composition.confidence,
            self.composition.shown_ratio * self.composition.overhead_us,
            tuple(self._row(block) for block in self.blocks),
            self.networks,
            self._check(),
            self.warnings,
        )

    def _row(self, block: Block) -> BlockLatency:
        cells = self._part(self.blocks[block])
        latency = replace(self.composition, overhead_us=0.0).interval(cells)
        # As with a network: measured throughout, or within the tolerance and inside its model.
        is_sure = latency.half_width_share <= self.tolerance and not cells.required
        missing = (cells.priors[i].signature for i in np.flatnonzero(np.isnan(cells.latencies_us)))
        return BlockLatency(
            *block,
            key_of(self.blocks[block]),
            latency.latency_us if cells.complete else None,
            latency.interval_us if cells.complete else None,
            (cells.measured_share if cells.unmeasured else 1.0) if cells.complete else 0.0,
            cells.complete and (is_sure or not cells.unmeasured),
            self.held.get(block, self.networks),
            next((reason for one in missing if (reason := self.reasons.get(one))), ""),
        )

    def _check(self) -> SumCheck | None:
        """How far the sum of blocks is from the cells of the networks drawn; None without any."""
        off = []
        for choice, counts in self.drawn:
            whole = self._interval(self._part(counts)).latency_us
            off.append(abs(self.latency(choice).latency_us / whole - 1) if whole else math.nan)
        known = [share for share in off if not math.isnan(share)]
        return SumCheck(len(known), math.fsum(known) / len(known), max(known)) if known else None


def key_of(cells: CellCounts) -> str:
    """The same for all blocks that add the same cells."""
    return hashlib.sha256(repr(sorted(cells.items())).encode()).hexdigest()[:8]


def positions_of(paths: Sequence[str], pattern: str | None = None) -> list[str]:
    """The block's position that each module path belongs to; empty for an empty path.

    ``pattern`` names the modules that are blocks (``stages.*.blocks.*``); what it does not match
    goes by its outermost module. Without one a block is the innermost numbered module that holds
    modules with names (``layer1.0`` of ``layer1.0.conv1``, ``features.3`` of
    ``features.3.conv.0.1``), else the module whose children are all operators (``fire2``).
    """
    if pattern is not None:
        return [_matching(path.split("."), pattern.split(".")) if path else "" for path in paths]
    parents = {path.rpartition(".")[0] for path in paths}
    inner = {above for parent in parents for above in _prefixes(parent)[:-1]}
    found = {path: _numbered(path.split(".")) or _parent(path, inner) for path in set(paths)}
    numbered = {position for path, position in found.items() if _numbered(path.split("."))}
    return [_outermost(found[path], numbered) for path in paths]


def _matching(parts: Sequence[str], wanted: Sequence[str]) -> str:
    fits = len(parts) >= len(wanted) and all(map(fnmatchcase, parts, wanted))
    return ".".join(parts[: len(wanted)]) if fits else parts[0]


def _numbered(parts: Sequence[str]) -> str:
    numbers = [i for i, part in enumerate(parts) if part.isdecimal()]
    holding = [i for i in numbers if i + 1 < len(parts) and not parts[i + 1].isdecimal()]
    end = holding[-1] if holding else numbers[0] if numbers else -1
    return ".".join(parts[: end + 1])


def _parent(path: str, inner: set[str]) -> str:
    parent = path.rpartition(".")[0]
    return parent if parent and parent not in inner else path


def _outermost(position: str, numbered: set[str]) -> str:
    return next((above for above in _prefixes(position) if above in numbered), position)


def _prefixes(path: str) -> list[str]:
    """The modules around a path from the outside in, and itself."""
    parts = path.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


def cells_by_position(partition: Partition, positions: Sequence[str]) -> dict[str, Counter[str]]:
    """The cells of a network by block, in the order in which they run.

    ``positions`` are those of the file's operators, in file order. What the engine adds (changes of
    layout) belongs to the block that reads its result. A cell over several blocks is one of its
    own, named by the first and the last.
    """
    places = sorted(
        ((place, use.signature) for use in partition.uses for place in use.places),
        key=lambda pair: pair[0].order,
    )
    named: dict[int, str] = {}
    for place, _ in places:
        held = dict.fromkeys(
            positions[n] for kernel in place.kernels for n in kernel if positions[n]
        )
        ends = dict.fromkeys([next(iter(held), ""), next(reversed(held), "")])
        named[place.order] = "…".join(ends)
    reader = {read: place.order for place, _ in reversed(places) for read in place.reads}
    for place, _ in reversed(places):  # the readers of a cell come behind it
        if not named[place.order]:
            named[place.order] = named.get(reader.get(place.order, -1), "")
    for place, _ in places:  # nothing with a name reads it: it ends what it reads
        if not named[place.order]:
            before = [named[read] for read in place.reads if read >= 0]
            named[place.order] = next((name for name in before if name), UNPLACED)
    counts: dict[str, Counter[str]] = {}
    for place, signature in places:
        counts.setdefault(named[place.order], Counter())[signature] += 1
    return counts
