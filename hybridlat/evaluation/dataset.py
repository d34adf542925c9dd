"""All that is recorded of one target, in the form that training and judging work on."""

import dataclasses
import hashlib
import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from msgspec import structs

from hybridlat.errors import InputError
from hybridlat.estimate.compose.target_composition import PaceDrift, pace_drift_of
from hybridlat.estimate.lookup.models import model_folders, read_card
from hybridlat.estimate.lookup.target_data import RecordSource, signature_texts
from hybridlat.estimate.lookup.whole_networks import telling
from hybridlat.estimate.predict.source import measuring_cost_s
from hybridlat.graph.signature import read, sign_part
from hybridlat.model.family.shipped import family_heads
from hybridlat.schema.measurement import Kind, Measurement
from hybridlat.schema.target import Target
from hybridlat.store.records import aggregate, row_of

_EXPERIMENT = (
    "; a clone judges it with `python experiments/whole_networks.py --targets '^%s' --data DIR`, "
    "from the networks.parquet and nets.tar.gz that experiments/gpus.md describes"
)


class OnlyNetworks(InputError):
    """Whole networks of a target are recorded, and none of their cells."""


@dataclass(frozen=True, slots=True)
class MeasuredCell:
    """One cell or layer: its signature text, latency, noise, and what measuring it took."""

    text: str
    latency_us: float
    spread_share: float
    cost_s: float
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WholeNetwork:
    """A network measured whole. ``repeats_us`` are its records: what its noise is known from.

    Of several of one name, as at several batches, it is the first by its ``signature``.
    """

    name: str
    latency_us: float
    repeats_us: tuple[float, ...]
    cells: tuple[tuple[str, int], ...]
    layers: tuple[tuple[str, int], ...]
    signature: str


@dataclass(frozen=True)
class Dataset:
    """Everything of one target; ``data_hash`` names exactly this set of latencies.

    ``drift`` is that of the machine that measured, by all of the records.
    """

    target: Target
    cells: Mapping[str, MeasuredCell]
    layers: Mapping[str, MeasuredCell]
    networks: tuple[WholeNetwork, ...]
    drift: PaceDrift = field(default_factory=PaceDrift)

    @property
    def data_hash(self) -> str:
        """Hash of all that training sees, 16 hex digits."""
        body: list[object] = [str(self.target)]
        for parts in (self.cells, self.layers):
            body.append(sorted((h, one.latency_us, one.spread_share) for h, one in parts.items()))
        body.append(sorted((n.name, n.latency_us, n.cells, n.layers) for n in self.networks))
        return hashlib.sha256(json.dumps(body).encode()).hexdigest()[:16]

    @property
    def complete_networks(self) -> tuple[WholeNetwork, ...]:
        """Networks of which every cell is measured: those that can be judged."""
        return tuple(n for n in self.networks if all(h in self.cells for h, _ in n.cells))

    def only(self, names: Iterable[str]) -> "Dataset":
        """With the networks of these names alone; InputError where none of them was measured."""
        kept = set(names)
        chosen = tuple(n for n in self.networks if n.name in kept)
        if not chosen:
            known = ", ".join(sorted(n.name for n in self.networks)[:8]) or "none"
            raise InputError(
                f"none of the {len(kept)} networks was measured whole on {self.target}: "
                f"known are {known}"
            )
        return dataclasses.replace(self, networks=chosen)

    def groups(self) -> dict[str, str]:
        """The network that each cell was met in (the first by name); its own hash for the rest.

        Forms of one network are one.
        """
        groups = {h: without_form(cell.labels.get("network", h)) for h, cell in self.cells.items()}
        for network in sorted(self.networks, key=lambda n: n.name, reverse=True):
            name = without_form(network.name)
            groups.update((h, name) for h, _ in network.cells if h in groups)
        return groups

    def forbidden(self, networks: Iterable[WholeNetwork]) -> set[str]:
        """Hashes that a model must not have seen so that these networks are unseen.

        Their cells, each kernel of those, every cell that holds one, their layers, and what else
        was recorded in their name, of other forms of them too.
        """
        chosen = list(networks)
        names = {without_form(n.name) for n in chosen}
        cells = {h for n in chosen for h, _ in n.cells}
        kernels_of = {h: kernel_hashes(cell.text) for h, cell in self.cells.items()}
        kernels = set().union(*(kernels_of[h] for h in cells & self.cells.keys()))
        holding = {h for h, own in kernels_of.items() if not kernels.isdisjoint(own)}
        layers = {h for n in chosen for h, _ in n.layers}
        labels = ((h, cell.labels.get("network", "")) for h, cell in self.cells.items())
        of_name = {h for h, label in labels if without_form(label) in names}
        return cells | kernels | holding | layers | of_name


