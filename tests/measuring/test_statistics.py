"""The one analysis: what must hold for visits of any protocol."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from hybridlat.measuring import statistics
from hybridlat.measuring.statistics import combine, difference, flicker_share, record_of
from hybridlat.schema.measurement import BUSY_SPREAD_SHARE, MachineLoad, Measurement, Visit
from hybridlat.schema.target import Target
from hybridlat.store.records import aggregate

SUBJECT = Measurement(Target("fake", "fake-1.0", "fp32", 1), "0" * 32, "cell", None)

samples = st.lists(st.floats(1.0, 1e5), min_size=1, max_size=30)
visit = st.builds(Visit, samples.map(tuple), st.floats(0.5, 2.0), st.integers(0, 2))
visits = st.lists(visit, min_size=1, max_size=6)


@given(visits, st.floats(0.1, 10.0))
def test_a_slower_machine_of_known_drift_is_the_same(result: list[Visit], slowness: float) -> None:
    slower = [
        Visit(tuple(slowness * s for s in v.samples_us), slowness * v.drift, v.process)
        for v in result
    ]
    assert combine(slower).latency_us == pytest.approx(combine(result).latency_us)
    assert combine(slower).spread_share == pytest.approx(combine(result).spread_share, abs=1e-9)


@given(visits, st.floats(0.0, 100.0))
def test_overhead_and_predecessor_are_taken_off_alike(result: list[Visit], off_us: float) -> None:
    """What is taken off moves the latency, and leaves its error as it is."""
    plain = combine(result)
    steady = [Visit(tuple(s / v.drift for s in v.samples_us), 1.0, v.process) for v in result]
    paired = combine([Visit(difference(v.samples_us, [off_us]), 1.0, v.process) for v in steady])
    less = combine(steady, off_us)
    assert paired.latency_us == pytest.approx(less.latency_us, rel=1e-3, abs=2e-3)
    if less.latency_us > 1.0 and less.spread_share < 10 and plain.spread_share < 10:
        error_us = plain.spread_share * plain.latency_us
        assert less.spread_share * less.latency_us == pytest.approx(error_us, rel=1e-3, abs=1e-2)


@given(st.lists(st.floats(-5.0, 5.0), min_size=1, max_size=20))
def test_a_latency_is_never_below_the_floor_and_its_spread_is_finite(samples: list[float]) -> None:
    result = combine([Visit(tuple(samples)), Visit(tuple(reversed(samples)))])
    assert result.latency_us >= statistics.FLOOR_US
    assert 0 <= result.spread_share <= 10


def test_what_is_unsure_says_so() -> None:
    assert combine([Visit((100.0, 100.0))]).spread_share == statistics.SINGLE_VISIT_SPREAD
    # A difference of long samples is as noisy as they are, not as a twentieth of itself.
    noisy = combine([Visit(difference((1000.0, 1100.0, 1200.0), (995.0, 1095.0, 1195.0)))])
    assert noisy.spread_share > 1
    assert combine([Visit((1.0,)), Visit((-1.0,))]).below_noise
    assert not combine([Visit((100.0,)), Visit((101.0,))]).below_noise


def test_flicker_is_what_changes_from_visit_to_visit() -> None:
    slowly = [100.0 * 1.01**i for i in range(40)]
    flipping = [100.0 * (1.1 if i % 2 else 1.0) for i in range(40)]
    assert flicker_share([100.0]) == flicker_share([]) == 0.0
    assert flicker_share(slowly) < 0.02 < 0.08 < flicker_share(flipping)
    once = [Visit((100.0, 101.0, 100.0))]
    assert combine(once, 0.0, 0.1).spread_share == pytest.approx(0.115)
    # Two visits that agree by luck say little against that, twenty say much.
    often = [combine(once * count, 0.0, 0.1).spread_share for count in (2, 4, 20)]
    assert 0.05 < often[0] < 0.1 and often[2] < 0.01
    assert often == sorted(often, reverse=True)


@pytest.mark.parametrize("flicker", [0.0, 0.015, 0.05])
@pytest.mark.parametrize("processes", [(0, 0), (0, 1)])
def test_two_visits_that_agree_are_as_unsure_as_visits_are(
    flicker: float, processes: tuple[int, int]
) -> None:
    visits = [Visit((100.0,) * 5, 1.0, process) for process in processes]
    assert 0.005 < combine(visits, 0.0, flicker).spread_share < max(flicker, 0.01)


@pytest.mark.parametrize(("processes", "each"), [(1, 2), (2, 1), (1, 3), (3, 1), (2, 3), (2, 10)])
def test_the_stated_error_is_the_true_one(processes: int, each: int) -> None:
    """Of visits that flicker by 2 %, in 2000 draws."""
    levels = 100 * np.exp(np.random.default_rng(each).normal(0, 0.02, (2000, processes * each)))
    results = [
        combine([Visit((us,), 1.0, i // each) for i, us in enumerate(row)], 0.0, 0.02 / 1.15)
        for row in levels.tolist()
    ]
    error = np.std([np.log(result.latency_us / 100) for result in results])
    stated = np.sqrt(np.mean([result.spread_share**2 for result in results]))
    assert stated == pytest.approx(error, rel=0.1)


def test_the_usual_reference_is_a_quiet_one() -> None:
    assert statistics.usual_us([10.0, 10.0, 10.1, 15.0, 30.0]) == pytest.approx(10.0)
    assert statistics.usual_us([]) == 1.0


@pytest.mark.parametrize("count", [4, 6, 11, 120])
def test_the_level_is_the_same_quantile_of_few_samples_and_of_many(count: int) -> None:
    drawn = np.random.default_rng(count).random((3000, count))
    levels = [statistics.level_us(samples) for samples in drawn.tolist()]
    assert np.mean(levels) == pytest.approx(0.2, abs=0.01)


def test_a_process_far_from_the_others_makes_a_record_unsure_and_moves_it_little() -> None:
    def process(number: int, level_us: float) -> list[Visit]:
        return [Visit((level_us,) * 3, 1.0, number), Visit((1.01 * level_us,) * 3, 1.0, number)]

    two = [*process(0, 100.0), *process(1, 190.0)]
    three = [*process(0, 100.0), *process(1, 102.0), *process(2, 190.0)]
    assert combine(three).latency_us == pytest.approx(102.5, rel=0.01)
    assert min(combine(unsure).spread_share for unsure in (two, three)) > 0.15


def test_a_record_of_a_busy_machine_is_unsure_and_a_quiet_one_outweighs_it() -> None:
    visits = [Visit((100.0,) * 5, 1.0, process) for process in (0, 1)]
    busy, quiet = (
        record_of(structs.replace(SUBJECT, environment=load.environment()), visits)
        for load in (MachineLoad(9.7, 0.0, 2), MachineLoad(0.4, 0.0, 2))
    )
    assert busy.spread_share == BUSY_SPREAD_SHARE and quiet.spread_share < 0.01
    rows = [(190.0, busy.spread_share, "", None), (100.0, quiet.spread_share, "", None)]
    assert aggregate(rows).latency_us == 100.0 and aggregate(rows).records == 1
    assert aggregate(rows[:1]).latency_us == 190.0
