"""Whole networks of one target with the texts of their cells: what can be learned from sums alone.

Unlike :func:`hybridlat.evaluation.dataset.load` this needs no measured cell: where others measured
networks, their latencies and how each falls into cells are all there is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hybridlat.engines import registry
from hybridlat.errors import HybridlatError, InputError
from hybridlat.evaluation.dataset import RecordSource
from hybridlat.graph.signature_reading import read
from hybridlat.schema.measurement import Breakdown, Measurement, is_suspect
from hybridlat.schema.target import Target
from hybridlat.store.latencies import aggregate

logger = logging.getLogger(__name__)
_ONE_RUN = frozenset({"repeat"})  # labels that tell repeats of one figure apart


@dataclass(frozen=True, slots=True)
class NetworkRecord:
    """A network at one batch as one origin gives it: several origins are several records.

    ``name`` groups what must be held out together (all batches of a network). ``latency_us`` is
    that of the whole batch, ``repeats_us`` the single figures behind it; ``cells`` and ``layers``
    (of the file, unfused; empty where nobody kept them) are signature texts with how often each
    occurs; ``copied_bytes`` is what the network reads and gives out. ``labels`` say where the
    figure is from (source, note, layout …). A note that begins with "suspect" marks one out of
    line with its neighbours.
    """

    name: str
    signature: str
    batch: int
    latency_us: float
    spread_share: float
    repeats_us: tuple[float, ...]
    cells: tuple[tuple[str, int], ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    layers: tuple[tuple[str, int], ...] = ()
    copied_bytes: float = 0.0

    @property
    def is_suspect(self) -> bool:
        """Whether its origin doubts it."""
        return is_suspect(self.labels.get("note", ""))


def load_networks(target: Target, sources: Sequence[RecordSource]) -> tuple[NetworkRecord, ...]:
    """The whole networks of ``target`` in all sources together, failures left out, by name.

    Of several partitions of one network that of the rules in force counts. A network without a
    partition, or with a cell whose text is not kept, is left out and logged. InputError where
    nothing is left.
    """
    records = {
        record.id: record
        for source in sources
        for record in source.measurements(target, "network")
        if not record.labels.get("role")
    }
    partitions = _partitions(target, sources)
    grouped: dict[tuple[object, ...], list[Measurement]] = {}
    for record in records.values():
        labels = {k: v for k, v in record.labels.items() if k not in _ONE_RUN}
        grouped.setdefault((record.signature, tuple(sorted(labels.items()))), []).append(record)
    chosen = [(p, same) for same in grouped.values() if (p := _of(same[0], partitions)) is not None]
    texts = _texts(sources, {h for p, _ in chosen for h, _ in (*p.cells, *p.layers)})
    networks = [_record(partition, same, texts) for partition, same in chosen]
    kept = [network for network in networks if network is not None]
    if len(kept) < len(grouped):
        logger.warning(
            "%d of %d networks of %s are left out: they failed, or have no partition",
            len(grouped) - len(kept), len(grouped), target,
        )  # fmt: skip
    if not kept:
        raise InputError(
            f"no whole network of {target} is recorded with its partition: import a table of them "
            "with their ONNX files, or measure some"
        )
    return tuple(sorted(kept, key=lambda n: (n.name, n.batch, sorted(n.labels.items()))))


def _partitions(target: Target, sources: Sequence[RecordSource]) -> dict[str, dict[str, Breakdown]]:
    """By the network's hash, then by its name: one partition each."""
    try:
        now = registry.lowering_identity(target)
    except HybridlatError:
        now = ""  # an engine that is not known here; its partitions are still good
    items = {item.id: item for source in sources for item in source.breakdowns(target)}
    by_hash: dict[str, dict[str, Breakdown]] = {}
    for item in sorted(items.values(), key=lambda b: _worth(b, now)):
        by_hash.setdefault(item.signature, {})[item.network] = item
    return by_hash


def _worth(item: Breakdown, rules: str) -> tuple[bool, bool, str]:
    """Of the rules in force before others, with the file's layers before without."""
    return item.labels.get("lowering") == rules, bool(item.layers), item.id


def _of(record: Measurement, partitions: Mapping[str, Mapping[str, Breakdown]]) -> Breakdown | None:
    named = partitions.get(record.signature, {})
    return named.get(record.labels.get("network", "")) or next(iter(named.values()), None)


def _record(
    partition: Breakdown, records: Sequence[Measurement], texts: Mapping[str, str]
) -> NetworkRecord | None:
    known = aggregate((r.latency_us, r.spread_share, r.measured_at, r.failure) for r in records)
    if known.latency_us is None or any(h not in texts for h, _ in partition.cells):
        return None
    cells = tuple((texts[h], count) for h, count in partition.cells)
    layers = tuple((texts[h], count) for h, count in partition.layers if h in texts)
    ordered = sorted(records, key=lambda r: (r.labels.get("repeat", ""), r.measured_at, r.id))
    return NetworkRecord(
        partition.network,
        partition.signature,
        _batch(partition, cells),
        known.latency_us,
        known.spread_share,
        tuple(r.latency_us for r in ordered if r.latency_us is not None),
        cells,
        records[0].labels,
        layers if len(layers) == len(partition.layers) else (),
        float(partition.labels.get("copied_bytes", "0")),
    )


def _batch(partition: Breakdown, cells: Sequence[tuple[str, int]]) -> int:
    stated = partition.labels.get("batch", "")
    if stated.isdigit():
        return int(stated)
    first = read(cells[0][0]) if cells else None
    shape = first.types[first.inputs[0]].shape if first is not None and first.inputs else ()
    return shape[0] if shape else 1


def _texts(sources: Sequence[RecordSource], hashes: Iterable[str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    missing = set(hashes)
    for source in sources:
        texts.update(source.signature_texts(missing - texts.keys()))
    return texts
