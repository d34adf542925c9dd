"""Whether two networks are the same but for names and order, by trying: slow and surely right."""

from __future__ import annotations

from hybridlat.graph.network import Network, Node


def alike(first: Network, second: Network) -> bool:
    """True when renaming and reordering turn one network into the other."""
    if len(first.nodes) != len(second.nodes) or len(first.outputs) != len(second.outputs):
        return False
    kinds = [sorted(str(n.types[i]) for i in n.inputs) for n in (first, second)]
    return kinds[0] == kinds[1] and _match(first, second, 0, set(), {}, {})


def _match(
    first: Network,
    second: Network,
    position: int,
    used: set[int],
    names: dict[str, str],
    back: dict[str, str],
) -> bool:
    """Find partners for the nodes of ``first`` from ``position`` on, given those before it."""
    if position == len(first.nodes):
        return True
    node = first.nodes[position]
    for other, partner in enumerate(second.nodes):
        if other in used or _label(first, node) != _label(second, partner):
            continue
        tensors = [*zip(node.inputs, partner.inputs, strict=True)]
        tensors += zip(node.outputs, partner.outputs, strict=True)
        new = dict(names), dict(back)
        if all(_pair(first, second, a, b, *new) for a, b in tensors) and _match(
            first, second, position + 1, used | {other}, *new
        ):
            return True
    return False


def _label(network: Network, node: Node) -> object:
    out = [str(network.types[o]) if o else "" for o in node.outputs]
    return node.qualified_op, node.version, node.attributes, len(node.inputs), out


def _pair(
    first: Network, second: Network, a: str, b: str, names: dict[str, str], back: dict[str, str]
) -> bool:
    if not a or not b:
        return a == b
    if a in names or b in back:
        return names.get(a) == b and back.get(b) == a
    if (a in first.constants) != (b in second.constants):
        return False
    if a in first.constants:
        same = first.constants[a] == second.constants[b]
    else:
        same = first.types[a] == second.types[b] and (a in first.inputs) == (b in second.inputs)
    if not same or (a in first.outputs) != (b in second.outputs):
        return False
    names[a], back[b] = b, a
    return True
