"""The machinery under tables of fusion rules: what a rule is, and how a table is applied.

A table is read from top to bottom. Every rule is tried on all groups of the network, in file order,
before the next one is. At first each operator is a group of its own. A rule either fuses two
groups, one of which reads from the other, or says that an operator costs nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from hybridlat.engines.fusion.groups import Groups, is_stored_weight
from hybridlat.graph.network import Network, Node, TensorType
from hybridlat.schema.target import version_key

MatchPolicy = Literal["last", "first", "every", "beside"]
Condition = Callable[["FusionState", int, int], bool]
"""Whether a rule applies to (state, producer group, consumer group); :func:`eliminate` has one
group, given as both."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of a table: ``consumer`` runs in the kernel of the ``producer`` that it reads from.

    Both are kinds of group, in one text; a group's kind is that of its only operator, or what the
    rule that fused it says (``makes``; else the producer's kind). Without a ``consumer`` the
    operators cost nothing: their readers read what they read. ``since`` is the first engine version
    that the rule holds for, ``before`` the first later one that it does not hold for, ``engine``
    the only engine; empty: all that there are.
    ``match_policy`` chooses among several producers in file order: the last or the first that the
    consumer can be fused with, or every one; ``beside`` chooses the last among the groups that read
    what the consumer reads.
    """

    name: str
    producer: str
    consumer: str
    reason: str
    when: Condition | None = None
    makes: str = ""
    match_policy: MatchPolicy = "last"
    since: str = ""
    before: str = ""
    engine: str = ""

    def covers(self, version: str) -> bool:
        """Whether the rule holds for an engine version; an empty version is the newest."""
        if not version:
            return not self.before
        key, end = version_key(version), version_key(self.before)
        return key >= version_key(self.since) and (not self.before or key < end)


fuse = Rule


def eliminate(
    name: str, ops: str, reason: str, when: Condition | None = None, engine: str = ""
) -> Rule:
    """The operators cost nothing."""
    return Rule(name, ops, "", reason, when, engine=engine)


def in_force(rules: Sequence[Rule], version: str) -> str:
    """Names which rules of a table hold for a version: equal where two versions have the same."""
    held = "".join("1" if rule.covers(version) else "0" for rule in rules)
    return f"{int(held or '0', 2):x}"


class FusionState:
    """A network while rules are applied to it: the groups so far and what lies around them."""

    def __init__(self, network: Network, dead: Iterable[int] = ()) -> None:
        self.network = network
        self.producers = network.producers
        self.consumers = network.consumers
        self.removed: set[int] = set()
        self.group = list(range(len(network.nodes)))
        self.members: dict[int, list[int]] = {i: [i] for i in self.group}
        self.kind: dict[int, str] = {i: n.qualified_op for i, n in enumerate(network.nodes)}
        self.op_counts = {i: Counter([op]) for i, op in self.kind.items()}
        for position in dead:
            self.remove(position)
        for position, node in enumerate(network.nodes):
            if is_stored_weight(network, node) and position not in self.removed:
                self.remove(position)

    def nodes(self, group: int) -> list[Node]:
        """The operators of a group in file order."""
        return [self.network.nodes[i] for i in self.members[group]]

    def only(self, group: int) -> Node:
        """The first operator of a group."""
        return self.network.nodes[self.members[group][0]]

    def ops(self, group: int) -> tuple[str, ...]:
        """The names of a group's operators in file order, with the domain outside ONNX's own."""
        return tuple(node.qualified_op for node in self.nodes(group))

    def output(self, group: int) -> TensorType:
        """Type of what the last operator of a group makes."""
        return self.network.types[next(o for o in self.nodes(group)[-1].outputs if o)]

    def producers_of(self, group: int) -> list[int]:
        """Other groups that a group reads from, in the order in which it names them."""
        sources = [source for member in self.members[group] for source in self._read_by(member)]
        return [g for g in dict.fromkeys([self.group[s] for s in sources]) if g != group]

    def _read_by(self, position: int) -> list[int]:
        """Operators that one reads from, looking through those that are eliminated."""
        sources: list[int] = []
        for name in self.network.nodes[position].inputs:
            source = self.producers.get(name)
            if source is not None:
                sources += self._read_by(source) if source in self.removed else [source]
        return sources

    def consumers_of(self, group: int) -> list[int]:
        """Other groups that read from a group, looking through operators that are eliminated."""
        outputs = [out for node in self.nodes(group) for out in node.outputs if out]
        return sorted(set().union(*map(self.readers, outputs)) - {group})

    def beside(self, group: int) -> list[int]:
        """Other groups that read what a group reads first."""
        return sorted(self.readers(self.only(group).inputs[0]) - {group})

    def gives_out(self, group: int) -> bool:
        """Whether a tensor of the group is an output of the network."""
        outputs = set(self.network.outputs)
        return any(out in outputs for node in self.nodes(group) for out in node.outputs)

    def between_only(self, producer: int, consumer: int) -> bool:
        """Whether what one reads of the other is read by nothing else, and not given out."""
        made = [(out, self.readers(out)) for node in self.nodes(producer) for out in node.outputs]
        return all(
            readers <= {producer, consumer} and out not in self.network.outputs
            for out, readers in made
            if consumer in readers
        )

    def readers(self, tensor: str) -> set[int]:
        """Groups that read a tensor, looking through operators that are eliminated."""
        readers = self.consumers.get(tensor, ())
        groups = {self.group[reader] for reader in readers if reader not in self.removed}
        for reader in self.removed.intersection(readers):
            for out in self.network.nodes[reader].outputs:
                groups |= self.readers(out)
        return groups

    def would_loop(self, producer: int, consumer: int) -> bool:
        """Whether there is a way from ``producer`` to ``consumer`` through a third group."""
        if {producer}.issuperset(self.producers_of(consumer)):
            return False  # at a glance, however many readers the producer has
        last = self.members[consumer][-1]
        waiting = [g for g in self.consumers_of(producer) if g != consumer]
        seen = set(waiting)
        while waiting:
            for below in self.consumers_of(waiting.pop()):
                if below == consumer:
                    return True
                if below not in seen and self.members[below][0] < last:
                    seen.add(below)
                    waiting.append(below)
        return False

    def merge(self, producer: int, consumer: int, kind: str) -> None:
        """Make one group of two."""
        for position in self.members[consumer]:
            self.group[position] = producer
        self.members[producer] = sorted(self.members[producer] + self.members.pop(consumer))
        self.op_counts[producer].update(self.op_counts.pop(consumer))
        self.kind[producer] = kind
        del self.kind[consumer]

    def remove(self, group: int) -> None:
        """Take a group out: it costs nothing."""
        self.removed.update(self.members.pop(group))
        del self.kind[group]


def dead_positions(network: Network) -> list[int]:
    """Operators whose results no output of the network needs."""
    needed = set(network.outputs)
    dead = []
    for position in range(len(network.nodes) - 1, -1, -1):
        node = network.nodes[position]
        if needed.isdisjoint(out for out in node.outputs if out):
            dead.append(position)
        else:
            needed.update(node.inputs)
    return dead


def apply(
    network: Network, rules: Sequence[Rule], version: str = "", *, drops_dead: bool = False
) -> Groups:
    """The groups that a table of rules makes of a network; ``version`` empty: the newest.

    ``drops_dead``: the engine does not run what no output needs.
    """
    state = FusionState(network, dead_positions(network) if drops_dead else ())
    for rule in rules:
        if rule.covers(version):
            _apply_rule(state, rule)
    kernels = tuple(tuple(members) for _, members in sorted(state.members.items()))
    return Groups(kernels, tuple(sorted(state.removed)))


def _apply_rule(state: FusionState, rule: Rule) -> None:
    producers = rule.producer.split()
    kinds = rule.consumer.split() or producers
    present = set(state.kind.values())
    if present.isdisjoint(kinds) or present.isdisjoint(producers):
        return
    for group in [g for g, kind in state.kind.items() if kind in kinds]:
        if state.kind.get(group) not in kinds:
            continue
        if not rule.consumer:
            if rule.when is None or rule.when(state, group, group):
                state.remove(group)
            continue
        others = state.producers_of
        if rule.match_policy == "beside":
            if rule.when is not None and not rule.when(state, group, group):
                continue  # unlike itself, it is like no other
            others = state.beside
        for producer in sorted(others(group), reverse=rule.match_policy != "first"):
            is_kind = state.kind.get(producer) in producers
            fits = is_kind and (rule.when is None or rule.when(state, producer, group))
            if fits and not state.would_loop(producer, group):
                state.merge(producer, group, rule.makes or state.kind[producer])
                if rule.match_policy != "every":
                    break
                group = producer


def unknown_operators(network: Network, rules: Iterable[Rule]) -> tuple[str, ...]:
    """One warning for each operator that no rule of the table names."""
    named = {op for rule in rules for op in f"{rule.producer} {rule.consumer}".split()}
    counts = Counter(n.qualified_op for n in network.nodes if n.domain or n.op not in named)
    return tuple(
        f"no fusion rule covers {op} ({count} of {len(network.nodes)} operators): "
        "taken for a kernel of its own"
        for op, count in sorted(counts.items())
    )
