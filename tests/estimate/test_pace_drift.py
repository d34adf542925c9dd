"""How much a machine's own pace drifts, and what an answer says of it."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from hybridlat import predict
from hybridlat.estimate.compose.composition import Composition
from hybridlat.estimate.compose.posterior import CellPrior
from hybridlat.estimate.compose.target_composition import (
    LARGE_SHARE,
    PaceDrift,
    pace_drift,
    pace_drift_of,
)
from hybridlat.estimate.lookup.target_data import TargetData
from hybridlat.graph.signature import sign
from hybridlat.model.conformal import normal_quantile
from hybridlat.onnx_io import load, to_onnx
from hybridlat.schema.measurement import Kind, MachineLoad, Measurement, Visit
from hybridlat.store import Store
from tests.estimate.known import ends
from tests.estimate.test_whole_networks import TARGET as FAKE
from tests.networks import Builder


def run(minute: int, drifts: Sequence[float], signature: str = "0" * 32) -> Measurement:
    """A record of a run in which each process met the machine at that drift."""
    both, at = (0, 1), f"2026-11-01T10:{minute:02d}:30+00:00"
    visits = tuple(Visit((100.0 + i,), drift, n) for n, drift in enumerate(drifts) for i in both)
    return Measurement(FAKE, signature, "network", 100.0, 0.01, visits, measured_at=at)


def test_processes_are_told_apart_by_minute_and_number() -> None:
    drift = pace_drift_of([run(5, [1.1, 0.9]), run(1, [1.0])])
    assert drift.processes == 3 and drift.usual_pace == pytest.approx(1.0)
    assert pace_drift_of([Measurement(FAKE, "0" * 32, "cell", 5.0)]) == PaceDrift()


def test_medians_are_held_against_what_records_of_networks_say() -> None:
    def timed(median_us: float, kind: Kind = "network", drift: float = 1.0) -> Measurement:
        samples = tuple(drift * us for us in (100.0, 100.0, median_us, 150.0, 160.0))
        visits = (Visit(samples, drift),)
        return Measurement(FAKE, "0" * 32, kind, 100.0, 0.01, visits, measured_at="2026-11-01T10")

    assert pace_drift_of([timed(120.0, "cell")]).median_ratio == 1.0
    records = [timed(102.0), timed(103.0, drift=1.2), timed(130.0)]
    assert pace_drift_of(records).median_ratio == pytest.approx(1.03)
    assert pace_drift_of([timed(100.0)]).median_ratio == 1.0
    # A busy first visit: no quiet machine has medians so far above the levels.
    assert pace_drift_of([timed(129.0)]).median_ratio == 1.03
    load = MachineLoad(9.7, 0.0, 2).environment()
    assert pace_drift_of([replace(timed(102.0, drift=1.3), environment=load)]) == PaceDrift()
    twice = replace(timed(103.0), visits=timed(103.0, drift=1.1).visits * 2)
    assert pace_drift_of([twice]).shown_ratio == pytest.approx(1.03 * 1.1)


def test_the_share_is_how_far_processes_are_from_the_pace_told() -> None:
    def share_of(paces: Sequence[float]) -> float:
        return pace_drift_of(run(minute, [pace]) for minute, pace in enumerate(paces)).share

    paces = [math.exp(0.08 * (-1) ** i) for i in range(40)]
    assert share_of(paces) == pytest.approx(0.08, rel=0.05)
    assert share_of([1.005] * 20) < LARGE_SHARE
    # Two processes say little: what is usual counts as much.
    assert share_of(paces[:2]) < 0.06
    # One that was disturbed does not decide.
    assert share_of([*([1.01] * 30), 2.0]) < 0.02


def test_the_first_run_says_how_far_the_next_may_be() -> None:
    """A machine whose visits flicker will have processes that are apart, seen or not."""

    def first(flicker: float, apart: float) -> PaceDrift:
        visits = tuple(
            Visit((100.0 * drift * math.exp(apart * process),) * 3, drift, process)
            for process in (0, 1)
            for drift in (math.exp(-flicker), 1.0, 1.0, math.exp(flicker))
        )
        return pace_drift_of([replace(run(1, [1.0]), visits=visits)])

    steady, shared, moved = first(0.01, 0.0), first(0.05, 0.0), first(0.01, 0.06)
    assert steady.wander_share < 0.02 < shared.wander_share < 0.05
    assert moved.process_share > 2 * steady.process_share and moved.share == steady.share
    assert pace_drift_of([]) == PaceDrift()


def test_wandering_is_common_to_all_and_no_measuring_makes_it_less() -> None:
    priors = [CellPrior(f"{i}", 1, 10.0, 0.001, source="measured") for i in range(200)]
    moving = Composition(residual_share=0.02, wander_share=0.08, shown_ratio=1.03)
    state = moving.start(priors)
    interval = moving.interval(state)
    half = interval.half_width_share
    assert interval.latency_us == pytest.approx(1.03 * 2000.0)  # the median of runs is shown
    assert interval.interval_us[1] == pytest.approx(interval.latency_us * (1 + half))
    logs = normal_quantile(0.9) * math.hypot(0.02, 0.08)
    assert math.log1p(half) == pytest.approx(logs, rel=1e-3)
    whole = math.expm1(normal_quantile(0.9) * 0.08)
    assert moving.measured_half_width_share(0.0) == pytest.approx(whole)
    assert Composition.from_json(moving.to_json()) == moving


def test_an_answer_holds_the_wandering_and_says_so(tmp_path: Path) -> None:
    net = Builder("net")
    data = to_onnx(net.network(net.relu(net.conv(net.input((1, 3, 8, 8)), 4))), seed=1)
    hash_ = sign(load(data).network(None, None)).hash
    widths = []
    for scale in (0.001, 0.1):
        url = str(tmp_path / f"{scale}.db")
        with Store(url) as store:
            drifts = [math.exp(scale * (-1) ** j) for j in range(2)]
            store.add(run(i, drifts, hash_) for i in range(30))
            assert pace_drift(TargetData(FAKE, store)).processes >= 60
        estimate = predict(data, FAKE, store=url, measure="never")
        _, latency_us, high_us = ends(estimate)
        widths.append(high_us / latency_us)
        sentences = [w for w in map(str, estimate.warnings) if "pace varies" in w]
        assert len(sentences) == (1 if scale == 0.1 else 0)
    assert "±10 %" in sentences[0]
    assert widths[1] > widths[0] + 0.05
