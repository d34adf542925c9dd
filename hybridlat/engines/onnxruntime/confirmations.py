"""What the engine has confirmed of the rules, as text: the next process need not ask it again."""

from __future__ import annotations

import json
from typing import Any

from hybridlat.engines.onnxruntime.patterns import Pattern
from hybridlat.engines.onnxruntime.quick import QuickLowering

CONFIRMATIONS_FORMAT = 1


class Confirmations:
    """What one process learns of the engine, passed on to others and taken over from them.

    ``scope`` names the engine's version, its threads and the machine: of another nothing holds.
    """

    def __init__(self, quick: QuickLowering, identity: str, machine: str) -> None:
        self._quick = quick
        self.scope = f"confirmed/{CONFIRMATIONS_FORMAT}/{machine}/{identity}"
        self._told: set[Pattern] = set()
        self._told_banned: set[Pattern] = set()

    def news(self) -> str:
        """All that was learned since this was asked last, or taken over; empty for nothing."""
        quick = self._quick
        confirmed, banned = quick.confirmed - self._told, quick.banned - self._told_banned
        self._told |= confirmed
        self._told_banned |= banned
        if not confirmed and not banned:
            return ""
        body = [quick.block, *(sorted(map(_written, some)) for some in (confirmed, banned))]
        return json.dumps(body, separators=(",", ":"))

    def learn(self, text: str) -> None:
        """Take over what another process said is new."""
        block, confirmed, banned = json.loads(text)
        learned, rejected = ({_read(one) for one in some} for some in (confirmed, banned))
        self._told |= learned
        self._told_banned |= rejected
        self._quick.learn(block, learned, rejected)


def _written(pattern: Pattern) -> str:
    return json.dumps(pattern, separators=(",", ":"))


def _read(text: str) -> Pattern:
    found = _frozen(json.loads(text))
    assert isinstance(found, tuple)
    return found


def _frozen(value: Any) -> object:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
