"""The search below a budget, played from the measured space with few candidates."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from experiments import search_space
from experiments.search_ways import WAYS, Gate, judge, random_choice, search
from tests.networks import ROOT

SPACE = search_space.read(ROOT / "experiments" / "search" / "space.json")
TRUTH = SPACE.truth


def budget_us() -> float:
    rng = random.Random(1)
    latencies = sorted(TRUTH.latency(random_choice(TRUTH, rng)).latency_us for _ in range(99))
    return latencies[49]


BUDGET_US = budget_us()


@pytest.mark.parametrize("name", WAYS)
def test_a_way_is_judged_by_what_is_true(name: str) -> None:
    way = WAYS[name](name, SPACE, BUDGET_US, 3)
    met = search(way, candidates=80)
    outcome = judge(way, TRUTH, 0.0, met)
    feasible = [score for c, score, _ in met if TRUTH.latency(c).latency_us <= BUDGET_US]
    assert len(met) == 80 and 0 < outcome.score <= max(feasible)
    if name == "everything":
        assert outcome.score == max(feasible) and (outcome.over, outcome.passed) == (0.0, 0)
        held = {h for choice, _, _ in met for b in choice.items() for h in TRUTH.blocks[b]}
        assert set(way.measured) == held and way.spent_s == pytest.approx(SPACE.cost_s(list(held)))
    if name == "prediction":
        assert (outcome.cells, outcome.device_s) == (0, 0.0)


def test_the_gate_measures_some_and_knows_its_best(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path / 'search.db'}"
    first = Gate("gate", SPACE, BUDGET_US, 5)
    search(first, storage, candidates=8)
    again = Gate("gate", SPACE, BUDGET_US, 5)
    met = search(again, storage, candidates=11)
    assert len(met) == 11 and again.measured[: len(first.measured)] == first.measured
    assert 0 < len(again.measured) < len(SPACE.measured)
    assert again.best >= first.best > 0
