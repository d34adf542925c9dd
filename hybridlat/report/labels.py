"""Short names for cells: a list of kernels as one readable line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

ARROW = " → "
_LONGEST_PATTERN = 8  # kernels; a dense layer has 3, an inception branch up to 6


# Only where the full name has no room; no two operators share a short one.
_SHORT = {
    "BatchNormalization": "BN",
    "InstanceNormalization": "IN",
    "LayerNormalization": "LN",
    "GlobalAveragePool": "GlobalAvg",
    "AveragePool": "AvgPool",
    "ConvTranspose": "Deconv",
    "DequantizeLinear": "DQ",
    "QuantizeLinear": "Q",
}


class _Part(NamedTuple):
    text: str
    kernels: int


def chain(ops: Sequence[str]) -> str:
    """All kernels in order, repetitions counted: ``Conv+Relu ×2 → Conv+Add+Relu``.

    A pattern that comes several times in a row is put in brackets: ``(Conv → Concat) ×6``.
    """
    return _join(_parts(tuple(ops)))


def short_chain(ops: Sequence[str], width: int) -> str:
    """``chain`` in at most ``width`` characters: the middle gives way to a count of kernels.

    What a cell begins and ends with tells it apart best, so those stay as long as they fit.
    """
    parts = _parts(tuple(ops))
    whole = _join(parts)
    if len(whole) <= width:
        return whole
    parts = [part._replace(text=abbreviated(part.text)) for part in parts]
    whole = _join(parts)
    if len(whole) <= width:
        return whole
    for kept in range(len(parts) - 1, 0, -1):
        head, tail = parts[: (kept + 1) // 2], parts[len(parts) - kept // 2 :]
        hidden = len(ops) - sum(part.kernels for part in (*head, *tail))
        text = _join([*head, _Part(f"… {hidden} more", hidden), *tail])
        if len(text) <= width:
            return text
    return whole[: max(width - 1, 0)] + "…"


def first_and_more(names: Sequence[str]) -> str:
    """Where a cell stands in the file: its first operator's name, and how many follow."""
    named = [name for name in names if name]
    if not named:
        return ""
    return named[0] if len(named) == 1 else f"{named[0]} +{len(named) - 1}"


def _join(parts: Sequence[_Part]) -> str:
    return ARROW.join(part.text for part in parts)


def lines_at_slashes(target: str, width: int) -> str:
    """A target in lines of at most ``width`` characters, as far as its parts are no longer."""
    lines = [""]
    for part in re.findall("[^/]*/?", target):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def abbreviated(text: str) -> str:
    """The label with short names for long operators: ``Conv+BN+Relu``."""
    for name, short in _SHORT.items():
        text = text.replace(name, short)
    return text


def _parts(ops: tuple[str, ...]) -> list[_Part]:
    """The kernels with every repetition in a row written once, with its count."""
    parts: list[_Part] = []
    position = 0
    while position < len(ops):
        length, times = _repetition(ops, position)
        pattern = ops[position : position + length]
        text = pattern[0] if length == 1 else f"({_join(_parts(pattern))})"
        parts.append(_Part(text if times == 1 else f"{text} ×{times}", length * times))
        position += length * times
    return parts


def _repetition(ops: tuple[str, ...], start: int) -> tuple[int, int]:
    """Length and count of the pattern at ``start`` that covers most; the shorter one of equals."""
    best = (1, 1)
    for length in range(1, min(_LONGEST_PATTERN, (len(ops) - start) // 2) + 1):
        pattern = ops[start : start + length]
        times = 1
        while ops[start + times * length : start + (times + 1) * length] == pattern:
            times += 1
        if times > 1 and length * times > best[0] * best[1]:
            best = (length, times)
    return best
