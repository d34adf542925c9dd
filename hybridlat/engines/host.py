"""This machine and its CPU: name, environment, load, and what engines on it have in common."""

import functools
import os
import platform
import re
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from hybridlat.engines.base import Backend, Session
from hybridlat.errors import BackendUnavailable, MeasurementError
from hybridlat.schema.measurement import BUSY_STEAL_SHARE, MachineLoad
from hybridlat.schema.names import arm_core, cpu_name
from hybridlat.schema.target import Target

PROC_VARIABLE = "HYBRIDLAT_PROC"
"""Names the folder that stands for /proc where the load of the machine is read."""

IDENTITY_VARIABLE = "HYBRIDLAT_IDENTITY"
"""Names the folder that stands for this machine's CPU: its files ``cpuinfo``, as in /proc, and
``machine``, what ``uname -m`` prints, and its folder ``cache``, as in Linux's cpu0."""
_USUAL_CACHES = (32 * 1024, 2**20, 16 * 2**20)
# What kernels call the model: of x86, MIPS, RISC-V and POWER.
_MODEL_KEYS = ("model name", "cpu model", "uarch", "cpu")


@dataclass(frozen=True)
class Cpu:
    """What this machine's CPU is: ``name`` in targets, ``model`` in its maker's words.

    A name that says no model gets the processor's family and model number (``epyc-26-2``). ARM's
    cores go by their implementer and part. ``facts`` are cpuinfo's, by the first line of each key;
    ``cache_bytes`` of data, nearest first.
    """

    name: str
    model: str
    facts: Mapping[str, str]
    cache_bytes: tuple[int, ...]

    def has(self, flag: str) -> bool:
        """Whether it offers a feature: a virtual one may leave out what its processor has."""
        return flag in self.facts.get("flags", "").split()


def cpu() -> Cpu:
    """This machine's CPU, or the one that ``HYBRIDLAT_IDENTITY`` names."""
    return _cpu_in(os.environ.get(IDENTITY_VARIABLE, ""))


@functools.cache
def _cpu_in(folder: str) -> Cpu:
    lines = [line.partition(":") for line in _lines_of("cpuinfo", folder or "/proc")]
    pairs = [(key.strip(), value.strip()) for key, _, value in lines]
    facts = dict(reversed(pairs))
    makers, parts = ([v for k, v in pairs if k == f"CPU {key}"] for key in ("implementer", "part"))
    cores = sorted(set(map(arm_core, makers, parts)))  # of two kinds on some boards
    model = next((facts[key] for key in _MODEL_KEYS if facts.get(key)), "")
    if not (cores or model):
        own = "" if folder else platform.processor()
        model = own or next(iter(_lines_of("machine", folder)), "") or platform.machine()
    name = "-".join(cores) or cpu_name(model)
    if not any(c.isdigit() for c in name):
        known = (name, facts.get("cpu family", ""), facts.get("model", ""))
        name = "-".join(word for word in known if word)
    caches = _cache_bytes(Path(folder or "/sys/devices/system/cpu/cpu0", "cache"))
    return Cpu(name or "cpu", " + ".join(cores) or model, facts, caches or _USUAL_CACHES)


def _cache_bytes(folder: Path) -> tuple[int, ...]:
    """Of data, as Linux describes them; none where it does not, as some kernels of ARM."""
    sizes: dict[int, int] = {}
    for index in folder.glob("index*"):
        kind, level, size = ("".join(_lines_of(n, str(index))) for n in ("type", "level", "size"))
        if re.fullmatch("[1-9][0-9]{0,8}K", size) and level.isdigit() and kind != "Instruction":
            sizes[int(level)] = int(size[:-1]) * 1024
    return tuple(sizes[level] for level in sorted(sizes))


def instructions() -> str:
    """What of this CPU decides how engines lay out and fuse what they run."""
    widest = next((flag for flag in ("avx512f", "avx2") if cpu().has(flag)), "")
    return f"{platform.machine()}-{widest}".removesuffix("-")


def usable_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_environment() -> Mapping[str, str]:
    """CPU, cores seen, clock now, caches, system: what a record must know of this machine."""
    here = cpu()
    kind = "-".join(here.facts.get(key, "") for key in ("cpu family", "model")).strip("-")
    environment = {
        "cpu": here.model,
        "cpu_family_model": kind,
        "cores": str(usable_cores()),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "clock_mhz": here.facts.get("cpu MHz", ""),
        "cache": here.facts.get("cache size", ""),
        "virtual_machine": "yes" if here.has("hypervisor") else "",
    }
    return {key: value for key, value in environment.items() if value or key == "cpu"}


def pin(threads: int) -> None:
    """Keep this process on its last ``threads`` cores, so that it does not wander while timing."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[-threads:])


class CpuBackend(Backend):
    """An engine on the CPU with ``threads`` threads, for files in ``precision``."""

    find_version: ClassVar[Callable[[], str]]
    """The engine's version; UnavailableError where it cannot be loaded."""

    def __init__(self, threads: int = 1, precision: str = "fp32") -> None:
        if threads < 1:
            raise BackendUnavailable(f"{threads} threads cannot run anything: give 1 or more")
        self.threads = threads
        self.version = type(self).find_version()
        short = ".".join(self.version.split(".")[:2])
        self.target = Target(cpu().name, f"{self.name}-{short}", precision, threads)

    @classmethod
    def options_for(cls, target: Target | None, threads: int | None) -> Mapping[str, int | str]:
        count = threads or (target.threads if target else None) or 1
        if target is None or target.precision == "fp32":
            return {"threads": count}
        return {"threads": count, "precision": target.precision}

    def environment(self) -> Mapping[str, str]:
        return {"engine": f"{self.name} {self.version}", **cpu_environment()}


