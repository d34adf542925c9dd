"""What this machine is: the device name of its CPU, and the environment a record keeps."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Mapping
from pathlib import Path

from hybridlat.schema.device_names import cpu_name


@functools.cache
def _cpuinfo() -> Mapping[str, str]:
    """First processor of /proc/cpuinfo; empty where there is none (not Linux)."""
    facts: dict[str, str] = {}
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return facts
    for line in text.split("\n\n", 1)[0].splitlines():
        key, _, value = line.partition(":")
        facts[key.strip()] = value.strip()
    return facts


@functools.cache
def cpu_device() -> str:
    """A short name for this machine's CPU: ``xeon-8481c``, ``epyc-9b14``, ``epyc-26-2``.

    Vendors' noise words are dropped. A name that says no model (a virtual machine's plain
    "AMD EPYC") gets the processor's family and model number, which tell the generation.
    """
    info = _cpuinfo()
    text = info.get("model name") or platform.processor() or platform.machine() or "cpu"
    name = cpu_name(text)
    if not any(c.isdigit() for c in name):
        known = (name, info.get("cpu family", ""), info.get("model", ""))
        name = "-".join(word for word in known if word)
    return name or "cpu"


def has_avx512() -> bool:
    """Whether this machine offers AVX-512: a virtual one may leave out what its processor has."""
    return "avx512f" in _cpuinfo().get("flags", "").split()


def cpu_environment() -> Mapping[str, str]:
    """CPU, cores seen, clock now, caches, system: what a record must know of this machine."""
    info = _cpuinfo()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    environment = {
        "cpu": info.get("model name", platform.processor()),
        "cpu_family_model": f"{info.get('cpu family', '?')}-{info.get('model', '?')}",
        "cores": str(cores),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
    if "cpu MHz" in info:
        environment["clock_mhz"] = info["cpu MHz"]
    if "cache size" in info:
        environment["cache"] = info["cache size"]
    if "hypervisor" in info.get("flags", "").split():
        environment["virtual_machine"] = "yes"
    return environment


def pin(threads: int) -> None:
    """Keep this process on its last ``threads`` cores, so that it does not wander while timing."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[-threads:])
