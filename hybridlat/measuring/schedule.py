"""The schedule of a run: jobs, the number of their visits, and the order.

Cells of engines whose graph cannot be cut are timed with their predecessors (``pairs_of``).
A cell is T(predecessor ++ cell) − T(predecessor). Both are built from the file's operators, so the
engine optimises them as it does the whole network. Entering the engine and the change of layout at
the border are in both, and cancel. The predecessor is the last cell that makes what the cell reads.

An engine hands its results out in the plain layout, a conversion that may cost more than the cell.
Every result that is not the network's own is therefore read by a *tap* inside the engine, a pooling
of one pixel a channel. What a cell reads of other cells comes from a *source* in both, a pooling
that writes it inside the engine. So the cell pays that reads another layout than its maker writes.
"""

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hybridlat.graph.builder import null_network
from hybridlat.graph.cells import Cell, cut, file_part
from hybridlat.graph.network import Lowered, Network, Node, TensorType
from hybridlat.graph.signature import Signature, sign
from hybridlat.measuring.statistics import combine
from hybridlat.measuring.visiting import VisitTask
from hybridlat.schema.measurement import Kind, Visit

_HEAVY_BYTES = 24_000_000
# By the context of a cell: at most and at least so many replicas, and in between as many as hold
# these bytes of weights together.
REPLICAS = {"small": (4, 4, 0), "medium": (14, 6, 24_000_000), "": (28, 8, 64_000_000)}
PROBE_LENGTHS = (1, 2, 4, 8)
_PROBE_MS, _PROBE_REPLICAS = 5.0, 4
_PROBE_VISITS = 8
"""Visits of each probe in a process, at least: what they say is in every cell's latency. From one
visit each, the overhead of a shared machine came out at 3.7 µs, from many at 6.6."""
_MOST_REST_BYTES = 300_000_000  # what a network works in beyond this is as cold as it can be
_POOL = 12
_SAME = (("kernel_shape", (3, 3)), ("pads", (1, 1, 1, 1)))
_MOST_ROUNDS_APART = 10  # visits of one thing in one round have seeds of their own


@dataclass(frozen=True)
class Job:
    """One thing to measure: a cell as it runs in an engine's graph, or a network of a file.

    A cell with ``rest_bytes`` is a part of a file, less its ``predecessor`` there if it has one. So
    much other memory, as the rest of the network works in, is read between two runs.
    """

    signature: Signature
    network: Network
    kind: Kind = "cell"
    labels: Mapping[str, str] = field(default_factory=dict)
    predecessor: Network | None = None
    rest_bytes: int | None = None

    @property
    def key(self) -> str:
        """Names the job in a run: the same network may be a cell and a whole network."""
        return f"{self.kind}/{self.signature.hash}"

    @property
    def has_overhead(self) -> bool:
        """Whether its samples contain the dispatch overhead, and it is a part of a network."""
        return self.kind != "network" and self.predecessor is None

    @property
    def networks(self) -> tuple[Network, ...]:
        """What is built: what is timed, then what is taken off it."""
        return (self.network,) if self.predecessor is None else (self.network, self.predecessor)


@dataclass(frozen=True)
class MeasurementConfig:
    """How much measuring.

    ``rounds`` visits of every job in each of ``processes`` processes, ``network_visits`` a round of
    a whole network, which is one session and varies more. A visit takes ``visit_ms``, that of a
    network ``network_visit_ms``. A job whose spread is still above ``spread_share`` is visited by
    up to ``max_processes``. ``budget_s`` ends the run early; visits made by then count. ``seed`` is
    that of their order. Plans have ``rounds`` too, at least two, and no processes.
    """

    rounds: int = 3
    processes: int = 2
    max_processes: int = 3
    spread_share: float = 0.01
    visit_ms: float = 25.0
    network_visit_ms: float = 200.0
    network_visits: int = 2
    budget_s: float | None = None
    seed: int = 0


ON_DEMAND = MeasurementConfig(rounds=1, processes=2, max_processes=3, spread_share=0.05)
"""For an answer that a user waits for: one visit in each of two processes, and in a third where
they differ by more than a sixth."""


def replicas_for(network: Network) -> int:
    """How many copies of a cell run in turn, so that it is as cold as inside a network.

    There other cells have been through the caches: many copies of a small cell do the same. The
    numbers were chosen on a machine with 1 MiB of second-level cache a core.
    """
    weight_bytes = max(network.weight_bytes, 1)
    if weight_bytes > _HEAVY_BYTES:
        return 3
    most, least, together = REPLICAS.get(network.context, REPLICAS[""])
    return max(least, min(most, math.ceil(together / weight_bytes)))


