"""Damaged models cost what they belong to and nothing else."""

import io
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybridlat import Predictor, predict
from hybridlat.engines import device_sheets
from hybridlat.errors import StoreError
from hybridlat.estimate.compose.target_composition import composition_of, lent_composition
from hybridlat.estimate.lookup import models as model_folders
from hybridlat.estimate.lookup.target_data import TargetData
from hybridlat.estimate.lookup.target_list import list_targets
from hybridlat.model.family import shipped as files
from hybridlat.model.model_files import Arrays, load_model, reading, save_model
from hybridlat.onnx_io import to_onnx
from hybridlat.schema.files import warn_once
from hybridlat.schema.plugins import shipped
from hybridlat.schema.target import Target
from hybridlat.store import Store
from hybridlat.training.train import install
from tests.networks import conv_relu

TARGET = Target.parse("epyc-26-2/onnxruntime-1.31/fp32/1t")
SIBLING = Target("sibling", TARGET.runtime, "fp32", 1)
FILES = ("card.json", "composition.json", "model.json", "arrays.npz", "trees.ubj", "spread.ubj")
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "other": lambda data: b"[1, 2]",
    "binary": lambda data: b"\xff\xfe" + data[::-1],
}


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's models: none yet."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    warn_once.cache_clear()
    return tmp_path / "hybridlat" / "models"


def _damaged(models: Path, target: Target, file: str, how: str) -> Path:
    folder = models / target.folder
    shutil.copytree(shipped("models") / TARGET.folder, folder)
    save_model(load_model(folder), folder)  # with the hash of each file
    path = folder / file
    path.write_bytes(DAMAGE[how](path.read_bytes()))
    return path


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_file_of_ones_own_gives_way_to_the_shipped_model(
    models: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, file: str, how: str
) -> None:
    path = _damaged(models, TARGET, file, how)
    with Store(str(tmp_path / "store.db")) as store, caplog.at_level(logging.WARNING):
        known = TargetData(TARGET, store)
        assert known.model is not None and composition_of(known).networks > 0
        assert lent_composition(known) == ("", None)
    [warning] = known.model_warnings
    assert str(path.parent) in warning and "train its target again" in warning
    assert warning in caplog.messages


