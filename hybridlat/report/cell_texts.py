"""A cell in few words: its kernels, where it stands, what it does; and the rows that say it."""

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hybridlat.graph.operators import QUANTISERS
from hybridlat.report.units import RESOLUTION_US, plus_minus_text, reach_text
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.structure import CellEstimate, CellStructure, Kernel, half_width_share

_ALIKE = 1.25  # cells whose latencies are further apart are not folded into one row
_DIGITS = re.compile(r"(\d+)")
# No two operators share a short name.
_SHORT = {
    "BatchNormalization": "BN",
    "InstanceNormalization": "IN",
    "LayerNormalization": "LN",
    "GlobalAveragePool": "GlobalAvgPool",
    "AveragePool": "AvgPool",
    "ConvTranspose": "Deconv",
    "DequantizeLinear": "DQ",
    "QuantizeLinear": "Q",
}


def chain(ops: Sequence[str], width: int = 1_000_000) -> str:
    """All kernels in order: ``Conv+Relu ×2 → Conv``; in ``width`` the middle becomes a count."""
    counts = [(op, len(list(run))) for op, run in itertools.groupby(map(abbreviated, ops))]
    texts = [op if count == 1 else f"{op} ×{count}" for op, count in counts]
    for shown in range(max(len(texts), 1), 0, -1):
        first, last = (shown + 1) // 2, len(texts) - shown // 2
        hidden = sum(count for _, count in counts[first:last])
        more = [f"… {hidden} more"] if hidden else []
        text = " → ".join([*texts[:first], *more, *texts[last:]])
        if len(text) <= width:
            return text
    return " → ".join(texts)[: max(width - 1, 0)] + "…"


def first_and_more(names: Sequence[str]) -> str:
    """Where a cell stands in the file: its first operator's name, and how many follow."""
    first, *others = [name for name in names if name] or [""]
    return f"{first} +{len(others)}" if others else first


def abbreviated(text: str) -> str:
    """The label with short names for long operators: ``Conv+BN+Relu``."""
    for name, short in _SHORT.items():
        text = text.replace(name, short)
    return text


def where_text(paths: Sequence[str], width: int = 1000) -> str:
    """The modules of a cell: ``layer3.0``, ``blocks.0–11``, ``layer1.1 +3``; cut in front."""
    known = list(dict.fromkeys(path for path in paths if path))
    text = _one_number_apart(known) or first_and_more(known)
    return text if len(text) <= width else f"…{text[len(text) - max(width - 1, 0) :]}"[:width]


def names_text(names: Iterable[str]) -> str:
    """All names, those that are alike but for one number as a range: ``Constant_0–39``."""
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(_DIGITS.sub("#", name), []).append(name)
    return ", ".join(_one_number_apart(each) or ", ".join(each) for each in alike.values())


def _one_number_apart(paths: Sequence[str]) -> str:
    """``fire2–3``, ``blocks.0–4,7`` where all paths are alike but for one number; else nothing."""
    split = [_DIGITS.split(path) for path in paths]
    if len({len(parts) for parts in split}) != 1:
        return ""
    apart = [i for i, parts in enumerate(zip(*split, strict=True)) if len(set(parts)) > 1]
    if len(apart) != 1 or not all(parts[apart[0]].isdecimal() for parts in split):
        return ""
    (index,) = apart
    numbers = enumerate(sorted({int(parts[index]) for parts in split}))
    # What follows one another is as far from its position.
    runs = [[n for _, n in run] for _, run in itertools.groupby(numbers, lambda p: p[1] - p[0])]
    ranges = ",".join("–".join(map(str, dict.fromkeys([run[0], run[-1]]))) for run in runs)
    return "".join([*split[0][:index], ranges, *split[0][index + 1 :]])


def what_text(cell: CellStructure) -> str:
    """Channels, window and stride, image: ``64→128, 3×3/2, 28×28``, ``MaxPool 64, 3×3/2, 56×56``.

    Of several kernels the convolutions count: channels of the ends, the widest window. Without any,
    the kernel with most arithmetic, and a count of the others: ``Gemm 197×192→576 +13``.
    """
    kernels = cell.kernels
    if not kernels:
        return ""
    heavy = max(kernels, key=lambda kernel: (kernel.contracts, kernel.work.flop))
    quantised = any(n in QUANTISERS or n.startswith("QLinear") for n in heavy.op.split("+"))
    number = " int8" if heavy.contracts and quantised else ""
    if len(kernels) == 1:
        return _kernel_text(heavy) + number
    windows = [kernel for kernel in kernels if kernel.contracts and kernel.window]
    first = next((k for k in kernels if len(k.input_shape) == 4), None)
    if heavy.window and windows and first is not None and len(kernels[-1].output_shape) == 4:
        # Images may grow behind the last convolution; what shrinks them there is no stride of it.
        ends = (kernels[-1].output_shape, windows[-1].output_shape)
        last = max(ends, key=lambda shape: math.prod(shape[2:]))
        stride = max(round(first.input_shape[2] / max(last[2], 1)), 1)
        widest = max(windows, key=lambda kernel: (math.prod(kernel.window or ()), kernel.work.flop))
        return _image_text(first.input_shape[1], last[1], _window(widest, stride), last) + number
    return f"{_kernel_text(heavy)} +{len(kernels) - 1}{number}"


def _kernel_text(kernel: Kernel) -> str:
    """The same of one kernel; a convolution needs no name."""
    if kernel.contracts and kernel.window:
        return kernel_sizes(kernel)
    names = kernel.op.split("+")
    name = next((name for name in names if name not in QUANTISERS), names[0])
    return f"{abbreviated(name)} {kernel_sizes(kernel)}".strip()


