"""A search space as blocks at positions, and what is believed of every cell of it at once.

A network of the space is the sum of its blocks' cells, composed as any network is: a candidate
costs a few additions and one product of a vector with a matrix, and a cell measured for one
candidate teaches about the cells of all others.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from hybridlat.errors import InputError
from hybridlat.estimate.belief import Request
from hybridlat.estimate.block_positions import CellCounts
from hybridlat.estimate.compose.composition import Composition, NetworkInterval
from hybridlat.estimate.compose.posterior import CellPrior, ErrorPosterior, Matrix, variance_of
from hybridlat.estimate.lookup.target_data import TargetData
from hybridlat.estimate.network_estimate import cells_of, composition_for
from hybridlat.estimate.predict.chain import CellPriors, cell_priors
from hybridlat.schema.block_table import BlockLatency, BlockTable, SumCheck

Block = tuple[str, str]
"""(position, name of the block)."""


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

    @cached_property
    def _counts(self) -> dict[Block, Matrix]:
        return {block: self._vector(cells) for block, cells in self.blocks.items()}

    def _vector(self, cells: CellCounts) -> Matrix:
        counts = np.zeros(len(self.posterior.priors))
        for signature, count in cells.items():
            counts[self.cells[signature]] = count
        return counts

    def counts_of(self, choice: Mapping[str, str]) -> Matrix:
        """How often a network with these blocks runs each cell of the posterior.

        InputError for a position or a block that the space does not have, or one left out.
        """
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
        total = np.zeros(len(self.posterior.priors))
        for block in choice.items():
            total += self._counts[block]
        return total

    def latency(self, choice: Mapping[str, str]) -> NetworkInterval:
        """The latency of the network with these blocks, one at each position: the sum of its rows.

        NaN where a cell of it has no latency. InputError as ``counts_of`` raises it.
        """
        return self._interval(self.counts_of(choice), self.composition)

    def _interval(self, counts: Matrix, composition: Composition) -> NetworkInterval:
        uses = np.where(counts != 0, counts * self.posterior.latencies_us, 0.0)
        total = float(uses.sum())
        latency = composition.latency_us(total)
        if not total > 0:  # no cells, or one without a latency
            middle = composition.shown_ratio * latency
            return NetworkInterval(middle, (middle, middle), 0.0, total)
        half = composition.half_width_share(variance_of(uses, self.posterior.covariance), total)
        return composition.around(latency, half, total)

    def cells_of(self, choice: Mapping[str, str]) -> ErrorPosterior:
        """What is believed of the cells of the network with these blocks: what a gate works on."""
        counts = self.counts_of(choice)
        held = np.flatnonzero(counts)
        rank = {position: i for i, position in enumerate(held.tolist())}
        whole, block = self.posterior, np.ix_(held, held)
        return ErrorPosterior(
            tuple(replace(whole.priors[i], count=int(counts[i])) for i in rank),
            whole.correlation,
            {rank[i]: found for i, found in whole.measured.items() if i in rank},
            whole.prior_covariance[block],
            whole.mean[held],
            whole.covariance[block],
        )

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
        counts, posterior = self._counts[block], self.posterior
        latency = self._interval(counts, replace(self.composition, overhead_us=0.0))
        positions = np.flatnonzero(counts).tolist()
        known = not math.isnan(latency.latency_us)
        unmeasured = [i for i in positions if not posterior.is_measured(i)]
        uses = counts * np.nan_to_num(posterior.latencies_us)
        predicted_share = float(uses[unmeasured].sum() / uses.sum()) if uses.any() else 0.0
        # As with a network: measured throughout, or within the tolerance and inside its model.
        outside = any(posterior.priors[i].must_be_measured for i in unmeasured)
        sure = not unmeasured or (latency.half_width_share <= self.tolerance and not outside)
        missing = [i for i in positions if math.isnan(posterior.latencies_us[i])]
        reasons = [self.reasons.get(posterior.priors[i].signature, "") for i in missing]
        return BlockLatency(
            position=block[0],
            block=block[1],
            key=key_of(self.blocks[block]),
            latency_us=latency.latency_us if known else None,
            interval_us=latency.interval_us if known else None,
            measured_share=max(1.0 - predicted_share, 0.0) if known else 0.0,
            trusted=known and sure,
            networks=self.held.get(block, self.networks),
            reason=next((reason for reason in reasons if reason), ""),
        )

    def _check(self) -> SumCheck | None:
        """How far the sum of blocks is from the cells of the networks drawn; None without any."""
        off = []
        for choice, cells in self.drawn:
            whole = self._interval(self._vector(cells), self.composition).latency_us
            off.append(abs(self.latency(choice).latency_us / whole - 1) if whole else math.nan)
        known = [share for share in off if not math.isnan(share)]
        if not known:
            return None
        return SumCheck(len(known), math.fsum(known) / len(known), max(known))


def key_of(cells: CellCounts) -> str:
    """The same for all blocks that add the same cells."""
    text = repr(sorted((h, count) for h, count in cells.items() if count))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def believed(
    requests: Iterable[Request], data: TargetData
) -> tuple[Composition, ErrorPosterior, dict[str, str]]:
    """The target's composition, what is believed of all cells of the networks, and why of some not.

    A cell is believed as in the first network that holds it.
    """
    priors: dict[str, CellPrior] = {}
    reasons: dict[str, str] = {}
    stated: CellPriors | None = None
    first: Request | None = None
    for request in requests:
        first = first or request
        hashes = [use.signature for use in request.partition.uses]
        if all(h in priors for h in hashes):
            continue
        made = cell_priors(data, cells_of(request, data), request.measure is not None)
        stated = stated or (made if made.composition is not None else None)
        reasons.update((row.signature, row.reason) for row in made.cells if row.reason)
        reasons.update((hashes[i], reason) for i, reason in made.failures.items())
        for row in made.cells:
            priors.setdefault(row.signature, replace(row, count=1))
    assert first is not None
    composition = composition_for(first, data, stated or CellPriors((), {}))
    return composition, composition.start(tuple(priors.values())), reasons
