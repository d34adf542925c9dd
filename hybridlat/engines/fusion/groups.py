"""A grouping of a file's operators, written as the network of kernels that an engine runs.

Engines that say which operators they fuse but do not give out their graph (TensorRT, OpenVINO) and
tables of rules both end here: groups of operators in, :class:`Lowered` out.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from hybridlat.graph.fused import fuse, main_operator
from hybridlat.graph.network import Constant, Lowered, Network, Node, topological_order


@dataclass(frozen=True, slots=True)
class Groups:
    """Positions of a network's nodes: those of each kernel, and those that cost nothing.

    Every position is in exactly one place.
    """

    kernels: tuple[tuple[int, ...], ...]
    removed: tuple[int, ...]


def differing(answer: Groups, truth: Groups) -> tuple[int, ...]:
    """The operators whose kernel (or removal) is not the same in both."""
    kernels = set(answer.kernels) & set(truth.kernels)
    same = {i for kernel in kernels for i in kernel} | (set(answer.removed) & set(truth.removed))
    return tuple(sorted({*truth.removed}.union(*truth.kernels) - same))


def numbered(network: Network) -> Network:
    """The network under names by which layers are traced back: ``n12``, tensors ``n12.0``."""
    names = {name: f"p_{name}" for name in network.inputs}
    names |= {name: f"p_{first}" for name, first in network.held_as.items()}
    for i, node in enumerate(network.nodes):
        names.update((out, f"n{i}.{index}") for index, out in enumerate(node.outputs) if out)
    return network.renamed(names)


class Claimed:
    """Operators by the layer of an engine that claims each, the first of several.

    ``makers`` and ``readers`` are the layers around an operator.
    """

    def __init__(self, network: Network, claims: Sequence[Sequence[int]]) -> None:
        self._network = network
        self.by = {i: layer for layer, claim in reversed([*enumerate(claims)]) for i in claim}

    def makers(self, position: int) -> list[int]:
        sources = map(self._network.producers.get, self._network.nodes[position].inputs)
        return [self.by[source] for source in sources if source in self.by]

    def readers(self, position: int) -> list[int]:
        outputs, consumers = self._network.nodes[position].outputs, self._network.consumers
        return [self.by[r] for out in outputs for r in consumers.get(out, ()) if r in self.by]

    def groups(self) -> Groups:
        """A kernel of each layer that has operators; what none claims is removed."""
        members: dict[int, list[int]] = {}
        for position, layer in sorted(self.by.items()):
            members.setdefault(layer, []).append(position)
        kernels = tuple(tuple(held) for _, held in sorted(members.items()))
        removed = {*range(len(self._network.nodes))}.difference(self.by)
        return Groups(kernels, tuple(sorted(removed)))


def equal_results(
    network: Network, nodes: Iterable[Node], kept: Collection[str] = ()
) -> dict[str, str]:
    """The results of operators that compute the same as an earlier one, with those of that.

    Those that are ``kept`` are results of their own.
    """
    same: dict[str, str] = {}
    alike: dict[object, str] = {}
    known = network.constants
    held = {n: (c.type, c.values or network.held_as[n]) for n, c in known.items()}
    for node in nodes:
        if not any(node.outputs[1:]):
            out = node.outputs[0]
            read = [held.get(name) or same.get(name, name) for name in node.inputs]
            earlier = alike.setdefault((node.kind, *read), out)
            if earlier != out and out not in kept:
                same[out] = earlier
    return same


def lowered_of(
    network: Network, groups: Groups, by: str, warnings: tuple[str, ...] = ()
) -> Lowered:
    """The network of kernels: one node each, a fused one unless it is one operator.

    Readers of a removed operator read what it read, its parts one by one: a view costs nothing. The
    inputs of a kernel are those of its main operator, in their places, then others.
    """
    writer = _Writer(network, groups)
    kernels, order = writer.kernels, writer.order
    inputs = [writer.inputs(k) for k in range(len(kernels))]
    outputs = tuple(dict.fromkeys(t for o in network.outputs for t in writer.sources(o)))
    needed = {name for names in inputs for name in names} | set(outputs)
    nodes = tuple(writer.kernel(kernels[k], inputs[k], needed) for k in order)
    made = (out for node in nodes for out in node.outputs if out)
    types = {name: network.types[name] for name in (*network.inputs, *made)}
    read = {name for node in nodes for name in node.inputs}
    known = {**network.constants, **writer.stored}
    constants = {name: c for name, c in known.items() if name in read}
    whole = Network(network.name, nodes, network.inputs, outputs, types, constants, network.folded)
    origins = tuple(kernels[k] for k in order)
    return Lowered(whole, origins, tuple(sorted(groups.removed)), by, warnings)


def traced(
    lowered: Lowered, written: Network, places: Sequence[tuple[int, ...]], file: Network
) -> Lowered:
    """The same kernels, traced to the operators of ``file``; those in no kernel are removed.

    ``places`` are those that each operator of the network ``written`` stands for. One that several
    kernels compute belongs to the first of its kind, or to the first.
    """
    owners, origins = dict[int, int](), [list[int]() for _ in lowered.origins]
    for is_own in (False, True):
        for kernel in reversed(range(len(origins))):
            for held in lowered.origins[kernel]:
                op, own = written.nodes[held].op, places[held]
                owners |= {p: kernel for p in own if op == file.nodes[p].op or not is_own}
    for place in sorted(owners):
        origins[owners[place]].append(place)
    left = tuple([place for place in range(len(file.nodes)) if place not in owners])
    return replace(lowered, origins=tuple(map(tuple, origins)), removed=left)


class _Writer:
    def __init__(self, network: Network, groups: Groups) -> None:
        self.network = network
        self.removed = set(groups.removed)
        removed = [network.nodes[i] for i in sorted(groups.removed)]
        self.stored = {  # of weights that only say in which whole numbers they are stored
            node.outputs[0]: Constant(network.types[node.outputs[0]])
            for node in removed
            if node.op == "DequantizeLinear" and node.inputs[0] in network.constants
        }
        self.views: dict[str, tuple[str, ...]] = {}  # by outputs of removed operators
        for node in removed:
            if node.outputs[0] not in self.stored:
                read = [t for i in node.inputs if i in network.types for t in self.sources(i)]
                self.views |= dict.fromkeys(filter(None, node.outputs), (*dict.fromkeys(read),))
        self.kernels = list(groups.kernels)
        while (stuck := self._link()) is not None:
            self.kernels[stuck : stuck + 1] = [(i,) for i in self.kernels[stuck]]

    def _link(self) -> int | None:
        """Find which kernel makes each tensor, and the order in which kernels run.

        Returns the largest kernel that reads what hangs on itself, None when all can run.
        """
        nodes, kernels = self.network.nodes, self.kernels
        made = [
            (out, k) for k, held in enumerate(kernels) for i in held for out in nodes[i].outputs
        ]
        self.made_by = made_by = {out: k for out, k in made if out}
        needs = []
        for k, held in enumerate(kernels):
            read = {t for i in held for name in nodes[i].inputs for t in self.sources(name)}
            needs.append({made_by[t] for t in read if t in made_by} - {k})
        self.order = topological_order(needs, key=lambda k: kernels[k][-1])
        free = set(self.order)
        joined = [k for k, held in enumerate(kernels) if k not in free and len(held) > 1]
        return max(joined, key=lambda k: len(kernels[k]), default=None)

    def sources(self, tensor: str) -> tuple[str, ...]:
        return self.views.get(tensor, (tensor,))

    def inputs(self, own: int) -> list[str]:
        kernel = self.kernels[own]
        nodes = [self.network.nodes[i] for i in kernel]
        main = main_operator(nodes)
        if len(nodes) == 1 and self.views.keys().isdisjoint(main.inputs):
            return list(main.inputs)
        ordered = (main, *(node for node in nodes if node is not main))
        sources = [self.sources(name) for node in ordered for name in node.inputs]
        parts = [t for held in sources for t in held[:1]]
        parts += [t for held in sources for t in held[1:]]
        read = [tensor for tensor in parts if tensor and self.made_by.get(tensor) != own]
        through = self._with_views(kernel, set(read))
        operands = [n for node in through for n in node.inputs if n in self.network.constants]
        return list(dict.fromkeys([*read, *operands]))

    def kernel(self, kernel: tuple[int, ...], inputs: list[str], needed: set[str]) -> Node:
        members = [self.network.nodes[i] for i in kernel]
        outputs = [out for node in members for out in node.outputs if out in needed]
        if not outputs:  # none is read: the last must still be made
            outputs = [next(out for out in members[-1].outputs if out)]
        if tuple(inputs) == members[0].inputs and len(members) == 1:
            kept = tuple(out if out in outputs else "" for out in members[0].outputs)
            return replace(members[0], outputs=kept)
        return fuse(members, self._with_views(kernel, set(inputs)), inputs, outputs, self.network)

    def _with_views(self, kernel: tuple[int, ...], inputs: set[str]) -> list[Node]:
        """The operators of a kernel and the removed ones through which it reads, in order."""
        chosen = set(kernel)
        waiting = [name for i in kernel for name in self.network.nodes[i].inputs]
        while waiting:
            name = waiting.pop()
            position = self.network.producers.get(name, -1)
            if name not in inputs and position in self.removed and position not in chosen:
                chosen.add(position)
                waiting.extend(self.network.nodes[position].inputs)
        return [self.network.nodes[i] for i in sorted(chosen)]
