"""What the features need of a cell: one row of numbers per kernel, read from a signature's text.

A signature is scanned once and remembered, so that a network's cells cost microseconds the second
time. The scan reads the same lines as ``signature.read`` and a test holds the two together; it
is separate because building Networks would cost ten times as long.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hybridlat.graph.network import ITEM_BYTES, Network
from hybridlat.graph.operators import KINDS, activation_class, fusion, kind_of, weight_place

COLUMNS: tuple[str, ...] = (
    "op", "kind", "batch", "c_in", "h_in", "w_in", "c_out", "h_out", "w_out", "k_h", "k_w",
    "stride", "dilation", "groups", "pad", "m", "n", "k", "flop", "in_bytes", "weight_bytes",
    "out_bytes", "item_bytes", "activation", "has_add", "has_bias", "inputs", "rank", "run",
    "length", "variant", "context",
)  # fmt: skip
"""Columns of a geometry row.

``op`` is the operator's place in ``Geometry.ops`` and ``kind`` its family in operators.KINDS.
``m``, ``n``, ``k`` are the implicit matrix product of one group: output positions x output
channels x (input channels · taps). Sizes in elements, ``*_bytes`` in bytes of the file's types.
"""
CONTEXTS = {"": 0.0, "medium": 1.0, "small": 2.0}
"""Number of each context: the fewer weights a network holds, the warmer are the caches."""
COLUMN = {name: i for i, name in enumerate(COLUMNS)}
_PACK = struct.Struct(f"{len(COLUMNS)}d")
_MEMO_LIMIT = 200_000
_memo: dict[str, bytes] = {}
_op_numbers: dict[str, int] = {}
"""Operators in the order in which they were met: what is in the memo is numbered by it."""


@dataclass(frozen=True)
class Geometry:
    """Rows of ``COLUMNS`` for the kernels of many cells; ``cell[i]`` is the cell of row ``i``.

    ``ops`` are the qualified names that the column ``op`` counts in; some may not occur.
    """

    values: NDArray[np.float64]
    cell: NDArray[np.intp]
    cells: int
    ops: tuple[str, ...]

    def column(self, name: str) -> NDArray[np.float64]:
        return self.values[:, COLUMN[name]]

    def take(self, cells: NDArray[np.intp]) -> Geometry:
        """The geometry of some of the cells, in the order given (no cell twice)."""
        place = np.full(self.cells, -1)
        place[cells] = np.arange(len(cells))
        rows = np.flatnonzero(place[self.cell] >= 0)
        rows = rows[np.argsort(place[self.cell[rows]], kind="stable")]
        return Geometry(self.values[rows], place[self.cell[rows]], len(cells), self.ops)

    def one_by_one(self, rows: NDArray[np.intp] | slice = slice(None)) -> Geometry:
        """The same kernels (or those of ``rows``), each as a cell of its own."""
        values = self.values[rows]
        return Geometry(values, np.arange(len(values)), len(values), self.ops)

    def op(self, row: int) -> str:
        """The qualified operator of a row."""
        return self.ops[int(self.values[row, COLUMN["op"]])]

    def met_ops(self) -> tuple[str, ...]:
        """The operators that occur, sorted."""
        return tuple(sorted(self.ops[int(n)] for n in np.unique(self.column("op"))))

    def codes(self, ops: Sequence[str]) -> NDArray[np.intp]:
        """Position in ``ops`` of every row's operator, -1 for one that is not among them."""
        place = {op: i for i, op in enumerate(ops)}
        lookup = np.array([place.get(op, -1) for op in self.ops], np.intp)
        return lookup[self.column("op").astype(np.intp)]


