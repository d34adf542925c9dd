"""What a family of targets says of a network whose cells nobody has measured on this target.

The family's law is of kernels; a cell is the sum of its own. What the law gets wrong it gets wrong
for all kernels of a network alike, so the errors of the cells are taken as shared: the width of the
network's interval is the family's own, calibrated on networks that were held out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from hybridlat.estimate.composition import Composition, normal_quantile
from hybridlat.estimate.posterior import Correlation
from hybridlat.model.family.adapt import AdaptedTask, adapt
from hybridlat.model.family.dataset import KernelSet, kernel_set, task_base
from hybridlat.model.family.kernels import COPY, HOST, KernelTable, class_of
from hybridlat.model.family.posterior import LOWEST, log_sum
from hybridlat.model.family.served import FamilyModel, relative_point
from hybridlat.model.family.shipped import label_of, task_of
from hybridlat.model.family.tasks import Task
from hybridlat.model.geometry import COLUMN, geometry
from hybridlat.schema.device import Device
from hybridlat.schema.target import Target

SHARED = 0.95
"""Part of a cell's error variance that it shares with all other cells of its network."""
_FIRST_GUESS_SPREAD = 0.5  # of ln(latency) where no held-out error has calibrated a family


@dataclass(frozen=True)
class MeasuredNetwork:
    """A whole network that was measured: its cells' texts, their counts, its time.

    ``target`` is where, None for the target that is asked about.
    """

    texts: tuple[str, ...]
    counts: tuple[int, ...]
    copied_bytes: float
    latency_us: float
    target: Target | None = None


@dataclass(frozen=True)
class FamilyAnswer:
    """What a family says of one network.

    ``cells_us`` are the cells' latencies in the order given; ``beside_us`` is what the run costs
    beside its kernels; ``half_width`` half the width of the interval of ln(latency) at
    ``confidence``; ``kin`` says whose measurements it rests on.
    """

    cells_us: Sequence[float]
    beside_us: float
    half_width: float
    confidence: float
    kin: str

    @property
    def spread_share(self) -> float:
        """Standard error of ln(latency)."""
        return self.half_width / normal_quantile(self.confidence)

    def composition(self) -> Composition:
        """Constants and width by which the cells make the network."""
        return Composition(
            overhead_us=self.beside_us,
            confidence=self.confidence,
            residual_share=self.spread_share * (1 - SHARED) ** 0.5,
            correlation=Correlation(network=SHARED, kind=0.0, near=0.0),
        )


@dataclass(frozen=True)
class FamilyPrior:
    """A family's law applied to one target, conditioned on what was measured there.

    ``measured`` counts networks by where they were measured: empty for the target itself, else the
    name of another version or precision of it.
    """

    model: FamilyModel
    device: Device
    precision: str
    task: Task
    adapted: AdaptedTask | None = field(default=None)
    measured: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        model: FamilyModel,
        device: Device,
        precision: str,
        task: Task,
        measured: Sequence[MeasuredNetwork] = (),
    ) -> FamilyPrior:
        """The law for a target, corrected by networks measured on it or on its other versions."""
        plain = cls(model, device, precision, task)
        if not measured:
            return plain
        rows, tasks = [], []
        for one in measured:
            target = one.target
            there = plain if target is None else replace(plain, precision=target.precision)
            kernels, _ = there._set(one.texts, one.counts, one.copied_bytes)
            rows.append((kernels, one.latency_us))
            tasks.append(task if target is None else task_of(target, model))
        counts = Counter("" if one.target is None else str(one.target) for one in measured)
        return replace(plain, adapted=adapt(model, task, rows, tasks), measured=counts)

    def predict(
        self, texts: Sequence[str], counts: Sequence[int], copied_bytes: float, confidence: float
    ) -> FamilyAnswer:
        """What is said of a network of these cells, each ``counts`` times."""
        kernels, cell = self._set(texts, counts, copied_bytes)
        base = task_base(kernels, self.task)
        points = self.model.embedding(kernels.descriptors, kernels.classes)
        weights = self.adapted.coefficients if self.adapted else self.model.coefficients(self.task)
        ratios = (points @ weights).astype(np.float64)
        highest = self.model.embedding.hyper.highest
        each = base * np.exp(np.clip(ratios, LOWEST, highest))
        if self.adapted is not None:
            _, spread = self.adapted.log_latency(kernels)
        else:
            _, share = log_sum(kernels, base, ratios, highest)
            equation = share.astype(np.float32) @ points
            spread = float(self.model.spreads(equation[None], [self.task])[0])
        # The point errs least relatively where a task's own networks tell its spread; see
        # relative_point. The interval stays around the median.
        seen = self.model.seen_of(self.task) if self.adapted is None else 0
        factor = float(relative_point(np.array([spread]), seen)[0])
        each = each * factor
        beside = np.isin(kernels.classes, (HOST, COPY))
        return FamilyAnswer(
            np.bincount(cell, each[: len(cell)], len(texts)).tolist(),
            float(each[beside].sum()),
            float(self._half_width(spread, confidence) - math.log(factor)),
            confidence,
            self._kin(),
        )

    def _set(
        self, texts: Sequence[str], counts: Sequence[int], copied_bytes: float
    ) -> tuple[KernelSet, NDArray[np.intp]]:
        """The kernels of the cells, and the cell of each."""
        cells = geometry(texts)
        values = cells.values.copy()
        classes = class_of(cells)
        values[:, COLUMN["op"]] = 0.0
        each = np.asarray(counts, np.float64)[cells.cell]
        table = KernelTable(values, classes, each, copied_bytes)
        return kernel_set(table, self.device, self.precision), cells.cell

    def _half_width(self, spread: float, confidence: float) -> float:
        calibration = self.model.calibration
        if calibration is None:
            return normal_quantile(confidence) * float(np.hypot(spread, _FIRST_GUESS_SPREAD))
        return calibration.half_width(spread, label_of(self.task), confidence)

    def _kin(self) -> str:
        """Whose measurements the answer rests on, nearest first."""
        task, known = self.task, self.model.tasks
        told = [
            f"{count} network{'' if count == 1 else 's'} measured on {name or 'it'}"
            for name, count in sorted(self.measured.items())
        ]
        own = "".join(f"{one} and " for one in told)
        if task in known:
            return f"{own}whole networks that others measured on it"
        if any(t.device == task.device and t.engine == task.engine for t in known):
            return f"{own}this device and engine at another precision"
        if any(t.device == task.device for t in known):
            return f"{own}this device under other engines or versions of the family"
        return f"{own}other devices of the family, by this one's data sheet"