def tasks_of(
    settings: MeasurementConfig, process: int, jobs: Sequence[Job], probing: bool = True
) -> Iterator[VisitTask]:
    """The visits of one process: all jobs, with the probes if ``probing``, shuffled every round."""
    tasks: list[VisitTask] = []
    for job in jobs:
        is_whole = job.kind == "network"
        visit_ms = settings.network_visit_ms if is_whole else settings.visit_ms
        replicas = 0 if is_whole or job.rest_bytes is not None else replicas_for(job.network)
        tasks.append(VisitTask(job.key, job.networks, visit_ms, 0, replicas, job.rest_bytes or 0))
    networks = [task for task, job in zip(tasks, jobs, strict=True) if job.kind == "network"]
    probed = [
        VisitTask(probe_key(length), (null_network(length),), _PROBE_MS, 0, _PROBE_REPLICAS)
        for length in PROBE_LENGTHS
    ]
    probe_visits = math.ceil(_PROBE_VISITS / settings.rounds) if probing else 0
    for round_ in range(settings.rounds):
        order = [*tasks, *probed * probe_visits, *networks * (settings.network_visits - 1)]
        random.Random(f"{settings.seed}/{process}/{round_}").shuffle(order)
        met = Counter[str]()
        for task in order:
            number = (process * settings.rounds + round_) * _MOST_ROUNDS_APART + met[task.key]
            met[task.key] += 1
            yield replace(task, seed=1 + 100 * number)


def probe_key(length: int) -> str:
    """The key of the tasks that visit an overhead probe."""
    return f"null/{length}"


def needs_visit(
    settings: MeasurementConfig, process: int, visits: Sequence[Visit], overhead_us: float = 0.0
) -> bool:
    """Whether a job with these visits is to be visited by one more process."""
    return process < settings.processes or (
        bool(visits) and combine(visits, overhead_us).spread_share > settings.spread_share
    )


def pairs_of(name: str, network: Network, lowered: Lowered) -> list[Job]:
    """The distinct cells of a network, each with the first predecessor that it has."""
    jobs: dict[str, Job] = {}
    works_in_bytes = min(working_bytes(network), _MOST_REST_BYTES)

    def part(*cells: Cell, made: Sequence[str] = ()) -> Network:
        origins = [origin for cell in cells for origin in cell.origins]
        sources = {name: network.types[name] for name in made if _is_map(network.types[name])}
        whole = _sourced(file_part(network, lowered, origins), sources)
        return replace(_tapped(whole, network.outputs), name=" ".join(cells[-1].ops))

    makers: dict[str, int] = {}
    cells = [cell for cell in cut(lowered, network) if cell.origins]
    for place, cell in enumerate(cells):
        read = [makers[name] for name in cell.network.inputs if name in makers]
        makers.update(dict.fromkeys(cell.network.outputs, place))
        signature = sign(cell.network)
        if signature.hash in jobs:
            continue
        before = cells[max(read, default=place - 1)] if place else None
        both, predecessor = part(cell), None
        if before is not None:
            inputs, own = part(before, cell).inputs, part(before).inputs
            made = [n for n in inputs if n not in (*own, *network.inputs)]
            both, predecessor = part(before, cell, made=made), part(before, made=made)
        own_bytes = sum(working_bytes(p) for p in (both, predecessor) if p is not None)
        rest_bytes, labels = max(0, works_in_bytes - own_bytes), {"network": name}
        jobs[signature.hash] = Job(signature, both, "cell", labels, predecessor, rest_bytes)
    return list(jobs.values())


def _sourced(part: Network, made: Mapping[str, TensorType]) -> Network:
    """The part with a source of each of these feature maps, read in it or not."""
    source = {name: f"{name}__source" for name in made}
    pools = [Node(s, "MaxPool", (s,), (n,), _SAME, version=_POOL) for n, s in source.items()]
    return replace(
        part,
        nodes=(*pools, *part.nodes),
        inputs=(*(n for n in part.inputs if n not in made), *source.values()),
        outputs=(*part.outputs, *(n for n in made if n not in part.inputs)),
        types={**part.types, **made, **{source[n]: type_ for n, type_ in made.items()}},
    )


def _tapped(part: Network, network_outputs: Sequence[str]) -> Network:
    """The part with a tap on every feature map that is not among the network's own outputs."""
    nodes, types = list(part.nodes), dict(part.types)
    taps: dict[str, str] = {}
    for name in part.outputs:
        type_ = part.types[name]
        if name not in network_outputs and _is_map(type_) and type_.shape[2:] != (1, 1):
            tap = taps[name] = f"{name}__tap"
            types[tap] = TensorType(type_.dtype, (*type_.shape[:2], 1, 1))
            attributes = (("kernel_shape", (1, 1)), ("strides", type_.shape[2:]))
            nodes.append(Node(tap, "MaxPool", (name,), (tap,), attributes, version=_POOL))
    outputs = tuple(taps.get(name, name) for name in part.outputs)
    return replace(part, nodes=tuple(nodes), types=types, outputs=outputs)


def _is_map(type_: TensorType) -> bool:
    return len(type_.shape) == 4 and type_.dtype.startswith("float")


def working_bytes(network: Network) -> int:
    """Memory that a network works in: weights, and what its largest operator reads and makes."""
    types = network.types
    names_of = ({*node.inputs, *node.outputs}.intersection(types) for node in network.nodes)
    each_bytes = (sum(types[name].bytes for name in names) for names in names_of)
    return network.weight_bytes + max(each_bytes, default=0)
