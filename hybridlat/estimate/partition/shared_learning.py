"""What processes learn of an engine's lowering, shared through the store.

Entries of the cache are written once and stay, so they are numbered: everybody reads on from where
he stopped, and writes what he has learned behind the last.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hybridlat.errors import StoreError

if TYPE_CHECKING:
    from hybridlat.engines.base import LearnedRules
    from hybridlat.store import Store

_log = logging.getLogger(__name__)


class SharedLearning:
    """The rules of one engine and what ``store`` keeps of them."""

    def __init__(self, rules: LearnedRules, store: Store) -> None:
        self._rules, self._store = rules, store
        self._read = 0

    def take_over(self) -> None:
        """Learn what others have written since; a store that cannot be read teaches nothing."""
        try:
            while (text := self._store.cache_get(self._key)) is not None:
                self._rules.learn(text)
                self._read += 1
        except (StoreError, ValueError) as error:
            _log.warning("what the engine has confirmed before is not used: %s", error)

    def pass_on(self) -> None:
        """Write what was learned here."""
        text = self._rules.news()
        if not text:
            return
        try:
            while True:
                self._store.cache_put(self._key, text)
                kept = self._store.cache_get(self._key)
                self._read += 1
                if kept is None or kept == text:
                    return
                self._rules.learn(kept)  # somebody was quicker: behind him, then
        except (StoreError, ValueError) as error:
            _log.warning("what the engine has confirmed is not kept: %s", error)

    @property
    def _key(self) -> str:
        return f"{self._rules.scope}/{self._read}"
