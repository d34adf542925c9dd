"""The law of an engine's family: kernels' latencies on devices without records of cells.

The law is of kernels; a cell is the sum of its own. Its errors are taken as shared within a
network: the interval of the network is the family's own, calibrated on networks that were held out.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hybridlat.estimate.compose.composition import CALIBRATED_AT
from hybridlat.estimate.lookup import whole_networks
from hybridlat.estimate.lookup.target_data import TargetData
from hybridlat.estimate.lookup.whole_networks import MeasuredNetwork, measured_networks
from hybridlat.estimate.predict import source
from hybridlat.estimate.predict.source import CellLatency, NetworkCells, NetworkLaw, Origin
from hybridlat.model.conformal import ELSEWHERE, USUAL, normal_quantile
from hybridlat.model.family import observations, shipped
from hybridlat.model.family.model import FamilyModel, NetworkPrediction, half_width
from hybridlat.model.family.observations import KernelSet, architecture_of, kernel_set
from hybridlat.model.family.physics import KernelTable, every_kernel
from hybridlat.model.family.tasks import Task, label_of
from hybridlat.model.model_files import reading
from hybridlat.schema.files import all_readable
from hybridlat.schema.names import engine_text
from hybridlat.schema.structure import OriginCode
from hybridlat.schema.target import STRICT, Device, Target
from hybridlat.schema.workers import steady_sums
from hybridlat.store.packs import packs_for

_STEADY = steady_sums(alone=True)  # for rankings, ratios and corrections too


@dataclass(frozen=True, eq=False)
class Family(source.CellSource):
    """A family's law applied to one target, conditioned on what was measured there.

    ``measured`` counts networks by where they were measured, in words. ``foreseen`` are predictions
    of networks, by their cells; see ``foresee``. ``is_replayed``: a CUDA graph launches kernels.
    """

    model: FamilyModel
    device: Device
    target: Target
    measured: Mapping[str, int] = field(default_factory=dict)
    foreseen: dict[object, NetworkPrediction] = field(default_factory=dict)
    is_replayed: bool = False

    @cached_property
    def task(self) -> Task:
        """What the family knows the target as."""
        target = self.target
        if target.precision == STRICT and STRICT not in self.device.peak_flops:
            target = replace(target, precision="fp32")  # there is no TF32 to switch off
        task = shipped.task_of(target, self.model.tasks, self.model.seen, self.device.architecture)
        return replace(task, graphs=task.graphs or self.is_replayed)

    def predict(self, cells: NetworkCells, positions: Sequence[int]) -> list[CellLatency | None]:
        law, reason = self.law(cells), self.origin.text.rstrip(".")
        return [CellLatency(law.cells_us[i], law.spread_share, reason) for i in positions]

    def law(self, cells: NetworkCells) -> NetworkLaw:
        return cells.law_of(self, self.network)

    @_STEADY
    def network(self, cells: NetworkCells) -> NetworkLaw:
        """The latencies of a network's cells, and its interval as the family states it."""
        table, cell = self.table(cells)
        if (one := self.foreseen.get((cells.signatures, cells.counts))) is None:
            kernels = kernel_set(table, self.device, self.target.precision)
            one = self.model.predict(kernels, self.task)
        reach = partial(half_width, self.model.calibration, one, self.task)
        count = len(cell)
        return NetworkLaw(
            np.bincount(cell, one.kernel_us[:count], len(cells.texts)).tolist(),
            float(one.kernel_us[count:].sum()),
            reach(USUAL) / normal_quantile(USUAL),
            reaches=tuple(map(reach, CALIBRATED_AT)),
            dispatch_us=observations.dispatch_us(table.classes, table.counts, self.task),
        )

    def table(self, cells: NetworkCells) -> tuple[KernelTable, NDArray[np.intp]]:
        """The kernels of a network's cells, and the cell of each."""
        copied_bytes = cells.read_copied_bytes() if self.task.copies else 0.0
        return every_kernel(cells.texts, cells.counts, copied_bytes)

    @_STEADY
    def ratio_log_sds(
        self, networks: "Sequence[tuple[Family, MeasuredNetwork]]", confidence: float
    ) -> list[float]:
        """Of networks, each under its law: the standard error of ln(latency in the first's)."""
        rows = [law.observed(one) for law, one in networks]
        answers = self.model.predict_all([row.kernels for row in rows], [row.task for row in rows])
        label, *others = {label_of(row.task) for row in rows}
        calibration, factor = self.model.calibration, 1.0
        if calibration is not None and not others:
            z = normal_quantile(confidence)
            factor = calibration.quantile(label, confidence, z) / z
        return [factor * float(sd) for sd in self.model.ratio_log_sds(rows, answers)[0]]

    @_STEADY
    def most_telling(self, networks: Sequence[MeasuredNetwork]) -> tuple[int, float]:
        """The position of the network that would tell most of the others, if measured.

        And the share (0..1) of the variance of their log-latencies that it would tell.
        """
        tasks = [self.task] * len(networks)
        each = self.model.predict_all([self._set(one) for one in networks], tasks)
        left = self.model.gp.covariance(np.stack([one.equation for one in each]), tasks)
        unsure = left.diagonal()
        noise = self.model.embedding.hyper.own_variance
        explained = (np.square(left).sum(axis=0) - unsure**2) / (unsure + noise)
        best = int(np.argmax(explained))
        return best, float(explained[best] / max(unsure.sum() - unsure[best], 1e-6))

    def observed(self, one: MeasuredNetwork) -> observations.Observation:
        name = architecture_of(one.name) or one.signature
        return observations.Observation(self._set(one), self.task, one.latency_us, name)

    def _set(self, one: MeasuredNetwork) -> KernelSet:
        table, _ = every_kernel(one.texts, one.counts, one.copied_bytes)
        return kernel_set(table, self.device, one.target.precision)

    @cached_property
    def origin(self) -> Origin:
        task, model, known = self.task, self.model, self.model.tasks
        title = (self.device.title or self.device.name).removeprefix("NVIDIA ")
        label = label_of(task)
        own_tasks = [t for t in known if label_of(t) == label]
        of_board = [t for t in known if t.board == task.board]
        of_device = [t for t in of_board if t.device == task.device] or of_board
        of_engine = [t for t in of_device if t.engine == task.engine]
        precisions, missing = sorted({t.precision for t in of_engine or of_device}), ""
        if task.precision not in precisions:
            missing = f" at {' and '.join(precisions)}, none known at {task.precision}"
        code: OriginCode = "device-unmeasured"
        if own_tasks:
            code = "public-timings"
            count = sum(int(model.seen[known.index(one)]) for one in own_tasks)
            text = f"learned from {count} public timings of this GPU"
            named = {engine_text(task.engine)} - {engine_text(task.runtime)}
            named |= {t.harness for t in own_tasks if t.harness}
            text += f" ({', '.join(sorted(named))})" if named else ""
        elif of_engine and of_engine[0].device != task.device:
            modes = " and ".join(sorted({t.device for t in of_engine}))
            code, text = "other-device", f"learned from this board in the power mode of {modes}"
            text += missing
        elif of_engine:
            code, text = "other-precision", f"learned from this GPU{missing}"
        elif of_device:
            engines = ", ".join(sorted({engine_text(t.engine) for t in of_device}))
            code, text = "other-version", f"learned from this GPU under {engines}{missing}"
            if task.engine != task.runtime and "measured on it" not in self.measured:  # a version
                text = f"no data for {engine_text(task.engine)}, {text}"
        else:
            text = "learned from other GPUs" + ("" if self.measured else f", no {title} measured")
        own = [f"{n} network{'' if n == 1 else 's'} {where}" for where, n in self.measured.items()]
        text = ", and ".join([text, *own])
        if self.target.precision not in ("fp32", STRICT, "amp", *self.device.peak_flops):
            text += f"; without a rate of its own at {task.precision}, that of FP32 counts"
        batches = model.batches.get(label.partition(" ")[0])
        if batches is None and model.batches:
            lows, highs = zip(*model.batches.values(), strict=True)
            batches = min(lows), max(highs)
        typical = None
        if model.calibration is not None:
            typical = model.calibration.half_width_share(label if own_tasks else ELSEWHERE)
        return Origin(code, f"{text[:1].upper()}{text[1:]}.", batches, typical)