_LEAST_CPU_SHARE = 0.1  # of a long run's time, on whatever machine


class CpuSession(Session):
    """A model in memory; subclasses fill ``_feeds`` (buffer, source) and ``_run``.

    Inputs are written anew before every run, outside the timed part, as a predecessor has just
    written them in a network. A sample is left out where ``watched`` (this thread, or the process
    of an engine with threads of its own) is switched out. A run of ``long_run_us`` always is: it
    loses the difference of its CPU time and the wall's, ``lost_share``. One that hardly ran in that
    time is a short one that stood still.
    """

    engine: ClassVar[str]
    watched: ClassVar[int]
    long_run_us: ClassVar[float]

    def __init__(self, name: str, threads: int) -> None:
        self._name, self._threads = name, threads
        self._long_runs: list[tuple[int, int]] = []  # wall and CPU time in nanoseconds
        self._feeds: list[tuple[Any, Any]] = []
        self._run: Callable[[], object] = _is_closed

    def run_us(self, count: int) -> list[float]:
        samples: list[float] = []
        run, usage, clock = self._run, resource.getrusage, time.perf_counter_ns
        is_thread = self._threads == 1 and self.watched != resource.RUSAGE_SELF
        cpu_clock = time.thread_time_ns if is_thread else time.process_time_ns
        try:
            for _ in range(count):
                for buffer, source in self._feeds:
                    buffer[...] = source
                switches = usage(self.watched).ru_nivcsw
                cpu_start, start = cpu_clock(), clock()
                run()
                wall, cpu = clock() - start, cpu_clock() - cpu_start
                disturbed = usage(self.watched).ru_nivcsw != switches
                if wall > 1e3 * self.long_run_us and cpu > _LEAST_CPU_SHARE * wall:
                    self._long_runs.append((wall, cpu))
                elif disturbed:
                    continue
                samples.append(wall / 1e3)
        except Exception as error:  # engines raise many kinds
            raise self._failed(error) from error
        self.lost_share = self._lost_share()
        return samples

    def _lost_share(self) -> float:
        """What others took of the quicker half of the long runs, which are those that count.

        Threads wait for each other too: theirs is the time of the run which had most. Sums, since
        some systems count CPU time in ticks of 10 ms.
        """
        runs = sorted(self._long_runs, key=lambda run: run[0])
        quicker = runs[: (len(runs) + 1) // 2]
        full = max([1.0, *(cpu / wall for wall, cpu in runs if self._threads > 1)])
        all_of_it = full * sum(wall for wall, _ in quicker)
        return max(0.0, 1.0 - sum(cpu for _, cpu in quicker) / all_of_it) if quicker else 0.0

    def close(self) -> None:
        self._feeds, self._run = [], _is_closed

    def _failed(self, error: Exception) -> MeasurementError:
        return MeasurementError(f"{self.engine} cannot run {self._name}: {one_line(error)}")


def _is_closed() -> None:
    raise RuntimeError("the session is closed")


def one_line(error: Exception) -> str:
    """What an engine says of its error, without line breaks, cut where it goes on and on."""
    return " ".join(str(error).split())[:300]


class LoadMeter:
    """The load of this machine by other work, from when the meter is made.

    ``own_threads`` of the measuring process do not count; ``cores`` are those that it could use
    before it was pinned. A system that does not say has no load.
    """

    def __init__(self, own_threads: int = 1, cores: int | None = None) -> None:
        self._own_threads = own_threads
        self._cores = usable_cores() if cores is None else cores
        self._others: list[float] = []
        self._ticks = _cpu_ticks()
        self.sample()

    def sample(self) -> None:
        """Note the tasks that run or wait for a core: the fourth word of /proc/loadavg."""
        for line in _lines_of("loadavg", os.environ.get(PROC_VARIABLE, "/proc"))[:1]:
            running = " ".join(line.split()[3:4]).partition("/")[0]
            if running.isdigit() and int(running):  # a kernel that counts nothing says 0
                self._others.append(max(int(running) - self._own_threads, 0))

    def load(self, lost_share: float = 0.0) -> MachineLoad | None:
        """The mean of the samples, for the cores that this process may use.

        Others took ``lost_share`` of the CPU time of measured runs.
        """
        if not self._others and lost_share <= BUSY_STEAL_SHARE:
            return None
        now, stolen_share = _cpu_ticks(), 0.0
        if now is not None and self._ticks is not None and now[0] > self._ticks[0]:
            stolen_share = (now[1] - self._ticks[1]) / (now[0] - self._ticks[0])
        load = sum(self._others) / max(len(self._others), 1)
        load *= self._cores / (os.cpu_count() or self._cores)  # an even part of all tasks
        return MachineLoad(load, max(stolen_share, lost_share), self._cores)


def _lines_of(name: str, folder: str) -> list[str]:
    try:
        return Path(folder, name).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _cpu_ticks() -> tuple[int, int] | None:
    """Ticks of all cores since the machine started, and those stolen: the line ``cpu``."""
    for line in _lines_of("stat", os.environ.get(PROC_VARIABLE, "/proc")):
        words = line.split()
        if words[:1] == ["cpu"] and len(words) > 8 and all(map(str.isdigit, words[1:9])):
            ticks = [int(word) for word in words[1:9]]
            return sum(ticks), ticks[7]
    return None