def test_what_changed_after_its_installation_is_not_loaded(models: Path, tmp_path: Path) -> None:
    """Damage in the middle of a file, over which XGBoost would end the process."""
    folder = install(shipped("models") / TARGET.folder, models / TARGET.folder)
    with Store(str(tmp_path / "store.db")) as store:
        assert TargetData(TARGET, store).model is not None
        data = bytearray((folder / "trees.ubj").read_bytes())
        data[len(data) // 2 : len(data) // 2 + 999] = b"\xff" * 999
        (folder / "trees.ubj").write_bytes(bytes(data))
        known = TargetData(TARGET, store)
        assert known.model is not None
    [warning] = known.model_warnings
    assert str(folder) in warning and "not the file that was installed" in warning


def test_a_file_that_is_another_is_refused_in_words_of_its_own(models: Path) -> None:
    """``train --pull`` quotes the error behind the refusal, or all of it where there is none."""
    file = _damaged(models, TARGET, "trees.ubj", "other")
    with pytest.raises(StoreError, match=r"trees.ubj is passed over.*installed\)") as other:
        model_folders.check(file)
    file.unlink()
    with pytest.raises(StoreError, match="No such file") as missing:
        model_folders.check(file)
    card = file.parent / "card.json"
    card.write_text(card.read_text().replace('"trees.ubj"', '"trees.json"'))
    with pytest.raises(StoreError, match="No such file"):  # of one without a hash too
        model_folders.check(file)
    assert other.value.__cause__ is None
    assert isinstance(missing.value.__cause__, OSError)


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("file", ["card.json", "composition.json"])
def test_a_damaged_file_of_a_sibling_is_passed_over(
    models: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, file: str, how: str
) -> None:
    path = _damaged(models, SIBLING, file, how)
    other = Target("third", TARGET.runtime, "fp32", 1)
    with Store(str(tmp_path / "store.db")) as store, caplog.at_level(logging.WARNING):
        known = TargetData(other, store)
        lender, _ = lent_composition(known)
        assert known.model is None and known.model_warnings == []
    assert lender == str(TARGET)
    assert any(str(path) in message for message in caplog.messages)


@pytest.mark.parametrize(
    ("target", "lender"),
    [
        ("third/onnxruntime-1.31/int8/1t", "epyc-26-2/onnxruntime-1.31/int8/1t"),
        ("third/onnxruntime-1.31/fp16/2t", "sibling/onnxruntime-1.31/fp32/2t"),
        ("sibling/onnxruntime-1.31/fp16/2t", "sibling/onnxruntime-1.31/fp32/2t"),
        ("third/onnxruntime-1.31/fp32/1t", str(TARGET)),
    ],
)
def test_a_composition_of_the_same_precision_and_threads_is_lent(
    models: Path, target: str, lender: str
) -> None:
    two = Target("sibling", TARGET.runtime, "fp32", 2)
    folder = models / two.folder
    shutil.copytree(shipped("models") / TARGET.folder, folder)
    card = folder / "card.json"
    card.write_text(card.read_text().replace(str(TARGET), str(two)))
    known = TargetData(Target.parse(target), Store(":memory:"))
    assert lent_composition(known)[0] == lender


def test_an_estimate_says_what_of_its_model_is_damaged(models: Path, tmp_path: Path) -> None:
    path = _damaged(models, TARGET, "composition.json", "cut")
    broken = _damaged(models, SIBLING, "card.json", "cut")
    store = str(tmp_path / "store.db")
    with Predictor(TARGET, store=store, measure="never") as predictor:
        estimate = predictor.predict(to_onnx(conv_relu(), seed=1))
        again = predictor.predict(to_onnx(conv_relu(), seed=1))
    assert estimate.latency_us is not None
    assert [w for w in map(str, estimate.warnings) if str(path) in w] == [str(estimate.warnings[0])]
    assert again.warnings == estimate.warnings
    assert not any(str(broken) in w for w in map(str, estimate.warnings))
    assert str(TARGET) in {t.target for t in list_targets(store)}


FAMILY_DAMAGE: dict[str, Callable[[Any], Any]] = {
    "anchors": lambda array: array[1:],
    "anchor_task": lambda array: array + 99999,
    "sums": lambda array: array.astype(str),
    "anchor_factor": lambda array: array * np.nan,
}


@pytest.mark.parametrize("name", FAMILY_DAMAGE)
@pytest.mark.parametrize("shipped_too", [False, True])
def test_a_damaged_family_gives_way_to_the_next(
    name: str, shipped_too: bool, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = shipped("models") / "family_torch-compile"
    folder = models / family.name
    shutil.copytree(family, folder)
    with np.load(family / "family.npz") as arrays:
        changed = dict(arrays)
    np.savez(folder / "family.npz", **{**changed, name: FAMILY_DAMAGE[name](changed[name])})
    if shipped_too:
        other = lambda *parts: models.joinpath(*parts[1:])  # noqa: E731
        monkeypatch.setattr("hybridlat.model.family.shipped.shipped", other)
    target, store = "v100/torch-compile-2.9/fp32", str(tmp_path / "store.db")
    estimate = predict(to_onnx(conv_relu(), seed=1), target, store=store, measure="never")
    assert estimate.latency_us is not None
    [warning] = [w for w in map(str, estimate.warnings) if str(folder) in w]
    assert "holds no family model" in warning


def test_a_family_that_was_changed_after_it_was_saved_is_not_read(tmp_path: Path) -> None:
    files.save(files.read(shipped("models") / "family_torch-compile"), tmp_path)
    assert files.read(tmp_path).tasks
    head = (tmp_path / "family.json").read_text()
    (tmp_path / "family.json").write_text(head.replace('"highest": 3.5', '"highest": 3.6'))
    with pytest.raises(StoreError, match=r"family.json is not the one that was saved"):
        files.read(tmp_path)


@pytest.mark.parametrize("damage", ["bomb", "header", "member"])
def test_arrays_are_read_within_bounds(damage: str) -> None:
    stream = io.BytesIO()
    if damage == "header":
        np.savez(stream, a=np.zeros(10))
        data = stream.getvalue().replace(b"(10,), }  ", b"(9999999,)}")
    else:
        zeros = np.zeros(300 << 20 if damage == "bomb" else 4000, np.int8)
        np.savez_compressed(stream, a=zeros)
        data = stream.getvalue()
        if damage == "member":
            data = data[:70] + b"\xff" * 9 + data[79:]
    with pytest.raises(StoreError, match="a file: "), reading("a file"):
        Arrays(data)


@pytest.fixture
def sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's folders that an ordinary user cannot look into; this process is one."""
    warn_once.cache_clear()
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    (tmp_path / "hybridlat").mkdir(mode=0)
    tmp_path.chmod(0)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    yield tmp_path / "hybridlat"
    if root:
        os.seteuid(0)
    tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    ("target", "meant"),
    [
        ("orin-nano/tensorrt/fp16", "orin-nano/tensorrt-8.5/fp16"),  # JetPack 5 timed its table
        ("orin-nano-7w/tensorrt/fp16", "orin-nano-7w/tensorrt-8.5/fp16"),
        ("orin-nano/tensorrt-10.3/fp16", "orin-nano/tensorrt-10.3/fp16"),
        ("orin-agx/tensorrt/fp16", "orin-agx/tensorrt-8.6/fp16"),  # of three tables the longest
        ("orin-agx/tensorrt-mmdeploy/fp16", "orin-agx/tensorrt-mmdeploy/fp16"),
        ("orin-nano/tensorrt/fp32", "orin-nano/tensorrt/fp32"),  # nothing was timed
        ("l4/torch/amp", "l4/torch/amp"),
        ("epyc-26-2/onnxruntime/fp32/1t", "epyc-26-2/onnxruntime/fp32/1t"),
    ],
)
def test_without_a_version_kernels_are_those_of_the_public_table(target: str, meant: str) -> None:
    assert str(files.timed_as(Target.parse(target))) == meant


def test_folders_of_the_user_that_cannot_be_read_are_passed_over_with_a_word(
    sealed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert model_folders.folder_in_use(sealed) is None
    assert all(sealed not in folder.parents for folder in model_folders.model_folders(None))
    assert files.folders("tensorrt")
    assert "l4" in device_sheets.names()
    for name in ("", "/models", "/models/family_tensorrt", "/devices"):
        why = "is passed over, it cannot be read (Permission denied)"
        assert f"{sealed}{name} {why}" in caplog.text


def test_a_store_that_cannot_be_seen_is_not_taken_for_a_new_one(sealed: Path) -> None:
    with pytest.raises(StoreError, match=r"Permission denied.*--store"):
        Store(sealed / "store.db").targets()
