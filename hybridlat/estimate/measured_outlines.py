"""Which networks were measured whole, told apart well enough not to sign most of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from hybridlat.estimate.whole_networks import outline
from hybridlat.graph import signature_reading


class MeasuredOutlines:
    """The networks of signature ``texts``, by the bytes of their weights; then by their outlines.

    Raises ValueError for a text of another format.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts: dict[int, list[str]] = {}
        for text in texts:
            self._texts.setdefault(signature_reading.weight_bytes_of(text), []).append(text)

    def may_hold(self, weight_bytes: int, outlined: Callable[[], str]) -> bool:
        """Whether a network may be among them; its outline is asked for where its weights fit."""
        alike = self._texts.get(weight_bytes)
        return alike is not None and outlined() in map(_outline_of, alike)


@lru_cache(maxsize=1024)
def _outline_of(text: str) -> str:
    return outline(signature_reading.read(text))
