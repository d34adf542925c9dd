"""What each device of a fleet did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class DeviceReport:
    """One device: what it measured, how long it was busy, and what is the matter with it now.

    ``problem`` is empty while it is there; ``lost`` counts how often it went away.
    """

    name: str
    targets: tuple[str, ...]
    cells: int = 0
    networks: int = 0
    failures: int = 0
    busy_s: float = 0.0
    lost: int = 0
    problem: str = ""
