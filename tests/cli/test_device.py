"""``--device-sheet``: a file from anywhere describes the target's device, for one command."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hybridlat import Predictor, predict
from hybridlat.engines import device_sheets
from hybridlat.errors import InputError
from hybridlat.onnx_io import to_onnx
from tests.cli.shell import call
from tests.engines.test_device_sheets import SHORT
from tests.networks import classifier

TARGET = "my-board/tensorrt/fp16"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A network and two sheets, none of them called as the device is."""
    (tmp_path / "a.onnx").write_bytes(to_onnx(classifier(64), seed=1))
    for name, bandwidth in (("quick", "2000"), ("slow", "8")):
        sheet = SHORT.replace("256", bandwidth) + "fp16 = 30.7\n"
        (tmp_path / f"{name}.toml").write_text(sheet)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYBRIDLAT_STORE", str(tmp_path / "s.db"))
    yield tmp_path
    assert "my-board" not in device_sheets.names()  # nothing outlives its command


def latency_us(sheet: str) -> float:
    fixed = ("predict", "a.onnx", "--target", TARGET, "--measure", "never", "--json")
    return float(call(*fixed, "--device-sheet", sheet).body["latency_us"])


def test_the_sheet_is_the_device_of_the_target(folder: Path) -> None:
    quick = latency_us("quick.toml")
    assert latency_us("slow.toml") > quick
    assert predict(folder / "a.onnx", TARGET, device="quick.toml").latency_us == quick
    slow = device_sheets.read(folder / "slow.toml")
    with Predictor(TARGET, device=slow) as predictor:
        assert predictor.predict(folder / "a.onnx").latency_us != quick
    with pytest.raises(InputError, match="give a target"):
        Predictor(device=slow)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["predict", "a.onnx", "--target", TARGET, "--device-sheet", "no.toml"], "no.toml"),
        (["compare", "a.onnx", "a.onnx", "--target", TARGET, "--device-sheet", "a.onnx"],
         "it is not TOML"),
        (["measure", "a.onnx", "--target", TARGET, "--device-sheet", "."], "it cannot be read"),
        (["predict", "a.onnx", "--device-sheet", "quick.toml"], "give --target as well"),
        (["predict", "a.onnx", "--target", "v100", "--device-sheet", "quick.toml"],
         "v100 needs an engine"),
        (["evaluate", "--target", TARGET, "--target", "v100/tensorrt/fp16", "--device-sheet",
          "quick.toml"], "--device-sheet is one device"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_sentence(folder: Path, words: list[str], sentence: str) -> None:
    out, err = call(*words, code=2)
    assert out == ""
    assert sentence in " ".join(err.split()) and "Did you mean" not in err
    assert "Traceback" not in err
