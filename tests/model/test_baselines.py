"""What every baseline promises; one that stands in the table or is installed is tested."""

from importlib.metadata import EntryPoint

import numpy as np
import pytest

from hybridlat.errors import InputError
from hybridlat.model import baselines
from hybridlat.model.baselines import Problem, Sums
from hybridlat.model.family.physics import table_of_texts
from hybridlat.schema import plugins
from tests.model.rows import DEVICE, latencies_us, texts

CELLS = texts(120)
TRAIN, TEST = CELLS[:80], CELLS[80:]
FOR_CELLS = [n for n in baselines.names() if {"cell", "layer"} & set(baselines.load(n).units)]
FOR_NETWORKS = [
    n for n in baselines.names() if n not in FOR_CELLS or "network" in baselines.load(n).units
]


def of_cells(cells: list[str], times: float = 1.0) -> Problem:
    return Problem(Sums.of_texts(cells), times * latencies_us(cells), tuple(cells))


def of_networks(count: int, seed: int = 0) -> Problem:
    """Networks of five of the cells, each some times, whose latency is the sum of the cells'."""
    draw = np.random.default_rng(seed)
    tables, truth = [], []
    for _ in range(count):
        chosen = draw.choice(len(CELLS), 5, replace=False)
        counts = draw.integers(1, 4, 5)
        tables.append(table_of_texts([CELLS[i] for i in chosen], counts.tolist()))
        truth.append(float(counts @ latencies_us(CELLS, noise=0.0)[chosen]))
    return Problem(Sums.of_networks(tables), np.array(truth), tuple(map(str, range(count))))


def fitted(name: str, problem: Problem) -> baselines.Baseline:
    baseline = baselines.load(name)(DEVICE, "fp32", 0)
    baseline.fit(problem)
    return baseline


@pytest.mark.parametrize("name", FOR_CELLS)
def test_the_contract(name: str) -> None:
    baseline = fitted(name, of_cells(TRAIN))
    assert baseline.name == name
    made = baseline.predict(Sums.of_texts(TEST))
    assert made.shape == (len(TEST),)
    assert made.dtype == np.float64
    if name not in ("lookup_only", "layerwise_measured"):
        assert (made > 0).all()
        error = made / latencies_us(TEST, noise=0.0) - 1
        assert np.sqrt(np.mean(error**2)) < 1.5
    else:
        assert np.isnan(made).all()
        np.testing.assert_allclose(
            baseline.predict(Sums.of_texts(TRAIN)), of_cells(TRAIN).latencies_us
        )
    again = fitted(name, of_cells(TRAIN)).predict(Sums.of_texts(TEST))
    np.testing.assert_array_equal(made, again)


@pytest.mark.parametrize("name", FOR_NETWORKS)
def test_the_contract_on_whole_networks(name: str) -> None:
    problem = of_networks(40)
    train, test = np.arange(30), np.arange(30, 40)
    made = fitted(name, problem.take(train)).predict(problem.sums.take(test))
    assert made.shape == (10,)
    assert np.sqrt(np.mean((made / problem.latencies_us[test] - 1) ** 2)) < 1.0


def test_forests_are_grown_to_the_end_where_they_are_judged() -> None:
    cells = Sums.of_networks([table_of_texts([text], [1]) for text in TEST])
    every, some = (baselines.load("kernel_forest")(DEVICE, "fp32") for _ in range(2))
    some.judged_ops = cells.kernels.met_ops()[:1]
    for baseline in (every, some):
        baseline.fit(of_networks(40))
    is_judged = cells.kernels.codes(some.judged_ops) == 0
    np.testing.assert_array_equal(some.predict(cells) == every.predict(cells), is_judged)


@pytest.mark.parametrize("name", baselines.names())
def test_nothing_to_learn_from_is_an_error(name: str) -> None:
    lost = Problem(Sums.of_texts(TEST), np.full(len(TEST), np.nan), tuple(TEST))
    with pytest.raises(InputError):
        fitted(name, lost)


def test_the_wave_model_explains_a_staircase_from_few_rows() -> None:
    truth = latencies_us(TEST, noise=0.0)

    def error(name: str) -> float:
        made = fitted(name, of_cells(TRAIN[:40])).predict(Sums.of_texts(TEST))
        return float(np.sqrt(np.mean((made / truth - 1) ** 2)))

    assert error("wave_model") < 0.7 * min(error("flops_linear"), error("roofline"))


def test_another_package_may_offer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint(
        "theirs", "hybridlat.model.baselines.methods:Roofline", "hybridlat.baselines"
    )
    monkeypatch.setattr(
        "importlib.metadata.entry_points",
        lambda group: [point] if group == "hybridlat.baselines" else [],
    )
    offered = plugins.Plugins("hybridlat.baselines", baselines.BASELINES.own)
    monkeypatch.setattr(baselines, "BASELINES", offered)
    assert set(baselines.names()) == {*offered.own, "theirs"}
    assert baselines.load("theirs") is baselines.load("roofline")
