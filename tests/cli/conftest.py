"""Networks and a store for the tests of the command line."""

from pathlib import Path

import pytest

from hybridlat.onnx_io import to_onnx
from tests.cli.shell import FAKE, process
from tests.networks import classifier


@pytest.fixture(scope="session")
def nets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two small networks, a damaged file, and a store that knows both networks."""
    folder = tmp_path_factory.mktemp("nets")
    (folder / "a.onnx").write_bytes(to_onnx(classifier(8), seed=1))
    (folder / "b.onnx").write_bytes(to_onnx(classifier(16), seed=1))
    (folder / "bad.onnx").write_bytes(b"not a model")
    for name in ("a.onnx", "b.onnx"):
        done = process("measure", name, "--target", FAKE, "--store", "known.db", cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of an import, with one network in ``nets``."""
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "net.onnx").write_bytes(to_onnx(classifier(8, 32), seed=None))
    monkeypatch.chdir(tmp_path)
    return tmp_path
