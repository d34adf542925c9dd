"""What a measured cell teaches about the others."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridlat.estimate.compose.posterior import (
    UNTRUSTED_FACTOR,
    CellPrior,
    CellSum,
    ErrorPosterior,
)
from tests.estimate.known import TRUE, make_network

CELLS = tuple(CellPrior(name, 1, 100.0, 0.2) for name in "abc")


def test_a_measured_cell_moves_the_others_as_far_as_errors_are_shared_or_surprising() -> None:
    posterior = ErrorPosterior.start(CELLS, 0.8)
    taught = posterior.observe({0: (120.0, 0.01)})
    # Simple kriging by hand: 0.8 of a ratio of ln 1.2, a little less for the noise.
    gain = 0.8 * 0.04 / (0.04 + 0.01**2)
    assert taught.latencies_us[1:] == pytest.approx(100 * math.exp(gain * math.log(1.2)))
    assert ErrorPosterior.start(CELLS, 0.0).observe({0: (120.0, 0.01)}).latencies_us[1] == 100.0
    assert taught.latencies_us[0] == 120.0
    assert taught.covariance[1, 1] < posterior.covariance[1, 1]
    strange = replace(CELLS[0], trusted=False)
    start = ErrorPosterior.start([CELLS[0], strange], 0.0)
    assert np.sqrt(start.covariance.diagonal()) == pytest.approx([0.2, 0.2 * UNTRUSTED_FACTOR])
    posterior = ErrorPosterior.start(CELLS)
    calm = posterior.observe({0: (101.0, 0.01)})
    assert posterior.observe({0: (400.0, 0.01)}).covariance[2, 2] > calm.covariance[2, 2]


def test_measuring_an_unknown_cell_completes_the_sum() -> None:
    priors = (*CELLS, CellPrior("d", 2, None, 0.0))
    posterior = ErrorPosterior.start(priors)
    assert not posterior.complete
    assert posterior.required == (3,)
    done = posterior.observe({3: (80.0, 0.02)})
    assert done.complete
    assert done.required == ()
    assert done.sum_us == pytest.approx(460.0)
    assert done.measured_share == pytest.approx(160 / 460)  # of the time, not of the cells


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.data())
def test_any_order_of_measuring_is_the_same_and_sound(seed: int, data: st.DataObject) -> None:
    network = make_network(seed, cells=8)
    posterior = ErrorPosterior.start(network.cells, TRUE)
    order = data.draw(st.permutations(range(8)))
    one_by_one = posterior
    for position in order[:5]:
        one_by_one = one_by_one.observe(network.truth([position]))
    at_once = posterior.observe(network.truth(order[:5]))
    np.testing.assert_allclose(one_by_one.latencies_us, at_once.latencies_us)
    np.testing.assert_allclose(one_by_one.covariance, at_once.covariance)
    assert float(np.linalg.eigvalsh(at_once.covariance).min()) > -1e-9
    everything = posterior.observe(network.truth(range(8)))
    assert everything.sum_us == pytest.approx(network.sum_of_measured_us)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.sets(st.integers(0, 7), max_size=7), st.floats(0.002, 0.3))
def test_a_whole_network_is_one_more_observation(
    seed: int, measured: set[int], noise: float
) -> None:
    network = make_network(seed, cells=8)
    before = ErrorPosterior.start(network.cells, TRUE).observe(network.truth(sorted(measured)))
    sum_us = 1.05 * before.sum_us
    after = before.observe_total(sum_us, noise)
    weights = after.uses_us / after.sum_us
    free = [i for i in range(8) if i not in measured]
    kept = np.ix_(sorted(measured), sorted(measured))
    # Another road: precisions add up. The observation is linear in the errors around the answer.
    told = math.log(sum_us / after.sum_us) + float(weights @ after.mean)
    told -= float(weights @ np.where(np.isin(range(8), free), 0.0, before.mean))
    precision = np.linalg.inv(before.covariance) + np.outer(weights, weights) / noise**2
    expected = np.linalg.inv(precision)
    gain = expected @ weights / noise**2
    # Cells that stay are as unsure as they were: nothing moves them.
    expected[kept] = before.covariance[kept]
    # The observation was made linear where the iteration stopped, a hair from where it is now.
    largest = float(np.abs(expected).max())
    np.testing.assert_allclose(after.covariance, expected, rtol=1e-2, atol=1e-3 * largest)
    fixed = np.where(np.isin(range(8), free), before.mean, 0.0)
    brute = before.mean + gain * (told - float(weights @ fixed))
    np.testing.assert_allclose(after.mean[free], brute[free], rtol=1e-2, atol=1e-4)
    assert [after.latencies_us[i] for i in measured] == [before.latencies_us[i] for i in measured]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.integers(1, 20), st.floats(0.0, 0.2), st.floats(0.7, 1.4))
def test_evidence_of_a_sum_never_widens(seed: int, cells: int, noise: float, ratio: float) -> None:
    before = ErrorPosterior.start(make_network(seed, cells).cells, TRUE)
    after = before.observe_total(ratio * before.sum_us, noise)
    assert float(np.linalg.eigvalsh(before.covariance - after.covariance).min()) > -1e-9
    assert after.variance_share <= noise**2 + 1e-9
    assert 0 <= (after.sum_us / before.sum_us - 1) / (ratio - 1 or 1) <= 1 + 1e-6


def test_what_is_not_moved_is_not_narrowed() -> None:
    """All cells measured, their sum known to 5 %: a network's own 1 % changes neither."""
    measured = [replace(cell, source="measured", spread_share=0.0866) for cell in CELLS]
    before = ErrorPosterior.start(measured)
    after = before.observe_total(1.05 * before.sum_us, 0.01)
    assert math.sqrt(before.variance_share) == pytest.approx(0.05, rel=1e-3)
    assert (after.sum_us, after.variance_share) == (before.sum_us, before.variance_share)


