"""What MLflow keeps, and where; and what happens where it is missing or fails."""

import json
import logging
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybridlat.errors import MissingExtra, TrackingError
from hybridlat.evaluation import evaluate, tracking
from hybridlat.evaluation.metrics import MethodResult, Prediction, TargetReport
from hybridlat.model.model_files import user_models_folder
from tests.cli.shell import call, python
from tests.evaluation.made_pack import TARGET, gone


def client_of(store: str) -> Any:
    """MLflow itself, as a user of it sees what was kept."""
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=tracking.tracking_uri(store))


def runs_kept(store: str) -> list[Any]:
    client = client_of(store)
    experiment = client.get_experiment_by_name(tracking.EXPERIMENT)
    return list(client.search_runs([experiment.experiment_id]))


def judged(store: str, *baselines: str, **more: Any) -> evaluate.Evaluation:
    """The made-up target with these baselines, tracked."""
    chosen = evaluate.EvaluationOptions(baselines=baselines)
    return evaluate.evaluate_targets([TARGET], chosen, store=store, **more)


def test_it_lies_beside_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = f"sqlite:///{tmp_path / 'mlflow.db'}"
    assert tracking.tracking_uri(f"sqlite:///{tmp_path / 'store.db'}") == beside
    data = user_models_folder().parent
    assert tracking.tracking_uri("postgresql://host/db") == f"sqlite:///{data}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking.example:5000")
    assert tracking.tracking_uri("sqlite:///x.db") == "http://tracking.example:5000"


@pytest.mark.usefixtures("flat")
def test_without_mlflow_nothing_is_kept(tracked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "find_spec", lambda _: None)
    evaluation = judged(tracked)
    assert {row.mlflow_run for row in evaluation.rows} == {""}
    assert runs_kept(tracked) == []
    with pytest.raises(MissingExtra), tracking.opened(tracked):
        pass


