"""What is kept of runs, and where; and that nothing is where MLflow is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hybridlat.errors import MissingExtra
from hybridlat.evaluation import evaluate, tracking
from hybridlat.schema.target import Target
from tests.evaluation.made_pack import DEVICE, TARGET, FlatModel


def client_of(store: str) -> Any:
    """MLflow itself, as a user of it sees what was kept."""
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=tracking.tracking_uri(store))


def runs_kept(store: str) -> list[Any]:
    client = client_of(store)
    experiment = client.get_experiment_by_name(tracking.EXPERIMENT)
    return list(client.search_runs([experiment.experiment_id]))


def test_default_is_a_file_beside_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = f"sqlite:///{tmp_path / 'mlflow.db'}"
    assert tracking.tracking_uri(f"sqlite:///{tmp_path / 'store.db'}") == beside
    remote = tracking.tracking_uri("postgresql://host/db")
    assert remote.startswith("sqlite:///")
    assert remote.endswith("mlflow.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking.example:5000")
    assert tracking.tracking_uri("sqlite:///x.db") == "http://tracking.example:5000"


def test_model_names_hold_no_reserved_characters() -> None:
    name = tracking.model_name(Target("a", "b-1.0", "fp32", 4))
    assert name == "hybridlat-a_b-1.0_fp32_4t"


def test_git_may_be_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tracking.git_commit(tmp_path) == ""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tracking.git_commit() == ""


def test_without_mlflow_nothing_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    tracker = tracking.open_tracker(f"sqlite:///{tmp_path / 's.db'}")
    with tracker.run("x") as run, run.nested("y") as inner:
        inner.metrics({"a": 1.0})
        assert tracker.register(TARGET, run, tmp_path, "d") is None
    assert tracker.champion(TARGET) is None
    assert not (tmp_path / "mlflow.db").exists()
    with pytest.raises(MissingExtra, match="track"):
        tracking.open_tracker("sqlite:///s.db", required=True)


def test_an_unusable_database_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    (tmp_path / "mlflow.db").write_text("this is no database")
    with pytest.raises(tracking.TrackingError, match="MLflow could not"):
        tracking.open_tracker(f"sqlite:///{tmp_path / 'store.db'}")


def test_a_failing_run_is_marked_failed(tracked: str) -> None:
    tracker = tracking.open_tracker(tracked)
    with pytest.raises(ValueError, match="oops"), tracker.run("broken"):
        raise ValueError("oops")
    (run,) = runs_kept(tracked)
    assert run.info.status == "FAILED"


def test_an_evaluation_is_kept_as_nested_runs(
    tracked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hybridlat.model.fit.fit_model", lambda *_, **__: FlatModel())
    chosen = evaluate.EvaluationOptions(device=DEVICE, baselines=["roofline"])
    evaluation = evaluate.evaluate_targets([TARGET], chosen, store=tracked)
    client = client_of(tracked)
    runs = {run.info.run_name: run for run in runs_kept(tracked)}
    top, middle = runs["evaluate"], runs[str(TARGET)]
    own, other = runs[f"{TARGET} hybridlat"], runs[f"{TARGET} roofline"]
    assert middle.data.tags["mlflow.parentRunId"] == top.info.run_id
    for method in (own, other):
        assert method.data.tags["mlflow.parentRunId"] == middle.info.run_id
        assert method.info.status == "FINISHED"
    row = next(r for r in evaluation.rows if (r.regime, r.method) == ("unseen", "hybridlat"))
    assert row.mlflow_run == own.info.run_id
    assert own.data.metrics["unseen/rmspe"] == pytest.approx(row.score.rmspe)
    assert own.data.metrics["gated_at_5pct/rmspe"] >= 0
    assert own.data.metrics["unseen/answered_share"] == 1.0
    assert middle.data.params["data_hash"] == evaluation.reports[0].data_hash
    assert {"git_commit", "target", "protocol"} <= set(middle.data.params)
    names = {item.path for item in client.list_artifacts(middle.info.run_id)}
    assert names == {
        "parity.png", "risk_coverage.png", "calibration.png", "per_network.json", "leaderboard.md",
        "calibration.json",
    }  # fmt: skip
    assert {a.path for a in client.list_artifacts(top.info.run_id)} == {"leaderboard.md"}


def test_tracking_is_quiet(tracked: str) -> None:
    code = (
        "import sys; from hybridlat.evaluation.tracking import open_tracker\n"
        "t = open_tracker(sys.argv[1])\n"
        "with t.run('a') as r: r.metrics({'x': 1.0}); r.text('a.md', 'x')"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code, tracked], capture_output=True, text=True, check=False,
        cwd=root, env=dict(os.environ),
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
