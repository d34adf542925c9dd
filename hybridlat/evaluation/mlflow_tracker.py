"""Runs and models kept by MLflow: its only importer, with ``mlflow_run``.

MLflow is loaded when a tracker is made (it takes seconds), told to keep quiet, and its failures
become one sentence.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hybridlat import onnx_io
from hybridlat.evaluation import saved_views
from hybridlat.evaluation.mlflow_run import calling, started
from hybridlat.evaluation.tracking import (
    CHAMPION,
    EXPERIMENT,
    KIND,
    NEWEST,
    SERVED_BY,
    SERVED_FILES,
    Kept,
    TrackedRun,
    Tracker,
    Version,
    model_name,
)
from hybridlat.graph.reference_networks import null_network
from hybridlat.schema.target import Target
from hybridlat.store.place import without_password

_EXPERIMENT_TAGS = {
    "mlflow.experimentKind": "custom_model_development",  # else it opens for language models
    "mlflow.experiment.primaryMetric.name": "rmspe",
}
_COLOUR = "mlflow.runColor"
_COLOURS = (
    "#0b6e4f", "#c8553d", "#3a6ea5", "#e0a458", "#7b4b94", "#2b2d42", "#5fad8e", "#b23a6f",
    "#8d99ae", "#a3b018", "#00a6c8", "#8c5a2b",
)  # fmt: skip


def _quiet_mlflow() -> Any:
    """Load MLflow so that it writes nothing of its own to the terminal and calls nobody."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("DO_NOT_TRACK", "true")
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    for name in ("mlflow", "alembic", "alembic.runtime.migration"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mlflow

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return mlflow


class MlflowTracker(Tracker):
    """Keeps runs and the registry at ``uri``; TrackingError where that cannot be opened."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._mlflow = _quiet_mlflow()
        if uri.startswith("sqlite:///"):
            Path(uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        with calling(f"open {without_password(uri)}"):
            self._client = self._mlflow.MlflowClient(tracking_uri=uri, registry_uri=uri)
            experiment = self._client.get_experiment_by_name(EXPERIMENT)
            self._experiment: str = (
                experiment.experiment_id if experiment is not None else self._new_experiment()
            )
            self._set_up_page({} if experiment is None else experiment.tags)

    def _new_experiment(self) -> str:
        location = None
        if self.uri.startswith("sqlite:///"):
            # MLflow would put artifacts below the folder it happens to be started in.
            folder = Path(self.uri.removeprefix("sqlite:///")).resolve().parent
            location = (folder / "mlflow-artifacts").as_uri()
        return str(self._client.create_experiment(EXPERIMENT, artifact_location=location))

    def _set_up_page(self, there: Mapping[str, str]) -> None:
        """What a newcomer sees; what somebody has changed stays."""
        now_ms = int(time.time() * 1000)
        wanted = {**_EXPERIMENT_TAGS, **{v.tag: v.to_text(now_ms) for v in saved_views.VIEWS}}
        for name, value in wanted.items():
            if name not in there:
                self._client.set_experiment_tag(self._experiment, name, value)

    @contextlib.contextmanager
    def run(self, name: str, tags: Mapping[str, str] | None = None) -> Iterator[TrackedRun]:
        with started(self._client, self._experiment, name, tags or {}) as run:
            yield run

    def latest(self, kind: str, tags: Sequence[str]) -> list[Kept]:
        newest: dict[tuple[str, ...], Kept] = {}
        for run in self._finished(kind):
            kept = Kept(dict(run.data.tags), dict(run.data.metrics))
            newest.setdefault(tuple(kept.tags.get(tag, "") for tag in tags), kept)
        return list(newest.values())

    def mark_newest(self, kind: str, tags: Sequence[str]) -> None:
        seen: set[tuple[str, ...]] = set()
        runs = list(self._finished(kind))
        colours = {r.data.tags.get(tags[0]): r.data.tags.get(_COLOUR) for r in reversed(runs)}
        for run in runs:
            own = run.data.tags
            key = tuple(own.get(tag, "") for tag in tags)
            if not colours[own.get(tags[0])]:
                taken = sum(colour is not None for colour in colours.values())
                colours[own.get(tags[0])] = _COLOURS[taken % len(_COLOURS)]
            wanted = {NEWEST: "no" if key in seen else "yes", _COLOUR: colours[own.get(tags[0])]}
            seen.add(key)
            with calling("mark the newest runs"):
                for name, value in wanted.items():
                    if own.get(name) != value:
                        self._client.set_tag(run.info.run_id, name, value)

    def _finished(self, kind: str) -> Iterator[Any]:
        """The finished runs of a kind, newest first."""
        chosen = f"tags.{KIND} = '{kind}' and attributes.status = 'FINISHED'"
        token: str | None = None
        while token is None or token:
            with calling("read the runs kept"):
                page = self._client.search_runs(
                    [self._experiment], chosen, max_results=1000, page_token=token or None,
                    order_by=["attributes.start_time DESC"],
                )  # fmt: skip
            yield from page
            token = page.token or ""

    def describe(self, text: str) -> None:
        links = [f"[{v.name}]({v.link(self._experiment)})" for v in saved_views.VIEWS]
        text = f"**{' · '.join(links)}**\n\n{text}"
        with calling("describe the experiment"):
            self._client.set_experiment_tag(self._experiment, "mlflow.note.content", text)

    def page(self) -> str:
        link = saved_views.FIGURES.link(self._experiment)
        if self.uri.startswith(("http://", "https://")):
            return f"{without_password(self.uri).rstrip('/')}/{link}"
        command = f"mlflow ui --backend-store-uri {without_password(self.uri)}"
        return f"http://127.0.0.1:5000/{link} while `{command}` runs"

    def register(
        self, target: Target, run: TrackedRun, folder: Path, device: str
    ) -> Version | None:
        name = model_name(target)
        with tempfile.TemporaryDirectory() as scratch:
            model = Path(scratch) / "model"
            with calling(f"write the model of {target}"):
                _write_pyfunc(model, folder)
            run.files(model, "model")
        with calling(f"register {name}"):
            if not self._client.search_registered_models(f"name = '{name}'"):
                self._client.create_registered_model(
                    name, description=f"Latency of cells on {target} ({device})."
                )
            root = self._client.get_run(run.id).info.artifact_uri
            made = self._client.create_model_version(name, f"{root}/model", run.id)
        return self._version(made)

    def champion(self, target: Target) -> Version | None:
        from mlflow.exceptions import MlflowException

        try:
            version = self._client.get_model_version_by_alias(model_name(target), CHAMPION)
        except MlflowException:
            return None  # no such model, or nobody carries the alias
        return self._version(version)

    def promote(self, version: Version) -> None:
        with calling("move the alias champion"):
            self._client.set_registered_model_alias(version.name, CHAMPION, version.number)

    def download(self, version: Version, folder: Path) -> Path | None:
        with calling(f"fetch {version.name} version {version.number}"):
            downloaded = Path(self._client.download_artifacts(version.run_id, "model", str(folder)))
        return downloaded / "data" / SERVED_FILES

    def _version(self, made: Any) -> Version:
        with calling("read a model version"):
            data = self._client.get_run(made.run_id).data
        return Version(
            made.name, str(made.version), made.run_id, dict(data.metrics), dict(data.params)
        )


def _write_pyfunc(folder: Path, files: Path) -> None:
    """``files`` as a model that MLflow loads by the code of `api.served_model`: no pickle."""
    import mlflow.pyfunc
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema

    numbers = ("latency_us", "low_us", "high_us", "measured_share")
    texts = ("network", "reason")
    outputs = [ColSpec(DataType.double, name) for name in numbers]
    outputs += [ColSpec(DataType.string, name) for name in texts]
    signature = ModelSignature(
        inputs=Schema([ColSpec(DataType.binary)]),
        outputs=Schema(outputs),
        params=ParamSchema(
            [
                ParamSpec("batch", DataType.long, 0),
                ParamSpec("confidence", DataType.double, 0.9),
            ]
        ),
    )
    data = folder.with_name(SERVED_FILES)
    shutil.copytree(files, data)
    mlflow.pyfunc.save_model(
        path=str(folder), loader_module=SERVED_BY, data_path=str(data), signature=signature,
        input_example=[onnx_io.to_onnx(null_network(4), None)],
        pip_requirements=[_requirement()],
    )  # fmt: skip


def _requirement() -> str:
    """This package as pip names it; without a version where it runs from its sources."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"hybridlat=={version('hybridlat')}"
    except PackageNotFoundError:
        return "hybridlat"
