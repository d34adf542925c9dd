"""A search space as blocks at positions, and one posterior of all its cells.

A network of the space is the sum of its blocks' cells, composed as any network is. A cell measured
for one candidate teaches about the cells of all others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hybridlat.errors import InputError
from hybridlat.estimate.compose.composition import Composition, NetworkInterval
from hybridlat.estimate.compose.posterior import ErrorPosterior
from hybridlat.estimate.partition import Partition

Block = tuple[str, str]
"""(position, name of the block)."""
CellCounts = Mapping[str, int]
"""How often each cell is run, by signature hash."""


@dataclass(frozen=True, slots=True)
class BlockLatency:
    """A ``block`` at a ``position`` of a search space.

    ``latency_us`` is what it adds to a network, with the layout changes before it; None where a
    cell has no latency, and ``reason`` says why. ``interval_us`` is of the block alone: that of a
    sum is narrower. ``measured_share`` (0..1) of the time is in measured cells. ``trusted`` is all
    that is measured, or within the tolerance.
    """

    position: str
    block: str
    latency_us: float | None
    interval_us: tuple[float, float] | None
    measured_share: float
    trusted: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SumCheck:
    """How far the sum of blocks is from a network's own cells, as a share (0..) of its latency.

    ``mean_share`` and ``worst_share`` are over so many ``networks`` of the space, drawn at random.
    """

    networks: int
    mean_share: float
    worst_share: float


@dataclass(frozen=True)
class BlockTable:
    """An additive table: a network takes ``constant_us`` and the ``rows`` of its blocks, summed.

    ``check`` compares sums with networks drawn at random; ``warnings`` are sentences.
    """

    constant_us: float
    rows: tuple[BlockLatency, ...]
    check: SumCheck | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class BlockSpace:
    """``blocks`` by position and name, each with the cells that it adds to a network on ``target``.

    ``posterior`` is over all distinct cells of the space; ``composition`` sums those of any of its
    networks. ``drawn`` are networks drawn at random, with their cells, to hold sums against.
    ``reasons`` say why cells have no latency, ``warnings`` what else to know; ``tolerance`` is that
    of ``Predictor``.
    """

    target: str
    composition: Composition
    posterior: ErrorPosterior
    blocks: Mapping[Block, CellCounts]
    tolerance: float
    drawn: Sequence[tuple[Mapping[str, str], CellCounts]]
    reasons: Mapping[str, str]
    warnings: tuple[str, ...] = ()

    @cached_property
    def positions(self) -> dict[str, tuple[str, ...]]:
        names: dict[str, tuple[str, ...]] = {}
        for position, block in self.blocks:
            names[position] = (*names.get(position, ()), block)
        return names

    @cached_property
    def cells(self) -> dict[str, int]:
        """Positions in the posterior by signature hash."""
        return {prior.signature: i for i, prior in enumerate(self.posterior.priors)}

    def counts_of(self, choice: Mapping[str, str]) -> Counter[str]:
        """How often a network with these blocks runs each cell.

        InputError for a position or a block that the space does not have, or one left out.
        """
        counts: Counter[str] = Counter()
        for position in (*choice, *self.positions):
            if position not in self.positions:
                known = ", ".join(self.positions)
                raise InputError(f"the space has no position {position!r}: choose among {known}")
            if (block := choice.get(position)) not in self.positions[position]:
                known = ", ".join(self.positions[position])
                raise InputError(f"{block!r} is no block at {position}: choose one of {known}")
        for place in choice.items():
            counts.update(self.blocks[place])
        return counts

    def cells_of(self, choice: Mapping[str, str]) -> ErrorPosterior:
        """The posterior of the cells of the network with these blocks."""
        return self._part(self.counts_of(choice))

    def _part(self, counts: CellCounts) -> ErrorPosterior:
        whole, held = self.posterior, [self.cells[signature] for signature in counts]
        rank, block = {position: i for i, position in enumerate(held)}, np.ix_(held, held)
        priors = [whole.priors[i] for i in held]
        return ErrorPosterior(
            tuple([replace(prior, count=counts[prior.signature]) for prior in priors]),
            {rank[i]: known for i, known in whole.measured.items() if i in rank},
            whole.prior_covariance[block],
            whole.mean[held],
            whole.covariance[block],
        )

    def latency(self, choice: Mapping[str, str]) -> NetworkInterval:
        """The latency of the network with these blocks; NaN where a cell has none."""
        return self._interval(self.cells_of(choice))

    def _interval(self, cells: ErrorPosterior) -> NetworkInterval:
        if not cells.complete:
            return NetworkInterval(math.nan, (math.nan, math.nan), math.nan)
        return self.composition.for_cells(cells).interval(cells)

    def observe(self, news: Mapping[str, tuple[float, float]]) -> BlockSpace:
        """The space with measured cells: (µs, relative noise) by signature hash; or InputError."""
        for signature, (us, noise) in news.items():
            if signature not in self.cells or not (0 < us < math.inf and 0 <= noise < math.inf):
                what = "no cell of the space with a latency in µs and its relative noise"
                raise InputError(f"{signature!r:.40} with ({us!r}, {noise!r}) is {what}")
        measured = {self.cells[signature]: latency for signature, latency in news.items()}
        return replace(self, posterior=self.posterior.observe(measured))

    def unsure(self) -> list[str]:
        """Cells without a record, of blocks whose latency is not within the tolerance."""
        doubtful = {(row.position, row.block) for row in self.table.rows if not row.trusted}
        hashes = dict.fromkeys(h for block in doubtful for h in self.blocks[block])
        return [h for h in hashes if not self.posterior.is_measured(self.cells[h])]

    @cached_property
    def table(self) -> BlockTable:
        """The latency of every block, and of what all of them leave out."""
        return BlockTable(
            self.composition.shown_ratio * self.composition.overhead_us,
            tuple(self._row(block) for block in self.blocks),
            self._check(),
            self.warnings,
        )

    def _row(self, block: Block) -> BlockLatency:
        cells = self._part(self.blocks[block])
        composition = replace(self.composition, overhead_us=0.0).for_cells(cells)
        latency = composition.interval(cells)
        # As with a network: measured throughout, or within the tolerance and inside its model.
        is_sure = latency.half_width_share <= self.tolerance and not cells.required
        missing = (cells.priors[i].signature for i in np.flatnonzero(np.isnan(cells.latencies_us)))
        return BlockLatency(
            *block,
            latency.latency_us if cells.complete else None,
            latency.interval_us if cells.complete else None,
            (cells.measured_share if cells.unmeasured else 1.0) if cells.complete else 0.0,
            cells.complete and (is_sure or not cells.unmeasured),
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


def cells_by_block(partition: Partition, blocks: Sequence[int | None]) -> dict[int, Counter[str]]:
    """The cells of a network by block; ``blocks`` are those of the file's operators, in file order.

    A cell over several blocks belongs to the first; an engine's change of layout to the next.
    """
    places = [(place, use.signature) for use in partition.uses for place in use.places]
    block = max([b for b in blocks if b is not None], default=0)
    counts: dict[int, Counter[str]] = {}
    for place, signature in sorted(places, key=lambda pair: pair[0].order, reverse=True):
        held = [blocks[n] for kernel in place.kernels for n in kernel]
        block = min([b for b in held if b is not None], default=block)
        counts.setdefault(block, Counter())[signature] += 1
    return counts
