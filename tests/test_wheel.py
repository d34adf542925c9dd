"""The wheel carries what the package reads, and no more."""

import subprocess
import sys
import zipfile

import pytest

from tests.networks import ROOT

pytest.importorskip("hatchling", reason="hatchling builds the wheel: install the extra dev")

MOST_MB = 35
"""What a wheel may weigh: models and the CPU pack are nearly all of it."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_all_that_is_shipped_is_in_it(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    patterns = "models/**/* data/*.toml data/packs/**/* data/devices/*.toml data/nets/*.onnx"
    shipped = [
        path.relative_to(ROOT).as_posix()
        for pattern in patterns.split()
        for path in ROOT.glob(pattern)
        if path.is_file() and "__pycache__" not in path.parts
    ]
    assert len(shipped) > 150
    assert not {f"hybridlat/_shipped/{name}" for name in shipped} - names


def test_the_package_is_in_it_with_what_boards_and_pages_need(wheel: zipfile.ZipFile) -> None:
    package = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "hybridlat").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {"hybridlat/py.typed", "hybridlat/board/run.sh"} <= package
    assert [name for name in package if name.endswith(".js")], "libraries of the report's page"
    assert not package - set(wheel.namelist())


def test_it_is_small_and_holds_nothing_else(wheel: zipfile.ZipFile) -> None:
    entries = wheel.infolist()
    assert sum(entry.compress_size for entry in entries) < MOST_MB * 1e6
    tops = {entry.filename.split("/")[0] for entry in entries}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"hybridlat"}
    assert not [e.filename for e in entries if e.filename.endswith((".pyc", ".pickle", ".pkl"))]
