"""The OpenVINO experiment on a machine whose true latencies are known, and its figures."""

from pathlib import Path

import pytest

from tests.experiments.scripts import load
from tests.fakes.fake_backend import FakeDifferentialBackend, Machine

EXPERIMENT = load("06_openvino")


def test_the_differential_sum_is_the_network_and_layers_alone_are_not(tmp_path: Path) -> None:
    backend = FakeDifferentialBackend(Machine(noise_share=0.0), fuses=True)
    journal = EXPERIMENT.JournalFile(tmp_path / "journal.jsonl")
    plans = [EXPERIMENT.plan_of("squeezenet", backend, journal)]
    made = EXPERIMENT.runs(backend, plans, journal, rounds=1)
    EXPERIMENT.measure(made, 1e9)
    told = EXPERIMENT.results(made, plans)["squeezenet"]
    assert set(told.sums_us) == set(EXPERIMENT.METHODS)
    assert told.error(EXPERIMENT.DIFFERENTIAL) == pytest.approx(0.0, abs=0.02)
    assert told.error("layers, unfused") > 0.05
    assert told.error(EXPERIMENT.AGAIN) == pytest.approx(0.0, abs=0.01)

    kept = EXPERIMENT.JournalFile(tmp_path / "journal.jsonl")
    again = EXPERIMENT.runs(backend, plans, kept, rounds=1)
    result = EXPERIMENT.results(again, plans)["squeezenet"]
    assert result.sums_us == told.sums_us and result.whole_us == told.whole_us


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = EXPERIMENT.JournalFile(path)
    journal["a"], journal["b"] = [1.5], {"c": 2}
    with path.open("a") as out:
        out.write('{"d": [1, 2')
    assert dict(EXPERIMENT.JournalFile(path)) == {"a": [1.5], "b": {"c": 2}}


def test_figures_are_of_each_half_apart() -> None:
    every = ["a", "b", "c", "d"]
    errors = {"a": 0.03, "b": -0.04, "c": 0.03, "d": -0.04}
    told = {
        name: EXPERIMENT.Result(100.0, 101.0, {EXPERIMENT.DIFFERENTIAL: 100.0 * (1 + error)})
        for name, error in errors.items()
    }
    rows = [[c.strip() for c in row.split("|")[1:-1]] for row in EXPERIMENT.table(told, every)]
    result = {row[0]: row[2:6] for row in rows if row[1] == EXPERIMENT.DIFFERENTIAL}
    assert result == {
        "data/nets": ["4", "3.5", "3.5", "-0.5"],
        "half that chose the protocol": ["2", "3.0", "3.0", "+3.0"],
        "the other half": ["2", "4.0", "4.0", "-4.0"],
    }
    assert not any(row[1] == "layers, unfused" for row in rows)
