"""The probability that an estimate keeps a budget."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridlat.errors import InputError
from hybridlat.report.units import budget_text
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.structure import Memory
from tests.report.estimates import residual


@st.composite
def estimates(draw: st.DrawFn) -> Estimate:
    """Estimates with intervals at some confidences, the ends moved by what a device allows."""
    rising = sorted(draw(st.lists(st.floats(0.0, 3.0), min_size=3, max_size=3)))
    reach, lifted = rising[1], draw(st.floats(0.0, 1.0))
    low_us = 1e3 / (1 + reach) ** lifted
    return replace(
        residual(),
        latency_us=1e3,
        interval_us=(low_us, 1e3 * (1 + reach)),
        reaches=tuple(zip((0.5, 0.9, 0.99), rising, strict=True)),
    )


@given(estimates(), st.floats(1.0, 1e5), st.floats(1.0, 1e5))
def test_a_wider_budget_is_kept_more_probably_and_the_verdict_agrees(
    estimate: Estimate, one_us: float, other_us: float
) -> None:
    low, high = (estimate.against(us) for us in sorted((one_us, other_us)))
    assert low.probability_within is not None and high.probability_within is not None
    assert 0 <= low.probability_within <= high.probability_within <= 1
    for held in (low, high):
        tail = (1 - held.confidence) / 2 + 1e-9
        assert held.probability_within is not None
        assert held.verdict != "within" or held.probability_within >= 1 - tail
        assert held.verdict != "over" or held.probability_within <= tail


def test_images_a_second_count_the_batch() -> None:
    estimate = replace(residual(), batch=8)
    assert estimate.against(fps=400).max_latency_us == pytest.approx(20_000)
    assert estimate.to_json()["fps"] == pytest.approx(8e6 / 8123.4)
    assert estimate.verdict is None and estimate.probability_within is None


def test_nothing_is_known_of_what_has_no_upper_end() -> None:
    open_end = replace(residual(), interval_us=(500.0, math.inf))
    assert open_end.against(1e9).probability_within is None
    assert open_end.against(1e9).verdict == "unsure" and open_end.against(400.0).verdict == "over"
    assert open_end.to_json()["fps"] is None and open_end.throughput_interval_per_s == (0.0, 2000.0)


@pytest.mark.parametrize(
    ("source", "needed_bytes", "verdict"),
    [("composed", 9, "unsure"), ("composed", 8, "within"), ("measured", 9, "within")],
)
def test_what_a_device_cannot_hold_is_not_within(
    source: Any, needed_bytes: int, verdict: str
) -> None:
    memory = Memory(5, 4, (needed_bytes, 12), 8)
    held = replace(residual(), memory=memory, source=source).against(1e6)
    assert held.verdict == verdict and held.against(1.0).verdict == "over"
    assert budget_text(held).startswith("too large for the device") == (verdict == "unsure")


@given(estimates(), st.sampled_from([0.5, 0.9, 0.99]))
def test_a_grade_does_not_hang_on_the_confidence_that_is_shown(
    estimate: Estimate, confidence: float
) -> None:
    reach = dict(estimate.reaches)[confidence]
    ends_us = (1e3 / (1 + reach), 1e3 * (1 + reach))
    usual = 1 + dict(estimate.reaches)[0.9]
    even = replace(estimate, interval_us=(1e3 / usual, 1e3 * usual))
    assert replace(even, confidence=confidence, interval_us=ends_us).grade == even.grade


@pytest.mark.parametrize("budget", [{}, {"fps": 0.0}, {"max_latency_us": -1.0, "fps": 30.0}])
def test_a_budget_that_makes_no_sense_is_refused(budget: dict[str, float]) -> None:
    with pytest.raises(InputError, match="above 0"):
        residual().against(**budget)
