"""trtexec's ``--exportProfile``: times of layers, and the constant that profiling adds to each.

The profiler waits after every layer, so the sum of a profile is above the engine's latency, by
about one constant a layer on one GPU; :func:`fit_constant` finds it from engines whose latency is
known, :class:`ProfileReport` takes it off and shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hybridlat.errors import InputError
from hybridlat.measuring.trtexec import read_export


@dataclass(frozen=True, slots=True)
class LayerTime:
    """A profiled layer: mean over ``runs`` and, where the version exports it, the median."""

    name: str
    mean_us: float
    median_us: float | None = None

    @property
    def time_us(self) -> float:
        """The median where there is one, else the mean."""
        return self.mean_us if self.median_us is None else self.median_us


def read_profile(path: str | Path) -> list[LayerTime]:
    """Layer times from ``--exportProfile`` (microseconds; 8.4 and later know the median)."""
    content = read_export(path)
    if isinstance(content, Mapping) and "profile" in content:
        content = content["profile"]
    layers = profile_of(content)
    if not layers:
        raise InputError(f"{path} is no profile of trtexec: it has no layer with averageMs")
    return layers


def profile_of(content: Any) -> list[LayerTime]:
    """The layer times in a parsed export; empty where it is something else."""
    layers = []
    for entry in content if isinstance(content, list) else []:
        if not isinstance(entry, Mapping) or "name" not in entry:
            continue
        if "median_us" in entry:  # a runner's own dump
            layers.append(LayerTime(entry["name"], entry["median_us"], entry["median_us"]))
        elif "averageMs" in entry:
            median = entry.get("medianMs")
            layers.append(
                LayerTime(
                    str(entry["name"]),
                    float(entry["averageMs"]) * 1e3,
                    None if median is None else float(median) * 1e3,
                )
            )
    return layers


@dataclass(frozen=True, slots=True)
class ProfiledEngine:
    """An engine whose profile and latency are both known."""

    layers: int
    sum_us: float
    latency_us: float


def fit_constant(engines: Sequence[ProfiledEngine]) -> float:
    """Microseconds that the profiler adds to a layer, by least squares of the relative error.

    With S the sum of a profile, n its layers and m the engine's latency, the c that minimises
    the sum of ((S - c n - m) / m)² is Σ (n/m)·((S - m)/m) / Σ (n/m)². InputError for no engines.
    """
    above = sum(e.layers / e.latency_us * (e.sum_us / e.latency_us - 1.0) for e in engines)
    below = sum((e.layers / e.latency_us) ** 2 for e in engines)
    if below == 0:
        raise InputError("a profile's constant needs at least one engine with layers and a latency")
    return above / below


@dataclass(frozen=True)
class ProfileReport:
    """A profile with the profiler's constant taken off every layer, and what that makes of the sum.

    ``latency_us`` is the engine's own, None where only the profile is there.
    """

    layers: tuple[LayerTime, ...]
    constant_us: float
    latency_us: float | None

    @property
    def sum_us(self) -> float:
        """Sum of the profile as exported."""
        return sum(layer.time_us for layer in self.layers)

    @property
    def corrected_us(self) -> float:
        """Sum with the constant off; what it estimates is the engine's latency."""
        return sum(self.corrected(layer) for layer in self.layers)

    def corrected(self, layer: LayerTime) -> float:
        """A layer's own time; never below zero."""
        return max(0.0, layer.time_us - self.constant_us)

    def lines(self) -> list[str]:
        """The report as text, longest layers first."""
        out = [f"{'layer':60} {'profiled µs':>12} {'corrected µs':>13} {'share %':>8}"]
        total = self.corrected_us or 1.0
        for layer in sorted(self.layers, key=lambda each: -each.time_us):
            own = self.corrected(layer)
            out.append(
                f"{layer.name[:60]:60} {layer.time_us:12.2f} {own:13.2f} {100 * own / total:8.1f}"
            )
        out.append(f"{'sum':60} {self.sum_us:12.2f} {self.corrected_us:13.2f} {100.0:8.1f}")
        if self.latency_us is not None:
            out.append(f"{'the engine itself':60} {self.latency_us:12.2f}")
        out.append(f"constant per layer: {self.constant_us:.2f} µs")
        return out


def report(
    profile: Sequence[LayerTime], latency_us: float | None, constant_us: float | None = None
) -> ProfileReport:
    """A report; without ``constant_us`` the engine's own latency tells it, where that is known."""
    if constant_us is None:
        total = sum(layer.time_us for layer in profile)
        known = latency_us is not None and len(profile) > 0
        constant_us = (total - latency_us) / len(profile) if known and latency_us else 0.0
    return ProfileReport(tuple(profile), max(0.0, constant_us), latency_us)
