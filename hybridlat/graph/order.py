"""The order in which things can run: each behind all that it needs."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Sequence
from typing import Any


def topological_order(
    needs: Sequence[Collection[int]], key: Callable[[int], Any] | None = None
) -> list[int]:
    """Positions in an order in which each follows those in ``needs`` of it, all different.

    Of the positions that are ready the one of the least ``key`` comes first; without a key, and
    where keys are alike, the least position. Positions on a loop, or behind one, are left out.
    """
    waiting = [len(sources) for sources in needs]
    readers: list[list[int]] = [[] for _ in needs]
    for position, sources in enumerate(needs):
        for source in sources:
            readers[source].append(position)
    ready = [(key(i) if key else 0, i) for i, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, position = heapq.heappop(ready)
        order.append(position)
        for reader in readers[position]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, (key(reader) if key else 0, reader))
    return order