def model_of(
    target: Target, device: Device | None, seen: list[str] | None = None
) -> FamilyModel | None:
    """The family's model for a target on that ``device``; what is damaged adds to ``seen``."""
    name = shipped.FAMILY_OF.get(target.engine)
    if name is None or device is None or device.kind != "gpu":
        return None

    def read(folder: Path) -> FamilyModel:
        model = shipped.load(folder)
        with reading(shipped.unreadable(folder)):
            task = shipped.task_of(target, model.tasks, model.seen)
            if (task := model.own_task(task)) in model.trees:
                model.trees[task].booster  # noqa: B018  reads it
        return model

    return next(all_readable(read, shipped.folders(name), seen), None)


@_STEADY
def foresee(networks: Sequence[tuple[Family, NetworkCells]]) -> None:
    """Predict networks, each in its cells under one law of a family, in one call for each model."""
    for model in {id(law.model): law.model for law, _ in networks}.values():
        pairs = [(law, cells) for law, cells in networks if law.model is model]
        sets = [
            kernel_set(law.table(cells)[0], law.device, law.target.precision)
            for law, cells in pairs
        ]
        answers = model.predict_all(sets, [law.task for law, _ in pairs])
        for (law, cells), one in zip(pairs, answers, strict=True):
            law.foreseen[cells.signatures, cells.counts] = one


@_STEADY
def family_of(
    model: FamilyModel, data: TargetData, device: Device, others: Sequence[Target]
) -> Family:
    """The law of a target's family, corrected by known networks of it and of ``others``."""
    known: list[MeasuredNetwork] = []
    for target in (data.target, *others):
        known += measured_networks(data.store, target)
        for pack in packs_for(target):
            known += measured_networks(pack, target)
    networks: dict[tuple[Target, str], MeasuredNetwork] = {}
    for one in (*data.user_networks.values(), *known):
        networks.setdefault((one.target, one.signature), one)
    law = Family(model, device, data.target, is_replayed=data.is_replayed)
    chosen = list(networks.values())[: whole_networks.MOST_NETWORKS]
    if not chosen:
        return law
    rows, counts = [], Counter[str]()
    for one in chosen:
        rows.append(replace(law, target=one.target, is_replayed=one.is_replayed).observed(one))
        at = "it" if one.target == data.target else one.target
        counts["whose latency was given" if one.by_user else f"measured on {at}"] += 1
    # Where all were replayed from a CUDA graph, so is what it answers for.
    is_replayed = data.is_replayed or all(one.is_replayed for one in chosen)
    return replace(law, model=model.condition(rows), measured=counts, is_replayed=is_replayed)
