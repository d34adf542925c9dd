"""The machinery under tables of fusion rules: what a rule is, and how a table is applied.

A table is read from top to bottom. Every rule is tried on all groups of the network, in file order,
before the next one is. At first each operator is a group of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal

from hybridlat.engines.fusion.groups import Groups
from hybridlat.graph.network import Network, Node, TensorType
from hybridlat.schema.target import version_key


class Group:
    """Operators that run in one kernel, by their positions in file order.

    A group's ``kind`` is that of its only operator, or what the rule that fused it says.
    """

    def __init__(self, grouping: Grouping, position: int) -> None:
        self.grouping, self.network = grouping, grouping.network
        self.key, self.positions = position, [position]
        self.kind = self.first.qualified_op
        self.op_counts = Counter([self.kind])

    @property
    def nodes(self) -> list[Node]:
        return [self.network.nodes[i] for i in self.positions]

    @property
    def first(self) -> Node:
        return self.network.nodes[self.positions[0]]

    @property
    def ops(self) -> tuple[str, ...]:
        return tuple(node.qualified_op for node in self.nodes)

    @property
    def data(self) -> list[str]:
        """What its first operator reads that is no constant."""
        return [name for name in self.first.inputs if name in self.network.types]

    @property
    def output(self) -> TensorType:
        last = self.network.nodes[self.positions[-1]]
        return self.network.types[next(out for out in last.outputs if out)]

    @property
    def producers(self) -> list[Group]:
        """Other groups that it reads from, in the order in which it names them."""
        return [group for group in dict.fromkeys(g for _, g in self.read) if group is not self]

    @property
    def read(self) -> list[tuple[str, Group]]:
        """Tensors that it reads with the groups that make them, its own too."""
        return [pair for node in self.nodes for name in node.inputs for pair in self._made(name)]

    def _made(self, tensor: str) -> list[tuple[str, Group]]:
        """A tensor with its group; of an operator that is removed what that reads."""
        maker = self.network.producers.get(tensor)
        if maker is None:
            return []
        if maker not in self.grouping.removed:
            return [(tensor, self.grouping.group_of[maker])]
        return [pair for name in self.network.nodes[maker].inputs for pair in self._made(name)]

    @property
    def consumers(self) -> list[Group]:
        return self._readers(*[out for node in self.nodes for out in node.outputs])

    @property
    def beside(self) -> list[Group]:
        """Other groups that read what it reads first."""
        return self._readers(self.first.inputs[0])

    def _readers(self, *tensors: str) -> list[Group]:
        readers = set[Group]().union(*map(self.grouping.readers, filter(None, tensors)))
        return sorted(readers - {self}, key=_key)

    @property
    def gives_out(self) -> bool:
        """Whether one of its tensors is an output of the network."""
        return any(out in self.network.outputs for node in self.nodes for out in node.outputs)

    def would_loop(self, consumer: Group) -> bool:
        """Whether there is a way from it to ``consumer`` through a third group."""
        if {self}.issuperset(consumer.producers):
            return False  # at a glance, however many readers it has
        last = consumer.positions[-1]
        waiting = [group for group in self.consumers if group is not consumer]
        seen = set(waiting)
        while waiting:
            for below in waiting.pop().consumers:
                if below is consumer:
                    return True
                if below not in seen and below.positions[0] < last:
                    seen.add(below)
                    waiting.append(below)
        return False


_key = attrgetter("key")


class Grouping:
    """A network while rules are applied to it: its groups, by key, and what is removed.

    ``region`` holds the operators that a compiler takes.
    """

    def __init__(self, network: Network, region: frozenset[int]) -> None:
        self.network, self.region = network, region
        self.removed: set[int] = set()
        self.group_of = [Group(self, i) for i in range(len(network.nodes))]
        self.groups = {group.key: group for group in self.group_of}

    def readers(self, tensor: str) -> set[Group]:
        """Groups that read a tensor, looking through operators that are removed."""
        readers = self.network.consumers.get(tensor, ())
        groups = {self.group_of[reader] for reader in readers if reader not in self.removed}
        for reader in self.removed.intersection(readers):
            for out in self.network.nodes[reader].outputs:
                groups |= self.readers(out)
        return groups

    def merge(self, producer: Group, consumer: Group, kind: str) -> None:
        for position in consumer.positions:
            self.group_of[position] = producer
        producer.positions = sorted(producer.positions + consumer.positions)
        producer.op_counts.update(consumer.op_counts)
        producer.kind = kind
        del self.groups[consumer.key]

    def remove(self, group: Group) -> None:
        self.removed.update(group.positions)
        del self.groups[group.key]


Condition = Callable[[Group, Group], bool]
"""Whether a rule applies to a producer and a consumer; what is removed is given as both."""


def _always(producer: Group, consumer: Group) -> bool:
    """No condition."""
    return True


@dataclass(frozen=True)
class _Bounded:
    """A line of a table, which holds for versions of an engine: none means all there are."""

    since: str = field(default="", kw_only=True)
    before: str = field(default="", kw_only=True)

    def covers(self, version: str) -> bool:
        """Whether the rule holds for an engine version; an empty version is the newest."""
        if not version:
            return not self.before
        key, end = version_key(version), version_key(self.before)
        return key >= version_key(self.since) and (not self.before or key < end)


@dataclass(frozen=True)
class Eliminate(_Bounded):
    """The operators of these kinds cost nothing: their readers read what they read."""

    ops: str
    reason: str
    when: Condition = _always

    @property
    def kinds(self) -> set[str]:
        return set(self.ops.split())

    def apply(self, grouping: Grouping) -> None:
        kinds = self.kinds
        for group in [group for group in grouping.groups.values() if group.kind in kinds]:
            if self.when(group, group):
                grouping.remove(group)


@dataclass(frozen=True)
class Fuse(_Bounded):
    """``consumer`` runs in the kernel of the ``producer`` that it reads from.

    Both are kinds of group in one text. They become a group of the kind ``makes``, else of the
    producer's. Of several producers the last or every one takes it in. ``beside`` stands for the
    last of the groups that read what the consumer reads. ``in_region``: it holds in a region alone.
    """

    producer: str
    consumer: str
    reason: str
    when: Condition = _always
    makes: str = ""
    match_policy: Literal["last", "every", "beside"] = "last"
    in_region: bool = False

    @property
    def kinds(self) -> set[str]:
        return {*self.producer.split(), *self.consumer.split()}

    def apply(self, grouping: Grouping) -> None:
        if self.in_region and not grouping.region:
            return
        producers, consumers = self.producer.split(), self.consumer.split()
        present = {group.kind for group in grouping.groups.values()}
        if present.isdisjoint(consumers) or present.isdisjoint(producers):
            return
        for group in [group for group in grouping.groups.values() if group.kind in consumers]:
            if group.key in grouping.groups and group.kind in consumers:
                self._fuse(grouping, group, producers)

    def _fuse(self, grouping: Grouping, group: Group, producers: Sequence[str]) -> None:
        if self.match_policy == "beside" and not self.when(group, group):
            return  # unlike itself, it is like no other
        others = group.beside if self.match_policy == "beside" else group.producers
        for producer in sorted(others, key=_key, reverse=True):
            if producer.key not in grouping.groups or producer.kind not in producers:
                continue
            joined = (*producer.positions, *group.positions)
            if self.in_region and not grouping.region.issuperset(joined):
                continue
            if self.when(producer, group) and not producer.would_loop(group):
                grouping.merge(producer, group, self.makes or producer.kind)
                if self.match_policy != "every":
                    break
                group = producer


Rule = Fuse | Eliminate


def in_force(rules: Sequence[Rule], version: str) -> str:
    """Names which rules of a table hold for a version: equal where two versions have the same."""
    held = "".join("1" if rule.covers(version) else "0" for rule in rules)
    return f"{int(held or '0', 2):x}"


def apply(
    network: Network, rules: Sequence[Rule], version: str = "", region: frozenset[int] = frozenset()
) -> Groups:
    """The groups that a table makes of a network under a version; the newest if it is empty."""
    grouping = Grouping(network, region)
    for rule in rules:
        if rule.covers(version):
            rule.apply(grouping)
    kernels = tuple(tuple(group.positions) for _, group in sorted(grouping.groups.items()))
    return Groups(kernels, tuple(sorted(grouping.removed)))


def unknown_operators(network: Network, rules: Iterable[Rule], own: str) -> tuple[str, ...]:
    """One warning for each operator that no rule of the table names, nor ``own`` kernels."""
    named = set(own.split()).union(*(rule.kinds for rule in rules))
    counts = Counter(n.qualified_op for n in network.nodes if n.domain or n.op not in named)
    return tuple(
        f"no fusion rule covers {op} ({count} of {len(network.nodes)} operators): "
        "taken for a kernel of its own"
        for op, count in sorted(counts.items())
    )
