"""MLflow as a team has it: a server on PostgreSQL, a folder of artifacts, a model served."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from hybridlat import onnx_io
from hybridlat.evaluation import evaluate, tracking
from hybridlat.schema.target import Target
from hybridlat.store import Store
from hybridlat.training import train
from tests import postgres
from tests.evaluation.made_pack import DEVICE
from tests.networks import classifier, residual_block
from tests.slow import slow

TARGET = Target.parse("made/onnxruntime-1.31/fp32/1t")
START_S = 180.0
ANSWER = ("latency_us", "low_us", "high_us")
MLFLOW = {
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),  # uvicorn's
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
}


@contextlib.contextmanager
def serving(log: Path, health: str, *words: str) -> Iterator[str]:
    """The address of a command of MLflow's that serves, as soon as it answers under ``health``."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    with log.open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", *words, "--host", "127.0.0.1", "--port", str(port)],
            stdout=said, stderr=said, start_new_session=True, env={**os.environ, **MLFLOW},
        )  # fmt: skip
    try:
        end = time.monotonic() + START_S
        while True:
            assert process.poll() is None and time.monotonic() < end, log.read_text()
            with contextlib.suppress(urllib.error.URLError, OSError):
                urllib.request.urlopen(f"{address}/{health}", timeout=5).close()
                break
            time.sleep(0.5)
        yield address
    finally:
        with contextlib.suppress(ProcessLookupError):  # ended by itself, as was told above
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A tracking server; its artifacts go to the folder ``artifacts``."""
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    with postgres.running() as database:
        where = ("--artifacts-destination", str(tmp_path / "artifacts"), "--workers", "1")
        backend = ("--backend-store-uri", database.database())
        with serving(tmp_path / "server.log", "health", "server", *backend, *where) as address:
            yield address


@pytest.fixture
def store(store_url: str, tmp_path: Path) -> str:
    """The made-up records as those of an engine that is here, so that its networks are lowered."""
    with Store(store_url) as made, Store(tmp_path / "store.db") as store:
        records = [structs.replace(m, target=TARGET) for m in made.measurements()]
        breakdowns = [structs.replace(b, target=TARGET) for b in made.breakdowns()]
        hashes = {m.signature for m in records}
        store.add_signatures(made.signature_texts(hashes))
        store.add(records)
        store.add_breakdowns(breakdowns)
        return store.url


@slow
def test_a_team_trains_judges_and_serves(
    server: str, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    monkeypatch.setenv("HYBRIDLAT_STORE", store)
    options = train.TrainingOptions(out=tmp_path / "models", device=DEVICE)
    trained = train.train_target(TARGET, options, store=store)
    assert trained.accepted
    judged = evaluate.EvaluationOptions(device=DEVICE, baselines=["roofline"], regimes=["measured"])
    said: list[str] = []
    evaluation = evaluate.evaluate_targets([TARGET], judged, store=store, on_message=said.append)
    assert f"{server}/#/experiments/" in said[-1]

    client: Any = mlflow.MlflowClient()
    [name] = [model.name for model in client.search_registered_models()]
    assert name == tracking.model_name(TARGET)
    for run_id, context in ((trained.mlflow_run, "training"),
                            (evaluation.rows[0].mlflow_run, "evaluation")):  # fmt: skip
        [given] = client.get_run(run_id).inputs.dataset_inputs
        assert {tag.key: tag.value for tag in given.tags} == {"mlflow.data.context": context}
        assert (given.dataset.name, json.loads(given.dataset.profile)["networks"]) == (
            str(TARGET), 14,
        )  # fmt: skip
    kept = [path.name for path in (tmp_path / "artifacts").rglob("*") if path.is_file()]
    assert {"MLmodel", "model.json", "composition.json", "parity.png", "held_out.json"} <= set(kept)
    assert not [name for name in kept if name.endswith(".pkl")]

    files = [onnx_io.to_onnx(network(), 0) for network in (residual_block, classifier)]
    address = f"models:/{name}@{tracking.CHAMPION}"
    model = mlflow.pyfunc.load_model(address)
    rows = model.predict(files).to_dict("records")
    for row in rows:
        assert row["reason"] == ""
        assert 0 < row["low_us"] < row["latency_us"] < row["high_us"]
    answered = [row[name] for row in rows for name in ANSWER]
    assert served(address, files, tmp_path) == pytest.approx(answered, rel=1e-9)


def served(model: str, files: list[bytes], folder: Path) -> list[float]:
    """Latency, low and high of one file after the other, as ``mlflow models serve`` answers."""
    words = ("models", "serve", "--model-uri", model, "--env-manager", "local")
    body = json.dumps({"inputs": [base64.b64encode(file).decode() for file in files]})
    with serving(folder / "serve.log", "ping", *words) as address:
        request = urllib.request.Request(
            f"{address}/invocations", body.encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            rows = json.load(answer)["predictions"]
    return [row[name] for row in rows for name in ANSWER]
