"""What lies in the user's folder is not run, and nothing is kept that could be sent anywhere."""

import os
from pathlib import Path

import onnx
import pytest

from hybridlat.onnx_io import to_onnx
from tests.cli.shell import FAKE, python
from tests.networks import classifier
from tests.onnx_io.test_reading_shapes import model

NAMES = (
    "onnx onnxruntime numpy random joblib msgspec platformdirs sqlalchemy click rich json socket "
    "tempfile torch tensorrt openvino xgboost secrets copy queue uuid hybridlat_board"
)
COMMAND = "import sys; from hybridlat.cli.main import main; main(sys.argv[1:])"
MANY = (
    "import hybridlat, sys\n"
    "with hybridlat.Predictor(measure='never') as predictor:\n"
    "    print(len(list(predictor.predict_many(sys.argv[1:], jobs=2))))\n"
)
RUNS = {
    "jobs": (MANY, "net.onnx net2.onnx net3.onnx"),
    "measure": (COMMAND, f"predict net.onnx --target {FAKE} --measure always"),
    "tried": (COMMAND, "lower mystery.onnx --target l4/tensorrt/fp16"),
    "engines": (COMMAND, "doctor --time-limit 0"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "user"
    folder.mkdir()
    for number, name in enumerate(("net", "net2", "net3")):
        (folder / f"{name}.onnx").write_bytes(to_onnx(classifier(8 + 8 * number), seed=1))
    # An operator of whose output onnx says nothing: a process of its own tries it.
    distances = 'd = com.microsoft.CDist<metric="euclidean">(x, x)  y = Relu(d)'
    made = model(f"g (float[4,8] x) => (float[4,4] y) {{ {distances} }}")
    onnx.save(made, folder / "mystery.onnx")
    for name in NAMES.split():
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'run')!r}, 'a').write('{name} ')")
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which nothing of the user's is set."""
    for name in os.environ:
        if name.startswith(("CI", "XDG_", "ORT_", "PYTHONSAFEPATH", "HYBRIDLAT_STORE")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def run(folder: Path, *words: str) -> None:
    """A process of Python in the folder, which leaves nothing behind but hybridlat's own files."""
    done = python(*words, cwd=folder)
    assert done.returncode in (0, 3) and "defect" not in done.stderr, done.stderr
    home = folder.parent
    assert not (home / "run").exists(), (home / "run").read_text()
    assert not (home / "intel").exists()  # an identifier that OpenVINO's events are sent with
    kept = {str(path.relative_to(home)) for path in home.glob(".*/*")}
    assert kept <= {".local/share", ".cache/hybridlat", ".config/hybridlat"}


@pytest.mark.parametrize("what", RUNS)
def test_modules_of_the_user_s_folder_are_not_run(what: str, folder: Path, home: Path) -> None:
    code, words = RUNS[what]
    run(folder, "-P", "-c", code, *words.split())


def test_python_m_takes_its_modules_from_elsewhere(folder: Path, home: Path) -> None:
    for name in ("random", "copy"):  # Python's own start with -m reads them
        (folder / f"{name}.py").unlink()
    run(folder, "-m", "hybridlat", "predict", "net.onnx", "--measure", "never")
