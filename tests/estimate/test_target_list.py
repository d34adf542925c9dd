"""What can be predicted for, and how well: what `hybridlat targets` lists."""

import json
import re
import shutil
from pathlib import Path

import pytest

from hybridlat import Estimate, predict
from hybridlat.engines import device_sheets
from hybridlat.estimate.lookup.target_list import by_data_sheet, gpus, list_targets
from hybridlat.model.family import shipped
from hybridlat.model.family.shipped import family_heads
from hybridlat.model.model_files import user_models_folder
from hybridlat.schema.plugins import shipped as shipped_path
from hybridlat.schema.structure import half_width_share
from hybridlat.schema.target import Target
from hybridlat.training.quantise import file_as_target_takes
from tests.cli.shell import call
from tests.engines.test_device_sheets import SHORT
from tests.networks import NETS

FAMILY = shipped_path("models", "family_tensorrt")
NET = NETS / "resnet50.onnx"


@pytest.fixture
def own_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own folder of models, in place of the real one."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    user_models_folder().mkdir(parents=True)
    return user_models_folder()


def test_every_task_of_a_family_is_a_target(tmp_path: Path) -> None:
    by_target = {info.target: info for info in list_targets(str(tmp_path / "s.db"))}
    tasks = shipped.load(FAMILY).tasks
    for task in tasks:
        info = by_target[f"{task.device}/{task.engine}/{task.precision}"]
        assert info.source.endswith("family: whole networks") and not info.model
        if info.networks:
            assert info.half_width_share is not None and 0.05 < info.half_width_share < 2
    assert by_target["v100/paddle-tensorrt-2021/fp32"].networks > 150


@pytest.mark.parametrize("target", ["t4/tensorrt/fp16", "xavier-nx/tensorrt/fp16"])
def test_the_width_that_is_listed_is_like_the_predicted_one(tmp_path: Path, target: str) -> None:
    store = str(tmp_path / "s.db")
    (listed,) = [i.half_width_share for i in list_targets(store) if i.target == target]
    estimate = predict(NET, target, store=store, measure="never")
    stated = half_width_share(estimate.latency_us, estimate.interval_us)
    assert listed is not None and stated is not None and 0.5 < (1 + listed) / (1 + stated) < 2


def test_a_family_answers_for_every_gpu_with_a_sheet(tmp_path: Path) -> None:
    (family,) = [one for one in family_heads() if one.name == "tensorrt"]
    assert family.engines == ("paddle-tensorrt", "tensorrt", "tensorrt-rtx")
    names = {device.name for device in gpus()}
    assert "l4" in names and "i7-12700h" not in names
    targets = {info.target: info for info in by_data_sheet(())}
    assert not {"k80/torch-compile/amp", "v100/tensorrt-rtx/fp16"} & set(targets)
    listed = targets["l4/tensorrt/fp16"]
    assert listed.source == "family: data sheet" and (listed.half_width_share or 0) > 0.3
    (tmp_path / "board.toml").write_text(SHORT)
    with device_sheets.with_sheet(device_sheets.read(tmp_path / "board.toml")):
        targets = {info.target: info for info in by_data_sheet(())}
    assert "board/tensorrt/fp32" in targets and "board/tensorrt/fp16" not in targets