def kernel_sizes(kernel: Kernel) -> str:
    """What a kernel works on, without its name."""
    shape = kernel.output_shape
    if kernel.window and len(shape) == len(kernel.input_shape) > 2:
        window = _window(kernel, kernel.stride) if len(shape) == 4 else ""  # it has two sides
        return _image_text(kernel.input_shape[1], shape[1], window, shape)
    if kernel.contracts and shape and kernel.input_shape:
        rows = _size(shape[:-1])
        # The operand may be read through a view, so its last size need not be what is summed.
        summed = math.prod(kernel.input_shape) // max(math.prod(shape[:-1]), 1)
        product = f"{summed}→{shape[-1]}"
        return product if rows in ("", "1") else f"{rows}×{product}"
    return _size(shape)


def _image_text(c_in: int, c_out: int, window: str, shape: Sequence[int]) -> str:
    channels = str(c_out) if c_in == c_out else f"{c_in}→{c_out}"
    return ", ".join(part for part in (channels, window, _size(shape[2:])) if part)


def _window(kernel: Kernel, stride: int) -> str:
    assert kernel.window is not None
    text = "×".join(map(str, kernel.window)) + (f"/{stride}" if stride > 1 else "")
    if kernel.groups > 1:
        whole = len(kernel.input_shape) > 1 and kernel.groups == kernel.input_shape[1]
        text += " dw" if whole else f" g{kernel.groups}"
    return text


def _size(shape: Sequence[int]) -> str:
    return "×".join(map(str, [*itertools.dropwhile(lambda size: size == 1, shape)] or shape[-1:]))


@dataclass(frozen=True)
class Row:
    """What a table says of one cell, or of several that read the same."""

    cells: tuple[CellEstimate, ...]
    ops: tuple[str, ...]
    paths: tuple[str, ...] = ()
    what: str = ""
    limit: str = ""  # what limits it, and how much of the time that explains

    def where(self, width: int = 1000) -> str:
        """The modules that it stands in, else its first operator in the file."""
        nodes = [name for cell in self.cells for name in cell.nodes]
        return where_text(self.paths, width) or first_and_more(nodes) or "by the engine"

    def label(self, width: int) -> str:
        return chain(self.ops, width) or self.cells[0].signature[:8]

    @property
    def source(self) -> str:
        return self.cells[0].source

    @property
    def count(self) -> int:
        return sum(cell.uses for cell in self.cells)

    @property
    def share(self) -> float:
        return sum(cell.share for cell in self.cells)

    @property
    def latency_us(self) -> float | None:
        totals_us = [cell.total_us for cell in self.cells if cell.total_us is not None]
        return sum(totals_us) / max(self.count, 1) if totals_us else None

    def rank(self) -> tuple[bool, float]:
        """What has no latency comes first, then the slowest."""
        return self.latency_us is not None, -self.share

    def reads_as(self, other: "Row") -> bool:
        """Whether a row of the same words takes about as long."""
        if not self.what or self.latency_us is None or other.latency_us is None:
            return False
        low_us, high_us = sorted((self.latency_us, other.latency_us))
        return high_us <= _ALIKE * low_us

    def with_cells_of(self, row: "Row") -> "Row":
        """Both as one; a limit that they reach to different degrees loses its number."""
        name, other = (one.limit.partition(" ")[0] for one in (self, row))
        limit = self.limit if self.limit == row.limit else name if name == other else ""
        cells, paths = self.cells + row.cells, self.paths + row.paths
        return replace(self, cells=cells, paths=paths, limit=limit)

    def reach(self) -> str:
        """How far its interval reaches; of several cells the widest."""
        if len(self.cells) > 1 or self.half_width_share is None:
            return plus_minus_text(self.half_width_share)
        return reach_text(self.cells[0].latency_us, self.cells[0].interval_us)

    @property
    def half_width_share(self) -> float | None:
        resolved = [cell for cell in self.cells if (cell.latency_us or 0.0) >= RESOLUTION_US]
        widths = (half_width_share(cell.latency_us, cell.interval_us) for cell in resolved)
        return max((width for width in widths if width is not None), default=None)


def rows_of(estimate: Estimate, *, fold: bool) -> list[Row]:
    """What has no latency first, then the slowest; ``fold`` makes one row of cells that read so."""
    rows = sorted((row_of(estimate, i) for i in range(len(estimate.cells))), key=Row.rank)
    return sorted(_folded(rows), key=Row.rank) if fold else rows


def row_of(estimate: Estimate, position: int) -> Row:
    """The row of one cell."""
    cell = estimate.cells[position]
    if estimate.structure is None:
        return Row((cell,), cell.ops)
    made_of = estimate.structure.cells[position]
    ops = tuple(kernel.op for kernel in made_of.kernels)
    # In the order of the file, which the cell's own labels have, where those say the same.
    ops = cell.ops if sorted(ops) == sorted(cell.ops) else ops
    limit = made_of.limit(cell.latency_us)
    text = f"{limit[0]} {100 * min(limit[1], 1.0):.0f} %" if limit else ""
    return Row((cell,), ops, estimate.structure.paths(position), what_text(made_of), text)


def _folded(rows: Sequence[Row]) -> list[Row]:
    folded: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        alike = folded.setdefault((row.what, chain(row.ops), row.source), [])
        for index, other in enumerate(alike):
            if row.reads_as(other):
                alike[index] = other.with_cells_of(row)
                break
        else:
            alike.append(row)
    return [row for alike in folded.values() for row in alike]
