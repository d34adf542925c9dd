"""What the gate promises: enough, no more than needed, and nothing unknown let through."""

import functools
import itertools
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridlat.estimate import gate
from hybridlat.estimate.calibration import HeldOutNetwork, fit_composition
from hybridlat.estimate.compose.composition import Composition
from hybridlat.estimate.compose.posterior import ErrorPosterior
from tests.estimate.known import TRUE, make_network

COMPOSITION = Composition(residual_share=0.01, shared_share=TRUE, networks=30)


def _run(network: HeldOutNetwork, tolerance: float) -> ErrorPosterior:
    posterior = COMPOSITION.start(network.cells)
    for _ in range(len(network.cells) + 1):
        chosen = gate.next_step(posterior, COMPOSITION, tolerance).positions
        if not chosen:
            return posterior
        assert not set(chosen) & set(posterior.measured)
        posterior = posterior.observe(network.truth(chosen))
    raise AssertionError("the gate does not come to an end")


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 25), st.floats(0.03, 0.4))
def test_never_exceeds_the_tolerance(seed: int, cells: int, tolerance: float) -> None:
    posterior = _run(make_network(seed, cells), tolerance)
    assert COMPOSITION.interval(posterior).half_width_share <= tolerance + 1e-9


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.integers(2, 22))
def test_a_wider_tolerance_never_costs_more(seed: int, cells: int) -> None:
    posterior = COMPOSITION.start(make_network(seed, cells).cells)
    tolerances = (0.0, 0.02, 0.03, 0.05, 0.08, 0.15, 0.5)
    costs = [gate.plan(posterior, COMPOSITION, tolerance).cost_s for tolerance in tolerances]
    assert costs == sorted(costs, reverse=True)


def test_plans_cost_hardly_more_than_the_cheapest_of_all_subsets() -> None:
    spent_s = least_s = 0.0
    for seed in range(80):
        cells, tolerance = 2 + seed % 6, (0.03, 0.06, 0.12)[seed % 3]
        posterior = COMPOSITION.start(make_network(seed, cells).cells)
        state, result = (
            gate.Projection(posterior, COMPOSITION),
            gate.plan(posterior, COMPOSITION, tolerance),
        )
        if result.half_width_share > tolerance:  # out of reach
            continue
        spent_s += result.cost_s
        least_s += min(
            sum(posterior.priors[i].cost_s for i in chosen)
            for size in range(cells + 1)
            for chosen in itertools.combinations(range(cells), size)
            if state.after(chosen).half_width_share <= tolerance
        )
    assert 0 < least_s <= spent_s * (1 + 1e-9) < 1.02 * least_s


def test_a_projection_is_what_precisions_add_up_to() -> None:
    posterior = COMPOSITION.start(make_network(1, 6).cells)
    noise = np.full(6, 1e12)
    noise[[1, 4]] = gate.EXPECTED_NOISE_SHARE**2
    left = np.linalg.inv(np.linalg.inv(posterior.covariance) + np.diag(1 / noise))
    projected = gate.Projection(posterior, COMPOSITION).after([1, 4]).covariance
    np.testing.assert_allclose(projected, left, rtol=1e-5, atol=1e-9)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.sets(st.integers(0, 11), min_size=1), st.booleans())
def test_strange_cells_are_always_measured(seed: int, strange: set[int], unknown: bool) -> None:
    network = make_network(seed, cells=12)
    cells = list(network.cells)
    for i in strange:
        latency_us = None if unknown else cells[i].latency_us
        cells[i] = replace(cells[i], trusted=False, latency_us=latency_us)
    network = replace(network, cells=tuple(cells))
    posterior = COMPOSITION.start(cells)
    assert strange <= set(gate.next_step(posterior, COMPOSITION, tolerance=10.0).positions)
    done = _run(network, tolerance=10.0)
    assert strange <= set(done.measured)
    assert done.complete


