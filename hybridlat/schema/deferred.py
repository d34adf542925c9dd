"""Parts of an answer that few look at: made when somebody does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, overload

T = TypeVar("T", covariant=True)


class Deferred(Sequence[T]):
    """An immutable sequence that ``make`` makes on first use; equal to a tuple of the same.

    ``make`` must give the same whenever it is called: two threads may call it at once. It is a
    method or function that can be pickled, if this shall be.
    """

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], tuple[T, ...]]) -> None:
        self._make = make
        self._made: tuple[T, ...] | None = None

    @property
    def origin(self) -> object:
        """What it is made of: whose method ``make`` is."""
        return getattr(self._make, "__self__", None)

    @property
    def made(self) -> tuple[T, ...]:
        """Its items."""
        if self._made is None:
            self._made = self._make()
        return self._made

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...

    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        return self.made[index]

    def __len__(self) -> int:
        return len(self.made)

    def __iter__(self) -> Iterator[T]:
        return iter(self.made)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Deferred):
            return self.made == other.made
        return self.made == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.made)

    def __repr__(self) -> str:
        return repr(self.made)

    def __reduce__(self) -> tuple[Any, ...]:
        return Deferred, (self._make,)
