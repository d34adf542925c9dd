"""Where a cell stands, what it does and what limits it, in few words."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from hybridlat.schema.structure import CellStructure, Kernel, Limit

QUANTISING = ("QuantizeLinear", "DequantizeLinear")
_DIGITS = re.compile(r"(\d+)")


def where_text(paths: Sequence[str], width: int = 1000) -> str:
    """The module paths of a cell's uses: ``layer3.0``, ``blocks.0–11``, ``layer1.1 +3``.

    In at most ``width`` characters: the last of a path tells it apart, so its beginning gives way.
    """
    known = list(dict.fromkeys(path for path in paths if path))
    if not known:
        return ""
    text = _one_number_apart(known) or (
        known[0] if len(known) == 1 else f"{known[0]} +{len(known) - 1}"
    )
    return text if len(text) <= width else f"…{text[len(text) - max(width - 1, 0) :]}"[:width]


def _one_number_apart(paths: Sequence[str]) -> str:
    """``fire2–3``, ``blocks.0–4,7`` where all paths are alike but for one number; else nothing."""
    split = [_DIGITS.split(path) for path in paths]
    if len(paths) < 2 or len({len(parts) for parts in split}) > 1:
        return ""
    apart = [i for i, parts in enumerate(zip(*split, strict=True)) if len(set(parts)) > 1]
    if len(apart) != 1 or not all(parts[apart[0]].isdecimal() for parts in split):
        return ""
    index = apart[0]
    numbers = sorted({int(parts[index]) for parts in split})
    return "".join([*split[0][:index], _ranges(numbers), *split[0][index + 1 :]])


def _ranges(numbers: Sequence[int]) -> str:
    """``0–4,7`` for sorted whole numbers."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in ranges)


def what_text(cell: CellStructure) -> str:
    """Channels, window and stride, image of a convolution: ``64→128, 3×3/2, 28×28``.

    Anything else is named: ``MaxPool 64, 3×3/2, 56×56``, ``Gemm 197×192→576``. A cell of several
    kernels goes by its convolutions, the ends giving the channels and the widest the window, else
    by the kernel with most arithmetic and the count of the others: ``Gemm 197×192→576 +13``. One
    that is computed in whole numbers says so: ``64→128, 3×3/2, 28×28 int8``.
    """
    kernels = [cell.kernels[i] for i in cell.running]
    if not kernels:
        return ""
    heavy = max(kernels, key=lambda kernel: (kernel.contracts, kernel.work.flop))
    text = _what(kernels, heavy)
    return f"{text} int8" if heavy.contracts and _is_quantised(heavy) else text


def _is_quantised(kernel: Kernel) -> bool:
    names = kernel.op.split("+")
    return any(name in QUANTISING or name.startswith("QLinear") for name in names)


def _what(kernels: Sequence[Kernel], heavy: Kernel) -> str:
    if len(kernels) == 1:
        return kernel_text(heavy)
    windows = [kernel for kernel in kernels if kernel.contracts and kernel.window]
    first = next((k for k in kernels if len(k.input_shape) == 4), None)
    last = kernels[-1].output_shape
    if heavy.window and windows and first is not None and len(last) == 4:
        stride = max(round(first.input_shape[2] / max(last[2], 1)), 1)
        widest = max(windows, key=lambda kernel: (math.prod(kernel.window or ()), kernel.work.flop))
        return _image_text(first.input_shape[1], last[1], _window(widest, stride), last)
    return f"{kernel_text(heavy)} +{len(kernels) - 1}"


def kernel_text(kernel: Kernel) -> str:
    """The same of one kernel; a convolution needs no name."""
    text = kernel_sizes(kernel)
    if kernel.contracts and kernel.window:
        return text
    names = kernel.op.split("+")
    name = next((name for name in names if name not in QUANTISING), names[0])
    return f"{name} {text}".strip()


def kernel_sizes(kernel: Kernel) -> str:
    """What a kernel works on, without its name."""
    shape = kernel.output_shape
    if kernel.window and len(shape) == 4 and len(kernel.input_shape) == 4:
        window = _window(kernel, kernel.stride)
        return _image_text(kernel.input_shape[1], shape[1], window, shape)
    if kernel.contracts and shape and kernel.input_shape:
        rows = _size(shape[:-1])
        # The operand may be read through a view, so its last size need not be what is summed.
        summed = math.prod(kernel.input_shape) // max(math.prod(shape[:-1]), 1)
        product = f"{summed}→{shape[-1]}"
        return product if rows in ("", "1") else f"{rows}×{product}"
    return _size(shape)


def limit_text(limit: tuple[Limit, float] | None) -> str:
    """``compute 76 %``: the limit, and how much of the time it explains; empty where unknown."""
    return "" if limit is None else f"{limit[0]} {100 * min(limit[1], 1.0):.0f} %"


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
    """Sizes joined by ×, without the leading ones: a batch of one is not worth saying."""
    sizes = list(shape)
    while len(sizes) > 1 and sizes[0] == 1:
        sizes.pop(0)
    return "×".join(map(str, sizes))