@pytest.mark.parametrize("status", ["FAILED", "KILLED", "RUNNING"])
def test_a_run_ends_as_its_block_does(
    status: str, tracked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_failure = status == "FAILED"
    error = ValueError if is_failure else KeyboardInterrupt
    raised = TrackingError if is_failure else KeyboardInterrupt
    if status == "RUNNING":  # whatever ends, a server that is gone is not informed of it
        monkeypatch.setattr("mlflow.MlflowClient.set_terminated", gone)
    with pytest.raises(raised), tracking.opened(tracked), tracking.run("made", {}):
        raise error("stopped")
    (run,) = runs_kept(tracked)
    assert run.info.status == status


@pytest.mark.usefixtures("flat")
def test_an_evaluation_is_a_run_with_one_for_each_method(tracked: str) -> None:
    messages: list[str] = []
    baselines = ("roofline", "flops_linear")
    evaluation = judged(tracked, *baselines, on_message=messages.append)
    assert messages[-1] == f"the figures are in MLflow: hybridlat mlflow --store {tracked}"
    client, kept = client_of(tracked), runs_kept(tracked)
    runs = {
        run.data.tags["method" if "mlflow.parentRunId" in run.data.tags else "kind"]: run
        for run in kept
    }
    assert len(kept) == 4 and set(runs) == {"evaluation", "hybridlat", "roofline", "flops_linear"}
    parent = runs.pop("evaluation")
    above, metrics = parent.info.run_id, parent.data.metrics
    assert parent.info.run_name == f"{TARGET} · hybridlat · evaluate"
    assert parent.data.tags["method"] == parent.data.params["method"] == "hybridlat"
    assert "| unseen | 14 networks |" in parent.data.tags["mlflow.note.content"]
    rows = {(row.regime, row.method): row for row in evaluation.rows}
    own = rows["unseen", "hybridlat"]
    expected = {"rmspe": own.score.rmspe, "coverage": own.score.coverage, "median": own.median}
    rival = min(rows["unseen", name].score.rmspe or 0 for name in baselines)
    expected |= {"rmspe_floor": own.noise_floor, "rmspe_of_rival": rival}
    assert "gated_at_5pct/rmspe" in metrics
    for group in ("unseen", "accuracy"):
        assert {n: metrics[f"{group}/{n}"] for n in expected} == pytest.approx(expected)
    assert min(metrics).startswith("accuracy/")  # charts are sorted by name
    for name, run in runs.items():
        assert run.info.run_name == f"{name} · {TARGET}" and run.info.status == "FINISHED"
        tags = {"mlflow.parentRunId": above, "kind": "method", "engine": TARGET.engine}
        assert run.data.tags.items() >= {**tags, "target": str(TARGET)}.items()
        assert {r.mlflow_run for r in evaluation.rows if r.method == name} == {run.info.run_id}
        rmspe = run.data.metrics["unseen/rmspe"]
        assert rmspe == pytest.approx(rows["unseen", name].score.rmspe)
    # Intervals at each confidence are a curve.
    curve = client.get_metric_history(above, "unseen/calibration")
    assert {90, 50} <= {point.step for point in curve}
    [data] = parent.inputs.dataset_inputs
    assert data.dataset.digest == evaluation.reports[0].data_hash
    names = {item.path for item in client.list_artifacts(above)}
    assert names == {"leaderboard.json", "per_network.json", "evaluation.png"}
    table = json.loads(Path(client.download_artifacts(above, "per_network.json")).read_text())
    lines = [dict(zip(table["columns"], line, strict=True)) for line in table["data"]]
    errors = [line["error_percent"] for line in lines if line["regime"] == "unseen"]
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(own.score.rmspe)


@pytest.mark.parametrize("by", ["", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID"])
def test_the_callers_settings_count_and_stay(
    by: str, tracked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    name, client = "ours" if by else "", client_of(tracked)
    callers = client.create_experiment("ours" if by.endswith("_ID") else "other")
    own = client.create_run(callers, run_name="the caller's").info.run_id
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", name)
    if by.endswith("_ID"):
        monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "other")
        monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", callers)
    monkeypatch.setenv("MLFLOW_RUN_ID", own)
    monkeypatch.setenv("MLFLOW_REGISTRY_URI", f"sqlite:///{tmp_path / 'registry.db'}")
    loggers = [logging.getLogger(each) for each in ("mlflow", "alembic")]
    before = dict(os.environ), [logger.level for logger in loggers]
    with tracking.opened(tracked), tracking.run("x", {}) as run, tracking.run("y", {}) as below:
        assert mlflow.get_registry_uri().endswith("registry.db")
    assert before == (dict(os.environ), [logger.level for logger in loggers])
    unchanged = client.get_run(own).info
    assert (unchanged.run_name, unchanged.status) == ("the caller's", "RUNNING")
    for each, parent in ((run, own), (below, run)):
        made = client.get_run(each)
        assert made.data.tags["mlflow.parentRunId"] == parent
        assert made.info.experiment_id == callers
    monkeypatch.delenv("MLFLOW_RUN_ID")
    with tracking.opened(tracked), tracking.run("x", {}) as run:
        made = client.get_run(run)
    experiment = client.get_experiment(made.info.experiment_id)
    assert experiment.name == (name or "hybridlat")
    view = json.loads(experiment.tags["mlflow.sharedViewState.hybridlat"])
    columns = ["tags.`target`", "tags.`method`", "tags.`kind`", "metrics.`accuracy/rmspe`"]
    assert view["selectedColumns"][:4] == columns


def test_regimes_of_a_number_are_points_of_a_curve() -> None:
    answers = [[Prediction("a", 100.0, 90.0), Prediction("b", 100.0, 130.0)]]
    results = [MethodResult(name, "hybridlat", answers) for name in ("cells@300", "gated@5%")]
    metrics = tracking.metrics(TargetReport(TARGET, "", tuple(results), None, 0, 2).rows())
    assert next(iter(metrics)) == ("accuracy/rmspe", 0)  # comparisons begin with it
    silent = MethodResult("unseen", "lookup_only", [[Prediction("a", 100.0, math.nan)]])
    rows = TargetReport(TARGET, "", (silent,), 2.0, 1, 2).rows()
    assert {name.partition("/")[0] for name, _ in tracking.metrics(rows)} == {"unseen"}
    assert metrics["cells/median", 300] == metrics["accuracy/median", 0] == pytest.approx(20.0)
    assert metrics["gated@5%/answered", 0] == 2


def test_tracking_is_quiet(tracked: str) -> None:
    code = (
        "import sys; from hybridlat.evaluation import tracking\n"
        "with tracking.opened(sys.argv[1]), tracking.run('a', {}):\n"
        "    import mlflow.types.responses  # as log_model does: it switches MLflow's words on\n"
        "    from mlflow.utils.logging_utils import eprint\n"
        "    eprint('what a training would print')"
    )
    done = python("-c", code, tracked)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_page_listens_here_alone(tracked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_HOST", "UVICORN_UDS", "MLFLOW_GUNICORN_OPTS", "MLFLOW_SERVER_X"):
        monkeypatch.setenv(name, "0.0.0.0")
    monkeypatch.setenv("MLFLOW_S3_ENDPOINT_URL", "kept")
    monkeypatch.setenv("MLFLOW_REGISTRY_URI", "sqlite:////registry.db")
    started: list[Any] = []
    monkeypatch.setattr(os, "execve", lambda *words: started.append(words))
    address = call("mlflow", "--store", tracked).out
    ((program, words, env),) = started
    port = words[words.index("--port") + 1]
    assert program == sys.executable and words[words.index("--host") + 1] == "127.0.0.1"
    assert address.startswith(f"http://127.0.0.1:{port}/#/experiments/")
    assert "/runs?viewStateShareKey=hybridlat&" in address and len(address) < 120  # one line
    assert "0.0.0.0" not in env.values() and env["MLFLOW_S3_ENDPOINT_URL"] == "kept"
    assert env["MLFLOW_REGISTRY_STORE_URI"] == "sqlite:////registry.db"


@pytest.mark.parametrize(
    "broken", ["log_batch", "log_table", "set_terminated", "deleted experiment"]
)
@pytest.mark.usefixtures("flat")
def test_an_evaluation_that_mlflow_does_not_take_is_reported(
    broken: str, tracked: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if broken == "deleted experiment":
        client = client_of(tracked)
        client.delete_experiment(client.get_experiment_by_name(tracking.EXPERIMENT).experiment_id)
    else:
        monkeypatch.setattr(f"mlflow.MlflowClient.{broken}", gone)
    reported: list[object] = []
    report_to = lambda rows, report: reported.extend([*rows, report])  # noqa: E731
    evaluation = judged(tracked, on_evaluated=report_to)
    assert reported == [*evaluation.rows, *evaluation.reports] and evaluation.rows
    assert caplog.text.count("MLflow fails at") == 1
    assert "the server is gone" in caplog.text or "'active' state" in caplog.text


@pytest.mark.parametrize("uri", ["nonsense://user:secret@host/", "http://user:secret@127.0.0.1:9/"])
def test_a_failure_shows_no_password(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(TrackingError, match="user@") as failure, tracking.opened(""):
        pass
    assert "secret" not in str(failure.value)


@pytest.mark.parametrize("words", ["mlflow", "train --pull --target l4/tensorrt/fp16"])
def test_what_only_reads_makes_no_database(words: str, tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    err = call(*words.split(), "--store", str(tmp_path / "s.db"), code=2).err
    assert f"there is no {tmp_path}/mlflow.db to read" in err
    assert not [*tmp_path.iterdir()]


def test_two_processes_open_one_new_database(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    code = "import sys; from hybridlat.evaluation.tracking import opened\nwith opened(''): pass"
    uri = f"sqlite:///{tmp_path / 'new' / 'mlflow.db'}"
    env = {**os.environ, "MLFLOW_TRACKING_URI": uri}
    words = [sys.executable, "-c", code]
    both = [subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=env) for _ in range(2)]
    errors = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], errors
    experiment = mlflow.MlflowClient(uri).get_experiment_by_name(tracking.EXPERIMENT)
    assert experiment.artifact_location == (tmp_path / "new" / "mlflow-artifacts").as_uri()
