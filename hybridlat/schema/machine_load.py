"""How busy a machine was with other work while it measured: the value, and what follows from it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

BUSY_LOAD_SHARE = 0.5
"""Other tasks that run or wait, per core, above which a machine is busy."""
BUSY_STEAL_SHARE = 0.05
"""Share of the CPU time that goes to other virtual machines, above which a machine is busy."""
BUSY_SPREAD_SHARE = 0.5
"""Least relative standard error of what a busy machine measured: twice the latency was seen at a
load of 4 on 2 cores, in all visits alike, so that nothing in the samples tells."""


@dataclass(frozen=True, slots=True)
class MachineLoad:
    """``load``: tasks besides the measuring one that ran or waited for one of the ``cores``.

    ``steal_share`` is the share of the CPU time that the hypervisor gave to others.
    """

    load: float
    steal_share: float
    cores: int

    @property
    def is_busy(self) -> bool:
        """Whether other work made the latencies too long to be believed."""
        return self.load > BUSY_LOAD_SHARE * self.cores or self.steal_share > BUSY_STEAL_SHARE

    @property
    def sentence(self) -> str:
        """What a reader must know of a busy machine."""
        facts = f"load {self.load:.1f} on {self.cores} core{'' if self.cores == 1 else 's'}"
        if self.steal_share > BUSY_STEAL_SHARE:
            facts += f", {100 * self.steal_share:.0f} % of the CPU time stolen by the hypervisor"
        return f"the machine was busy while measuring ({facts}): repeat when it is idle"

    def environment(self) -> dict[str, str]:
        """The entries for the environment of a record."""
        return {"load": f"{self.load:.2f}", "load_cores": str(self.cores),
                "steal_share": f"{self.steal_share:.3f}"}  # fmt: skip


def load_of(environment: Mapping[str, str]) -> MachineLoad | None:
    """The load that a record's environment tells; None where it tells none."""
    try:
        return MachineLoad(
            float(environment["load"]), float(environment["steal_share"]),
            int(environment["load_cores"]),
        )  # fmt: skip
    except (KeyError, ValueError):
        return None


def was_busy(environment: Mapping[str, str]) -> bool:
    """Whether a record was made while the machine was busy, as far as its environment tells."""
    load = load_of(environment)
    return load is not None and load.is_busy


def mean_load(loads: Iterable[MachineLoad | None]) -> MachineLoad | None:
    """The mean over visits; None where none of them could tell."""
    known = [load for load in loads if load is not None]
    if not known:
        return None
    return MachineLoad(
        statistics.fmean(load.load for load in known),
        statistics.fmean(load.steal_share for load in known),
        known[-1].cores,
    )


def busiest(environments: Iterable[Mapping[str, str]]) -> MachineLoad | None:
    """The highest load of the records that were made while the machine was busy."""
    loads = [load for load in map(load_of, environments) if load is not None and load.is_busy]
    return max(loads, key=lambda load: (load.load / load.cores, load.steal_share), default=None)
