"""What is read of bytes is remembered where they are few: candidates of a search share them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def remembered(most: int, largest: int) -> Callable[[Callable[[bytes], T]], Callable[[bytes], T]]:
    """Keep the last ``most`` results of a function, of up to ``largest`` bytes each."""

    def with_memory(read: Callable[[bytes], T]) -> Callable[[bytes], T]:
        known = functools.lru_cache(maxsize=most)(read)

        @functools.wraps(read)
        def found(data: bytes) -> T:
            return known(data) if len(data) <= largest else read(data)

        return found

    return with_memory