def test_what_cannot_be_measured_is_not_chosen() -> None:
    network = make_network(3, cells=10)
    posterior = COMPOSITION.start(network.cells)
    assert not gate.next_step(posterior, COMPOSITION, 0.02, refused=range(10))
    assert gate.plan(posterior, COMPOSITION, 0.02, refused=range(10)).positions == ()


def test_out_of_reach_comes_as_near_as_it_can() -> None:
    posterior = COMPOSITION.start(make_network(4, cells=14).cells)
    chosen = gate.plan(posterior, COMPOSITION, tolerance=0.001)
    assert chosen.half_width_share > 0.001
    known = {i: (cell.latency_us or 0, 0.01) for i, cell in enumerate(posterior.priors)}
    everything = posterior.observe(known)
    best = COMPOSITION.interval(everything).half_width_share
    assert chosen.half_width_share <= best * 1.03


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.integers(2, 22), st.floats(0.02, 0.3), st.sampled_from([10, 20]))
def test_surer_is_never_cheaper(seed: int, cells: int, tolerance: float, networks: int) -> None:
    composition = _calibrated(networks)
    posterior = composition.start(make_network(seed, cells).cells)
    surer = map(composition.at, (0.3, 0.5, 0.8, 0.9, 0.99, 0.999))
    costs = [gate.plan(posterior, one, tolerance).cost_s for one in surer]
    assert costs == sorted(costs)


@functools.cache
def _calibrated(networks: int) -> Composition:
    return fit_composition([make_network(i, cells=8 + i % 9) for i in range(networks)])


def _step(
    network: HeldOutNetwork, tolerance: float, cost_s: float, anyway: bool = False
) -> gate.Step:
    start = COMPOSITION.start(network.cells)
    return gate.next_step(start, COMPOSITION, tolerance, (), cost_s, anyway)


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(2, 22), st.floats(0.02, 0.3), st.floats(0.01, 30.0))
def test_the_network_is_measured_whole_exactly_where_that_is_cheaper(
    seed: int, cells: int, tolerance: float, cost_s: float
) -> None:
    network = make_network(seed, cells)
    plan = gate.plan(COMPOSITION.start(network.cells), COMPOSITION, tolerance)
    step = _step(network, tolerance, cost_s)
    if not plan.positions:
        assert not step
    elif plan.half_width_share <= tolerance:
        assert step.network is (cost_s <= plan.cost_s)
        assert step.network is not bool(step.positions)
    else:
        assert step.network  # no cells would do, and it comes nearer than they


def test_the_network_goes_with_unknown_cells_and_where_the_machine_still_learns() -> None:
    network = make_network(3, cells=10)
    cells = [replace(cell, latency_us=None, trusted=False) for cell in network.cells]
    blank = replace(network, cells=tuple(cells))
    assert _step(blank, 0.05, cost_s=0.1) == gate.Step(tuple(range(10)), True)
    assert _step(blank, 0.05, cost_s=1e6) == gate.Step(tuple(range(10)), False)
    assert _step(blank, 0.05, cost_s=1e6, anyway=True).network
    dear = _step(network, 0.1, cost_s=1e6)
    assert dear.positions and not dear.network
    assert _step(network, 0.1, cost_s=1e6, anyway=True) == gate.Step(dear.positions, True)
    assert not _step(network, 10.0, cost_s=0.1, anyway=True)  # nothing is asked for


def test_wandering_of_the_machine_is_no_reason_to_measure() -> None:
    network = make_network(3, cells=10)
    moving = replace(COMPOSITION, wander_share=0.3)
    known = moving.start(network.cells).observe(network.truth(range(10)))
    assert not gate.next_step(known, moving, 0.05, network_s=1.0)
    # What rests on predictions is measured once all the same: no cell would help, the network does.
    some = moving.start(network.cells).observe(network.truth(range(9)))
    assert gate.next_step(some, moving, 0.05, network_s=1.0) == gate.Step((), True)
    assert not gate.next_step(some, moving, 0.05)
