"""A run as MLflow keeps it, and MLflow's failures as one sentence."""

from __future__ import annotations

import contextlib
import json
import re
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybridlat.evaluation.tracking import TrackedRun, TrackingError, git_commit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_DIGEST = 36
_MOST_PARAMETER = 500
_MOST_AT_ONCE = 500


@contextlib.contextmanager
def calling(what: str) -> Iterator[None]:
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


class MlflowRun(TrackedRun):
    """The run ``run_id`` of a client."""

    def __init__(self, client: Any, run_id: str) -> None:
        self._client, self.id = client, run_id

    def parameters(self, values: Mapping[str, object]) -> None:
        from mlflow.entities import Param

        params = [Param(name, str(value)[:_MOST_PARAMETER]) for name, value in values.items()]
        with calling("keep parameters"):
            self._client.log_batch(self.id, params=params)

    def metrics(self, values: Mapping[str, float | None]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [
            Metric(_metric_name(name), float(value), now, 0)
            for name, value in values.items()
            if value is not None
        ]
        with calling("keep metrics"):
            for start in range(0, len(metrics), _MOST_AT_ONCE):
                self._client.log_batch(self.id, metrics=metrics[start : start + _MOST_AT_ONCE])

    def tags(self, values: Mapping[str, str]) -> None:
        with calling("keep tags"):
            for name, value in values.items():
                self._client.set_tag(self.id, name, value)

    def table(self, name: str, columns: Mapping[str, Sequence[object]]) -> None:
        with calling(f"keep the table {name}"):
            self._client.log_table(self.id, {k: list(v) for k, v in columns.items()}, name)

    def figure(self, name: str, figure: Figure) -> None:
        with calling(f"keep the figure {name}"):
            self._client.log_figure(self.id, figure, name)

    def text(self, name: str, text: str) -> None:
        with calling(f"keep {name}"):
            self._client.log_text(self.id, text, name)

    def files(self, folder: Path, name: str) -> None:
        with calling(f"keep the files of {folder}"):
            self._client.log_artifacts(self.id, str(folder), name)

    def dataset(
        self, name: str, digest: str, source: str, context: str = "", size: Mapping[str, int] = {}
    ) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag

        kept = Dataset(
            name, digest[:_MOST_DIGEST], "local", json.dumps({"uri": source}),
            profile=json.dumps(dict(size)),
        )  # fmt: skip
        used = [InputTag("mlflow.data.context", context)] if context else []
        with calling(f"keep the data set {name}"):
            self._client.log_inputs(self.id, [DatasetInput(kept, used)])


@contextlib.contextmanager
def started(
    client: Any, experiment: str, name: str, given: Mapping[str, str]
) -> Iterator[MlflowRun]:
    """A run of an experiment, with the tags ``given``; it fails when the block does."""
    with calling("start a run"):
        tags = {"mlflow.source.name": "hybridlat", "mlflow.source.type": "LOCAL", **given}
        commit = git_commit()
        if commit:
            tags["mlflow.source.git.commit"] = commit
        made = client.create_run(experiment, run_name=name, tags=tags)
    run = MlflowRun(client, made.info.run_id)
    try:
        yield run
    except BaseException:
        client.set_terminated(run.id, "FAILED")
        raise
    client.set_terminated(run.id, "FINISHED")


def _metric_name(name: str) -> str:
    """MLflow takes letters, digits and ``_-. /:`` in the name of a metric."""
    return re.sub(r"[^\w\-. /]", "_", name.replace("%", "pct").replace("@", "_at_"))
