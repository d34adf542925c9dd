"""Runs, figures, models and the champion of each target, where MLflow keeps them.

Tracking goes to ``MLFLOW_TRACKING_URI``, else to a SQLite file beside the store, so that nothing
leaves the machine. MLflow is loaded when a tracker is made (it takes seconds), told to keep quiet,
and not needed: without it ``open_tracker`` gives a tracker that keeps nothing.

A target's models are versions of one registered model; the alias ``champion`` marks the one in use.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hybridlat.errors import HybridlatError, MissingExtra
from hybridlat.schema.target import Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPERIMENT = "hybridlat"
CHAMPION = "champion"
SERVED_BY = "hybridlat.api.served_model"
"""The module that MLflow loads a registered model with."""
SERVED_FILES = "hybridlat-model"
"""The folder of a registered model that holds its files."""
KIND = "kind"
"""The tag that tells runs of an evaluation from those of a training."""
NEWEST = "newest"
"""The tag of a run that no later one of the same kind has taken the place of."""


class TrackingError(HybridlatError):
    """The tracking server or file cannot be used."""


@dataclass(frozen=True, slots=True)
class Version:
    """A registered model: its number, the run that made it, and the metrics of that run."""

    name: str
    number: str
    run_id: str
    metrics: Mapping[str, float]
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Kept:
    """What was kept of a run that has ended."""

    tags: Mapping[str, str]
    metrics: Mapping[str, float]


class TrackedRun:
    """What can be kept of a run. This one keeps nothing: tracking is off, or not installed."""

    id = ""

    def parameters(self, values: Mapping[str, object]) -> None:
        """Inputs of the run, as text."""

    def metrics(self, values: Mapping[str, float | None]) -> None:
        """Figures of merit; None is left out."""

    def tags(self, values: Mapping[str, str]) -> None:
        """What runs are found by."""

    def table(self, name: str, columns: Mapping[str, Sequence[object]]) -> None:
        """A table under a file name ending in ``.json``."""

    def figure(self, name: str, figure: Figure) -> None:
        """A figure under a file name ending in ``.png``."""

    def text(self, name: str, text: str) -> None:
        """A text file."""

    def files(self, folder: Path, name: str) -> None:
        """All files of a folder, under a folder of that name."""

    def dataset(
        self, name: str, digest: str, source: str, context: str = "", size: Mapping[str, int] = {}
    ) -> None:
        """What the run was judged on or learned from: name, hash, where it lies, what for, size."""


class Tracker:
    """Starts runs and keeps the registry. This one keeps nothing."""

    uri = ""

    @contextlib.contextmanager
    def run(self, name: str, tags: Mapping[str, str] | None = None) -> Iterator[TrackedRun]:
        """A run of the project's experiment; it fails when its block does."""
        del name, tags
        yield TrackedRun()

    def latest(self, kind: str, tags: Sequence[str]) -> list[Kept]:
        """The newest finished run of a kind for each combination of values of these tags."""
        del kind, tags
        return []

    def mark_newest(self, kind: str, tags: Sequence[str]) -> None:
        """Tag the newest finished run of each combination ``newest: yes``, the older ones ``no``.

        Each value of the first of the tags also gets a colour of its own.
        """

    def describe(self, text: str) -> None:
        """Markdown that whoever opens the experiment sees first."""

    def page(self) -> str:
        """How a person comes to see the figures; empty where none are kept."""
        return ""

    def register(
        self, target: Target, run: TrackedRun, folder: Path, device: str
    ) -> Version | None:
        """Keep the model files of ``folder`` as a new version of the target's model."""
        del target, run, folder, device
        return None

    def champion(self, target: Target) -> Version | None:
        """The version that carries the alias, if any."""
        del target
        return None

    def promote(self, version: Version) -> None:
        """Move the alias ``champion`` to this version."""

    def download(self, version: Version, folder: Path) -> Path | None:
        """The model files of a version, copied below ``folder``."""
        del version, folder
        return None


def tracking_uri(store_url: str) -> str:
    """``MLFLOW_TRACKING_URI``, else a SQLite file beside the store's, else in the data folder."""
    given = os.environ.get("MLFLOW_TRACKING_URI", "").strip()
    if given:
        return given
    scheme, _, path = store_url.partition(":///")
    path = path.partition("?")[0]
    if scheme.partition("+")[0] == "sqlite" and path not in ("", ":memory:"):
        folder = Path(path).expanduser().resolve().parent
    else:
        import platformdirs

        folder = platformdirs.user_data_path("hybridlat", appauthor=False)
    return f"sqlite:///{folder / 'mlflow.db'}"


def open_tracker(store_url: str, required: bool = False) -> Tracker:
    """A tracker for the store; one that keeps nothing where MLflow is not installed.

    ``required`` raises MissingExtra instead.
    """
    from importlib.util import find_spec

    if find_spec("mlflow") is None:
        if required:
            raise MissingExtra("mlflow", "track", "keeping runs and models")
        return Tracker()
    from hybridlat.evaluation.mlflow_tracker import MlflowTracker

    return MlflowTracker(tracking_uri(store_url))


def git_commit(folder: Path | None = None) -> str:
    """The commit of the source tree this runs from; empty without git or outside a repository."""
    directory = folder or Path(__file__).resolve().parent
    try:
        completed = subprocess.run(
            ["git", "-C", str(directory), "rev-parse", "HEAD"],
            capture_output=True, text=True, timeout=10, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return completed.stdout.strip() if completed.returncode == 0 else ""


def model_name(target: Target) -> str:
    """The registered model of a target: a name without the characters MLflow keeps for itself."""
    return f"hybridlat-{re.sub(r'[/:]', '_', target.folder)}"