@pytest.mark.parametrize("noise", [0.01, 0.1])
def test_errors_are_as_large_as_stated_after_a_cell_and_a_sum(noise: float) -> None:
    """In 4000 draws of the cells' errors and of the noise of what is measured."""
    rng, cells = np.random.default_rng(1), [replace(cell, spread_share=0.1) for cell in CELLS]
    prior, errors = ErrorPosterior.start(cells, 0.4), []
    root = np.linalg.cholesky(prior.covariance)
    for _ in range(4000):
        true_us = 100 * np.exp(root @ rng.normal(size=3))
        first_us, sum_us = np.array([true_us[0], true_us.sum()]) * np.exp(rng.normal(0, noise, 2))
        after = prior.observe({0: (first_us, noise)}).observe_total(sum_us, noise)
        errors.append(np.log(true_us / after.latencies_us))
    np.testing.assert_allclose(np.cov(np.transpose(errors)), after.covariance, atol=0.06 * 0.1**2)


def test_what_some_cells_took_together_is_met_and_kept_in_mind() -> None:
    start = ErrorPosterior.start((*CELLS, CellPrior("d", 2, None, 0.0)), 0.0)
    known = CellSum((1, 1, 0, 0), 260.0, 0.0)
    taught = start.after_sums([known])
    assert taught.latencies_us[:3] == pytest.approx([130.0, 130.0, 100.0], rel=1e-3)
    assert taught.covariance[:2, :2].sum() / 4 < 1e-3
    assert taught.covariance[2, 2] == start.covariance[2, 2]
    later = taught.observe({0: (110.0, 0.001), 3: (50.0, 0.02)})
    assert later.latencies_us == pytest.approx([110.0, 150.0, 100.0, 50.0], rel=1e-2)
    assert start.after_sums([CellSum((1, 0, 0, 1), 260.0, 0.0)]).latencies_us[0] == 100.0
