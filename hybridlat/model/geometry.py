"""What the features need of a cell: one row of numbers per kernel, read from a signature's text.

A signature is scanned once and remembered; building Networks would take ten times as long.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hybridlat.graph.signature import lines_of
from hybridlat.model.kernel_rows import Tensor, attributes_of, kernel_row, tensor_of
from hybridlat.schema.target import Device

Array = NDArray[np.float64]
Float32 = NDArray[np.float32]
Positions = NDArray[np.intp]
Flags = NDArray[np.bool_]
TILES = ((32, 32), (64, 32), (64, 64), (128, 64), (128, 128), (256, 128))
"""Output tiles (rows, columns) that GEMM and convolution kernels of GPUs are commonly built for."""
_FLOOR_US = 1e-3
_CACHE_SPEED = 4.0
"""How much quicker than memory the last cache is: 3 to 6 times by what devices are measured at."""
COLUMNS: tuple[str, ...] = (
    "op", "kind", "batch", "c_in", "h_in", "w_in", "c_out", "h_out", "w_out", "k_h", "k_w",
    "stride", "dilation", "groups", "pad", "m", "n", "k", "flop", "in_bytes", "weight_bytes",
    "out_bytes", "item_bytes", "activation", "has_add", "has_bias", "inputs", "rank", "run",
    "length", "variant", "steps", "reread_bytes", "known", "context",
)  # fmt: skip
"""Columns of a geometry row.

``op`` is the operator's position in ``Geometry.ops`` and ``kind`` its family in operators.KINDS.
``m``, ``n``, ``k`` are the implicit matrix product of one group: output positions x output
channels x (input channels · taps). ``run`` is how many elements are read one after the other,
``length`` how many one output sums over, ``variant`` numbers an operator's mode and layout.
``steps`` are done one after the other and each reads ``reread_bytes`` of the weights anew;
``known`` is 0 where the table of work does not tell the FLOP; ``context`` is how much else the
network holds (``CONTEXTS``). Sizes in elements, ``*_bytes`` in bytes of the file's types.
"""
CONTEXTS = {"": 0.0, "medium": 1.0, "small": 2.0}
"""Number of each context: the fewer weights a network holds, the warmer are the caches."""
COLUMN = {name: i for i, name in enumerate(COLUMNS)}
_DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What scanning raises for a text that no signature is: of an unknown type, cut off, altered."""
_op_numbers: dict[str, int] = {}
"""Operators in the order in which they were met: rows that are remembered are numbered by it."""


@dataclass(frozen=True)
class Geometry:
    """Rows of ``COLUMNS`` for the kernels of many cells; ``cell[i]`` is the cell of row ``i``.

    ``ops`` are the qualified names that the column ``op`` counts in; some may not occur.
    """

    values: Array
    cell: Positions
    cells: int
    ops: tuple[str, ...]

    def column(self, name: str) -> Array:
        return self.values[:, COLUMN[name]]

    def columns(self, names: Iterable[str]) -> Array:
        return self.values[:, [COLUMN[name] for name in names]]

    def rows_of(self, cells: Positions) -> Positions:
        """The rows of some of the cells, in the order given (no cell twice)."""
        index = np.full(self.cells, len(cells))
        index[cells] = np.arange(len(cells))
        order = np.argsort(index[self.cell], kind="stable")
        return order[: int((index[self.cell] < len(cells)).sum())]

    def take(self, cells: Positions) -> "Geometry":
        """The geometry of some of the cells, in the order given (no cell twice)."""
        counts = np.bincount(self.cell, minlength=self.cells)[cells]
        owner = np.repeat(np.arange(len(cells)), counts)
        return Geometry(self.values[self.rows_of(cells)], owner, len(cells), self.ops)

    def one_by_one(self, rows: Positions | slice = slice(None)) -> "Geometry":
        """The same kernels (or those of ``rows``), each as a cell of its own."""
        values = self.values[rows]
        return Geometry(values, np.arange(len(values)), len(values), self.ops)

    def op(self, row: int) -> str:
        """The qualified operator of a row."""
        return self.ops[int(self.values[row, COLUMN["op"]])]

    def met_ops(self) -> tuple[str, ...]:
        """The operators that occur, sorted."""
        return tuple(sorted(self.ops[int(n)] for n in np.unique(self.column("op"))))

    def codes(self, ops: Sequence[str]) -> Positions:
        """Position in ``ops`` of every row's operator, -1 for one that is not among them."""
        code_of = {op: i for i, op in enumerate(ops)}
        lookup = np.array([code_of.get(op, -1) for op in self.ops], np.intp)
        return lookup[self.column("op").astype(np.intp)]


