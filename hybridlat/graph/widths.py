"""A network with all of its channels scaled, those together that depend on each other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridlat.errors import NetworkError
from hybridlat.graph.channels import Channels, Shape, groups_of
from hybridlat.graph.network import Constant, Network, Node, TensorType

MULTIPLE = 8
"""A group's channels are rounded to a multiple of this, or of what divides them and this."""
_SIZES_AT: Mapping[str, int] = {"Reshape": 1, "Expand": 1, "Resize": 3}


def scaled(network: Network, factor: float) -> Network:
    """The network with ``factor`` times the channels; its inputs and outputs keep their sizes.

    Channels that stand in the same tensors are scaled as one. Raises NetworkError for an operator
    that cannot be followed, and where no channel can be scaled.
    """
    channels = Channels(network)
    labels = channels.labels()
    for node, ids in channels.kept:
        if labels[ids].any():
            raise NetworkError(
                f"{network.name}: the channels that {node.op} {node.name!r} reads cannot be "
                "scaled: its result hangs on their number"
            )
    if not labels.any():
        raise NetworkError(
            f"{network.name} has no channels to scale: all of them reach its inputs or outputs"
        )
    weights = _weights(channels, labels, factor)[labels]

    def size(tensor: str) -> Shape:
        pairs = zip(channels.of(tensor), channels.shape(tensor), strict=True)
        return tuple([n if ids is None else int(weights[ids].sum()) for ids, n in pairs])

    types = {n: TensorType(t.dtype, size(n)) for n, t in network.types.items()}
    constants = {n: _resized(c, size(n)) for n, c in network.constants.items()}
    nodes = []
    for node in network.nodes:
        at, out = _SIZES_AT.get(node.op, 9), types[node.outputs[0]].shape
        for name in node.inputs[at : at + 1]:
            if name in constants and (sizes := constants[name].values):
                new = [v if v <= 1 else out[i - len(sizes)] for i, v in enumerate(sizes)]
                constants[name] = replace(constants[name], values=tuple(new))
        if node.op == "Split" and len(node.inputs) > 1:
            axis: Any = node.attribute("axis", 0)
            parts = tuple([types[result].shape[axis] for result in node.outputs])
            constants[node.inputs[1]] = replace(constants[node.inputs[1]], values=parts)
        for name in node.inputs[1:3] if node.op == "Slice" else ():
            moved = _moved(channels, node, constants[name].values or (), weights)
            constants[name] = replace(constants[name], values=moved)
        groups = groups_of(node)
        if groups > 1 and groups == channels.shape(node.inputs[0])[1]:
            own = {**dict(node.attributes), "group": types[node.inputs[0]].shape[1]}
            node = replace(node, attributes=tuple(sorted(own.items())))
        nodes.append(node)
    return replace(network, nodes=tuple(nodes), types=types, constants=constants)


def _moved(
    channels: Channels, node: Node, places: Sequence[Any], weights: NDArray[np.intp]
) -> Shape:
    """Where a Slice starts or ends among the channels that are left."""
    x, axes, made = channels.of(node.inputs[0]), channels.numbers(node, "", 3), list(places)
    for i, axis in enumerate(axes or range(len(made))):
        if (ids := x[axis]) is not None:
            made[i] = int(weights[ids[: made[i]]].sum())
    return tuple(made)


def _weights(channels: Channels, labels: NDArray[np.intp], factor: float) -> NDArray[np.intp]:
    """How many channels each becomes: those of a group differ by one at most."""
    marks, kinds = np.zeros(channels.count, np.uint64), np.random.default_rng(0)
    times = np.ones(channels.count, np.intp)
    for tensor, axes in channels.axes.items():
        for i, ids in enumerate(axes):
            mark = kinds.integers(1 << 62, dtype=np.uint64)
            if ids is not None:
                roots, counts = np.unique(labels[ids], return_counts=True)
                marks[roots] += counts.astype(np.uint64) * mark
                if i == 1 and len(axes) > 2 and tensor in channels.network.types:
                    times[roots] = np.maximum(times[roots], counts)
    every = 1 + np.flatnonzero(marks[1:])  # but for what keeps its size
    weights = np.ones(channels.count, np.intp)
    for mark in np.unique(marks[every]):
        group = every[marks[every] == mark]
        whole = MULTIPLE // math.gcd(MULTIPLE, int(times[group[0]]))
        step = math.gcd(len(group), whole)
        total = max(step, int(len(group) * factor / step + 0.5) * step)
        weights[group] = total // len(group)
        weights[group[: total % len(group)]] += 1
    return weights


def _resized(constant: Constant, shape: Shape) -> Constant:
    same = constant.type.shape == shape
    return constant if same else Constant(TensorType(constant.type.dtype, shape))
