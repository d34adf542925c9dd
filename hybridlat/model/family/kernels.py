"""The kernels of one network as the family model sees them: distinct rows, how often, what kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hybridlat.graph.network import Network
from hybridlat.graph.operators import KINDS
from hybridlat.model.geometry import (
    COLUMN,
    COLUMNS,
    Geometry,
    geometry,
    network_geometry,
)

Array = NDArray[np.float64]

CLASSES: tuple[str, ...] = (
    "conv 1x1", "conv kxk", "conv grouped", "conv depthwise", "conv transposed", "matmul",
    "max pool", "average pool", "global reduction", "pointwise", "softmax", "normalisation",
    "concat", "slice", "transpose", "pad", "resize", "other", "batch normalisation",
    "host", "copy",
)  # fmt: skip
"""Kinds of kernel that share nothing but what all kernels share.

``host`` is what a run costs beside its kernels, ``copy`` moving inputs and outputs between host and
device: every network has one of each.
"""
HOST, COPY = CLASSES.index("host"), CLASSES.index("copy")
_CONVOLUTIONS = 4  # classes below are convolutions that tiles of a matrix product describe
_BY_OPERATOR = {
    "MaxPool": "max pool", "NhwcMaxPool": "max pool", "AveragePool": "average pool",
    "LpPool": "average pool", "Window": "average pool", "Softmax": "softmax",
    "LogSoftmax": "softmax", "LRN": "normalisation", "LpNormalization": "normalisation",
    "Concat": "concat", "Split": "slice", "Slice": "slice", "Gather": "slice",
    "Transpose": "transpose", "DepthToSpace": "transpose", "SpaceToDepth": "transpose",
    "Pad": "pad", "Expand": "pad", "Tile": "pad", "Resize": "resize", "Upsample": "resize",
    "Reduction": "global reduction",
}  # fmt: skip
_SCALED = [COLUMN[name] for name in ("batch", "m", "flop", "in_bytes", "out_bytes")]


@dataclass(frozen=True)
class KernelTable:
    """The distinct kernels of one network.

    ``values`` are rows of ``geometry.COLUMNS`` (``op`` is 0: its number lives as long as a
    process), ``classes`` index ``CLASSES``, ``counts`` say how often each stands in the network.
    ``copied_bytes`` is what the network reads and gives out, for engines timed from host to host.
    """

    values: Array
    classes: NDArray[np.intp]
    counts: Array
    copied_bytes: float

    def at_batch(self, factor: int) -> KernelTable:
        """The kernels of the same network on ``factor`` times as many inputs.

        Sizes that hold the batch grow with it; a network's first axis is its batch in all of them.
        """
        values = self.values.copy()
        made = values[:, COLUMN["out_bytes"]] / np.maximum(values[:, COLUMN["item_bytes"]], 1e-9)
        pointwise = values[:, COLUMN["kind"]] == KINDS["pointwise"]
        whole = pointwise & (values[:, COLUMN["run"]] >= made) & (made > 1)
        values[:, _SCALED] *= factor
        values[whole, COLUMN["run"]] *= factor
        return KernelTable(values, self.classes, self.counts, self.copied_bytes * factor)


def kernel_table(lowered: Network) -> KernelTable:
    """The kernels of a lowered network."""
    outside = (*lowered.inputs, *lowered.outputs)
    copied = sum(lowered.type_of(name).bytes for name in outside)
    kernels = network_geometry(lowered)
    return _table(kernels, np.ones(len(kernels.values)), float(copied))


def table_of_texts(
    texts: Sequence[str], counts: Sequence[float] | None = None, copied_bytes: float = 0.0
) -> KernelTable:
    """The kernels of cells given by their signature texts, each ``counts`` times."""
    kernels = geometry(texts)
    each = np.ones(len(texts)) if counts is None else np.asarray(counts, np.float64)
    return _table(kernels, each[kernels.cell], copied_bytes)


def _table(kernels: Geometry, counts: Array, copied_bytes: float) -> KernelTable:
    classes = class_of(kernels)
    rows = np.column_stack([kernels.values, classes])
    rows[:, COLUMN["op"]] = 0.0
    distinct, inverse = np.unique(rows, axis=0, return_inverse=True)
    summed = np.bincount(inverse.reshape(-1), counts, len(distinct)).astype(np.float64)
    return KernelTable(
        distinct[:, : len(COLUMNS)], distinct[:, -1].astype(np.intp), summed, copied_bytes
    )


def class_of(kernels: Geometry) -> NDArray[np.intp]:
    """Index into ``CLASSES`` of every kernel."""
    names = [kernels.ops[int(number)] for number in kernels.column("op")]
    kinds, groups, c_in = (kernels.column(c) for c in ("kind", "groups", "c_in"))
    taps = kernels.column("k_h") * kernels.column("k_w")
    rows = zip(names, kinds, groups, c_in, taps, strict=True)
    return np.array([CLASSES.index(_class(*row)) for row in rows], np.intp)


def _class(name: str, kind: float, groups: float, c_in: float, taps: float) -> str:
    operators = name.rpartition("::")[2].split("+")
    if "ConvTranspose" in operators:
        return "conv transposed"
    if kind == KINDS["conv"]:
        if groups > 1:
            return "conv depthwise" if groups == c_in else "conv grouped"
        return "conv 1x1" if taps == 1 else "conv kxk"
    if kind == KINDS["matmul"]:
        return "matmul"
    if operators[0] == "BatchNormalization":
        return "batch normalisation"
    for operator in operators:
        if operator in _BY_OPERATOR:
            return _BY_OPERATOR[operator]
        if operator.startswith(("Global", "Reduce")):
            return "global reduction"
        if "Normalization" in operator:
            return "normalisation"
    return "pointwise" if kind == KINDS["pointwise"] else "other"
