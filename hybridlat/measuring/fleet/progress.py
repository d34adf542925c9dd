"""How far all devices of a fleet are together."""

from __future__ import annotations

import threading
import time

from hybridlat.schema.progress import OnProgress, Progress


class FleetProgress:
    """Counts cells and networks over all devices, and tells of it; for any thread."""

    def __init__(self, on_progress: OnProgress | None) -> None:
        self._on_progress = on_progress
        self._total = self._done = 0
        self._began = time.monotonic()
        self._under_way: dict[str, tuple[float, str]] = {}
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        """So many more are to be measured."""
        with self._lock:
            self._total += count

    def at(self, device: str, done: int, total: int, size: int, names: str) -> None:
        """A device is at step ``done`` of ``total`` of a unit of ``size``."""
        with self._lock:
            self._under_way[device] = (size * min(1.0, done / max(total, 1)), names)
            self._tell()

    def done(self, device: str, count: int) -> None:
        """A device has ended a unit, and so many of it are measured."""
        with self._lock:
            self._done += count
            self._under_way.pop(device, None)
            self._tell()

    def _tell(self) -> None:
        if self._on_progress is None:
            return
        now = min(self._done + sum(share for share, _ in self._under_way.values()), self._total)
        passed_s = time.monotonic() - self._began
        left_s = passed_s / now * (self._total - now) if now >= 1 else None
        label = ", ".join(f"{device} {names}" for device, (_, names) in self._under_way.items())
        self._on_progress(Progress(int(now), self._total, label, left_s))
