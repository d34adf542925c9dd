"""Lowering without asking ONNX Runtime for every network, and never on trust alone.

Asking takes tens of milliseconds, which is most of what a search over thousands of candidates
costs. ``rules`` say in less than one what the engine will make of a network. A draft of theirs is
used only where the installed engine has confirmed every pattern in it: it was asked for another
network that holds the pattern, and its answer was the draft's, kernel by kernel. Until then it is
asked, which confirms more. So the rules may be wrong, or outdated by a new version of the engine:
what they get wrong is never confirmed, and costs only time. Now and then a network that needs no
asking is asked for all the same; where that disagrees, its patterns are never used again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from hybridlat.engines.onnxruntime.patterns import Pattern
from hybridlat.engines.onnxruntime.rules import Draft, draft
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.signature import sign

CHECK_EVERY = 256
"""Of so many networks in a row that were not asked for, the last is; of twice as many next time."""
SELDOMEST = 4096
BLOCKS = (16, 8)
"""Channels of a block of the engine's layout: with AVX-512 (or NEON), and without."""
MOST_PATTERNS = 100_000
_log = logging.getLogger(__name__)
Ask = Callable[[Network], Lowered]


@dataclass(frozen=True, slots=True)
class Tally:
    """How often the engine was asked and why: nothing covers it, unconfirmed, for a sample."""

    foretold: int = 0
    uncovered: int = 0
    unconfirmed: int = 0
    sampled: int = 0
    disagreed: int = 0


@dataclass
class QuickLowering:
    """Lowers networks by rules where the engine that ``ask`` reaches has confirmed them.

    ``context`` and ``by`` are what the answers carry (see ``Network.context``, ``Lowered.by``);
    ``block`` is how many channels the engine's blocks are taken to have, until it says otherwise;
    ``generation`` counts how often that, or what it had confirmed, was taken back.
    """

    ask: Ask
    context: Callable[[Network], str]
    by: str
    check_every: int = CHECK_EVERY
    tally: Tally = field(default_factory=Tally)
    confirmed: set[Pattern] = field(default_factory=set)
    banned: set[Pattern] = field(default_factory=set)
    block: int = BLOCKS[0]
    generation: int = 0
    _in_a_row: int = 0

    def lower(self, network: Network) -> Lowered:
        """What the engine makes of a network; MeasurementError where it refuses it."""
        found = draft(network, self.block, self.context(network), self.by)
        if found is None:
            self._count(uncovered=1)
            return self.ask(network)
        new = found.patterns - self.confirmed
        if not new:
            if self._may_skip_asking():
                return found.lowered
            self._in_a_row = 0
            self.check_every = min(2 * self.check_every, max(SELDOMEST, self.check_every))
        self._count(**{"unconfirmed" if new else "sampled": 1})
        told = self.ask(network)
        if agree(found.lowered, told):
            self._confirm(new)
            # A sample need not be kept: the rules find it again.
            return told if new else replace(told, is_quick=True)
        self._object(network, told, found, new)
        return told

    def _may_skip_asking(self) -> bool:
        """Count a network whose patterns are all confirmed; no if ``lower`` is to ask for it."""
        if self._in_a_row + 1 >= self.check_every:
            return False
        self._in_a_row += 1
        self._count(foretold=1)
        return True

    def learn(self, block: int, confirmed: set[Pattern], banned: set[Pattern]) -> None:
        """Take over what another process of this machine was told by the same engine."""
        if block != self.block:
            if self.confirmed:
                return  # what is known here speaks of other blocks
            self.block = block
            self.generation += 1
        if banned & self.confirmed:
            self.generation += 1
        self.banned |= banned
        self.confirmed -= banned
        self._confirm(frozenset(confirmed))

    def _confirm(self, patterns: frozenset[Pattern]) -> None:
        if len(self.confirmed) > MOST_PATTERNS:
            self.confirmed.clear()
            self.generation += 1
        self.confirmed.update(patterns - self.banned)

    def _object(
        self, network: Network, told: Lowered, found: Draft, new: frozenset[Pattern]
    ) -> None:
        """The engine says something else: what was relied on is banned, the rest stays open."""
        for block in BLOCKS:
            other = draft(network, block, self.context(network), self.by)
            if block != self.block and other is not None and agree(other.lowered, told):
                self.block = block
                self.generation += 1
                self.confirmed = set(other.patterns - self.banned)
                return
        self._count(disagreed=1)
        if new:
            _log.debug("%s: the engine lowers it otherwise than the rules", network.name)
            return
        _log.warning(
            "ONNX Runtime lowers %s otherwise than the rules that it had confirmed: it is asked "
            "for every network like it from now on",
            network.name,
        )
        self.generation += 1
        self.check_every = min(self.check_every, CHECK_EVERY)
        self.confirmed -= found.patterns
        self.banned |= found.patterns

    def _count(self, **more: int) -> None:
        counts = {name: getattr(self.tally, name) + one for name, one in more.items()}
        self.tally = replace(self.tally, **counts)


def agree(one: Lowered, other: Lowered) -> bool:
    """Whether two lowerings are the same kernels, each of the same operators of the file."""
    if len(one.network.nodes) != len(other.network.nodes) or one.removed != other.removed:
        return False
    if sign(one.network).hash != sign(other.network).hash:
        return False
    return _kernels(one) == _kernels(other)


def _kernels(lowered: Lowered) -> Counter[tuple[object, ...]]:
    return Counter(
        (node.qualified_op, node.attributes, origins)
        for node, origins in zip(lowered.network.nodes, lowered.origins, strict=True)
    )
