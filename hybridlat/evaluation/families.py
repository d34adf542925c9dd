"""Whole networks of all targets of an engine family: what can be learned from sums alone.

Where others measured networks, their latencies and how each falls into cells are all there is. Such
a target is learned together with the targets of the store whose engines run much the same kernels.
"""

import hashlib
import json
import logging
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from hybridlat.engines import device_sheets
from hybridlat.errors import InputError, TargetError
from hybridlat.estimate.lookup.target_data import RecordSource, signature_texts
from hybridlat.estimate.lookup.whole_networks import rules_of
from hybridlat.evaluation.dataset import repeats_us
from hybridlat.graph.signature import read
from hybridlat.model.family.embedding import embedding_of
from hybridlat.model.family.fit import embedded, fit
from hybridlat.model.family.model import FamilyModel, NetworkPrediction
from hybridlat.model.family.observations import KernelSet, Observation, architecture_of, kernel_set
from hybridlat.model.family.physics import KernelTable, table_of_texts
from hybridlat.model.family.shipped import FAMILY_OF, copies_of
from hybridlat.model.family.tasks import Task
from hybridlat.model.geometry import Float32
from hybridlat.schema.measurement import Breakdown, Measurement
from hybridlat.schema.target import Device, Target
from hybridlat.store.records import aggregate, row_of

Parts = tuple[tuple[str, int], ...]
_Origin = tuple[Breakdown, list[Measurement]]  # a network as one origin gives it
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class MeasuredRow:
    """A network at one batch on one task: the median in us of all origins that measured it.

    ``repeats_us`` are the single figures; ``cells`` and ``layers`` (of the file, unfused; empty
    where they are not recorded) are signature texts with their counts; ``copied_bytes`` is what the
    network reads and gives out. A row that its origin calls suspect neither teaches nor counts.
    """

    target: Target
    task: Task
    network: str
    signature: str
    batch: int
    suspect: bool
    latency_us: float
    repeats_us: tuple[float, ...]
    cells: Parts
    layers: Parts
    copied_bytes: float

    @property
    def architecture(self) -> str:
        """What is held out together with it."""
        return architecture_of(self.network)

    @property
    def name(self) -> str:
        """The network, its batch and, where the target knows several, its layout."""
        return f"{self.network} batch {self.batch} {self.task.layout}".rstrip()

    def table(self, parts: Parts) -> KernelTable:
        texts, counts = zip(*parts, strict=True)
        return table_of_texts(texts, counts, self.copied_bytes)


def load_networks(target: Target, sources: Sequence[RecordSource]) -> list[MeasuredRow]:
    """The whole networks of ``target`` in all sources together, failures left out, by name.

    What each origin gives counts once. Of several partitions of one network that of the rules in
    force counts. A network without a partition, or with a cell whose text is missing, is left out
    and logged. InputError where nothing is left.
    """
    partitions = _partitions(target, sources)
    records = {r.id: r for source in sources for r in source.measurements(target, "network")}
    origins: dict[tuple[object, ...], list[Measurement]] = {}
    for record in records.values():
        origin = tuple(sorted((k, v) for k, v in record.labels.items() if k != "repeat"))
        facts = (record.launch, record.copies, record.suspect)
        if not record.labels.get("role"):
            origins.setdefault((record.signature, origin, facts), []).append(record)
    known: list[_Origin] = []
    for same in origins.values():
        named = partitions.get(same[0].signature, {})
        if named and any(one.latency_us is not None for one in same):
            first = next(iter(named.values()))
            known.append((named.get(same[0].labels.get("network", ""), first), same))
    texts = signature_texts(sources, {h for p, _ in known for h, _ in (*p.cells, *p.layers)})
    known = [one for one in known if all(h in texts for h, _ in one[0].cells)]
    if lost := len(origins) - len(known):
        why = "they failed, or have no partition"
        logger.warning("%d of %d networks of %s are left out: %s", lost, len(origins), target, why)
    if not known:
        raise InputError(
            f"no whole network of {target} is recorded with its cells: measure some, or import a "
            "table of them with their ONNX files"
        )
    known.sort(key=lambda one: (one[0].network, sorted(one[1][0].labels.items())))
    several = len({same[0].labels.get("layout", "") for _, same in known}) > 1
    groups: dict[tuple[Task, str, str, int, bool], list[_Origin]] = {}
    plain = Task(target.device, target.plain.runtime, target.precision, harness=target.harness)
    for partition, same in known:
        layout = same[0].labels.get("layout", "") if several else ""
        copies, graphs = copies_of(target, same[0].copies), same[0].launch == "graph"
        task = replace(plain, layout=layout, copies=copies, graphs=graphs)
        batch = _batch(partition, texts)
        key = (task, partition.network, partition.signature, batch, same[0].suspect)
        groups.setdefault(key, []).append((partition, same))
    rows = []
    for key, figures in groups.items():
        partition, of_origins = figures[0][0], [same for _, same in figures]
        known_us = [aggregate(map(row_of, same)).latency_us or 0.0 for same in of_origins]
        median_us = statistics.median(known_us)
        each_us = tuple(us for same in of_origins for us in repeats_us(same))
        is_layered = all(h in texts for h, _ in partition.layers)
        parts = (partition.cells, partition.layers if is_layered else ())
        cells, layers = (tuple((texts[h], count) for h, count in each) for each in parts)
        copied_bytes = float(partition.labels.get("copied_bytes", "0"))
        rows.append(MeasuredRow(target, *key, median_us, each_us, cells, layers, copied_bytes))
    return sorted(rows, key=_order)


