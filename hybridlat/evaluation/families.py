"""Whole networks of all targets of an engine family: what can be learned from sums alone.

Where others measured networks, their latencies and how each falls into cells are all there is. Such
a target is learned together with the targets of the store whose engines run much the same kernels.
"""

from __future__ import annotations

import hashlib
import json
import logging
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hybridlat.engines import device_sheets, registry
from hybridlat.errors import HybridlatError, InputError, TargetError
from hybridlat.evaluation.dataset import RecordSource, latency_of, signature_texts
from hybridlat.graph.signature_reading import read
from hybridlat.model.family.dataset import (
    KernelSet,
    Observation,
    SumData,
    Task,
    architecture_of,
    collect,
    kernel_set,
)
from hybridlat.model.family.kernels import KernelTable, table_of_texts
from hybridlat.model.family.law import embedded, fit
from hybridlat.model.family.served import FamilyModel, serve
from hybridlat.model.family.shipped import FAMILY_OF, copies_of, embedding_of, family_name
from hybridlat.schema.device import Device
from hybridlat.schema.measurement import Breakdown, Measurement, is_suspect
from hybridlat.schema.target import Target

Array = NDArray[np.float64]
Float32 = NDArray[np.float32]
Parts = tuple[tuple[str, int], ...]
_Origin = tuple[Breakdown, float, list[Measurement]]  # a network as one origin gives it, in us
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class MeasuredRow:
    """A network at one batch on one task: the median in us of all origins that measured it.

    ``repeats_us`` are the single figures; ``cells`` and ``layers`` (of the file, unfused; empty
    where they are not recorded) are signature texts with their counts; ``copied_bytes`` is what the
    network reads and gives out. A suspect row, out of line with its neighbours as its origin's note
    says, is neither learned from nor judged.
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
        """The kernels of its cells or layers."""
        texts, counts = zip(*parts, strict=True)
        return table_of_texts(texts, counts, self.copied_bytes)


def load_networks(target: Target, sources: Sequence[RecordSource]) -> list[MeasuredRow]:
    """The whole networks of ``target`` in all sources together, failures left out, by name.

    Of several partitions of one network that of the rules in force counts. A network without a
    partition, or with a cell whose text is missing, is left out and logged. InputError where
    nothing is left.
    """
    known, texts = _origins(target, sources)
    layouts = {same[0].labels.get("layout", "") for _, _, same in known}
    groups: dict[tuple[Task, str, str, int, bool], list[_Origin]] = {}
    for partition, latency_us, same in known:
        labels = same[0].labels
        layout = labels.get("layout", "") if len(layouts) > 1 else ""
        note = labels.get("note", "")
        copies = copies_of(target, note)
        task = Task(target.device, target.runtime, target.precision, layout, copies)
        batch = _batch(partition, texts)
        key = (task, partition.network, partition.signature, batch, is_suspect(note))
        groups.setdefault(key, []).append((partition, latency_us, same))
    rows = []
    for key, figures in groups.items():
        partition = figures[0][0]
        layers = tuple((texts[h], count) for h, count in partition.layers if h in texts)
        rows.append(
            MeasuredRow(
                target,
                *key,
                latency_us=statistics.median([us for _, us, _ in figures]),
                repeats_us=tuple(us for _, _, same in figures for us in _repeats_us(same)),
                cells=tuple((texts[h], count) for h, count in partition.cells),
                layers=layers if len(layers) == len(partition.layers) else (),
                copied_bytes=float(partition.labels.get("copied_bytes", "0")),
            )
        )
    return sorted(rows, key=_order)


def _origins(
    target: Target, sources: Sequence[RecordSource]
) -> tuple[list[_Origin], dict[str, str]]:
    """Every network as each of its origins gives it, by name, and the signature texts."""
    records = {
        record.id: record
        for source in sources
        for record in source.measurements(target, "network")
        if not record.labels.get("role")
    }
    partitions = _partitions(target, sources)
    origins: dict[tuple[object, ...], list[Measurement]] = {}
    for record in records.values():
        origin = tuple(sorted((k, v) for k, v in record.labels.items() if k != "repeat"))
        origins.setdefault((record.signature, origin), []).append(record)
    known: list[_Origin] = []
    for same in origins.values():
        named = partitions.get(same[0].signature, {})
        partition = named.get(same[0].labels.get("network", "")) or next(iter(named.values()), None)
        latency_us, _ = latency_of(same)
        if partition is not None and latency_us is not None:
            known.append((partition, latency_us, same))
    texts = signature_texts(sources, {h for p, _, _ in known for h, _ in (*p.cells, *p.layers)})
    known = [one for one in known if all(h in texts for h, _ in one[0].cells)]
    if len(known) < len(origins):
        logger.warning(
            "%d of %d networks of %s are left out: they failed, or have no partition",
            len(origins) - len(known), len(origins), target,
        )  # fmt: skip
    if not known:
        raise InputError(
            f"no whole network of {target} is recorded with its partition: import a table of them "
            "with their ONNX files, or measure some"
        )
    known.sort(key=lambda one: (one[0].network, sorted(one[2][0].labels.items())))
    return known, texts


def _order(row: MeasuredRow) -> tuple[str, Task, int, bool]:
    return row.network, row.task, row.batch, row.suspect


def _repeats_us(records: Sequence[Measurement]) -> list[float]:
    ordered = sorted(records, key=lambda r: (r.labels.get("repeat", ""), r.measured_at, r.id))
    return [r.latency_us for r in ordered if r.latency_us is not None]


def _partitions(target: Target, sources: Sequence[RecordSource]) -> dict[str, dict[str, Breakdown]]:
    """By the network's hash, then by its name: one partition each.

    Of the rules in force before others, with the file's layers before without.
    """
    try:
        rules = registry.lowering_identity(target)
    except HybridlatError:
        rules = ""  # an engine that is not known here; its partitions are still good
    items = {item.id: item for source in sources for item in source.breakdowns(target)}
    by_hash: dict[str, dict[str, Breakdown]] = {}
    for item in sorted(
        items.values(), key=lambda b: (b.labels.get("lowering") == rules, bool(b.layers), b.id)
    ):
        by_hash.setdefault(item.signature, {})[item.network] = item
    return by_hash


def _batch(partition: Breakdown, texts: Mapping[str, str]) -> int:
    """As stated, else what the first cell reads."""
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
    def data(self) -> SumData:
        """The rows as observations; networks that see the same kernels share them."""
        sets: dict[tuple[object, ...], KernelSet] = {}
        observed = []
        for row in self.rows:
            key = (row.cells, row.copied_bytes, row.target.device, row.target.precision)
            if key not in sets:
                device = self.devices[row.target.device]
                table = row.table(row.cells)
                sets[key] = kernel_set(table, device, row.target.precision)
            weight = 0.0 if row.suspect else 1.0
            observed.append(
                Observation(sets[key], row.task, row.latency_us, row.architecture, weight)
            )
        return collect(observed)

    @cached_property
    def clouds(self) -> list[Float32]:
        """The kernels of every set in the family's embedding."""
        return embedded(self.data, embedding_of(self.family))

    def kernels(self, row: int) -> KernelSet:
        """The kernels of a row."""
        return self.data.sets[int(self.data.of_set[row])]

    def points(self, row: int) -> Float32:
        """The kernels of a row in the family's embedding."""
        return self.clouds[int(self.data.of_set[row])]

    def learn(self, places: NDArray[np.bool_]) -> FamilyModel | None:
        """The family's model, fitted to the rows at these places; None where there are none."""
        chosen = np.flatnonzero(places & self.counted)
        if not len(chosen):
            return None
        return serve(fit(self.data.take(chosen), embedding_of(self.family), self.clouds))

    def predict(self, model: FamilyModel, places: Sequence[int]) -> tuple[Array, Array]:
        """(median latencies in us, standard deviations of their logarithms) of rows."""
        tasks = [self.rows[i].task for i in places]
        predictions = [
            model.equation(self.kernels(i), task, self.points(i))
            for i, task in zip(places, tasks, strict=True)
        ]
        equations = np.stack([equation for _, equation in predictions])
        return np.exp([logarithm for logarithm, _ in predictions]), model.spreads(equations, tasks)


