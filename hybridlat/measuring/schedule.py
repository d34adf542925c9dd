"""The schedule of the replica protocol: jobs, the number of their visits, and the order."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hybridlat.graph.network import Network
from hybridlat.measuring.statistics import combine
from hybridlat.measuring.target_constants import overhead_probes
from hybridlat.measuring.visiting import VisitTask
from hybridlat.schema.measurement import Kind, Visit

HEAVY_BYTES = 24_000_000
# By the context of a cell: at most and at least so many replicas, and in between as many as hold
# these bytes of weights together.
REPLICAS = {"small": (4, 4, 0), "medium": (14, 6, 24_000_000), "": (28, 8, 64_000_000)}
_PROBE_MS = 5.0
_PROBE_REPLICAS = 4
_PROBE_VISITS = 8
"""Visits of each probe in a process, at least: what they say is in every cell's latency. From one
visit each, the overhead of a shared machine came out at 3.7 µs, from many at 6.6."""
_MOST_ROUNDS_APART = 10  # visits of one thing in one round have seeds of their own


@dataclass(frozen=True)
class Job:
    """One thing to measure. ``lowered``: it is part of an engine's graph and runs as it is."""

    signature: str
    network: Network
    kind: Kind = "cell"
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def lowered(self) -> bool:
        return self.kind == "cell"

    @property
    def key(self) -> str:
        """Names the job in a run: the same network may be a cell and a whole network."""
        return f"{self.kind}/{self.signature}"


@dataclass(frozen=True)
class MeasurementConfig:
    """How much measuring.

    Replicas: ``rounds`` visits of every job in each of ``processes`` processes. A whole network is
    one session and varies more from one to the next than a sum of many cells: it is visited
    ``network_visits`` times a round. A job whose spread is still above ``spread_share`` is visited
    by up to ``max_processes``. Differential, in a process or by a plan: every pair is visited in
    ``differential_rounds``.
    ``budget_s`` ends the run early; visits made by then count.
    """

    rounds: int = 3
    processes: int = 2
    max_processes: int = 3
    spread_share: float = 0.02
    visit_ms: float = 25.0
    network_visit_ms: float = 200.0
    network_visits: int = 2
    budget_s: float | None = None
    seed: int = 0
    differential_rounds: int = 3


ON_DEMAND = MeasurementConfig(
    rounds=1, processes=2, max_processes=3, spread_share=0.1, differential_rounds=1
)
"""For an answer that a user waits for: one visit in each of two processes, and in a third where
they differ by more than a sixth."""


def replicas_for(network: Network) -> int:
    """How many copies of a cell run in turn, so that it is as cold as inside a network.

    A network comes back to a cell after all the others, whose weights, operators and bookkeeping
    have been through the caches: many copies of a small cell do the same, a few of a heavy one,
    and a few where the whole network is small. The numbers were chosen on a machine with 1 MiB of
    second-level cache a core.
    """
    weight_bytes = max(network.weight_bytes, 1)
    if weight_bytes > HEAVY_BYTES:
        return 3
    most, least, together = REPLICAS.get(network.context, REPLICAS[""])
    return max(least, min(most, math.ceil(together / weight_bytes)))


def tasks_of(
    settings: MeasurementConfig, process: int, jobs: Sequence[Job], probing: bool = True
) -> Iterator[VisitTask]:
    """The visits of one process, in the order to make them: all jobs shuffled in every round.

    ``probing``: the dispatch overhead's probes are visited among them, since it is not known yet.
    """
    by_key = {job.key: job for job in jobs}
    probes = {probe_key(length): network for length, network in overhead_probes().items()}
    probed = list(probes) * math.ceil(_PROBE_VISITS / settings.rounds) if probing else []
    networks = [job.key for job in jobs if job.kind == "network"]
    for round_ in range(settings.rounds):
        order = [*by_key, *probed, *networks * (settings.network_visits - 1)]
        random.Random(f"{settings.seed}/{process}/{round_}").shuffle(order)
        met: dict[str, int] = {}
        for key in order:
            met[key] = met.get(key, -1) + 1
            number = (process * settings.rounds + round_) * _MOST_ROUNDS_APART + met[key]
            seed = 1 + 100 * number
            if key in probes:
                yield _probe_task(key, probes[key], seed)
            else:
                yield _task(settings, by_key[key], seed)


def probe_key(length: int) -> str:
    """The key of the tasks that visit an overhead probe."""
    return f"null/{length}"


def _probe_task(key: str, probe: Network, seed: int) -> VisitTask:
    return VisitTask(key, probe, True, _PROBE_MS, _PROBE_REPLICAS, seed)


def _task(settings: MeasurementConfig, job: Job, seed: int) -> VisitTask:
    if job.kind == "network":
        return VisitTask(job.key, job.network, False, settings.network_visit_ms, 1, seed)
    replicas = replicas_for(job.network)
    return VisitTask(job.key, job.network, job.lowered, settings.visit_ms, replicas, seed)


def is_wanted(settings: MeasurementConfig, process: int, visits: Sequence[Visit]) -> bool:
    """Whether a job with these visits is to be visited by one more process."""
    if process < settings.processes:
        return True
    return bool(visits) and combine(visits).spread_share > settings.spread_share
