"""The composite action, by running its steps as the runner of GitHub Actions does."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hybridlat.onnx_io.file import shipped_networks
from tests.networks import ROOT
from tests.pages import asking

yaml = pytest.importorskip("yaml", reason="the action is YAML")
ACTION: Any = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
L4 = "l4/tensorrt/fp16"


@pytest.fixture
def folder(tmp_path: Path, commands: Path) -> Path:
    """A folder on the PATH with the command in it."""
    script = tmp_path / "hybridlat"
    script.write_text(f'#!/bin/sh\n{asking(commands)} hybridlat "$@"\n')
    script.chmod(0o755)
    return tmp_path


def run_step(name: str, folder: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    (step,) = [one for one in ACTION["runs"]["steps"] if one["name"] == name]
    known = {key: one.get("default", "") for key, one in ACTION["inputs"].items()}
    known |= {key.replace("_", "-"): value for key, value in inputs.items()}
    given = {
        key: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: known[found[1]], value)
        for key, value in step.get("env", {}).items()
    }
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    home = {"GITHUB_STEP_SUMMARY": "summary.md", "HYBRIDLAT_STORE": str(folder / "s.db")}
    env = {**os.environ, **home, **given, "PATH": path, "PYTHONPATH": str(ROOT)}
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    how: Any = {"cwd": folder, "env": env, "capture_output": True, "text": True, "timeout": 120}
    return subprocess.run(words, check=False, **how)


@pytest.mark.parametrize(("budget", "code"), [("", 0), ("1s", 0), ("1us", 1), ("0.4ms", 3)])
def test_the_budget_decides_and_a_summary_is_left(folder: Path, budget: str, code: int) -> None:
    done = run_step("Predict", folder, network="resnet18", target=L4, max_latency=budget)
    assert done.returncode == code, done.stderr
    assert "| resnet18 |" in (folder / "summary.md").read_text()
    assert (folder / "latency.html").exists() and (folder / "latency.xml").exists()


def test_a_file_that_is_missing_ends_with_its_own_code(folder: Path) -> None:
    done = run_step("Predict", folder, network="no.onnx", target=L4)
    assert done.returncode == 2 and "no.onnx" in done.stderr
    assert "latency.md" not in done.stderr


def test_the_base_branch_is_compared_with(folder: Path) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)

    git("init", "-q")
    nets = shipped_networks()
    name = 'nét [1] "a".onnx'
    (folder / name).write_bytes(nets["resnet18"].read_bytes())
    (folder / 'nét 1 "a".onnx').write_bytes(b"")  # as a pattern the name is this one, too
    (folder / "large.onnx").write_bytes(nets["resnet18"].read_bytes())
    (folder / ".gitattributes").write_text("large.onnx filter=pointer\n")
    git("config", "filter.pointer.clean", "cat > kept; echo pointer")  # as Git LFS does
    git("config", "filter.pointer.smudge", "cat > pointer; cat kept")
    (folder / "base.onnx").write_bytes(nets["resnet18"].read_bytes())
    git("add", ".gitattributes", "*.onnx")
    git("commit", "-qm", "base")
    asked = {"network": name, "target": L4, "base": "HEAD"}
    assert run_step("Compare", folder, **asked).returncode == 0
    (folder / name).write_bytes(nets["wide_resnet50_2"].read_bytes())
    done = run_step("Compare", folder, **asked)
    assert done.returncode == 1 and f"{name} is slower than the first" in done.stderr
    assert "× slower" in (folder / "summary.md").read_text()
    (folder / "base.onnx").write_bytes(nets["wide_resnet50_2"].read_bytes())
    assert run_step("Compare", folder, **{**asked, "network": "base.onnx"}).returncode == 1
    whole = run_step("Compare", folder, **{**asked, "network": f"{folder}/{name}"})
    assert whole.returncode == 1 and f"{name} is slower than the first" in whole.stderr
    assert run_step("Compare", folder, **{**asked, "network": "large.onnx"}).returncode == 0
    shallow = run_step("Compare", folder, **{**asked, "base": "origin/main"})
    assert shallow.returncode == 2 and "This clone has no origin/main: fetch" in shallow.stderr
    missing = run_step("Compare", folder, **{**asked, "network": "new.onnx"})
    assert missing.returncode == 0 and "nothing to compare" in missing.stdout
