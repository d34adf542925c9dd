"""The experiment with a new machine, on a machine whose constant and scatter are known."""

from __future__ import annotations

import numpy as np
import pytest

from hybridlat.estimate.compose.posterior import CellPrior, ErrorPosterior
from hybridlat.schema.measurement import Measurement, Visit
from hybridlat.schema.target import Target
from tests.experiments.scripts import load

experiment = load("16_new_machine")
TARGET = Target.parse("fake/fake-1.0/fp32/1t")


def test_the_machines_constant_is_learned_and_the_interval_holds() -> None:
    rng = np.random.default_rng(3)
    networks = []
    for i in range(60):
        sum_us = float(np.exp(rng.normal(8, 1)))
        latency_us = 4.0 + 1.1 * sum_us * float(np.exp(rng.normal(0, 0.03)))
        pace = float(np.exp(rng.normal(0, 0.08)))
        visits = tuple(Visit((latency_us * pace,), pace, 0) for _ in range(3))
        at = f"2026-11-01T{i // 60 + 10}:{i % 60:02d}:00+00:00"
        record = Measurement(TARGET, "0" * 32, "network", latency_us, 0.0, visits, measured_at=at)
        assert experiment.met_us([record]) == pytest.approx((latency_us * pace,))
        cells = ErrorPosterior.start([CellPrior("a", 1, sum_us, 0.0, source="measured")])
        known = experiment.Known(f"{i}", latency_us, cells, (record,), experiment.met_us([record]))
        networks.append(known)
    rows = experiment.play(networks, 4.0, None, draws=12)
    assert [row.networks for row in rows] == [0, 1, 3, 10]
    first, last = rows[0], rows[-1]
    assert first.bias == pytest.approx(-9.0, abs=1.5) and abs(last.bias) < 1.5
    assert last.scale == pytest.approx(1.1, abs=0.015)
    assert last.rmspe < 4.0 < first.rmspe and last.half_width < first.half_width
    assert 80 <= last.coverage <= 99 and last.judged == 50
    # As met, the paces differ by 8 %: the interval knows it from the machine's own processes.
    assert last.wander == pytest.approx(8.0, abs=2.5)
    assert last.met_rmspe > 6 and 80 <= last.met_coverage <= 99
    assert "| 10 | 1.09" in experiment.table(TARGET, "nobody lends", rows)
