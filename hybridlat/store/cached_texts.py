"""Looking texts up in a store's cache: while it stays as it is, by a list of what it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hybridlat.store import codec

if TYPE_CHECKING:
    from hybridlat.store.place import StorePlace
    from hybridlat.store.queries import Ask

ASKED_UNTIL_LISTED = 16
"""Look-ups in a cache that does not change, until all its keys are read."""


class CachedTexts:
    """The texts in the cache of the store at ``place``, asked for by ``ask``."""

    def __init__(self, place: StorePlace, ask: Ask) -> None:
        self._place, self._ask = place, ask
        self._stamp: object = None
        self._asked = 0
        self._listed: frozenset[bytes] | None = None

    def get(self, key: str) -> str | None:
        """The text kept under ``key``, else None."""
        if not self._place.exists:
            return None
        from hybridlat.store import queries

        stamp = self._place.stamp
        if stamp is None or stamp != self._stamp:
            self._stamp, self._asked, self._listed = stamp, 0, None
        if stamp is not None:
            self._asked += 1
            if self._asked == ASKED_UNTIL_LISTED:
                self._listed = queries.cached_digests(self._ask)
            if self._listed is not None and codec.digest(key) not in self._listed:
                return None
        return queries.cached(self._ask, key)
