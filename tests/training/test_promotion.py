"""A model is put in place whole: whatever step that dies at, readers find the old or the new."""

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hybridlat.errors import StoreError
from hybridlat.estimate.lookup import models
from hybridlat.estimate.lookup.models import folder_in_use, read_model
from hybridlat.model.model_files import load_model, save_model
from hybridlat.schema.plugins import shipped
from hybridlat.schema.target import Target
from hybridlat.training import candidate, train
from hybridlat.training.candidate import Champion
from hybridlat.training.train import install

FILES = ("model.json", "arrays.npz", "trees.ubj", "spread.ubj", "composition.json", "card.json")
TARGET = Target("made", "maker-1.0", "fp32", 1)


class Killed(BaseException):
    """The process is gone: nothing of it runs any more."""


def _model(folder: Path, text: str) -> Path:
    """Files whose contents all say which model they are of."""
    folder.mkdir(parents=True)
    for name in FILES:
        (folder / name).write_text(text)
    return folder


def _in_use(place: Path) -> str:
    """Which model a reader gets: the same of every file, or the test fails."""
    folder = folder_in_use(place)
    assert folder is not None
    [text] = {(folder / name).read_text() for name in FILES}
    return text


STEPS: tuple[tuple[object, str], ...] = (
    (Path, "mkdir"), (Path, "replace"), (Path, "write_text"), (os, "fsync"), (os, "utime"),
    (shutil, "copyfile"), (shutil, "rmtree"), (Path, "unlink"),
)  # fmt: skip


@pytest.mark.parametrize("layout", ["versions", "flat"])
@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_killed_at_any_step_leaves_the_old_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str, late: bool
) -> None:
    new = _model(tmp_path / "new", "new")
    monkeypatch.setattr(train, "_DELETED_AFTER_S", -1.0)  # something is always deleted
    ends: list[str] = []
    for fatal in range(200):
        place = tmp_path / str(fatal) / TARGET.folder
        if layout == "flat":
            _model(place, "old")
        else:
            install(_model(tmp_path / f"older {fatal}", "older"), place)
            install(_model(tmp_path / f"old {fatal}", "old"), place)
        with monkeypatch.context() as patch:
            _kill_at(patch, fatal, late)
            try:
                install(new, place)
            except Killed:
                pass
            else:
                break
        ends.append(_in_use(place))
        install(new, place)  # and what is left behind is in nobody's way
        assert _in_use(place) == "new"
    assert _in_use(place) == "new"
    assert fatal > 10
    assert "old" in ends and ends == sorted(ends, reverse=True)


def _kill_at(patch: pytest.MonkeyPatch, fatal: int, late: bool) -> None:
    """Die at the ``fatal``-th step, before it is done or right after."""
    steps = iter(range(1000))

    def dying(step: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            deadly = next(steps) == fatal
            if deadly and not late:
                raise Killed
            done = step(*arguments, **options)
            if deadly:
                raise Killed
            return done

        return run

    for owner, name in STEPS:
        patch.setattr(owner, name, dying(getattr(owner, name)))


def test_versions_out_of_use_go_once_nobody_can_be_loading_them(tmp_path: Path) -> None:
    place = tmp_path / TARGET.folder
    kept = [install(_model(tmp_path / f"model {i}", f"model {i}"), place) for i in range(3)]
    assert all(folder.is_dir() for folder in kept)
    long_ago = time.time() - 3600
    for folder in kept:
        os.utime(folder, (long_ago, long_ago))
    last = install(_model(tmp_path / "last", "last"), place)
    assert [folder.is_dir() for folder in kept] == [False, False, True]
    assert folder_in_use(place) == last


@pytest.mark.parametrize("pointer", ["", "../elsewhere", "gone", "\xff"])
def test_a_pointer_to_nowhere_leaves_the_files_beside_it(tmp_path: Path, pointer: str) -> None:
    place = _model(tmp_path / TARGET.folder, "flat")
    (place / "current").write_bytes(pointer.encode("latin-1"))
    assert folder_in_use(place) == place


@pytest.mark.parametrize("place", ["prior", "prior/prior"])
def test_a_damaged_prior_is_found_before_it_is_read(tmp_path: Path, place: str) -> None:
    model = load_model(shipped("models") / "v100_tensorrt_fp32")
    save_model(replace(model, prior=replace(model, prior=model)), tmp_path / "new")
    folder = install(tmp_path / "new", tmp_path / TARGET.folder)
    assert read_model(folder).prior is not None
    (folder / place / "trees.ubj").write_text("damaged")
    with pytest.raises(StoreError, match=r"trees.ubj is not the file that was installed"):
        read_model(folder)


def test_a_card_without_networks_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidate, "read_composition", lambda _: object())
    model = SimpleNamespace(card={"trained_networks": 7})
    monkeypatch.setattr(models, "read_model", lambda _: model)
    with pytest.raises(StoreError, match="trained_networks is 7"):
        Champion.read(tmp_path)
