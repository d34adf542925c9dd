"""What lies in the user's folder is not run, and nothing is kept that could be sent anywhere."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from hybridlat.onnx_io import to_onnx
from tests.cli.shell import FAKE
from tests.networks import classifier

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
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "user"
    folder.mkdir()
    for number, name in enumerate(("net", "net2", "net3")):
        (folder / f"{name}.onnx").write_bytes(to_onnx(classifier(8 + 8 * number), seed=1))
    # An operator of whose output onnx says nothing: a process of its own tries it.
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 8]) for n in "xy")
    d = helper.make_empty_tensor_value_info("d")
    odd = {"domain": "com.microsoft", "metric": "euclidean"}
    nodes = [
        helper.make_node("CDist", ["x", "x"], ["d"], **odd),
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    y.type.tensor_type.shape.dim[1].dim_value = 4
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "g", [x], [y], value_info=[d])
    made = helper.make_model(graph, opset_imports=domains, ir_version=8)
    onnx.save(made, folder / "mystery.onnx")
    for name in NAMES.split():
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'run')!r}, 'a').write('{name} ')")
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which nothing of the user's is set."""
    for name in os.environ:
        if name.startswith(("XDG_", "ORT_", "PYTHONSAFEPATH", "HYBRIDLAT_STORE")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def run(folder: Path, *words: str) -> None:
    """A process of Python in the folder, which leaves nothing behind but hybridlat's own files."""
    how: Any = {"capture_output": True, "text": True, "timeout": 120}
    done = subprocess.run([sys.executable, *words], cwd=folder, check=False, **how)
    assert done.returncode in (0, 3) and "defect" not in done.stderr, done.stderr
    home = folder.parent
    assert not (home / "run").exists(), (home / "run").read_text()
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
