"""MLflow: runs and what they hold; its registry is in ``registry.py``.

Tracking goes to ``MLFLOW_TRACKING_URI``, else to a SQLite file beside the store. MLflow is loaded
when a tracker is opened (it takes seconds) and silenced; without it ``Tracker()`` logs nothing.
Whatever MLflow raises is a TrackingError, which costs a command its tracking and no more.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybridlat.board import BoardError
from hybridlat.board.lock import held
from hybridlat.errors import HybridlatError
from hybridlat.estimate.lookup.models import user_models_folder
from hybridlat.store.place import StorePlace, without_password

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPERIMENT = VIEW = "hybridlat"
MAIN = "accuracy"
"""The group of the metrics that matter most: MLflow sorts groups by name."""
_MAIN = ("rmspe", "rmspe_of_rival", "rmspe_floor", "coverage")
_WIDTHS = {"tags.`target`": 250, **{f"metrics.`{MAIN}/{name}`": 165 for name in _MAIN}}
_EXPERIMENT_TAGS = {
    "mlflow.experimentKind": "custom_model_development",  # the pages of runs, not those of chats
    # MLflow's own form of a shared view: the list of runs with the columns that matter.
    f"mlflow.sharedViewState.{VIEW}": json.dumps({
        "searchFilter": "tags.kind != 'method'", "orderByKey": "attributes.start_time",
        "orderByAsc": False, "selectedColumns": [*_WIDTHS], "columnOrder": [*_WIDTHS],
        "columnWidths": _WIDTHS,
    }),
}  # fmt: skip
KIND = "kind"
"""The tag of a run: ``EVALUATION``, ``training``, or ``method`` for a part of an evaluation."""
EVALUATION = "evaluation"
Metrics = Mapping[tuple[str, int], float | None]
"""Figures of merit by name and step, 0 but in curves. None is left out."""
DESCRIPTION = "mlflow.note.content"
_MOST_PARAMETER = 500
_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
_LOGGERS = ("mlflow", "alembic", "alembic.runtime.migration")
_log = logging.getLogger(__name__)
_LACKING = "%s (the results are kept, MLflow lacks what follows)"

QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "GIT_PYTHON_REFRESH": "quiet",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_UV_AUTO_DETECT": "false",  # a model holds nothing of the folder it is trained in
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "4",  # half a minute without a server, not four
}


class TrackingError(HybridlatError):
    """The tracking server or file cannot be used."""


@contextlib.contextmanager
def calling(what: str) -> Iterator[None]:
    """MLflow's own failures as one sentence; it prints nothing meanwhile."""
    with _quiet():
        try:
            yield
        except Exception as error:  # of MLflow, its drivers and its migrations: any
            first = str(error).strip().split("\n")[0] or type(error).__name__
            raise TrackingError(f"MLflow could not {what}: {first}") from error


@dataclass(frozen=True)
class TrackedRun:
    """A run and what it logs. Without a client it logs nothing."""

    client: Any = None
    id: str = ""

    def log(
        self, parameters: Mapping[str, object] = {}, metrics: Metrics | None = None,
        tags: Mapping[str, str] = {},
    ) -> None:  # fmt: skip
        """Parameters of the run, figures of merit, and what runs are filtered by."""
        if self.client is not None:
            from mlflow.entities import Metric, Param, RunTag

            now = int(time.time() * 1000)
            given = [Param(name, str(v)[:_MOST_PARAMETER]) for name, v in parameters.items()]
            known = ((key, v) for key, v in (metrics or {}).items() if v is not None)
            figures = [Metric(_metric_name(n), float(v), now, step) for (n, step), v in known]
            marks = [RunTag(name, value) for name, value in tags.items()]
            with calling("log a run"):
                self.client.log_batch(self.id, figures, given, marks)

    def artifact(self, name: str, content: str | Figure | list[dict[str, Any]]) -> None:
        """A text, a picture, or the rows of a table (``.json``); nothing where it is empty."""
        if self.client is not None and content:
            with calling(f"keep {name}"):
                if isinstance(content, str):
                    self.client.log_text(self.id, content, name)
                elif isinstance(content, list):
                    columns = {key: [row[key] for row in content] for key in content[0]}
                    self.client.log_table(self.id, columns, name)
                else:
                    self.client.log_figure(self.id, content, name)

    def inputs(self, name: str, digest: str, store: str, counts: dict[str, int]) -> None:
        """The records that the run is about, as a data set."""
        if self.client is not None:
            from mlflow.entities import Dataset, DatasetInput

            source, profile = json.dumps({"store": store}), json.dumps(counts)
            data = Dataset(name, digest[:36], "hybridlat", source, profile=profile)
            with calling("log the records of a run"):
                self.client.log_inputs(self.id, [DatasetInput(data)])


