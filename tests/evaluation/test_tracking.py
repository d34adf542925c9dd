"""What is kept of runs, and where; and that nothing is where MLflow is missing."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hybridlat.cli import main as cli
from hybridlat.estimate.lookup import models
from hybridlat.evaluation import evaluate, registry, runs, tracking
from hybridlat.evaluation.metrics import MethodResult, Prediction
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


def test_without_mlflow_nothing_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tracking, "find_spec", lambda _: None)
    tracker = tracking.open_tracker(f"sqlite:///{tmp_path / 's.db'}")
    with tracker.run("x") as run:
        run.log(metrics={("a", 0): 1.0})
        assert registry.register(tracker, TARGET, run, tmp_path, "d") == ""
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


@pytest.mark.usefixtures("flat")
def test_an_evaluation_is_a_run_with_one_for_each_method(tracked: str) -> None:
    chosen = evaluate.EvaluationOptions(baselines=["roofline", "flops_linear"])
    messages: list[str] = []
    evaluation = evaluate.evaluate_targets(
        [TARGET], chosen, store=tracked, on_message=lambda text: messages.extend(text.split(":\n"))
    )
    assert messages[-2:] == ["the figures are in MLflow", f"hybridlat mlflow --store {tracked}"]
    client, kept = client_of(tracked), runs_kept(tracked)
    runs = {run.data.tags.get("method", "parent"): run for run in kept}
    assert len(kept) == 4 and set(runs) == {"parent", "hybridlat", "roofline", "flops_linear"}
    parent = runs.pop("parent")
    above = parent.info.run_id
    assert tracking.open_tracker(tracked).newest_evaluation() == above
    assert parent.info.run_name == f"{TARGET} · evaluate"
    assert "| unseen | 14 networks |" in parent.data.tags["mlflow.note.content"]
    rows = {(row.regime, row.method): row for row in evaluation.rows}
    own, floor = rows["unseen", "hybridlat"].score, rows["unseen", "hybridlat"].noise_floor
    rival = min(rows["unseen", name].score.rmspe or 0 for name in chosen.methods)
    seen = {name: parent.data.metrics[f"unseen/{name}"] for name in ("rmspe", "coverage")}
    assert seen == pytest.approx({"rmspe": own.rmspe, "coverage": own.coverage})
    assert parent.data.metrics["unseen/rmspe_of_rival"] == pytest.approx(rival)
    assert parent.data.metrics.get("unseen/rmspe_floor") == floor
    first = [name for name in parent.data.metrics if name.startswith("accuracy/")]
    assert {"accuracy/rmspe", "accuracy/rmspe_of_rival", "accuracy/coverage"} <= set(first)
    assert all(
        parent.data.metrics[name] == parent.data.metrics[name.replace("accuracy", "unseen")]
        for name in first
    )
    assert min(parent.data.metrics).startswith("accuracy/")  # charts are sorted by name
    assert parent.data.metrics["unseen/median"] == pytest.approx(
        next(r for r in evaluation.reports[0].results if r.regime == "unseen").median
    )
    for name, run in runs.items():
        assert run.info.run_name == f"{name} · {TARGET}" and run.info.status == "FINISHED"
        assert run.data.tags["mlflow.parentRunId"] == above
        assert [run.data.tags[tag] for tag in ("kind", "target", "engine")] == [
            "method", str(TARGET), TARGET.engine
        ]  # fmt: skip
        assert {row.mlflow_run for row in evaluation.rows if row.method == name} == {
            run.info.run_id
        }
        rmspe = run.data.metrics["unseen/rmspe"]
        assert rmspe == pytest.approx(rows["unseen", name].score.rmspe)
    # Intervals at each confidence, and cells learned from ever more others, are curves.
    curve = client.get_metric_history(above, "unseen/calibration")
    assert {90, 50} <= {point.step for point in curve}
    [data] = parent.inputs.dataset_inputs
    assert data.dataset.digest == evaluation.reports[0].data_hash
    names = {item.path for item in client.list_artifacts(above)}
    assert names == {
        "leaderboard.json", "leaderboard.md", "predicted.png", "families.png", "calibration.png"
    }  # fmt: skip
    below = client.list_artifacts(runs["hybridlat"].info.run_id)
    assert [item.path for item in below] == ["per_network.json"]


@pytest.mark.parametrize("name", ["", "ours"])
def test_the_callers_settings_count_and_stay(
    name: str, tracked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", name)
    monkeypatch.setenv("MLFLOW_REGISTRY_URI", f"sqlite:///{tmp_path / 'registry.db'}")
    client = client_of(tracked)
    loggers = [logging.getLogger(each) for each in ("mlflow", "alembic")]
    before = dict(os.environ), [logger.level for logger in loggers]
    with tracking.open_tracker(tracked).run("x") as run:
        run.inputs("made", "abc", "store.db", {"cells": 7})
    assert before == (dict(os.environ), [logger.level for logger in loggers])
    kept = client.get_run(run.id)
    assert client.get_experiment(kept.info.experiment_id).name == (name or "hybridlat")
    [data] = kept.inputs.dataset_inputs
    assert (data.dataset.name, data.dataset.digest) == ("made", "abc")
    assert tracking.open_tracker(tracked).client._registry_uri.endswith("registry.db")


def test_regimes_of_a_number_are_points_of_a_curve() -> None:
    answers = [[Prediction("a", 100.0, 90.0), Prediction("b", 100.0, 130.0)]]
    result = MethodResult("cells@300", "roofline", answers)
    metrics = runs.figures(result)
    assert metrics["cells/median", 300] == pytest.approx(20.0)
    assert metrics["cells more/answered", 300] == 2
    assert ("gated@5%/rmspe", 0) in runs.figures(MethodResult("gated@5%", "x", answers))


def test_where_the_figures_are_seen(tracked: str) -> None:
    tracker = tracking.open_tracker(tracked)
    assert tracker.address("") == "" == tracker.newest_evaluation()
    [experiment] = client_of(tracked).search_experiments(filter_string="name = 'hybridlat'")
    view = json.loads(experiment.tags["mlflow.sharedViewState.hybridlat"])
    assert view["selectedColumns"][:2] == ["tags.`target`", "metrics.`accuracy/rmspe`"]
    assert "/runs?viewStateShareKey=hybridlat&" in tracker.address("", "http://here:1")
    assert tracker.address("7", "http://here:1").startswith("http://here:1/#/experiments/")
    tracker.uri = "https://user:secret@tracking.example/"
    assert "tracking.example/#/experiments/1/runs/7?" in tracker.address("7")
    assert len(tracker.address("7" * 32, "http://127.0.0.1:50000")) < 110  # one line
    assert "secret" not in tracker.address("7")


def test_tracking_is_quiet(tracked: str) -> None:
    code = (
        "import sys; from hybridlat.evaluation.tracking import open_tracker\n"
        "t = open_tracker(sys.argv[1])\n"
        "with t.run('a') as r: r.log(metrics={('x', 0): 1.0}); r.artifact('a.md', 'x')"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code, tracked], capture_output=True, text=True, check=False,
        cwd=root, env=dict(os.environ),
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_page_listens_on_this_machine_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_HOST", "UVICORN_UDS", "MLFLOW_GUNICORN_OPTS", "MLFLOW_SERVER_X"):
        monkeypatch.setenv(name, "0.0.0.0")
    monkeypatch.setenv("MLFLOW_S3_ENDPOINT_URL", "kept")
    started: list[Any] = []
    monkeypatch.setattr(os, "execve", lambda *words: started.append(words))
    monkeypatch.setattr(tracking.Tracker, "newest_evaluation", lambda _: "7")
    with CliRunner().isolation() as (out, _, _):
        assert cli.run(["mlflow", "--store", "sqlite://"]) == 0
        address = out.getvalue().decode()
    ((program, words, env),) = started
    port = words[words.index("--port") + 1]
    assert program == sys.executable and words[words.index("--host") + 1] == "127.0.0.1"
    assert address.startswith(f"http://127.0.0.1:{port}/#/experiments/")
    assert "0.0.0.0" not in env.values() and env["MLFLOW_S3_ENDPOINT_URL"] == "kept"


def test_ctrl_c_kills_a_run_and_an_error_fails_it(tracked: str) -> None:
    tracker = tracking.open_tracker(tracked)
    with pytest.raises(KeyboardInterrupt), tracker.run("stopped"):
        raise KeyboardInterrupt
    (run,) = runs_kept(tracked)
    assert run.info.status == "KILLED"


def test_a_deleted_experiment_is_restored(tracked: str, caplog: pytest.LogCaptureFixture) -> None:
    client = client_of(tracked)
    client.delete_experiment(client.get_experiment_by_name(tracking.EXPERIMENT).experiment_id)
    with tracking.open_tracker(tracked).run("again"):
        pass
    assert len(runs_kept(tracked)) == 1
    assert "was deleted: it is restored" in caplog.text


@pytest.mark.parametrize(
    ("uri", "folder"),
    [
        ("sqlite:////a/mlflow.db", "/a"),
        ("sqlite+pysqlite:////a/b/x.db?timeout=3", "/a/b"),
        ("postgresql+psycopg://u:p@host/db", "data"),
        ("mysql://host/db", "data"),
        ("https://server", None),
        ("file:///a", None),
    ],
)
def test_artifacts_never_lie_where_a_command_was_started(uri: str, folder: str | None) -> None:
    data = str(models.user_models_folder().parent)
    known = tracking._folder_of(uri)
    assert (known and str(known)) == (data if folder == "data" else folder)


def test_whatever_mlflow_raises_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    for error in (KeyError("x"), RuntimeError(""), OSError("no route")):
        tracker = tracking.Tracker()
        for _ in range(2):  # one sentence, however often it fails
            with tracker.optional(), tracking.calling("log a run"):
                raise error
    assert len(caplog.records) == 3 and "MLflow could not log a run: no route" in caplog.text


@pytest.mark.parametrize("broken", ["create_run", "log_batch", "log_table", "set_terminated"])
def test_an_evaluation_that_mlflow_does_not_take_is_reported(
    broken: str, tracked: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from mlflow import MlflowClient

    def gone(*_: object, **__: object) -> None:
        raise ConnectionError("the server is gone")

    monkeypatch.setattr(MlflowClient, broken, gone)
    monkeypatch.setattr("hybridlat.model.fit.fit_model", lambda *_, **__: FlatModel())
    monkeypatch.setattr(evaluate, "device_of", lambda *_: DEVICE)
    reported: list[object] = []
    evaluation = evaluate.evaluate_targets(
        [TARGET], evaluate.EvaluationOptions(baselines=[]), store=tracked,
        on_evaluated=lambda rows, report: reported.extend([*rows, report]),
    )  # fmt: skip
    assert reported == [*evaluation.rows, *evaluation.reports] and evaluation.rows
    assert caplog.text.count("the server is gone") == 1


def test_two_processes_open_one_new_database(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    code = "import sys; from hybridlat.evaluation.tracking import Tracker; Tracker(sys.argv[1])"
    words = [sys.executable, "-c", code, f"sqlite:///{tmp_path / 'new' / 'mlflow.db'}"]
    both = [subprocess.Popen(words, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], errors
