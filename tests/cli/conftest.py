"""Networks and a store for the tests of the command line."""

from pathlib import Path

import pytest

from hybridlat.onnx_io import to_onnx
from tests.cli.shell import FAKE, call
from tests.fakes.short import shorten
from tests.networks import classifier


@pytest.fixture(autouse=True)
def _short_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch.setattr)


@pytest.fixture(scope="session")
def nets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two small networks, a damaged file, and a store that knows both networks."""
    folder = tmp_path_factory.mktemp("nets")
    (folder / "a.onnx").write_bytes(to_onnx(classifier(8), seed=1))
    (folder / "b.onnx").write_bytes(to_onnx(classifier(16), seed=1))
    (folder / "bad.onnx").write_bytes(b"not a model")
    paths = (f"{folder}/a.onnx", f"{folder}/b.onnx")
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch.setattr)
        call("measure", *paths, "--target", FAKE, "--store", f"{folder}/known.db")
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of an import, with one network in ``nets``."""
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "net.onnx").write_bytes(to_onnx(classifier(8, 32), seed=None))
    monkeypatch.chdir(tmp_path)
    return tmp_path
