"""Which block of a search space each operator and each cell of a network belongs to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from hybridlat.estimate.partition.partition import Partition

CellCounts = Mapping[str, int]
"""How often each cell is run, by signature hash."""
UNPLACED = "other"
"""The position of cells whose module nothing tells."""


def positions_of(paths: Sequence[str], pattern: str | None = None) -> list[str]:
    """The block's position that each module path belongs to; empty for an empty path.

    ``pattern`` names the modules that are blocks (``stages.*.blocks.*``); what it does not match
    goes by its outermost module. Without one a block is the innermost numbered module that holds
    modules with names (``layer1.0`` of ``layer1.0.conv1``, ``features.3`` of
    ``features.3.conv.0.1``), else the module whose children are all operators (``fire2``).
    """
    if pattern is not None:
        return [_matching(path.split("."), pattern.split(".")) if path else "" for path in paths]
    parents = {path.rpartition(".")[0] for path in paths}
    inner = {above for parent in parents for above in _prefixes(parent)[:-1]}
    found = {path: _numbered(path.split(".")) or _parent(path, inner) for path in set(paths)}
    numbered = {position for path, position in found.items() if _numbered(path.split("."))}
    return [_outermost(found[path], numbered) for path in paths]


def _matching(parts: Sequence[str], wanted: Sequence[str]) -> str:
    fits = len(parts) >= len(wanted) and all(map(fnmatchcase, parts, wanted))
    return ".".join(parts[: len(wanted)]) if fits else parts[0]


def _numbered(parts: Sequence[str]) -> str:
    numbers = [i for i, part in enumerate(parts) if part.isdecimal()]
    holding = [i for i in numbers if i + 1 < len(parts) and not parts[i + 1].isdecimal()]
    end = holding[-1] if holding else numbers[0] if numbers else -1
    return ".".join(parts[: end + 1])


def _parent(path: str, inner: set[str]) -> str:
    parent = path.rpartition(".")[0]
    return parent if parent and parent not in inner else path


def _outermost(position: str, numbered: set[str]) -> str:
    return next((above for above in _prefixes(position) if above in numbered), position)


def _prefixes(path: str) -> list[str]:
    """The modules around a path from the outside in, and itself."""
    parts = path.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


def cells_by_position(partition: Partition, positions: Sequence[str]) -> dict[str, Counter[str]]:
    """The cells of a network by block, in the order in which they run.

    ``positions`` are those of the file's operators, in file order. What the engine adds (changes of
    layout) belongs to the block that reads its result. A cell over several blocks is one of its
    own, named by the first and the last.
    """
    places = sorted(
        ((place, use.signature) for use in partition.uses for place in use.places),
        key=lambda pair: pair[0].order,
    )
    named: dict[int, str] = {}
    for place, _ in places:
        held = dict.fromkeys(
            positions[n] for kernel in place.kernels for n in kernel if positions[n]
        )
        ends = dict.fromkeys([next(iter(held), ""), next(reversed(held), "")])
        named[place.order] = "…".join(ends)
    reader = {read: place.order for place, _ in reversed(places) for read in place.reads}
    for place, _ in reversed(places):  # the readers of a cell come behind it
        if not named[place.order]:
            named[place.order] = named.get(reader.get(place.order, -1), "")
    for place, _ in places:  # nothing with a name reads it: it ends what it reads
        if not named[place.order]:
            before = [named[read] for read in place.reads if read >= 0]
            named[place.order] = next((name for name in before if name), UNPLACED)
    counts: dict[str, Counter[str]] = {}
    for place, signature in places:
        counts.setdefault(named[place.order], Counter())[signature] += 1
    return counts
