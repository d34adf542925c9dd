"""MLflow as a team has it: a server on PostgreSQL, and a folder of artifacts."""

from __future__ import annotations

import contextlib
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

from hybridlat.evaluation import evaluate, tracking
from hybridlat.training import train
from tests import postgres
from tests.evaluation.made_pack import DEVICE, TARGET
from tests.slow import slow

START_S = 180.0
MLFLOW = {
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),  # uvicorn's
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a tracking server that answers; its artifacts go to ``artifacts``."""
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    log = tmp_path / "server.log"
    with postgres.running() as database, log.open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port),
             "--workers", "1", "--backend-store-uri", database.database(),
             "--artifacts-destination", str(tmp_path / "artifacts")],
            stdout=said, stderr=said, start_new_session=True, env={**os.environ, **MLFLOW},
        )  # fmt: skip
        try:
            end = time.monotonic() + START_S
            while True:
                assert process.poll() is None and time.monotonic() < end, log.read_text()
                with contextlib.suppress(urllib.error.URLError, OSError):
                    urllib.request.urlopen(f"{address}/health", timeout=5).close()
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


@slow
def test_a_team_trains_and_judges(
    server: str, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    options = train.TrainingOptions(out=tmp_path / "models", device=DEVICE)
    trained = train.train_target(TARGET, options, store=store_url)
    assert trained.accepted
    monkeypatch.setattr(evaluate, "device_of", lambda *_: DEVICE)
    judged = evaluate.EvaluationOptions(baselines=[])
    said: list[str] = []
    evaluation = evaluate.evaluate_targets(
        [TARGET], judged, store=store_url, on_message=said.append
    )
    assert f"{server}/#/experiments/" in said[-1]

    client: Any = mlflow.MlflowClient()
    [name] = [model.name for model in client.search_registered_models()]
    assert name == registry.model_name(TARGET)
    for run_id in (trained.mlflow_run, evaluation.rows[0].mlflow_run):
        assert client.get_run(run_id).data.params["target"] == str(TARGET)
    kept = [path.name for path in (tmp_path / "artifacts").rglob("*") if path.is_file()]
    assert {"model.json", "composition.json", "held_out.json"} <= set(kept)
    assert not [name for name in kept if name.endswith(".pkl")]

    address = f"models:/{name}@{registry.CHAMPION}"
    fetched = mlflow.artifacts.download_artifacts(address, dst_path=str(tmp_path))
    assert trained.folder is not None
    for file in trained.folder.iterdir():
        assert (Path(fetched) / file.name).read_bytes() == file.read_bytes()
