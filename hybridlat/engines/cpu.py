"""What the engines on this machine's CPU have in common."""

from __future__ import annotations

import abc
from collections.abc import Mapping

from hybridlat.engines.base import Backend
from hybridlat.engines.host import cpu_device, cpu_environment
from hybridlat.errors import BackendUnavailable
from hybridlat.schema.target import Target


class CpuBackend(Backend):
    """An engine on the CPU with ``threads`` threads; ``version`` is the engine's own.

    ``precision`` is that of the files it is given: it computes in theirs.
    """

    version: str

    def __init__(self, threads: int = 1, precision: str = "fp32") -> None:
        if threads < 1:
            raise BackendUnavailable(f"{threads} threads cannot run anything: give 1 or more")
        self.threads = threads
        self.version = self._version()
        short = ".".join(self.version.split(".")[:2])
        self._target = Target(cpu_device(), f"{self.name}-{short}", precision, threads)

    @staticmethod
    @abc.abstractmethod
    def _version() -> str:
        """The engine's version; BackendUnavailable where it cannot be loaded."""

    @classmethod
    def options_for(cls, target: Target | None, threads: int | None) -> Mapping[str, int | str]:
        options: dict[str, int | str] = {
            "threads": threads or (target.threads if target else None) or 1
        }
        if target is not None and target.precision != "fp32":
            options["precision"] = target.precision
        return options

    @property
    def target(self) -> Target:
        return self._target

    def environment(self) -> Mapping[str, str]:
        return {"engine": f"{self.name} {self.version}", **cpu_environment()}
