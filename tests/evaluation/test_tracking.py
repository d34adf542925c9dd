"""What is kept of runs, and where; and that nothing is where MLflow is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hybridlat.evaluation import evaluate, tracking
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


def test_git_may_be_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tracking.git_commit() == ""


def test_without_mlflow_nothing_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tracking, "find_spec", lambda _: None)
    tracker = tracking.open_tracker(f"sqlite:///{tmp_path / 's.db'}")
    with tracker.run("x") as run:
        run.log(metrics={"a": 1.0})
        run.dataset("d", "0", "here", "test")
        assert tracker.register(TARGET, run, tmp_path, "d") == ""
    assert not (tmp_path / "mlflow.db").exists()


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


def test_every_row_of_an_evaluation_is_a_run(tracked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hybridlat.model.fit.fit_model", lambda *_, **__: FlatModel())
    monkeypatch.setattr(evaluate, "device_of", lambda *_: DEVICE)
    chosen = evaluate.EvaluationOptions(baselines=["roofline"])
    evaluation = evaluate.evaluate_targets([TARGET], chosen, store=tracked)
    client = client_of(tracked)
    runs = {run.info.run_id: run for run in runs_kept(tracked)}
    assert set(runs) == {row.mlflow_run for row in evaluation.rows}
    for row in evaluation.rows:
        run = runs[row.mlflow_run]
        kept = {name: run.data.tags.get(name) for name in ("kind", "target", "regime", "method")}
        assert list(kept.values()) == ["evaluation", row.target, row.regime, row.method]
        assert run.info.run_name == f"{row.regime} · {row.method} · {row.target}"
        assert run.info.status == "FINISHED"
        assert "mlflow.parentRunId" not in run.data.tags
        assert run.data.metrics["rmspe"] == pytest.approx(row.score.rmspe, rel=1e-3)
        assert run.data.metrics["answered_share"] == pytest.approx(row.answered_share, rel=1e-3)
        assert {"target", "regime", "method", "protocol"} <= set(run.data.params)
        [data] = run.inputs.dataset_inputs
        assert data.dataset.name == row.target
        assert data.dataset.digest == evaluation.reports[0].data_hash[:36]
        assert json.loads(data.dataset.profile)["networks"] == 14
        assert [(tag.key, tag.value) for tag in data.tags] == [
            ("mlflow.data.context", "evaluation")
        ]
    own = next(r for r in evaluation.rows if (r.regime, r.method) == ("unseen", "hybridlat"))
    names = {item.path for item in client.list_artifacts(own.mlflow_run)}
    assert names == {"per_network.json", "leaderboard.md", "calibration.json"}
    experiment = client.get_experiment_by_name(tracking.EXPERIMENT)
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    baseline = next(r for r in evaluation.rows if r.method == "roofline")
    assert not client.list_artifacts(baseline.mlflow_run)


def test_where_the_figures_are_seen(tracked: str) -> None:
    tracker = tracking.open_tracker(tracked)
    assert "workflowType=machine_learning" in tracker.page()
    assert f"mlflow ui --backend-store-uri {tracker.uri}" in tracker.page()
    tracker.uri = "https://tracking.example/"
    assert tracker.page().startswith("https://tracking.example/#/experiments/")
    assert tracking.Tracker().page() == ""


def test_tracking_is_quiet(tracked: str) -> None:
    code = (
        "import sys; from hybridlat.evaluation.tracking import open_tracker\n"
        "t = open_tracker(sys.argv[1])\n"
        "with t.run('a') as r: r.log(metrics={'x': 1.0}); r.artifact('a.md', 'x')"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code, tracked], capture_output=True, text=True, check=False,
        cwd=root, env=dict(os.environ),
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
