"""What measurements leave unknown: less with each, least near them; choosing beats chance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridlat.graph.signature import sign
from hybridlat.model.doubt import SPREAD_SHARE, CellPoints, Doubt, KernelSpace
from hybridlat.model.length_scales import _loss, tune
from hybridlat.schema.device import Device
from tests.networks import classifier, conv_relu, residual_block

DEVICE = Device("fake", "cpu", {"fp32": 1e11}, 1e10, 1, 0.0, (32768, 1 << 20), "made up", "fake")
NOISE = 0.05
TEXTS = [
    *(sign(conv_relu(c, size)).text for c in (8, 16, 24, 32, 64, 128) for size in (8, 16, 32)),
    *(sign(residual_block(c)).text for c in (8, 16, 64)),
    sign(classifier()).text,
]


@pytest.fixture(scope="module")
def points() -> CellPoints:
    return KernelSpace.over(TEXTS, DEVICE).place(TEXTS)


def doubt(points: CellPoints, known: list[int]) -> Doubt:
    return Doubt.after(points.take(known), np.full(len(known), NOISE))


@given(st.lists(st.integers(0, len(TEXTS) - 1), max_size=6), st.integers(0, len(TEXTS) - 1))
def test_a_measurement_never_adds_doubt(
    points: CellPoints, known: list[int], one_more: int
) -> None:
    before = doubt(points, known).spread_shares(points)
    after = doubt(points, [*known, one_more]).spread_shares(points)
    assert (after <= before + 1e-9).all()
    assert after[one_more] < before[one_more]


def test_nothing_known_is_the_whole_spread_and_what_is_near_falls_more(points: CellPoints) -> None:
    apart = points.take(range(18))
    fresh = doubt(points, []).spread_shares(points)
    assert (fresh <= SPREAD_SHARE + 1e-6).all() and fresh[:18].min() > 0.5 * SPREAD_SHARE
    fall = fresh[:18] - doubt(points, [0]).spread_shares(apart)
    assert fall[0] == fall.max() and fall[0] > 2 * fall[-1] > 0


def test_a_lesson_carries_to_what_is_near(points: CellPoints) -> None:
    known = [0, 1, 2]
    now = doubt(points, known)
    taught = now.lesson(points.take(known), np.full(3, NOISE), np.full(3, 0.5))
    said = points.vectors @ taught
    assert 0.25 < said[0] < 0.5
    assert abs(said[17]) < said[3]  # 128 channels at the largest size, 16 at the smallest


def test_length_scales_have_the_gradient_that_differences_give() -> None:
    rng = np.random.default_rng(1)
    rows, values = rng.normal(size=(40, 3)), rng.normal(size=40)
    logs = np.log([1.3, 2.0, 0.8, 5.0, 0.2])
    gradient = _loss(logs, rows, values)[1]
    for place in range(5):
        step = 1e-5 * (np.arange(5) == place)
        up, down = _loss(logs + step, rows, values)[0], _loss(logs - step, rows, values)[0]
        assert gradient[place] == pytest.approx((up - down) / 2e-5, rel=1e-4, abs=1e-6)


def test_a_column_that_says_nothing_gets_a_long_scale() -> None:
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(120, 2))
    scales, noise = tune(rows, np.sin(2 * rows[:, 0]), (0.001, 1.0))
    assert scales[1] > 10 * scales[0] and noise < 0.1
