"""What records of whole networks say: of a network itself, and of how cells sum up on a machine."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from hybridlat.graph.network import Network
from hybridlat.schema.measurement import Breakdown, MachineLoad, Measurement, busiest, was_busy
from hybridlat.schema.target import Target
from hybridlat.store import Store
from hybridlat.store.packs import PackLookup
from hybridlat.store.records import aggregate

LEAST_NOISE_SHARE = 0.01
"""The same networks, measured again minutes later, differ by this much where visits agree better:
standard deviation 1.6 % over 114 networks of the shipped CPU pack, disturbed ones included."""
UNSTATED_NOISE_SHARE = 0.05
"""Of a figure that comes without samples, as of a single visit."""
Outline = frozenset[tuple[tuple[str, tuple[int, ...]], int]]
_NODE = re.compile(r"^node (?:\S+::)?(\S+)@\d+ .*?\) -> \((?:\d+:\w+:([\dx]*)|-)", re.MULTILINE)
_VERSION = re.compile(r"(\d+(?:\.\d+)*)\S*\s*$")


MOST_NETWORKS = 300
"""Measured networks that others are predicted by: more cost seconds and add little."""


@dataclass(frozen=True, slots=True)
class WholeLatency:
    """A network as it was measured whole, so many ``times``.

    ``noise_share`` is the relative standard error of ``latency_us``. ``is_exact``: it answers for
    the network; otherwise it is only evidence. ``basis`` says in a few words what it rests on.
    ``load`` is that of the machine where it was busy whenever it measured the network.
    """

    latency_us: float
    noise_share: float
    is_exact: bool
    basis: str
    times: int = 1
    load: MachineLoad | None = None


@dataclass(frozen=True)
class MeasuredNetwork:
    """A whole network that was measured: where, its cells' texts, their counts, its latency.

    ``signature`` is its hash, ``name`` that of its file or of the table that it comes from;
    ``is_given`` where the user gave the latency. ``cells`` are the hashes of its cells, where a
    store keeps them. ``is_replayed``: a CUDA graph launched its kernels.
    """

    target: Target
    texts: tuple[str, ...]
    counts: tuple[int, ...]
    copied_bytes: float
    latency_us: float
    signature: str
    name: str = ""
    is_given: bool = False
    cells: tuple[str, ...] = ()
    is_replayed: bool = False

    @classmethod
    def of(
        cls, breakdown: Breakdown, texts: Mapping[str, str], us: float, is_replayed: bool = False
    ) -> MeasuredNetwork:
        """The network of a breakdown; KeyError where the text of a cell is missing."""
        return cls(
            breakdown.target,
            tuple([texts[signature] for signature, _ in breakdown.cells]),
            tuple([count for _, count in breakdown.cells]),
            float(breakdown.labels.get("copied_bytes", "0")),
            us,
            breakdown.signature,
            breakdown.network,
            cells=tuple([signature for signature, _ in breakdown.cells]),
            is_replayed=is_replayed,
        )


def whole_latency(
    target: Target, signature: str, store: Store, packs: Sequence[PackLookup]
) -> WholeLatency | None:
    """What is recorded of the network with this signature; None where nothing is that counts.

    Records that their origin doubts, and those of another version of the engine than the target's,
    do not count; those of a busy machine are evidence only.
    """
    records = [r for r in store.measurements(target, "network", signature) if tells_latency(r)]
    own = from_records(records)
    if own is not None and own.load is None:
        return own
    for pack in packs:
        stats = pack.latencies(target, [signature], "network").get(signature)
        if stats is not None and stats.latency_us is not None:
            noise = max(stats.spread_share, LEAST_NOISE_SHARE)
            basis = f"{_runs(stats.records)}, shipped data"
            return WholeLatency(stats.latency_us, noise, True, basis, stats.records)
    return own


def outline(network: Network) -> Outline:
    """How often each operator makes which shape.

    The same for networks that are the same, found in a small part of a signature's time.
    """
    firsts = ((node.op, node.outputs[0]) for node in network.nodes)
    shapes = ((op, network.types[out].shape if out else ()) for op, out in firsts)
    return frozenset(Counter(shapes).items())


def outline_of_text(text: str) -> Outline:
    """The outline of the network that a signature text describes."""
    made = ((op, tuple(map(int, filter(None, s.split("x"))))) for op, s in _NODE.findall(text))
    return frozenset(Counter(made).items())


def tells_latency(record: Measurement) -> bool:
    """Whether a record of a whole network tells its latency on its target."""
    if record.latency_us is None or record.suspect:
        return False
    return _same_version(record.target.version, record.environment.get("engine", ""))


def measured_networks(
    store: Store | PackLookup, target: Target, most: int = MOST_NETWORKS
) -> list[MeasuredNetwork]:
    """Whole networks of a target whose cells the store or pack can name, so many at ``most``."""
    records = filter(tells_latency, store.measurements(target, "network"))
    latest = {r.signature: r for r in records if not was_busy(r.environment)}
    chosen: list[tuple[Breakdown, float, bool]] = []
    breakdowns = store.breakdowns(target) if latest else ()
    # A network imported again has two: the older one does not tell what it copies.
    for breakdown in sorted(breakdowns, key=lambda b: "copied_bytes" not in b.labels):
        record_of = latest.pop(breakdown.signature, None)
        if record_of is not None and record_of.latency_us is not None and len(chosen) < most:
            chosen.append((breakdown, record_of.latency_us, record_of.launch == "graph"))
    texts = store.signature_texts({key for one, *_ in chosen for key, _ in one.cells})
    measured: list[MeasuredNetwork] = []
    for breakdown, latency_us, is_replayed in chosen:
        with suppress(KeyError):  # the store has lost a text
            measured.append(MeasuredNetwork.of(breakdown, texts, latency_us, is_replayed))
    return measured


def from_records(records: Iterable[Measurement]) -> WholeLatency | None:
    """What records of one network that count say together: those of a quiet machine, if any are."""
    ordered = sorted(records, key=lambda r: (r.measured_at, r.id))
    chosen = [r for r in ordered if not was_busy(r.environment)] or ordered
    if not chosen:
        return None
    load = busiest(r.environment for r in chosen)
    known = aggregate((r.latency_us, _noise(r), r.measured_at, r.failure) for r in chosen)
    if known.latency_us is None:
        return None
    day = chosen[-1].measured_at[:10]
    when = f"last on {day}" if day and len(chosen) > 1 else day
    when = when or f"from {chosen[-1].labels.get('source', 'an imported table')}"
    noise = max(known.spread_share, LEAST_NOISE_SHARE)
    basis = f"{_runs(len(chosen))}, {when}"
    return WholeLatency(known.latency_us, noise, load is None, basis, known.records, load)


def _runs(times: int) -> str:
    return "1 run" if times == 1 else f"{times} runs"


def _noise(record: Measurement) -> float:
    if record.spread_share > 0 or record.visits:
        return record.spread_share
    return UNSTATED_NOISE_SHARE


def _same_version(wanted: str, engine: str) -> bool:
    """Whether an engine's version, as an environment tells it, is that of a target.

    A target may state fewer parts of it, or none; an environment that names no version agrees.
    """
    stated = _VERSION.search(engine)
    if stated is None or not wanted or not wanted[0].isdigit():
        return True
    parts = wanted.split(".")
    return stated.group(1).split(".")[: len(parts)] == parts