def geometry(texts: Sequence[str]) -> Geometry:
    """The kernels of every signature text. Raises ValueError for a text that is no signature."""
    packed = list(map(_packed, texts))
    values = np.frombuffer(b"".join(packed)).reshape(-1, len(COLUMNS))
    sizes = np.array([len(rows) for rows in packed], np.intp)
    cell = np.repeat(np.arange(len(packed)), sizes // (8 * len(COLUMNS)))
    return Geometry(values, cell, len(packed), tuple(_op_numbers))


@lru_cache(maxsize=65_536)  # some 100 MB
def _packed(text: str) -> bytes:
    try:
        return b"".join(array("d", row).tobytes() for row in scan(text))
    except _DAMAGE as error:
        raise ValueError(f"a signature that cannot be read: {error}") from error


def problem_of(text: str) -> str:
    """Why ``geometry`` cannot read a text; empty where it can."""
    try:
        _packed(text)
    except ValueError as error:
        return str(error)
    return ""


def scan(text: str) -> list[tuple[float, ...]]:
    """One row of ``COLUMNS`` per node of a signature text; ``_DAMAGE`` for what is none."""
    tensors: dict[str, Tensor | None] = {"-": None, "": None}
    rows: list[tuple[float, ...]] = []
    context = 0.0
    for line in lines_of(text):
        if line.word == "node":
            read = [
                tensor_of(s.partition("=")[0], True) if ":" in s else tensors[s]
                for s in line.sources
            ]
            if len({*line.sources}) < len(line.sources):
                read = _once(line.sources, read)
            made = []
            for number, _, type_ in [item.partition(":") for item in line.results]:
                if number != "-":
                    tensors[number] = tensor = tensor_of(type_, False)
                    made.append(tensor)
            op = line.head[: line.head.rfind("@")]
            rows.append(_row(op, tuple(read), tuple(made), line.rest))
        elif line.word == "input":
            tensors[line.head] = tensor_of(line.rest, False)
        elif line.word == "context":
            context = CONTEXTS[line.head]
    return [(*row, context) for row in rows]


def _once(sources: Sequence[str], read: Sequence[Tensor | None]) -> list[Tensor | None]:
    """What a kernel reads; a tensor that it names twice has no bytes the second time."""
    first = {source: place for place, source in reversed([*enumerate(sources)])}
    again = [":" not in source and first[source] < i for i, source in enumerate(sources)]
    return [t and (*t[:2], 0, *t[3:]) if twice else t for t, twice in zip(read, again, strict=True)]


@lru_cache(maxsize=65_536)
def _row(
    op: str, read: tuple[Tensor | None, ...], made: tuple[Tensor, ...], attributes: str
) -> tuple[float, ...]:
    """A row of ``COLUMNS`` but for the last; new cells are made of kernels that others hold too."""
    op, numbers = kernel_row(op, read, made, attributes_of(attributes))
    return (_op_numbers.setdefault(op, len(_op_numbers)), *numbers)


def start_us(device: Device) -> float:
    """What starting a kernel takes; a usual figure where the data sheet names none."""
    return device.launch_us or {"gpu": 4.0, "cpu": 0.1}[device.kind]


def cache_bytes(device: Device, level: int) -> float:
    """Size of a cache, -1 for the last; a megabyte where no data sheet says."""
    return float(device.cache_bytes[level]) if device.cache_bytes else 2.0**20


class View:
    """Kernels on a device: columns of their geometry by name, and what features share of them.

    ``moved_*_bytes`` are in the engine's types; ``uncached_bytes`` is what the steps of a recurrent
    layer read anew, and no cache holds. ``steps_us`` is starting every step but the first, and
    reading its weights from the last cache. ``peak_flops`` are FLOP per second: at the target's
    precision, of kernels of bytes at that of 8 bits.
    """

    def __init__(self, values: Array, device: Device, precision: str) -> None:
        self.device, self.precision = device, precision
        self.__dict__.update(zip(COLUMNS, np.ascontiguousarray(values.T), strict=True))
        # The file's FP32 tensors become smaller where the engine runs at lower precision.
        usual_bytes = {"fp16": 2.0, "bf16": 2.0, "int8": 1.0}.get(precision, 4.0)
        shrink = np.where(self.item_bytes == 4.0, usual_bytes / 4.0, 1.0)
        self.moved_item_bytes = self.item_bytes * shrink
        # Weights of up to 8 bits, beside scales of their own, are moved as they are.
        item_bytes = self.weight_bytes / np.maximum(self.n * self.k * self.groups, 1.0)
        is_packed = (item_bytes >= 0.25) & (item_bytes < 2.0)
        self.moved_weight_bytes = self.weight_bytes * np.where(is_packed, 1.0, shrink)
        self.moved_activation_bytes = (self.in_bytes + self.out_bytes) * shrink
        self.moved_bytes = self.moved_weight_bytes + self.moved_activation_bytes
        step_bytes, more_steps = self.reread_bytes * shrink, self.steps - 1
        is_large = step_bytes > cache_bytes(device, -1)
        self.uncached_bytes = np.where(is_large, step_bytes * more_steps, 0.0)
        speed, cached_bytes = device.bandwidth_bytes_per_s, step_bytes * more_steps
        cached_bytes -= self.uncached_bytes
        self.steps_us = more_steps * start_us(device) + cached_bytes / (_CACHE_SPEED * speed) * 1e6
        usual, narrow = device.peak(precision), device.peak("int8")
        self.peak_flops = np.where(self.item_bytes == 1.0, max(narrow, usual), usual)
        self.compute_us = self.flop / self.peak_flops * 1e6
        self.memory_us = (self.moved_bytes + self.uncached_bytes) / speed * 1e6
        longer_us = np.maximum(self.compute_us, self.memory_us)
        self.roofline_us = np.maximum(longer_us, _FLOOR_US) + self.steps_us
        self._waves: dict[tuple[int, int], Array] = {}

    def __getattr__(self, name: str) -> Array:
        raise AttributeError(name)  # columns are found before; their type stands here

    def tiles(self, tile: tuple[int, int]) -> Array:
        """Output tiles, those of all groups together."""
        return np.ceil(self.m / tile[0]) * np.ceil(self.n / tile[1]) * self.groups

    def waves(self, tile: tuple[int, int]) -> Array:
        """How often all units of the device must work to get through the tiles."""
        if tile not in self._waves:
            self._waves[tile] = np.ceil(self.tiles(tile) / self.device.units)
        return self._waves[tile]

    def wave_us(self, tile: tuple[int, int]) -> Array:
        """Every wave takes as long as one full tile on one unit at its share of the peak."""
        unit_peak = self.peak_flops / self.device.units
        return self.waves(tile) * self.k * (2e6 * tile[0] * tile[1] / unit_peak)