class Tracker:
    """Runs and the registry at ``uri``, nothing without one; TrackingError if it does not open."""

    def __init__(self, uri: str = "") -> None:
        self.uri = uri
        self.client: Any = None
        self._open: list[str] = []
        self._has_failed = False
        if not uri:
            return
        folder = _folder_of(uri)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
        registry = os.environ.get("MLFLOW_REGISTRY_URI") or uri
        with calling(f"open {without_password(uri)}"), _alone(folder):
            from mlflow import MlflowClient

            self.client = MlflowClient(tracking_uri=uri, registry_uri=registry)
            if self.client.get_experiment_by_name(name) is None:
                # MLflow would put artifacts below the folder it happens to be started in.
                location = folder and (folder / "mlflow-artifacts").as_uri()
                self.client.create_experiment(name, artifact_location=location)
            experiment = self.client.get_experiment_by_name(name)
            self.experiment = str(experiment.experiment_id)
            if experiment.lifecycle_stage != "active":
                self.client.restore_experiment(self.experiment)
                _log.warning("MLflow's experiment %s was deleted: it is restored", name)
            for key in _EXPERIMENT_TAGS.keys() - experiment.tags.keys():
                self.client.set_experiment_tag(self.experiment, key, _EXPERIMENT_TAGS[key])

    @contextlib.contextmanager
    def optional(self) -> Iterator[None]:
        """A failure of tracking is one warning; what follows in the block is left out."""
        try:
            yield
        except TrackingError as error:
            if not self._has_failed:
                _log.warning(_LACKING, error)
            self._has_failed = True

    @contextlib.contextmanager
    def run(self, name: str, tags: Mapping[str, str] | None = None) -> Iterator[TrackedRun]:
        """A run below the one whose block it is in; it fails or is killed with its own block.

        It logs nothing where none can be started, nor after the first failure.
        """
        made = TrackedRun()
        with self.optional():
            if self.client is not None and not self._has_failed:
                made = TrackedRun(self.client, self._started(name, tags or {}))
        if not made.id:
            yield made
            return
        status = "FAILED"
        self._open.append(made.id)
        try:
            yield made
            status = "FINISHED"
        except KeyboardInterrupt:
            status = "KILLED"
            raise
        finally:
            self._open.pop()
            with self.optional(), calling("end a run"):
                self.client.set_terminated(made.id, status)

    def _started(self, name: str, tags: Mapping[str, str]) -> str:
        with calling("start a run"):
            from mlflow.tracking.context.registry import resolve_tags

            parent = {"mlflow.parentRunId": self._open[-1]} if self._open else {}
            words = {**resolve_tags(), "mlflow.source.name": "hybridlat", **tags, **parent}
            return str(
                self.client.create_run(self.experiment, run_name=name, tags=words).info.run_id
            )

    def address(self, run: str, server: str = "") -> str:
        """The page of a run (else of all) at ``server``; empty where no server keeps the runs."""
        if not server and self.uri.startswith(("http://", "https://")):
            server = without_password(self.uri).rstrip("/")
        page = f"/{run}?" if run else f"?viewStateShareKey={VIEW}&"
        # Where MLflow knows the last word, what stands beside the page is not for language models.
        page = f"{server}/#/experiments/{self.experiment}/runs{page}workflowType=machine_learning"
        return page if server else ""

    def newest_evaluation(self) -> str:
        """The run of the last target that was judged; empty where there is none."""
        with calling("look for a run"):
            found = self.client.search_runs(
                [self.experiment], f"tags.{KIND} = '{EVALUATION}'", max_results=1,
                order_by=["attributes.start_time DESC"],
            )  # fmt: skip
        return str(found[0].info.run_id) if found else ""


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """MLflow prints nothing and reports to nobody; then all is as the caller had it."""
    added = {name: text for name, text in QUIET.items() if name not in os.environ}
    os.environ.update(added)
    before: dict[logging.Logger, int] = {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import mlflow  # noqa: F401  it sets the levels of its loggers

            for logger in map(logging.getLogger, _LOGGERS):
                before[logger] = logger.level
                logger.setLevel(logging.ERROR)
            yield
    finally:
        for logger, level in before.items():
            logger.setLevel(level)
        for name in added:
            os.environ.pop(name, None)


def _folder_of(uri: str) -> Path | None:
    """The folder of a database's file, else the data folder; None where MLflow has its own."""
    if uri.partition(":")[0].partition("+")[0] not in _DATABASES:
        return None
    file = re.match(r"sqlite[^:]*:///([^?]+)", uri)
    return Path(file[1]).resolve().parent if file else user_models_folder().parent


@contextlib.contextmanager
def _alone(folder: Path | None) -> Iterator[None]:
    """One process at a time: two that migrate a new database at once fail."""
    with contextlib.ExitStack() as stack:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(BoardError):  # a file system without locks
                stack.enter_context(held(str(folder / ".mlflow.lock"), lambda _: None))
        yield


def _metric_name(name: str) -> str:
    """MLflow takes letters, digits and ``_-. /:`` in the name of a metric."""
    return re.sub(r"[^\w\-. /]", "_", name.replace("%", "pct").replace("@", "_at_"))


def tracking_uri(store_url: str) -> str:
    """``MLFLOW_TRACKING_URI``, else a SQLite file beside the store's, else in the data folder."""
    if given := os.environ.get("MLFLOW_TRACKING_URI", "").strip():
        return given
    file = StorePlace(store_url).file
    folder = user_models_folder().parent if file is None else file.resolve().parent
    return f"sqlite:///{folder / 'mlflow.db'}"


def open_tracker(store_url: str) -> Tracker:
    """A tracker for the store, of nothing without MLflow; TrackingError where it does not open."""
    return Tracker(tracking_uri(store_url) if find_spec("mlflow") is not None else "")


def tracker_or_none(store_url: str) -> Tracker:
    """As ``open_tracker``; one that keeps nothing, with a warning, where it does not open."""
    try:
        return open_tracker(store_url)
    except TrackingError as error:
        _log.warning(_LACKING, error)
        return Tracker()
