"""What is kept of runs, and where; and that nothing is where MLflow is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hybridlat.evaluation import evaluate, leaderboard, tracking
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
    monkeypatch.setattr(tracking, "find_spec", lambda _: None)
    tracker = tracking.open_tracker(f"sqlite:///{tmp_path / 's.db'}")
    with tracker.run("x") as run:
        run.log(metrics={"a": 1.0})
        run.dataset("d", "0", "here", "test")
        tracker.describe("text")
        assert tracker.newest("evaluation", ["target"]) == []
        assert tracker.register(TARGET, run, tmp_path, "d") is None
    assert tracker.champion(TARGET) is None
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
    regimes = ["measured", "unseen", "gated@5%"]
    chosen = evaluate.EvaluationOptions(device=DEVICE, baselines=["roofline"], regimes=regimes)
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
        assert {"git_commit", "target", "regime", "method", "protocol"} <= set(run.data.params)
        [data] = run.inputs.dataset_inputs
        assert data.dataset.name == row.target
        assert data.dataset.digest == evaluation.reports[0].data_hash[:36]
        assert json.loads(data.dataset.profile)["networks"] == 14
        assert [(tag.key, tag.value) for tag in data.tags] == [
            ("mlflow.data.context", "evaluation")
        ]
        assert run.data.tags["newest"] == "yes"
    own = next(r for r in evaluation.rows if (r.regime, r.method) == ("unseen", "hybridlat"))
    names = {item.path for item in client.list_artifacts(own.mlflow_run)}
    assert names == {
        "parity.png", "calibration.png", "per_network.json", "leaderboard.md", "calibration.json",
    }  # fmt: skip
    assert_the_page_opens_on_the_figures(client, evaluation)
    baseline = next(r for r in evaluation.rows if r.method == "roofline")
    assert not client.list_artifacts(baseline.mlflow_run)


def assert_the_page_opens_on_the_figures(client: Any, evaluation: evaluate.Evaluation) -> None:
    experiment = client.get_experiment_by_name(tracking.EXPERIMENT)
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    lines = experiment.tags["mlflow.note.content"].splitlines()
    shown = [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in lines if "|" in line]
    shown = [line for line in shown if line[0] == str(TARGET)]
    own = {row.regime: row.score for row in evaluation.rows if row.method == "hybridlat"}
    assert {line[1] for line in shown} == set(own)
    for line in shown:
        score = own[line[1]]
        assert score.rmspe is not None
        assert line[2] == f"{score.rmspe:.1f}"
        assert line[5] == ("–" if score.coverage is None else f"{100 * score.coverage:.0f} %")
    assert any("(roofline)" in line[3] for line in shown)


def test_where_the_figures_are_seen(tracked: str) -> None:
    tracker = tracking.open_tracker(tracked)
    assert "workflowType=machine_learning" in tracker.page()
    assert f"mlflow ui --backend-store-uri {tracker.uri}" in tracker.page()
    tracker.uri = "https://tracking.example/"
    assert tracker.page().startswith("https://tracking.example/#/experiments/")
    assert tracking.Tracker().page() == ""


def test_the_newest_run_of_each_kind_is_what_counts(tracked: str) -> None:
    tracker = tracking.open_tracker(tracked)
    for regime, value in (("a", 1.0), ("b", 2.0), ("a", 3.0)):
        with tracker.run("r", {"kind": "evaluation", "regime": regime}) as run:
            run.log(metrics={"rmspe": value})
        time.sleep(0.002)  # MLflow orders by milliseconds
    with tracker.run("other", {"kind": "training", "regime": "a"}) as run:
        run.log(metrics={"rmspe": 9.0})
    newest = {
        kept.tags["regime"]: kept.metrics for kept in tracker.newest("evaluation", ["regime"])
    }
    assert newest == {"a": {"rmspe": 3.0}, "b": {"rmspe": 2.0}}
    for _ in range(2):  # the second time there is nothing to do
        tracker.newest("evaluation", ["regime"])
        marks = {
            run.data.metrics["rmspe"]: run.data.tags.get("newest") for run in runs_kept(tracked)
        }
        assert marks == {1.0: "no", 2.0: "yes", 3.0: "yes", 9.0: None}


def kept_run(number: int, method: str, rmspe: float, answered: float = 9) -> tracking.RunSummary:
    tags = {"target": f"made-{number}/maker/fp32", "regime": "unseen", "method": method}
    return tracking.RunSummary(tags, {"rmspe": rmspe, "answered": answered, "networks": 9})


def test_a_long_note_says_what_it_leaves_out() -> None:
    note = leaderboard.note([kept_run(i, "hybridlat", 5.0) for i in range(200)])
    assert len(note) < 5000
    shown = note.count("made-")
    assert f"{200 - shown} more rows" in note


def test_the_best_baseline_is_no_part_of_hybridlat_and_answers_as_much() -> None:
    runs = [kept_run(1, "hybridlat", 3.04), kept_run(1, "roofline", 4.06)]
    runs.append(kept_run(1, "kernel_forest", 0.1, answered=2))
    parts = ("model_only", "lookup_only", "random", "share_only", "random_choice", "perfect")
    runs += [kept_run(1, part, 1.0) for part in parts]
    assert "| **3.0** | 4.1 (roofline) | – | – | 9 |" in leaderboard.note(runs)


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
