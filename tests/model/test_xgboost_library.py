"""Where XGBoost's library is looked for, and what is said where there is none."""

import ctypes
import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from hybridlat.errors import UnavailableError
from hybridlat.model import trees as xgboost_trees


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the package's finder that lies elsewhere, without the library beside it."""
    real = importlib.util.find_spec("xgboost")
    assert real is not None and real.submodule_search_locations is not None
    folder = tmp_path / "site-packages" / "xgboost"
    folder.mkdir(parents=True)
    shutil.copyfile(Path(real.submodule_search_locations[0]) / "libpath.py", folder / "libpath.py")
    (folder / "__init__.py").write_text("raise AssertionError('the package was imported')")
    spec = importlib.util.spec_from_file_location(
        "xgboost", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
    xgboost_trees._library.cache_clear()
    yield folder
    xgboost_trees._library.cache_clear()


def test_a_system_s_library_is_found(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Conda keeps it in the environment's own lib folder, not in the package."""
    lib = tmp_path / "prefix" / "lib"
    lib.mkdir(parents=True)
    (lib / "libxgboost.so").write_bytes(b"")
    monkeypatch.setattr("sys.base_prefix", str(tmp_path / "prefix"))
    load = Mock()
    monkeypatch.setattr(ctypes, "CDLL", load)
    assert xgboost_trees._library() is load.return_value
    load.assert_called_once_with(str(lib / "libxgboost.so"))


@pytest.mark.parametrize("finder", [None, "raise SystemError", "find_lib_path = 1", "def ("])
def test_without_a_library_the_package_to_install_is_named(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finder: str | None
) -> None:
    monkeypatch.setattr("sys.base_prefix", str(tmp_path / "nowhere"))
    if finder is not None:
        (package / "libpath.py").write_text(finder)
    with pytest.raises(UnavailableError, match="pip install xgboost-cpu"):
        xgboost_trees._library()
