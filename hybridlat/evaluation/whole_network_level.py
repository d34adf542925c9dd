"""Whole networks of all targets of an engine family: what they are judged and learned from.

A target of which no cell is measured is learned together with its kin: the targets of the store
whose engines run much the same kernels. One fit serves all of them, so it is kept for the call.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hybridlat.engines import device_sheets
from hybridlat.errors import InputError, TargetError
from hybridlat.evaluation.dataset import RecordSource
from hybridlat.evaluation.network_records import NetworkRecord, load_networks
from hybridlat.model.family.architectures import architecture_of
from hybridlat.model.family.dataset import KernelSet, Observation, SumData, collect, kernel_set
from hybridlat.model.family.kernels import table_of_texts
from hybridlat.model.family.posterior import embedded, fit
from hybridlat.model.family.served import FamilyModel, serve
from hybridlat.model.family.shipped import FAMILY_OF, copies_of, embedding_of, family_name
from hybridlat.model.family.tasks import Task
from hybridlat.schema.device import Device
from hybridlat.schema.target import Target

Array = NDArray[np.float64]
Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class MeasuredRow:
    """A network at one batch on one task. ``latency_us`` is the median of all that measured it.

    ``repeats_us`` are the single figures, of one table or of several. A suspect row is neither
    learned from nor judged.
    """

    target: Target
    task: Task
    record: NetworkRecord
    latency_us: float
    repeats_us: tuple[float, ...]
    suspect: bool

    @property
    def architecture(self) -> str:
        """What is held out together with it."""
        return architecture_of(self.record.name)

    @property
    def name(self) -> str:
        """The network, its batch and, where the target knows several, its layout."""
        layout = f" {self.task.layout}" if self.task.layout else ""
        return f"{self.record.name} batch {self.record.batch}{layout}"


def rows_of(target: Target, records: Sequence[NetworkRecord]) -> list[MeasuredRow]:
    """Records as rows: figures of one network at one batch are one row, their median, by name."""
    layouts = {r.labels.get("layout", "") for r in records}
    groups: dict[tuple[str, str, int, Task, bool], list[NetworkRecord]] = {}
    for record in records:
        layout = record.labels.get("layout", "") if len(layouts) > 1 else ""
        copies = copies_of(target, record.labels.get("note", ""))
        task = Task(target.device, target.runtime, target.precision, layout, copies)
        key = (record.name, record.signature, record.batch, task, record.is_suspect)
        groups.setdefault(key, []).append(record)
    rows = []
    for (_, _, _, task, suspect), same in groups.items():
        repeats = tuple(us for record in same for us in (record.repeats_us or (record.latency_us,)))
        middle = statistics.median([record.latency_us for record in same])
        rows.append(MeasuredRow(target, task, same[0], middle, repeats, suspect))
    return sorted(rows, key=lambda r: (r.record.name, r.task, r.record.batch, r.suspect))


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
        body = [
            [str(r.task), r.record.name, r.record.signature, r.latency_us, r.suspect]
            for r in self.rows
        ]
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
            record = row.record
            key = (record.cells, record.copied_bytes, row.target.device, row.target.precision)
            kernels = sets.get(key)
            if kernels is None:
                texts, counts = zip(*record.cells, strict=True)
                table = table_of_texts(texts, counts, record.copied_bytes)
                device = self.devices[row.target.device]
                kernels = sets[key] = kernel_set(table, device, row.target.precision)
            weight = 0.0 if row.suspect else 1.0
            observed.append(
                Observation(kernels, row.task, row.latency_us, row.architecture, weight)
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
        """The family's law as the rows at these places tell it; None where there are none."""
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

    Kin whose device nobody has described, or without networks that can be used, are left out and
    named in ``missing``; ``device`` overrides the sheet of the target's own. Raises InputError
    where the target itself has no law to be judged by, or no networks.
    """
    family = family_name(target.engine)
    if family is None:
        raise InputError(
            f"of {target} only whole networks are recorded, and no law tells kernels from "
            f"networks for {target.engine}: there is one for {', '.join(sorted(FAMILY_OF))}; "
            "measure cells"
        )
    rows: list[MeasuredRow] = []
    missing: list[str] = []
    devices: dict[str, Device] = {}
    for other in sorted({target, *(t for t in kin if family_name(t.engine) == family)}):
        try:
            sheet = device if device is not None and other.device == device.name else None
            devices[other.device] = sheet or _gpu(other)
            rows += rows_of(other, load_networks(other, sources_of(other)))
        except (InputError, TargetError) as error:
            if other == target:
                raise
            missing.append(f"{other} teaches nothing: {error}")
    ordered = sorted(rows, key=lambda r: (r.record.name, r.task, r.record.batch, r.suspect))
    return FamilyRecords(family, tuple(ordered), devices, tuple(missing))


def _gpu(target: Target) -> Device:
    sheet = device_sheets.load(target.device)
    if sheet.kind != "gpu":
        raise InputError(
            f"of {target} only whole networks are recorded, and {target.device} is a CPU: the law "
            "that tells kernels from networks is of GPUs; measure cells"
        )
    return sheet


@dataclass
class Families:
    """The families that were asked for in one call, each read and fitted once."""

    kin: Sequence[Target]
    sources_of: Callable[[Target], Sequence[RecordSource]]
    device: Device | None = None
    _found: dict[str, FamilyRecords] = field(default_factory=dict)

    def of(self, target: Target) -> FamilyRecords:
        """The family of a target, with its rows; InputError as ``family_records``."""
        family = family_name(target.engine) or ""
        known = self._found.get(family)
        if known is None or not any(row.target == target for row in known.rows):
            known = family_records(target, self.kin, self.sources_of, self.device)
            self._found[family] = known
        return known
