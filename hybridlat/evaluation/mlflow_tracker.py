"""Runs and models kept by MLflow: its only importer.

MLflow is loaded when a tracker is made (it takes seconds), told to keep quiet, and its failures
become one sentence.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybridlat import onnx_io
from hybridlat.evaluation.tracking import (
    CHAMPION,
    EXPERIMENT,
    KIND,
    SERVED_BY,
    SERVED_FILES,
    Kept,
    TrackedRun,
    Tracker,
    TrackingError,
    Version,
    git_commit,
    model_name,
)
from hybridlat.graph.reference_networks import null_network
from hybridlat.schema.target import Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_EXPERIMENT_KIND = ("mlflow.experimentKind", "custom_model_development")
_MOST_DIGEST = 36
_MOST_PARAMETER = 500
_MOST_AT_ONCE = 500


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


@contextlib.contextmanager
def _calling(what: str) -> Iterator[None]:
    """MLflow's own failures as one sentence; its warnings are not the user's affair."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except (MlflowException, SQLAlchemyError, OSError) as error:
            first = str(error).strip().split("\n")[0]
            raise TrackingError(f"MLflow could not {what}: {first}") from error


class _MlflowRun(TrackedRun):
    def __init__(self, client: Any, run_id: str) -> None:
        self._client, self.id = client, run_id

    def parameters(self, values: Mapping[str, object]) -> None:
        from mlflow.entities import Param

        params = [Param(name, str(value)[:_MOST_PARAMETER]) for name, value in values.items()]
        with _calling("keep parameters"):
            self._client.log_batch(self.id, params=params)

    def metrics(self, values: Mapping[str, float | None]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [
            Metric(_metric_name(name), float(value), now, 0)
            for name, value in values.items()
            if value is not None
        ]
        with _calling("keep metrics"):
            for start in range(0, len(metrics), _MOST_AT_ONCE):
                self._client.log_batch(self.id, metrics=metrics[start : start + _MOST_AT_ONCE])

    def tags(self, values: Mapping[str, str]) -> None:
        with _calling("keep tags"):
            for name, value in values.items():
                self._client.set_tag(self.id, name, value)

    def table(self, name: str, columns: Mapping[str, Sequence[object]]) -> None:
        with _calling(f"keep the table {name}"):
            self._client.log_table(self.id, {k: list(v) for k, v in columns.items()}, name)

    def figure(self, name: str, figure: Figure) -> None:
        with _calling(f"keep the figure {name}"):
            self._client.log_figure(self.id, figure, name)

    def text(self, name: str, text: str) -> None:
        with _calling(f"keep {name}"):
            self._client.log_text(self.id, text, name)

    def files(self, folder: Path, name: str) -> None:
        with _calling(f"keep the files of {folder}"):
            self._client.log_artifacts(self.id, str(folder), name)

    def dataset(self, name: str, digest: str, source: str) -> None:
        from mlflow.entities import Dataset, DatasetInput

        kept = Dataset(name, digest[:_MOST_DIGEST], "local", json.dumps({"uri": source}))
        with _calling(f"keep the data set {name}"):
            self._client.log_inputs(self.id, [DatasetInput(kept)])


@contextlib.contextmanager
def _started(
    client: Any, experiment: str, name: str, given: Mapping[str, str]
) -> Iterator[_MlflowRun]:
    with _calling("start a run"):
        tags = {"mlflow.source.name": "hybridlat", "mlflow.source.type": "LOCAL", **given}
        commit = git_commit()
        if commit:
            tags["mlflow.source.git.commit"] = commit
        made = client.create_run(experiment, run_name=name, tags=tags)
    run = _MlflowRun(client, made.info.run_id)
    try:
        yield run
    except BaseException:
        client.set_terminated(run.id, "FAILED")
        raise
    client.set_terminated(run.id, "FINISHED")


class MlflowTracker(Tracker):
    """Keeps runs and the registry at ``uri``; TrackingError where that cannot be opened."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._mlflow = _quiet_mlflow()
        if uri.startswith("sqlite:///"):
            Path(uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        with _calling(f"open {uri}"):
            self._client = self._mlflow.MlflowClient(tracking_uri=uri, registry_uri=uri)
            experiment = self._client.get_experiment_by_name(EXPERIMENT)
            self._experiment: str = (
                experiment.experiment_id if experiment is not None else self._new_experiment()
            )
            # Without it the page opens on views for language models.
            if experiment is None or _EXPERIMENT_KIND[0] not in experiment.tags:
                self._client.set_experiment_tag(self._experiment, *_EXPERIMENT_KIND)

    def _new_experiment(self) -> str:
        location = None
        if self.uri.startswith("sqlite:///"):
            # MLflow would put artifacts below the folder it happens to be started in.
            folder = Path(self.uri.removeprefix("sqlite:///")).resolve().parent
            location = (folder / "mlflow-artifacts").as_uri()
        return str(self._client.create_experiment(EXPERIMENT, artifact_location=location))

    @contextlib.contextmanager
    def run(self, name: str, tags: Mapping[str, str] | None = None) -> Iterator[TrackedRun]:
        with _started(self._client, self._experiment, name, tags or {}) as run:
            yield run

    def latest(self, kind: str, tags: Sequence[str]) -> list[Kept]:
        newest: dict[tuple[str, ...], Kept] = {}
        chosen = f"tags.{KIND} = '{kind}' and attributes.status = 'FINISHED'"
        token: str | None = None
        with _calling("read the runs kept"):
            while token is None or token:
                page = self._client.search_runs(
                    [self._experiment], chosen, max_results=1000, page_token=token or None,
                    order_by=["attributes.start_time DESC"],
                )  # fmt: skip
                for run in page:
                    own = run.data.tags
                    key = tuple(own.get(tag, "") for tag in tags)
                    newest.setdefault(key, Kept(dict(own), dict(run.data.metrics)))
                token = page.token or ""
        return list(newest.values())

    def describe(self, text: str) -> None:
        with _calling("describe the experiment"):
            self._client.set_experiment_tag(self._experiment, "mlflow.note.content", text)

    def register(
        self, target: Target, run: TrackedRun, folder: Path, device: str
    ) -> Version | None:
        name = model_name(target)
        with tempfile.TemporaryDirectory() as scratch:
            model = Path(scratch) / "model"
            with _calling(f"write the model of {target}"):
                _write_pyfunc(model, folder)
            run.files(model, "model")
        with _calling(f"register {name}"):
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
        with _calling("move the alias champion"):
            self._client.set_registered_model_alias(version.name, CHAMPION, version.number)

    def download(self, version: Version, folder: Path) -> Path | None:
        with _calling(f"fetch {version.name} version {version.number}"):
            downloaded = Path(self._client.download_artifacts(version.run_id, "model", str(folder)))
        written = downloaded / "data" / SERVED_FILES
        return written if written.is_dir() else downloaded  # before, a version was the files alone

    def _version(self, made: Any) -> Version:
        with _calling("read a model version"):
            data = self._client.get_run(made.run_id).data
        return Version(
            made.name, str(made.version), made.run_id, dict(data.metrics), dict(data.params)
        )


def _write_pyfunc(folder: Path, files: Path) -> None:
    """``files`` as a model that MLflow loads by the code of `training.served_model`: no pickle."""
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


def _metric_name(name: str) -> str:
    """MLflow takes letters, digits and ``_-. /:`` in the name of a metric."""
    return re.sub(r"[^\w\-. /]", "_", name.replace("%", "pct").replace("@", "_at_"))
