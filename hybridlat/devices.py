"""Devices by name: data sheets in data/devices/*.toml, and a micro-benchmark for unknown CPUs."""

from __future__ import annotations

from hybridlat.core.device import Device


def names() -> tuple[str, ...]:
    """Devices that have a data sheet, in alphabetical order."""
    raise NotImplementedError


def load(name: str) -> Device:
    """The device of that name (``v100``); TargetError names the choices."""
    raise NotImplementedError


def probe_cpu(threads: int = 1) -> Device:
    """This machine's CPU, measured in about a second: peak FLOP/s, bandwidth, cache sizes."""
    raise NotImplementedError