def without_form(name: str) -> str:
    """The network that a form ``NAME@FORM`` is of, as quantised in one way."""
    return name.partition("@")[0]


@lru_cache(maxsize=65_536)
def kernel_hashes(text: str) -> tuple[str, ...]:
    """Hashes of the single kernels of a cell's signature text."""
    network = read(text)
    return tuple(sign_part(network, (i,))[0].hash for i in range(len(network.nodes)))


def load(target: Target, sources: Sequence[RecordSource]) -> Dataset:
    """The records of ``target`` in all sources together, failures left out.

    Raises InputError where nothing is left, OnlyNetworks where networks are, and no cell.
    """
    grouped: dict[tuple[Kind, str], dict[str, Measurement]] = {}
    spent_s: dict[str, float] = {}

    def grouping() -> Iterator[Measurement]:
        """The records, each put into its group when it is read: the drift reads all samples."""
        for record in (each for source in sources for each in source.measurements(target)):
            if record.labels.get("role"):
                continue  # the protocol's own reference: neither learned from nor judged
            spent_s[record.id] = 1e-6 * sum(s for v in record.visits for s in v.samples_us)
            # The samples of all records together would take hundreds of megabytes.
            same = grouped.setdefault((record.kind, record.signature), {})
            same[record.id] = structs.replace(record, visits=())
            yield record

    drift = pace_drift_of(grouping())
    texts = signature_texts(sources, {h for kind, h in grouped if kind != "network"})
    measured: dict[str, dict[str, MeasuredCell]] = {"cell": {}, "layer": {}}
    for (kind, signature), records in sorted(grouped.items()):
        known = aggregate(map(row_of, records.values()))
        if kind != "network" and signature in texts and (us := known.latency_us) is not None:
            taken_s = [spent_s[i] for i, r in records.items() if r.latency_us is not None]
            cost_s = max(statistics.median(taken_s), measuring_cost_s(us))
            labels = min((r.labels for r in records.values()), key=lambda one: sorted(one.items()))
            cell = MeasuredCell(texts[signature], us, known.spread_share, cost_s, labels)
            measured[kind][signature] = cell
    breakdowns = {b.id: b for source in sources for b in source.breakdowns(target)}
    networks: dict[str, WholeNetwork] = {}
    measured_whole = (b for b in breakdowns.values() if ("network", b.signature) in grouped)
    for item in sorted(measured_whole, key=lambda b: (b.network, b.signature, b.id)):
        runs = telling(grouped["network", item.signature].values())
        us = aggregate(map(row_of, runs)).latency_us if runs else None
        if us is not None:
            parts = item.cells, item.layers, item.signature
            whole = WholeNetwork(item.network, us, repeats_us(runs), *parts)
            networks.setdefault(whole.name, whole)
    if not measured["cell"]:
        if networks:
            raise OnlyNetworks(
                f"of {target} only whole networks are recorded ({len(networks):,}), and none of "
                "their cells: there is nothing to learn from; measure networks there"
            )
        raise InputError(_what_is_missing(target))
    return Dataset(target, measured["cell"], measured["layer"], tuple(networks.values()), drift)


def _what_is_missing(target: Target) -> str:
    """Why there are no records: none were made, or a shipped model holds what it learned from."""
    rows = [read_card(folder).get("rows") for folder in model_folders(target)]
    inside = [(f"{n:,} cells", "") for n in rows if isinstance(n, int)]
    heads = (head for head in family_heads() if target in head.targets)
    inside += [(f"{h.networks(target):,} networks", _EXPERIMENT % target) for h in heads]
    if inside:
        count, experiment = inside[0]
        return (
            f"the {count} behind {target} are inside the shipped model; to judge it or to train on "
            f"them, import the table that they come from (docs/guides/importing){experiment}"
        )
    return (
        f"nothing measured on {target} is in the store: measure networks there, or import a table "
        "of their latencies (docs/guides/importing)"
    )


def repeats_us(records: Iterable[Measurement]) -> tuple[float, ...]:
    """The single latencies of one thing, in the order of measuring."""
    ordered = sorted(records, key=lambda r: (r.labels.get("repeat", ""), r.measured_at, r.id))
    return tuple(r.latency_us for r in ordered if r.latency_us is not None)
