"""MLflow as a team has it: a server of its own process, runs compared, a champion that is used."""

import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import hybridlat
from hybridlat.estimate.lookup import models
from hybridlat.evaluation import evaluate, tracking
from hybridlat.model.cell_model import CellModel
from hybridlat.model.model_files import hash_of, user_models_folder
from hybridlat.schema.plugins import shipped
from hybridlat.schema.target import Target
from hybridlat.store import Store
from hybridlat.training import train
from tests.cli.shell import call
from tests.evaluation.made_pack import DEVICE, TARGET

START_S = 180.0
MLFLOW = {
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),  # uvicorn's
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
}
UNSEEN = ("unseen", "hybridlat")
TEAM = Target.parse("team-cpu/onnxruntime-1.31/fp32/1t")
LOADED = """
import json, sys, mlflow.pyfunc, pandas
model = mlflow.pyfunc.load_model(sys.argv[1])
print(json.dumps(model.predict(pandas.DataFrame(json.loads(sys.argv[2]))).to_dict("list")))
"""


@contextmanager
def serving(database: str, folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A tracking server that answers, and its address; its artifacts go to ``artifacts``."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    log = folder / "server.log"
    with log.open("w") as said:
        artifacts = str(folder / "artifacts")
        places = ["--backend-store-uri", database, "--artifacts-destination", artifacts]
        process = subprocess.Popen(
            [sys.executable, *f"-m mlflow server --port {port} --workers 1".split(), *places],
            stdout=said,
            stderr=said,
            start_new_session=True,
            env={**os.environ, **MLFLOW},
        )
        try:
            end = time.monotonic() + START_S
            while True:
                assert process.poll() is None and time.monotonic() < end, log.read_text()
                with contextlib.suppress(urllib.error.URLError, OSError):
                    urllib.request.urlopen(f"{address}/health", timeout=5).close()
                    break
                time.sleep(0.2)
            yield address, process
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended by itself, or in the test
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def server(
    tracked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[subprocess.Popen[bytes]]:
    """A server on SQLite that all in this process tracks to."""
    with serving(tracking.tracking_uri(tracked), tmp_path) as (address, process):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "team")  # its artifacts are the server's
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        yield process


def elsewhere(tmp_path: Path, target: Target, rows: dict[str, list[Any]]) -> dict[str, list[float]]:
    """What the target's champion predicts in a process with an empty home."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    model = f"models:/{tracking.model_name(target)}@{tracking.CHAMPION}"
    env = {**os.environ, "HOME": str(home), "XDG_DATA_HOME": str(home / "data")}
    words = [sys.executable, "-c", LOADED, model, json.dumps(rows)]
    loaded: dict[str, list[float]] = json.loads(subprocess.check_output(words, env=env, cwd=home))
    return loaded


def team_model(folder: Path) -> Path:
    """A shipped model, as if it were a team's own CPU's: nothing else is known of that."""
    shutil.copytree(shipped("models") / "epyc-26-2_onnxruntime-1.31_fp32_1t", folder)
    card = json.loads((folder / "card.json").read_text())
    (folder / "card.json").write_text(json.dumps({**card, "target": str(TEAM)}))
    return folder


def registered(store: str, folder: Path, digest: str = "", alias: str = "champion") -> None:
    """Make a model the team's champion."""
    tags = {tracking.MODEL_HASH: digest or models.model_hash(folder)}
    with tracking.opened(store), tracking.run("train", {}):
        tracking.register(TEAM, folder, alias, "", tags)


@pytest.mark.usefixtures("server")
def test_a_team_compares_and_uses_a_champion(
    made: dict[str, CellModel], tracked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    monkeypatch.setattr(evaluate, "device_of", lambda *_: DEVICE)
    good, errors = made["model"], {}
    for seed, worse in (("0", 40.0), ("1", 1.0)):  # before and after a training
        made["model"] = dataclasses.replace(good, floor_us=good.floor_us * worse)
        chosen = evaluate.EvaluationOptions(baselines=["roofline"], seed=int(seed))
        rows = evaluate.evaluate_targets([TARGET], chosen, store=tracked).rows
        [errors[seed]] = [r.score.rmspe for r in rows if (r.regime, r.method) == UNSEEN]
    client: Any = mlflow.MlflowClient()
    filtered = f"tags.kind = 'evaluation' and tags.target = '{TARGET}'"
    team = client.get_experiment_by_name("team").experiment_id
    found = client.search_runs([team], filtered, order_by=["metrics.`unseen/rmspe`"])
    figures = {each.data.params["seed"]: each.data.metrics["unseen/rmspe"] for each in found}
    assert figures == pytest.approx(errors) and [*figures] == ["1", "0"]

    trained = train.train_target(
        TARGET, train.TrainingOptions(tmp_path / "models", DEVICE), store=tracked
    )
    with Store(tracked) as store:
        texts = [*store.signature_texts(store.signatures(TARGET, "cell")).values()][:5]
    own = [each.latency_us for each in good.predict(texts)]
    assert elsewhere(tmp_path, TARGET, {"cell": texts})["latency_us"] == own

    registered(tracked, team_model(tmp_path / "model"))
    loaded = elsewhere(tmp_path, TEAM, {"path": ["resnet18", "squeezenet"], "batch": [1, 2]})
    words = ("train", "--target", str(TEAM), "--pull", "--json", "--store", f"{tmp_path / 's.db'}")
    pulled = call(*words).body
    for name, batch, *ends in zip(
        ("resnet18", "squeezenet"), (1, 2), *loaded.values(), strict=True
    ):
        answer = hybridlat.predict(name, str(TEAM), batch=batch, store=str(tmp_path / "s.db"))
        assert ends == [answer.latency_us, answer.low_us, answer.high_us]
        assert answer.model == pulled["model_hash"] != trained.model_hash
    again = call(*words).body
    assert again["folder"] == pulled["folder"] and "in use already" in again["reason"]

    server = os.environ["MLFLOW_TRACKING_URI"]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.replace("://", "://user:secret@"))
    address = call("mlflow", "--store", tracked).out
    assert address.startswith(server.replace("://", "://user@")) and "/runs?" in address


def rewritten(file: Path, **stated: object) -> None:
    """Change a file of a model, its hash in the card with it."""
    body, card = json.loads(file.read_text()), file.parent / "card.json"
    file.write_text(json.dumps({**body, **stated}))
    known = json.loads(card.read_text())
    known["files"] |= {file.name: hash_of(file.read_bytes())}
    card.write_text(json.dumps(known))


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (
            "no champion",
            "no champion of hybridlat-team-cpu_onnxruntime-1.31_fp32_1t: `hybridlat tr",
        ),
        ("digest", "version 1 of .* installed: its files are not those that were registered"),
        ("target", "version 1 of .* installed: its files are not those that were registered"),
        ("model.json", "is not installed: it has model format 99, .*: upgrade hybridlat"),
        ("composition.json", "is not installed: composition format 99 is none that this version"),
        ("no composition", "is not installed: it has no composition"),
    ],
)
def test_a_champion_that_cannot_be_used_is_one_sentence(
    broken: str, sentence: str, tracked: str, tmp_path: Path
) -> None:
    folder = team_model(tmp_path / "model")
    if broken.endswith(".json"):
        rewritten(folder / broken, format=99)
    if broken == "target":
        rewritten(folder / "card.json", target="other-cpu/onnxruntime-1.31/fp32/1t")
    if broken == "no composition":
        (folder / "composition.json").unlink()
    alias = "challenger" if broken == "no champion" else "champion"
    registered(tracked, folder, "0" * 16 if broken == "digest" else "", alias)
    refused = call("train", "--target", str(TEAM), "--pull", "--store", tracked, code=2).err
    assert re.search(sentence, " ".join(refused.split())), refused
    assert models.folder_in_use(user_models_folder() / TEAM.folder) is None


@pytest.mark.usefixtures("flat", "made")
def test_a_server_that_dies_costs_its_record_alone(
    server: subprocess.Popen[bytes], tracked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install = train.install

    def last(*folders: Path) -> Path:
        stop(server)
        return install(*folders)

    monkeypatch.setattr(train, "install", last)
    monkeypatch.setattr(train, "device_of", lambda *_: DEVICE)
    of_target = ("--target", str(TARGET), "--store", tracked)
    done = call("train", *of_target, "--out", str(tmp_path / "models"))
    assert "accepted: the first model" in done.out and done.err.count("MLflow fails at") == 1
    assert models.folder_in_use(tmp_path / "models" / TARGET.folder) is not None
    done = call("evaluate", *of_target, "--baseline", "no")
    assert "unseen" in done.out and done.err.count("MLflow fails at") == 1
    assert "MLflow fails at http://127.0.0.1" in call("train", *of_target, "--pull", code=2).err
