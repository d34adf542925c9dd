"""What is thought of cells while a machine is learned: a quick stand-in for the model to come."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from hybridlat.measuring.schedule import MeasurementConfig
from hybridlat.model.cell_model import CellModel
from hybridlat.model.doubt import Doubt
from hybridlat.model.geometry import geometry, problem_of
from hybridlat.schema.device import Device
from hybridlat.training.curriculum import Ground, Outline
from hybridlat.training.lessons import NetworkLesson
from hybridlat.training.transfer import start_us
from hybridlat.training.visit_costs import cell_visit_s, network_visits_s

_MOST_LOG = 3.0


@dataclass
class Guesses:
    """Latencies of all cells heard of, from the kin's model and what was measured since.

    ``factor`` is how much larger errors turned out than the doubt that was stated before.
    """

    ground: Ground
    kin: CellModel | None
    device: Device
    precision: str
    started_us: dict[str, float] = field(default_factory=dict)
    said_us: dict[str, float] = field(default_factory=dict)
    factor: float = 1.0
    _texts: dict[str, str] = field(default_factory=dict)
    _visit_s: dict[str, float] = field(default_factory=dict)
    _stated: dict[str, float] = field(default_factory=dict)
    _judged: set[str] = field(default_factory=set)

    def learn_of(self, texts: Mapping[str, str]) -> None:
        """Hear of cells (hash → signature text); what cannot be read is passed over."""
        new = {h: t for h, t in texts.items() if h not in self._texts and not problem_of(t)}
        if not new:
            return
        self._texts.update(new)
        self.ground.learn_of(new)
        started = start_us(list(new.values()), self.kin, self.device, self.precision)
        self.started_us.update(zip(new, started.tolist(), strict=True))

    def fit(self, known: Mapping[str, tuple[float, float]]) -> None:
        """Say all cells anew from what is known: hash → (latency in µs, noise share)."""
        hashes = list(self._texts)
        log_us = np.log([self.started_us[h] for h in hashes])
        taught = [h for h in known if h in self._texts]
        noise = np.array([known[h][1] for h in taught])
        points = self.ground.of(taught)
        doubt = Doubt.after(points, noise)
        if taught:
            values = np.log([known[h][0] / self.started_us[h] for h in taught])
            level = float(np.median(values))
            values = np.clip(values - level, -_MOST_LOG, _MOST_LOG)
            log_us = (
                log_us
                + level
                + self.ground.of(hashes).vectors @ doubt.lesson(points, noise, values)
            )
        self.said_us = dict(zip(hashes, np.exp(log_us).tolist(), strict=True))
        stated = doubt.spread_shares(self.ground.of(hashes))
        self._stated = dict(zip(hashes, stated.tolist(), strict=True))
        self._judged = set(taught)
        cells = geometry([self._texts[h] for h in hashes])
        costs = cell_visit_s(cells, np.exp(log_us))
        self._visit_s = dict(zip(hashes, costs.tolist(), strict=True))

    def compare(self, measured_us: Mapping[str, float]) -> None:
        """Hold what was said against what was measured since: that is how honest the doubt is."""
        fresh = [h for h in measured_us if h in self.said_us and h not in self._judged]
        if len(fresh) < 5:
            return
        missed = np.log([measured_us[h] / self.said_us[h] for h in fresh])
        stated = np.array([self._stated[h] for h in fresh])
        # The middle of the errors: a few cells that are far off say little about the others.
        now = float(np.median(np.abs(missed) / stated)) / 0.6745
        self.factor = math.sqrt(self.factor * max(now, 0.05))

    def honest(self, expected_share: float) -> float:
        """An error stated by the doubt, as errors have turned out so far."""
        return self.factor * expected_share

    def costs_s(self, pace: float) -> dict[str, float]:
        """Seconds of one visit of each cell, at the machine's pace (1: as foretold)."""
        return {h: pace * s for h, s in self._visit_s.items()}

    def outline(self, lesson: NetworkLesson, settings: MeasurementConfig, pace: float) -> Outline:
        """A network with what measuring it whole is thought to take."""
        spent_us = [use.count * self.said_us[use.signature] for use in lesson.partition.uses]
        latency_us = math.fsum(spent_us)
        whole_s = network_visits_s(lesson.network.weight_bytes, latency_us, settings)
        return Outline(lesson.name, lesson.cells, pace * whole_s)
