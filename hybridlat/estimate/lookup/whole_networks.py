"""Records of whole networks: what they say of a network, and which networks are on record."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from hybridlat.engines import registry
from hybridlat.errors import HybridlatError
from hybridlat.model.family.shipped import timed_as
from hybridlat.schema.measurement import Breakdown, MachineLoad, Measurement, busiest, was_busy
from hybridlat.schema.shown import count_text
from hybridlat.schema.target import Target
from hybridlat.store import Store
from hybridlat.store.packs import PackLookup
from hybridlat.store.records import aggregate

LEAST_NOISE_SHARE = 0.01
"""By how much a network differs when it is measured again: 1.6 % over 114 of the CPU pack."""
_MOST_NOISE_SHARE = 2.0  # of records that contradict each other
UNSTATED_NOISE_SHARE = 0.05
"""Of a latency that comes without samples."""
_VERSION = re.compile(r"(\d+(?:\.\d+)*)\S*\s*$")
MOST_NETWORKS = 300
"""Measured networks that others are predicted by: more cost seconds and add little."""


@dataclass(frozen=True, slots=True)
class WholeLatency:
    """A network as it was measured whole, so many ``times``.

    ``noise_share`` is the relative standard error of ``latency_us``. It answers for the network if
    it ``is_exact``, else it is evidence; ``basis`` says in words what it rests on, ``load`` how
    busy the machine was.
    """

    latency_us: float
    noise_share: float
    is_exact: bool
    basis: str
    times: int = 1
    load: MachineLoad | None = None

    @property
    def is_contradictory(self) -> bool:
        """Whether its records contradict each other: two that differ twofold do."""
        return self.load is None and self.times > 1 and self.noise_share > 1 / 3


@dataclass(frozen=True)
class MeasuredNetwork:
    """A whole network that was measured, with the signature texts and counts of its cells.

    ``signature`` is its hash, ``cells`` are those of its cells.
    ``by_user``: the user gave the latency. ``is_replayed``: a CUDA graph launched its kernels.
    """

    target: Target
    texts: tuple[str, ...]
    counts: tuple[int, ...]
    copied_bytes: float
    latency_us: float
    signature: str
    name: str = ""
    by_user: bool = False
    cells: tuple[str, ...] = ()
    is_replayed: bool = False

    @classmethod
    def of(
        cls, breakdown: Breakdown, texts: Mapping[str, str], us: float, is_replayed: bool = False
    ) -> "MeasuredNetwork":
        """The network of a breakdown; KeyError where the text of a cell is missing."""
        cells = tuple([signature for signature, _ in breakdown.cells])
        return cls(
            breakdown.target,
            tuple([texts[signature] for signature in cells]),
            tuple([count for _, count in breakdown.cells]),
            float(breakdown.labels.get("copied_bytes", "0")),
            us,
            breakdown.signature,
            breakdown.network,
            cells=cells,
            is_replayed=is_replayed,
        )


def whole_latency(
    target: Target, signature: str, store: Store, packs: Sequence[PackLookup]
) -> WholeLatency | None:
    """What is recorded of a network; None without a record that ``tells_latency``."""
    own = from_records(store.measurements(target, "network", signature))
    if own is not None and own.load is None:
        return own
    for pack in packs:
        stats = pack.latencies(target, [signature], "network").get(signature)
        if stats is not None and stats.latency_us is not None:
            noise = max(stats.spread_share, LEAST_NOISE_SHARE)
            basis = f"{count_text(stats.records, 'run')}, shipped data"
            return WholeLatency(stats.latency_us, noise, True, basis, stats.records)
    return own


def tells_latency(record: Measurement) -> bool:
    """Whether a record of a whole network tells its latency on its target.

    A target may state fewer parts of the engine's version than the record's environment, or none.
    """
    if record.latency_us is None or record.suspect:
        return False
    measured = _VERSION.search(record.environment.get("engine", ""))
    stated = record.target.version
    if measured is None or not stated[:1].isdigit():
        return True
    parts = stated.split(".")
    return measured[1].split(".")[: len(parts)] == parts


def measured_networks(
    store: Store | PackLookup, target: Target, most: int = MOST_NETWORKS
) -> list[MeasuredNetwork]:
    """At most so many whole networks of a target whose cells the store or pack can name."""
    records_of: dict[str, list[Measurement]] = {}
    for one in filter(tells_latency, store.measurements(target, "network")):
        records_of.setdefault(one.signature, []).append(one)
    chosen: list[tuple[Breakdown, float, bool]] = []
    breakdowns, rules = store.breakdowns(target) if records_of else (), rules_of(target)
    # A network imported again has two: the older one may hold cells of another release's rules.
    for breakdown in sorted(breakdowns, key=lambda b: b.labels.get("lowering") != rules):
        records = records_of.pop(breakdown.signature, [])
        replayed = [r for r in records if r.launch == "graph"]
        whole = from_records(replayed or records)
        if whole and whole.is_exact and not whole.is_contradictory and len(chosen) < most:
            chosen.append((breakdown, whole.latency_us, bool(replayed)))
    texts = store.signature_texts({key for one, *_ in chosen for key, _ in one.cells})
    known = [one for one in chosen if all(key in texts for key, _ in one[0].cells)]
    return [MeasuredNetwork.of(one, texts, us, is_replayed) for one, us, is_replayed in known]


def rules_of(target: Target) -> str:
    """How the target's networks fall into cells today; empty for an engine that is not known."""
    with suppress(HybridlatError):
        return registry.lowering_identity(timed_as(target))
    return ""


def telling(records: Iterable[Measurement]) -> list[Measurement]:
    """Those that say a network's latency: of a quiet machine, if there are any, timed one way."""
    ordered = sorted(filter(tells_latency, records), key=lambda r: (r.measured_at, r.id))
    chosen = [r for r in ordered if not was_busy(r.environment)] or ordered
    ways = Counter(map(_way, chosen))
    usual = min(ways, key=lambda way: (way[:2], -ways[way], not way[2]), default=None)
    return [r for r in chosen if _way(r) == usual]


def from_records(records: Iterable[Measurement]) -> WholeLatency | None:
    """What records of one network say together; None without any that is ``telling``."""
    if not (chosen := telling(records)):
        return None
    load = busiest(r.environment for r in chosen)
    known = aggregate((r.latency_us, _noise(r), r.measured_at, r.failure) for r in chosen)
    if known.latency_us is None:
        return None
    day = chosen[-1].measured_at[:10]
    when = f"last on {day}" if day and len(chosen) > 1 else day
    kind = "log" if "trtexec" in chosen[-1].protocol else "table"
    source = chosen[-1].labels.get("source", "" if chosen[-1].visits else f"an imported {kind}")
    when = when or (f"from {source}" if source else "without a date")
    noise = min(max(known.spread_share, LEAST_NOISE_SHARE), _MOST_NOISE_SHARE)
    basis = ", ".join((count_text(len(chosen), "run"), when, *filter(None, _way(chosen[0]))))
    return WholeLatency(known.latency_us, noise, load is None, basis, known.records, load)


def _way(record: Measurement) -> tuple[str, str, str]:
    """How a network was timed, in words, without any for the plain way."""
    graph = "replayed as a CUDA graph" * (record.launch == "graph")
    return "with host copies" * bool(record.copies), record.labels.get("layout", ""), graph


def _noise(record: Measurement) -> float:
    return record.spread_share if record.spread_share > 0 or record.visits else UNSTATED_NOISE_SHARE