def _order(row: MeasuredRow) -> tuple[str, Task, int, bool]:
    return row.network, row.task, row.batch, row.suspect


def _partitions(target: Target, sources: Sequence[RecordSource]) -> dict[str, dict[str, Breakdown]]:
    rules, by_hash = rules_of(target), dict[str, dict[str, Breakdown]]()
    items = [item for source in sources for item in source.breakdowns(target)]
    items.sort(key=lambda b: (b.labels.get("lowering") == rules, bool(b.layers), b.id))
    last = {item.signature: item for item in items}  # whatever each import called the network
    for item in items:
        named = structs.replace(last[item.signature], network=item.network)
        by_hash.setdefault(item.signature, {})[item.network] = named
    return by_hash


def _batch(partition: Breakdown, texts: Mapping[str, str]) -> int:
    stated = partition.labels.get("batch", "")
    if stated.isdigit():
        return int(stated)
    first = read(texts[partition.cells[0][0]]) if partition.cells else None
    shape = first.types[first.inputs[0]].shape if first is not None and first.inputs else ()
    return shape[0] if shape else 1


@dataclass(frozen=True)
class FamilyRecords:
    """The whole networks of an engine family's targets, and the devices that they ran on."""

    family: str
    rows: tuple[MeasuredRow, ...]
    devices: dict[str, Device]
    missing: tuple[str, ...] = ()

    @property
    def data_hash(self) -> str:
        """Names exactly this set of latencies, 16 hex digits."""
        body = [[str(r.task), r.network, r.signature, r.latency_us, r.suspect] for r in self.rows]
        return hashlib.sha256(json.dumps(body).encode()).hexdigest()[:16]

    @cached_property
    def counted(self) -> NDArray[np.bool_]:
        """Rows that are learned from and judged."""
        return np.array([not row.suspect for row in self.rows], np.bool_)

    @cached_property
    def observations(self) -> list[Observation]:
        """The rows as something to learn from; networks that see the same kernels share them."""
        sets: dict[tuple[object, ...], KernelSet] = {}
        observed = []
        for row in self.rows:
            key = (row.cells, row.copied_bytes, row.target.device, row.target.precision)
            if key not in sets:
                device = self.devices[row.target.device]
                sets[key] = kernel_set(row.table(row.cells), device, row.target.precision)
            facts = row.task, row.latency_us, row.architecture, 0.0 if row.suspect else 1.0
            observed.append(Observation(sets[key], *facts))
        return observed

    @cached_property
    def clouds(self) -> dict[int, Float32]:
        return embedded(self.observations, embedding_of(self.family))

    def learn(self, places: NDArray[np.bool_], *, with_trees: bool = True) -> FamilyModel:
        """The family's model, fitted to the rows at these places, of which some must count.

        ``with_trees`` is of no use where other tasks alone are predicted.
        """
        chosen = [self.observations[i] for i in np.flatnonzero(places & self.counted)]
        return fit(chosen, embedding_of(self.family), self.clouds, with_trees=with_trees)

    def predict(self, model: FamilyModel, places: Sequence[int]) -> list[NetworkPrediction]:
        rows = [self.observations[i] for i in places]
        points = [self.clouds[id(one.kernels)] for one in rows]
        return model.predict_all([one.kernels for one in rows], [one.task for one in rows], points)


def family_records(
    target: Target, kin: Iterable[Target], sources_of: Callable[[Target], Sequence[RecordSource]]
) -> FamilyRecords:
    """The whole networks of ``target`` and of those of ``kin`` that it shares its family with.

    Kin without a data sheet of its device, or without usable networks, is left out and named in
    ``missing``. InputError where the target itself has no networks, or no law to be judged by.
    """
    family = FAMILY_OF.get(target.engine)
    if family is None:
        raise InputError(
            f"of {target} only whole networks are recorded, and {target.engine} has no family "
            f"model: {', '.join(sorted(FAMILY_OF))} have one; measure cells"
        )
    rows: list[MeasuredRow] = []
    missing: list[str] = []
    devices: dict[str, Device] = {}
    for other in sorted({target, *(t for t in kin if FAMILY_OF.get(t.engine) == family)}):
        try:
            sheet = device_sheets.load(other.device).under(other.engine)
            if sheet.kind != "gpu":
                raise InputError(
                    f"of {other} only whole networks are recorded, and {other.device} is a CPU: "
                    "family models are of GPUs; measure cells"
                )
            devices[other.device] = sheet
            of = partial(replace, architecture=sheet.architecture)
            loaded = load_networks(other, sources_of(other))
            rows += [replace(row, task=of(row.task)) for row in loaded]
        except (InputError, TargetError) as error:
            if other == target:
                raise
            missing.append(f"{other} is left out: {error}")
    return FamilyRecords(family, tuple(sorted(rows, key=_order)), devices, tuple(missing))