@pytest.mark.parametrize("damage", [None, "{", "[]", '{"format": 99}', '{"format": 1}'])
def test_a_damaged_family_costs_only_itself_and_one_without_calibration_its_width(
    own_models: Path, tmp_path: Path, damage: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(FAMILY, own_models / "family_tensorrt")
    head = own_models / "family_tensorrt" / "family.json"
    body = {**json.loads(head.read_text()), "calibration": None}
    del body["hash"]
    head.write_text(json.dumps(body) if damage is None else damage)
    by_target = {info.target: info for info in list_targets(str(tmp_path / "s.db"))}
    assert "v100/tensorrt/fp16" in by_target  # the shipped one answers
    assert (by_target["t4/tensorrt/fp16"].half_width_share is None) == (damage is None)
    assert "tensorrt" in {family.name for family in family_heads()}
    assert ("family_tensorrt" in caplog.text) == (damage is not None)


def test_the_command_lists_families_and_on_demand_their_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = str(tmp_path / "s.db")
    monkeypatch.setenv("COLUMNS", "80")
    short = call("targets", "--store", store).out
    assert "paddle-tensorrt, tensorrt, tensorrt-rtx" in short
    # A target is printed in one piece, so that it can be copied.
    assert "epyc-26-2/onnxruntime-1.31/fp32/1t" in short
    assert max(map(len, short.splitlines())) <= 80 and "rtx-5090" not in short
    (tmp_path / "board.toml").write_text(SHORT)
    long = call("targets", "--store", store, "--all", "--device-sheet", f"{tmp_path}/board.toml")
    assert "rtx-5090" in long.out and "board" in long.out
    few = call("targets", "--store", store, "--json").body
    many = call("targets", "--store", store, "--json", "--all").body
    assert {"target", "source", "cells", "networks", "model", "noise_floor"} <= set(few[0])
    assert many[: len(few)] == few
    names = [item["target"] for item in many]
    assert len(set(names)) == len(names) and "rtx-5090/tensorrt/fp16" in names


@pytest.mark.parametrize(
    ("device", "shown"),
    [
        ("RTX 4090", r"rest on public tables\n.*networks +typical interval\n(.*\n)*"
                     r"rtx-4090/torch-2.9/amp +454 +±6.5 % at batch 128–1024"),
        ("l4", r"rest on the data sheet\n.*\n(.*\n)*l4/tensorrt/fp16 +±46 %"),
        ("v100", r"rest on a model\n.*\nv100/tensorrt/fp16 +89,759 cells"),
        ("epyc-26-2", r"rest on measurements\n.*repeatability\n.*14,357 +126 +±1.9 %"),
        ("i7-12700h", "Only the data sheet of this device is known"),
    ],
)  # fmt: skip
def test_the_targets_of_one_device(tmp_path: Path, device: str, shown: str) -> None:
    store = ("--store", str(tmp_path / "s.db"))
    assert re.search(shown, re.sub(" +\n", "\n", call("targets", device, *store).out))
    rows = call("targets", device, "--json", *store).body
    # A name without a version is no row of its own beside the version that it stands for.
    assert "rtx-4090/torch/amp" not in {row["target"] for row in rows}
    assert all({"batches", "trained_on"} <= set(row) for row in rows)
    assert "unknown device" in call("targets", f"{device}x", *store, code=2).err


@pytest.mark.parametrize(
    ("text", "shown", "not_shown"),
    [
        ("orin", "orin-agx orin-nano orin-nano-7w orin-nx orin-nx-8gb", "xavier-nx jetson-nano"),
        ("Jetson", "jetson-nano jetson-tx1 tx2 xavier-nx orin-nx thor-agx", "l4 rtx-4090"),
        ("Jetson Orin*", "orin-agx orin-nano-7w orin-nx", "jetson-nano xavier-nx thor-agx"),
        ("xavier", "xavier-agx xavier-nx xavier-nx-10w", "orin-agx"),
        ("EPYC", "epyc-26-2", "l4"),
        ("gpu", "l4 rtx-4090 rtx-4090-laptop orin-nano v100", "epyc-26-2"),
        ("CPU", "epyc-26-2", "l4 rtx-4090-laptop"),
        ("laptop GPU", "rtx-4090-laptop", "l4 rtx-4090"),
        ("Jetson Orin Nano", "orin-nano", "orin-nano-7w orin-agx"),
        ("Tesla T4", "t4", "t4g"),
    ],
)
def test_a_family_lists_its_devices(text: str, shown: str, not_shown: str, tmp_path: Path) -> None:
    store = ["--store", str(tmp_path / "s.db")]
    rows = call("targets", text, *store, "--json").body
    devices = {row["target"].split("/")[0] for row in rows}
    assert set(shown.split()) <= devices and devices.isdisjoint(not_shown.split())
    assert set(shown.split()) <= set(re.split(r"[\s,/]+", call("targets", text, *store).out))


def test_a_model_of_fp32_does_not_guess_int8_where_another_cpu_knows_it(
    own_models: Path, tmp_path: Path
) -> None:
    target = Target.parse("i7-12700h/onnxruntime-1.31/int8/1t")
    file = file_as_target_takes(NETS / "resnet18.onnx", target)

    def estimate() -> Estimate:
        return predict(file, target, store=str(tmp_path / "s.db"), measure="never")

    without = estimate()
    known = shipped_path("models", "epyc-26-2_onnxruntime-1.31_fp32_1t")
    shutil.copytree(known, own_models / "i7-12700h_onnxruntime-1.31_fp32_1t")
    beside = estimate()
    for answer in (without, beside):
        assert any("Learned from another CPU" in warning.text for warning in answer.warnings)
    assert beside.latency_us == pytest.approx(without.latency_us, rel=0.1)
