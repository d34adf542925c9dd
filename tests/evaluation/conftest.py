"""One made-up store and one empty tracking database, made once: migrations take seconds."""

import shutil
from pathlib import Path

import pytest

from hybridlat.evaluation import evaluate
from hybridlat.model.cell_model import CellModel
from hybridlat.model.model_files import load_model
from hybridlat.training import train
from tests.evaluation.made_pack import DEVICE, TARGET, FlatModel, made_store


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the user's models nor the user's tracking are touched."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    hide_shipped_models(monkeypatch)


def hide_shipped_models(patch: pytest.MonkeyPatch) -> None:
    """Starting from the shipped models is right, and takes minutes over all these tests."""
    patch.setattr("hybridlat.estimate.lookup.models.shipped", lambda *_: Path("no models"))


@pytest.fixture(scope="session")
def store_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return made_store(tmp_path_factory.mktemp("made"), networks=14, sweep=30)


@pytest.fixture(scope="session")
def trained(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> train.Trained:
    """A first training on the made-up store."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        hide_shipped_models(patch)
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        options = train.TrainingOptions(out=folder, device=DEVICE, track=False)
        return train.train_target(TARGET, options, store=store_url)


@pytest.fixture(scope="session")
def tracked_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store and an MLflow database that has its tables."""
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    from hybridlat.evaluation import tracking

    folder = tmp_path_factory.mktemp("tracked")
    url = made_store(folder, networks=14, sweep=30)
    with tracking.opened(url):
        return folder


@pytest.fixture
def tracked(tracked_folder: Path, tmp_path: Path) -> str:
    """URL of a store of one's own, beside an MLflow database of one's own."""
    for name in ("store.db", "mlflow.db"):
        shutil.copy(tracked_folder / name, tmp_path / name)
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def flat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluations take no fits: where what is tested is not the model."""
    monkeypatch.setattr("hybridlat.model.fit.fit_model", lambda *_, **__: FlatModel())
    monkeypatch.setattr(evaluate, "device_of", lambda *_: DEVICE)


@pytest.fixture
def made(trained: train.Trained, monkeypatch: pytest.MonkeyPatch) -> dict[str, CellModel]:
    """The ``model`` that trainings give, without fitting it: that of the first one."""
    assert trained.folder is not None
    made = {"model": load_model(trained.folder)}
    monkeypatch.setattr(
        "hybridlat.evaluation.cross_fitting.fit_without", lambda *_, **__: made["model"]
    )
    return made