def geometry(texts: Sequence[str]) -> Geometry:
    """The kernels of every signature text. Raises ValueError for a text that is no signature."""
    packed = []
    for text in texts:
        rows = _memo.get(text)
        if rows is None:
            if len(_memo) >= _MEMO_LIMIT:
                _memo.clear()
            try:
                rows = b"".join(_PACK.pack(*row) for row in scan(text))
            except _DAMAGE as error:
                raise ValueError(f"a signature that cannot be read: {error}") from error
            _memo[text] = rows
        packed.append(rows)
    values = np.frombuffer(b"".join(packed)).reshape(-1, len(COLUMNS))
    counts = np.fromiter((len(rows) // _PACK.size for rows in packed), np.intp, len(packed))
    cell = np.repeat(np.arange(len(packed)), counts)
    return Geometry(values, cell, len(packed), tuple(_op_numbers))


def network_geometry(network: Network) -> Geometry:
    """The geometry of a lowered network's kernels, one row and one cell for each of its nodes.

    The same rows as ``geometry`` reads from the signatures of its kernels, in the order of the
    nodes and without writing a text; the column ``context`` is that of the network.
    """
    tensors = {name: _typed(str(t.dtype), t.shape, False) for name, t in network.types.items()}
    tensors.update(
        (name, _typed(c.type.dtype, c.type.shape, True)) for name, c in network.constants.items()
    )
    context = CONTEXTS[network.context]
    rows = []
    for node in network.nodes:
        read = [tensors.get(name) for name in node.inputs]
        made = [tensors[name] for name in node.outputs if name]
        attributes = _attributes(json.dumps(dict(node.attributes), sort_keys=True))
        rows.append((*_row(node.qualified_op, read, made, attributes), context))
    count = len(rows)
    values = np.array(rows).reshape(count, len(COLUMNS))
    return Geometry(values, np.arange(count), count, tuple(_op_numbers))


def problem_of(text: str) -> str:
    """Why ``geometry`` cannot read a text; empty where it can."""
    try:
        geometry([text])
    except ValueError as error:
        return str(error)
    return ""


_DAMAGE = (
    ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
    struct.error,
)  # fmt: skip
"""What scanning raises for a text that no signature is: of an unknown type, cut off, altered."""

Tensor = tuple[tuple[int, ...], int, float, bool]  # shape, elements, item bytes, is a weight


def scan(text: str) -> list[tuple[float, ...]]:
    """One row of ``COLUMNS`` per node of a signature text; ``_DAMAGE`` for what is none."""
    tensors: dict[str, Tensor] = {}
    rows: list[tuple[float, ...]] = []
    lines = text.split("\n")
    context = 0.0
    if not lines[0].startswith("hybridlat-signature "):
        raise ValueError(f"not a signature: {lines[0][:60]!r}")
    for line in lines[1:]:
        if line.startswith("node "):
            head, _, attributes = line.partition(" {")
            qualified, _, wiring = head[5:].partition(" (")
            sources, _, results = wiring.partition(") -> (")
            outputs = []
            for item in results[:-1].split(" "):
                if item != "-" and item:
                    number, _, type_ = item.partition(":")
                    tensors[number] = tensor = _tensor(type_, ":", False)
                    outputs.append(tensor)
            read = [tensors.get(s) for s in sources.split(" ")]
            op = qualified[: qualified.rfind("@")]
            rows.append(_row(op, read, outputs, _attributes("{" + attributes)))
        elif line.startswith("input "):
            number, _, type_ = line[6:].partition(" ")
            tensors[number] = _tensor(type_, " ", False)
        elif line.startswith("constant "):
            number, _, type_ = line[9:].partition(" ")
            tensors[number] = _tensor(type_.partition(" =")[0], " ", True)
        elif line.startswith("context "):
            context = CONTEXTS[line[8:].strip()]
    return [(*row, context) for row in rows]


@lru_cache(maxsize=65536)
def _typed(dtype: str, shape: tuple[int, ...], weight: bool) -> Tensor:
    return shape, math.prod(shape), ITEM_BYTES[dtype], weight


@lru_cache(maxsize=65536)
def _tensor(text: str, separator: str, weight: bool) -> Tensor:
    dtype, _, dims = text.partition(separator)
    shape = tuple(int(d) for d in dims.split("x")) if dims else ()
    if shape and min(shape) < 0:
        raise ValueError(f"a size of {text!r} is negative")
    return shape, math.prod(shape), ITEM_BYTES[dtype], weight


@dataclass(frozen=True, slots=True)
class _Attributes:
    kernel: tuple[int, int] | None
    stride: int
    dilation: int
    group: int
    pad: int
    activation: str
    transposed: bool
    axis: int | None
    order: tuple[int, ...]
    size: int
    variant: int
    channels_last: bool


def _pair(values: Sequence[int] | None) -> tuple[int, int] | None:
    if not values:
        return None
    return (values[0], values[1]) if len(values) > 1 else (1, values[0])


@lru_cache(maxsize=65536)
def _attributes(text: str) -> _Attributes:
    loaded = json.loads(text)
    return _Attributes(
        kernel=_pair(loaded.get("kernel_shape")),
        stride=max(loaded.get("strides") or (1,)),
        dilation=max(loaded.get("dilations") or (1,)),
        group=loaded.get("group", 1),
        pad=sum(loaded.get("pads") or (0,)),
        activation=loaded.get("activation", ""),
        transposed=bool(loaded.get("transB", 0)),
        axis=loaded.get("axis"),
        order=tuple(loaded.get("perm") or ()),
        size=loaded.get("size", 0) if isinstance(loaded.get("size", 0), int) else 0,
        variant=_MODES.get(loaded.get("mode", ""), 0) + 4 * bool(loaded.get("channels_last", 0)),
        channels_last=bool(loaded.get("channels_last", 0)),
    )


_MODES = {"linear": 1, "reflect": 1, "CRD": 1, "cubic": 2, "edge": 2, "wrap": 3, "bilinear": 1}


def _image(shape: tuple[int, ...], channels_last: bool = False) -> tuple[int, int, int, int]:
    """Batch, channels, height, width of an activation; missing dimensions are 1."""
    if len(shape) >= 4:
        if channels_last:
            return shape[0], shape[-1], math.prod(shape[1:-2]), shape[-2]
        return shape[0], shape[1], math.prod(shape[2:-1]), shape[-1]
    return (*shape, 1, 1, 1, 1)[:4]  # type: ignore[return-value]


def _row(
    op: str, read: Sequence[Tensor | None], outputs: Iterable[Tensor], a: _Attributes
) -> tuple[float, ...]:
    present = [t for t in read if t is not None]
    made = list(outputs)
    blank: Tensor = ((), 1, 4, False)
    first = present[0] if present else blank
    main = made[0] if made else blank
    activation, added = activation_class(a.activation), len(read) > 3 and read[3] is not None
    fused = fusion(op)
    if fused is not None:
        op, activation = fused.op, fused.activation
        added = fused.adds and sum(not t[3] for t in present) > 1
    kind = kind_of(op)
    last = a.channels_last or op.rpartition("::")[2].startswith("Nhwc")
    batch, c_in, h_in, w_in = _image(first[0], last)
    _, c_out, h_out, w_out = _image(main[0], last)
    place = weight_place(op)
    if place > 1 and len(read) > place and read[place] is not None:
        present = [first, *(t for t in read[place:] if t is not None), *present[1:place]]
    taps = a.kernel or (1, 1)
    groups, has_add, has_bias = 1, 0, 0
    m, n, k = main[1], 1, 1
    per_output = 1.0
    if kind == KINDS["conv"] and len(present) > 1:
        weight = present[1][0]
        taps = a.kernel or (_pair(weight[2:]) or (1, 1))
        groups = a.group
        n, k = max(c_out // groups, 1), math.prod(weight[1:])
        if len(weight) < 3:  # made by other operators, and read through a view that costs nothing
            k = max(c_in // groups, 1) * taps[0] * taps[1]
        if op.endswith("Transpose"):
            n, k = max(c_out // groups, 1), weight[0] // groups * taps[0] * taps[1]
        m = batch * h_out * w_out
        has_bias = int(any(t[3] and len(t[0]) == 1 for t in present[2:]))
        has_add = int(added)
        per_output = 2.0 * k
        if op.endswith("Transpose"):  # each input reaches every tap, each output only some
            per_output /= a.stride**2
    elif kind == KINDS["matmul"] and len(present) > 1:
        k = _contracted(first, present[1], a)
        n = main[0][-1] if main[0] else 1
        m = main[1] // max(n, 1)
        has_bias = int(len(present) > 2)
        per_output = 2.0 * k
        c_in, c_out = k, n
    elif kind == KINDS["pool"]:
        if a.kernel is None:
            taps = (h_in, w_in)
        k = taps[0] * taps[1]
        per_output = float(k)
    elif kind == KINDS["reduce"]:
        per_output = max(first[1] / max(main[1], 1), 1.0) * 4
    elif kind == KINDS["move"]:
        per_output = 0.0
    return (
        _op_numbers.setdefault(op, len(_op_numbers)), kind, batch, c_in, h_in, w_in, c_out, h_out,
        w_out, taps[0], taps[1], a.stride, a.dilation, groups, a.pad, m, n, k, main[1] * per_output,
        sum(t[1] * t[2] for t in present if not t[3]),
        sum(t[1] * t[2] for t in present if t[3]),
        sum(t[1] * t[2] for t in made),
        main[2], activation, has_add, has_bias,
        len(present), len(main[0]), *_stretches(op, kind, present, main, a), a.variant,
    )  # fmt: skip


def _contracted(first: Tensor, second: Tensor, a: _Attributes) -> int:
    """Elements that one output of a matrix product sums over.

    The second operand tells it: the first may be read through a view (Flatten) that costs nothing.
    """
    shape = second[0]
    if len(shape) > 1:
        return shape[-1] if a.transposed else shape[-2]
    return first[0][-1] if first[0] else 1


def _stretches(
    op: str, kind: int, present: Sequence[Tensor], main: Tensor, a: _Attributes
) -> tuple[int, int]:
    """(run, length) of a kernel; see COLUMNS."""
    shape = present[0][0] if present else main[0]
    name = op.rpartition("::")[2]
    if kind == KINDS["pointwise"]:
        return _broadcast_run(present, main), 1
    if kind == KINDS["reduce"]:
        axis = _DEFAULT_AXES.get(name) if a.axis is None else a.axis
        if name == "LRN":
            return math.prod(shape[2:]), a.size
        if axis is None or not shape or not -len(shape) <= axis < len(shape):
            last_kept = bool(main[0]) and main[0][-1:] == shape[-1:]
            return math.prod(shape[2:]) if last_kept else 1, max(math.prod(shape) // main[1], 1)
        axis %= len(shape)
        return math.prod(shape[axis + 1 :]), shape[axis]
    if kind == KINDS["move"]:
        if a.order and len(a.order) == len(shape):
            kept = len(shape)
            while kept and a.order[kept - 1] == kept - 1:
                kept -= 1
            return math.prod(shape[kept:]), 1
        if a.axis is not None and shape and -len(shape) <= a.axis < len(shape):
            return math.prod(shape[a.axis % len(shape) :]), 1
        return shape[-1] if shape else 1, 1
    return shape[-1] if shape else 1, 1


_DEFAULT_AXES = {"Softmax": -1, "LogSoftmax": -1, "LayerNormalization": -1}


def _broadcast_run(present: Sequence[Tensor], main: Tensor) -> int:
    """Elements from the end over which the inputs either all advance or some stand still."""
    rank = len(main[0])
    others = [(1,) * (rank - len(t[0])) + t[0] for t in present if len(t[0]) <= rank]
    run = 1
    alike: bool | None = None
    for place in range(rank - 1, -1, -1):
        whole = all(shape[place] == main[0][place] for shape in others)
        if alike is None:
            alike = whole
        elif whole != alike and main[0][place] > 1:
            break
        run *= main[0][place]
    return run