def family_records(
    target: Target,
    kin: Iterable[Target],
    sources_of: Callable[[Target], Sequence[RecordSource]],
    device: Device | None = None,
) -> FamilyRecords:
    """The whole networks of ``target`` and of those of ``kin`` that it shares its family with.

    Kin without a data sheet of its device, or without usable networks, is left out and named in
    ``missing``; ``device`` overrides the sheet of the target's own. Raises InputError where the
    target itself has no law to be judged by, or no networks.
    """
    family = family_name(target.engine)
    if family is None:
        raise InputError(
            f"of {target} only whole networks are recorded, and {target.engine} has no family "
            f"model: {', '.join(sorted(FAMILY_OF))} have one; measure cells"
        )
    rows: list[MeasuredRow] = []
    missing: list[str] = []
    devices: dict[str, Device] = {}
    for other in sorted({target, *(t for t in kin if family_name(t.engine) == family)}):
        try:
            sheet = device if device is not None and other.device == device.name else None
            devices[other.device] = sheet or _gpu(other)
            rows += load_networks(other, sources_of(other))
        except (InputError, TargetError) as error:
            if other == target:
                raise
            missing.append(f"{other} is left out: {error}")
    return FamilyRecords(family, tuple(sorted(rows, key=_order)), devices, tuple(missing))


def _gpu(target: Target) -> Device:
    sheet = device_sheets.load(target.device)
    if sheet.kind != "gpu":
        raise InputError(
            f"of {target} only whole networks are recorded, and {target.device} is a CPU: family "
            "models are of GPUs; measure cells"
        )
    return sheet
