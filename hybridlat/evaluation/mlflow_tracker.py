"""Runs and models kept by MLflow: its only importer.

MLflow is loaded when a tracker is made (it takes seconds), told to keep quiet, and its failures
become one sentence.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybridlat.evaluation.tracking import (
    CHAMPION,
    EXPERIMENT,
    TrackedRun,
    Tracker,
    TrackingError,
    Version,
    git_commit,
    model_name,
)
from hybridlat.schema.target import Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    def __init__(self, client: Any, run_id: str, experiment: str) -> None:
        self._client, self.id, self._experiment = client, run_id, experiment

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

    @contextlib.contextmanager
    def nested(self, name: str) -> Iterator[TrackedRun]:
        with _started(self._client, self._experiment, name, self.id) as run:
            yield run


@contextlib.contextmanager
def _started(client: Any, experiment: str, name: str, parent: str | None) -> Iterator[_MlflowRun]:
    with _calling("start a run"):
        tags = {"mlflow.source.name": "hybridlat", "mlflow.source.type": "LOCAL"}
        commit = git_commit()
        if commit:
            tags["mlflow.source.git.commit"] = commit
        if parent is not None:
            tags["mlflow.parentRunId"] = parent
        made = client.create_run(experiment, run_name=name, tags=tags)
    run = _MlflowRun(client, made.info.run_id, experiment)
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

    def _new_experiment(self) -> str:
        place = None
        if self.uri.startswith("sqlite:///"):
            # MLflow would put artifacts below the folder it happens to be started in.
            folder = Path(self.uri.removeprefix("sqlite:///")).resolve().parent
            place = (folder / "mlflow-artifacts").as_uri()
        return str(self._client.create_experiment(EXPERIMENT, artifact_location=place))

    @contextlib.contextmanager
    def run(self, name: str) -> Iterator[TrackedRun]:
        with _started(self._client, self._experiment, name, None) as run:
            yield run

    def register(
        self, target: Target, run: TrackedRun, folder: Path, device: str
    ) -> Version | None:
        name = model_name(target)
        run.files(folder, "model")
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
            downloaded = self._client.download_artifacts(version.run_id, "model", str(folder))
        return Path(downloaded)

    def _version(self, made: Any) -> Version:
        with _calling("read a model version"):
            data = self._client.get_run(made.run_id).data
        return Version(
            made.name, str(made.version), made.run_id, dict(data.metrics), dict(data.params)
        )


def _metric_name(name: str) -> str:
    """MLflow takes letters, digits and ``_-. /:`` in the name of a metric."""
    return re.sub(r"[^\w\-. /]", "_", name.replace("%", "pct").replace("@", "_at_"))
