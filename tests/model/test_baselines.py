"""What every baseline promises; a new file in baselines/ is picked up by its name."""

from importlib.metadata import EntryPoint

import numpy as np
import pytest

from hybridlat.errors import InputError
from hybridlat.model import baselines
from hybridlat.model.baselines import TrainingRow
from hybridlat.schema import plugins
from tests.model.rows import DEVICE, latencies_us, texts

EIGHT = {
    "layerwise_measured", "layerwise_learned", "flops_linear", "roofline", "kernel_forest",
    "wave_model", "lookup_only", "model_only",
}  # fmt: skip
CELLS = texts(120)
TRAIN, TEST = CELLS[:80], CELLS[80:]
ROWS = [TrainingRow(t, us, t) for t, us in zip(TRAIN, latencies_us(TRAIN).tolist(), strict=True)]


def fitted(name: str, rows: list[TrainingRow]) -> baselines.Baseline:
    baseline = baselines.load(name)(DEVICE, "fp32", 0)
    baseline.fit(rows)
    return baseline


def test_all_eight_are_there() -> None:
    assert set(baselines.names()) >= EIGHT


@pytest.mark.parametrize("name", baselines.names())
def test_the_contract(name: str) -> None:
    baseline = fitted(name, ROWS)
    assert baseline.name == name
    assert baseline.unit in ("cell", "layer")
    made = baseline.predict(TEST)
    assert made.shape == (len(TEST),)
    assert made.dtype == np.float64
    if baseline.learns:
        assert (made > 0).all()
        error = made / latencies_us(TEST, noise=0.0) - 1
        assert np.sqrt(np.mean(error**2)) < 1.5
    else:
        assert np.isnan(made).all()
        np.testing.assert_allclose(baseline.predict(TRAIN), [row.latency_us for row in ROWS])
    np.testing.assert_array_equal(made, fitted(name, ROWS).predict(TEST))


@pytest.mark.parametrize("name", [n for n in baselines.names() if n != "model_only"])
def test_fitting_again_forgets(name: str) -> None:
    baseline = fitted(name, ROWS)
    tripled = [TrainingRow(row.text, 3 * row.latency_us, row.group) for row in ROWS]
    baseline.fit(tripled)
    np.testing.assert_array_equal(baseline.predict(TRAIN), fitted(name, tripled).predict(TRAIN))


@pytest.mark.parametrize("name", baselines.names())
def test_nothing_to_learn_from_is_an_error(name: str) -> None:
    with pytest.raises(InputError):
        fitted(name, [])


def test_an_unknown_baseline_gives_the_choices() -> None:
    with pytest.raises(InputError, match="wave_model"):
        baselines.load("oracle")


def test_the_wave_model_explains_a_staircase_from_few_rows() -> None:
    truth = latencies_us(TEST, noise=0.0)

    def error(name: str) -> float:
        made = fitted(name, ROWS[:40]).predict(TEST)
        return float(np.sqrt(np.mean((made / truth - 1) ** 2)))

    assert error("wave_model") < 0.7 * min(error("flops_linear"), error("roofline"))


def test_another_package_may_offer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("mine", "hybridlat.model.baselines.roofline:Roofline", "hybridlat.baselines")
    monkeypatch.setattr(
        "importlib.metadata.entry_points",
        lambda group: [point] if group == "hybridlat.baselines" else [],
    )
    offered = plugins.Plugins("hybridlat.baselines", baselines.BASELINES.own)
    monkeypatch.setattr(baselines, "BASELINES", offered)
    assert set(baselines.names()) == {*EIGHT, "mine"}
    assert baselines.load("mine") is baselines.load("roofline")
