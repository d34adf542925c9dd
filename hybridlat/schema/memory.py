"""What a network takes of a device's memory, and whether it fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MemoryVerdict = Literal["fits", "tight", "too large"]


@dataclass(frozen=True, slots=True)
class Memory:
    """What a network takes of a device's memory: weights, and the activations that live at once.

    ``total_bytes`` has what the engine adds, at least and at most; None where that is unknown, as
    ``device_bytes`` may be. ``system_bytes`` of those the system and other programs usually take.
    """

    weights_bytes: int
    activations_bytes: int
    total_bytes: tuple[int, int] | None = None
    device_bytes: int | None = None
    system_bytes: int = 0

    @property
    def verdict(self) -> MemoryVerdict | None:
        """``fits`` beside the system at most, ``too large`` alone at least; else ``tight``."""
        if self.total_bytes is None or self.device_bytes is None:
            return None
        if self.total_bytes[1] + self.system_bytes <= self.device_bytes:
            return "fits"
        return "too large" if self.total_bytes[0] > self.device_bytes else "tight"
