"""The machinery under tables of fusion rules: what a rule is, and how a table is applied.

A table is read from top to bottom. Every rule is tried on all groups of the network, in file order,
before the next one is. At first each operator is a group of its own. A rule either joins two
groups, one of which reads from the other, or says that an operator costs nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from hybridlat.engines.fusion.groups import Groups, is_stored_weight, lowered_of
from hybridlat.graph.network import Lowered, Network, Node, TensorType

Pick = Literal["last", "first", "every"]
Condition = Callable[["Scene", int, int], bool]
"""Whether a rule applies to (scene, upper group, lower group); both are the same in ``gone``."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of a table.

    ``upper`` and ``lower`` are the kinds of group that are joined; a group's kind is that of its
    only operator, or what the rule that joined it says (``makes``; else the upper group's kind).
    ``since`` and ``until`` bound the engine versions, both included; ``until`` empty: still so.
    ``pick`` chooses among several groups that the lower one could join, in file order.
    """

    name: str
    upper: frozenset[str]
    lower: frozenset[str] | None
    reason: str
    when: Condition | None = None
    makes: str = ""
    pick: Pick = "last"
    since: str = ""
    until: str = ""

    def covers(self, version: str) -> bool:
        """Whether the rule holds for an engine version; an empty version is the newest."""
        key = version_key(version)
        above = not version or not self.since or key >= version_key(self.since)
        below = not self.until or (bool(version) and key <= version_key(self.until))
        return above and below


def join(
    name: str,
    upper: str,
    lower: str,
    reason: str,
    when: Condition | None = None,
    makes: str = "",
    pick: Pick = "last",
    since: str = "",
    until: str = "",
) -> Rule:
    """``lower`` runs in the same kernel as the ``upper`` group that it reads from."""
    kinds = frozenset(upper.split()), frozenset(lower.split())
    return Rule(name, *kinds, reason, when, makes, pick, since, until)


def gone(
    name: str,
    ops: str,
    reason: str,
    when: Condition | None = None,
    since: str = "",
    until: str = "",
) -> Rule:
    """The operators cost nothing: their readers read what they read."""
    return Rule(name, frozenset(ops.split()), None, reason, when, since=since, until=until)


def version_key(version: str) -> tuple[int, ...]:
    """``8.6.1`` as numbers, so that 10 is above 8."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def in_force(rules: Sequence[Rule], version: str) -> str:
    """Names which rules of a table hold for a version: equal where two versions have the same."""
    held = "".join("1" if rule.covers(version) else "0" for rule in rules)
    return f"{int(held or '0', 2):x}"


class Scene:
    """A network while rules are applied to it: the groups so far and what lies around them."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.producers = network.producers()
        self.consumers = network.consumers()
        self.removed: set[int] = set()
        self.group = list(range(len(network.nodes)))
        self.members: dict[int, list[int]] = {i: [i] for i in self.group}
        self.kind: dict[int, str] = {i: node.op for i, node in enumerate(network.nodes)}
        for position, node in enumerate(network.nodes):
            if is_stored_weight(network, node):
                self.remove(position)

    def nodes(self, group: int) -> list[Node]:
        """The operators of a group in file order."""
        return [self.network.nodes[i] for i in self.members[group]]

    def only(self, group: int) -> Node:
        """The first operator of a group."""
        return self.network.nodes[self.members[group][0]]

    def ops(self, group: int) -> tuple[str, ...]:
        """The names of a group's operators in file order."""
        return tuple(node.op for node in self.nodes(group))

    def output(self, group: int) -> TensorType:
        """Type of what the last operator of a group makes."""
        return self.network.types[next(o for o in self.nodes(group)[-1].outputs if o)]

    def makers(self, tensor: str) -> list[int]:
        """Groups that make a tensor, looking through operators that are gone."""
        position = self.producers.get(tensor)
        if position is None:
            return []
        if position not in self.removed:
            return [self.group[position]]
        sources = self.network.nodes[position].inputs
        return list(dict.fromkeys(g for name in sources for g in self.makers(name)))

    def uppers(self, group: int) -> list[int]:
        """Other groups that a group reads from, in the order in which it names them."""
        names = (name for node in self.nodes(group) for name in node.inputs)
        found = dict.fromkeys(g for name in names for g in self.makers(name))
        return [g for g in found if g != group]

    def lowers(self, group: int) -> list[int]:
        """Other groups that read from a group, looking through operators that are gone."""
        found: dict[int, None] = {}
        waiting = [out for node in self.nodes(group) for out in node.outputs if out]
        while waiting:
            for reader in self.consumers.get(waiting.pop(0), ()):
                if reader in self.removed:
                    waiting.extend(self.network.nodes[reader].outputs)
                elif self.group[reader] != group:
                    found[self.group[reader]] = None
        return list(found)

    def gives_out(self, group: int) -> bool:
        """Whether a tensor of the group is an output of the network."""
        outputs = set(self.network.outputs)
        return any(out in outputs for node in self.nodes(group) for out in node.outputs)

    def between_only(self, upper: int, lower: int) -> bool:
        """Whether what ``lower`` reads of ``upper`` is read by nothing else and not given out."""
        read = [
            out
            for node in self.nodes(upper)
            for out in node.outputs
            if out and lower in self.readers(out)
        ]
        return all(
            self.readers(out) <= {upper, lower} and out not in self.network.outputs for out in read
        )

    def readers(self, tensor: str) -> set[int]:
        """Groups that read a tensor, looking through operators that are gone."""
        found: set[int] = set()
        for reader in self.consumers.get(tensor, ()):
            if reader in self.removed:
                for out in self.network.nodes[reader].outputs:
                    found |= self.readers(out)
            else:
                found.add(self.group[reader])
        return found

    def would_loop(self, upper: int, lower: int) -> bool:
        """Whether there is a way from ``upper`` to ``lower`` through a third group."""
        last = self.members[lower][-1]
        waiting = [g for g in self.lowers(upper) if g != lower]
        seen = set(waiting)
        while waiting:
            for below in self.lowers(waiting.pop()):
                if below == lower:
                    return True
                if below not in seen and self.members[below][0] < last:
                    seen.add(below)
                    waiting.append(below)
        return False

    def unite(self, upper: int, lower: int, kind: str) -> None:
        """Make one group of two."""
        for position in self.members[lower]:
            self.group[position] = upper
        self.members[upper] = sorted(self.members[upper] + self.members.pop(lower))
        self.kind[upper] = kind
        del self.kind[lower]

    def remove(self, group: int) -> None:
        """Take a group out: it costs nothing."""
        self.removed.update(self.members.pop(group))
        del self.kind[group]


def apply(network: Network, rules: Sequence[Rule], version: str = "") -> Groups:
    """The groups that a table of rules makes of a network; ``version`` empty: the newest."""
    scene = Scene(network)
    for rule in rules:
        if rule.covers(version):
            _apply_rule(scene, rule)
    kernels = tuple(tuple(members) for _, members in sorted(scene.members.items()))
    return Groups(kernels, tuple(sorted(scene.removed)))


def _apply_rule(scene: Scene, rule: Rule) -> None:
    kinds = rule.upper if rule.lower is None else rule.lower
    for group in [g for g, kind in scene.kind.items() if kind in kinds]:
        if scene.kind.get(group) not in kinds:
            continue
        if rule.lower is None:
            if rule.when is None or rule.when(scene, group, group):
                scene.remove(group)
            continue
        for upper in sorted(scene.uppers(group), reverse=rule.pick != "first"):
            if _fits(scene, rule, upper, group):
                scene.unite(upper, group, rule.makes or scene.kind[upper])
                if rule.pick != "every":
                    break
                group = upper


def _fits(scene: Scene, rule: Rule, upper: int, lower: int) -> bool:
    return (
        scene.kind.get(upper) in rule.upper
        and (rule.when is None or rule.when(scene, upper, lower))
        and not scene.would_loop(upper, lower)
    )


def lower_by(network: Network, rules: Sequence[Rule], version: str, by: str) -> Lowered:
    """Lower by a table; what it says nothing of stays a kernel and is named in a warning."""
    groups = apply(network, rules, version)
    return lowered_of(network, groups, by, unknown_operators(network, rules))


def unknown_operators(network: Network, rules: Iterable[Rule]) -> tuple[str, ...]:
    """One warning for each operator that no rule of the table names."""
    named = {op for rule in rules for op in (*rule.upper, *(rule.lower or ()))}
    counts = Counter(n.qualified_op for n in network.nodes if n.domain or n.op not in named)
    return tuple(
        f"no fusion rule covers {op} ({count} of {len(network.nodes)} operators): "
        "taken for a kernel of its own"
        for op, count in sorted(counts.items())
    )
