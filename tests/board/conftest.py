"""Plans of small networks, and ways to run their runners."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import pytest

from hybridlat.engines.fusion.groups import Groups, lowered_of
from hybridlat.graph.network import Constant, Lowered, Network, Node, TensorType
from hybridlat.measuring import plans
from hybridlat.schema.target import Target

FAKE = Path(__file__).with_name("fake_trtexec.py")
ENGINE = Path(__file__).parents[1] / "fakes" / "board" / "engine_fake.py"
SSH = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift 2; done
[ "$1" = user@board ] || { echo "could not resolve $1" >&2; exit 255; }
cd BOARD && exec sh -c "$2"
"""


class MakePlan(Protocol):
    """Write a plan of ``count`` small networks; its folder."""

    def __call__(
        self, runtime: str = "tensorrt", precision: str = "fp32", rounds: int = 1, count: int = 1
    ) -> Path: ...


class RunScript(Protocol):
    """Run the run.sh of a plan's folder; ``more`` goes into its environment."""

    def __call__(
        self, folder: Path, version: str = "8.6", shell: str = "sh", **more: str
    ) -> subprocess.CompletedProcess[str]: ...


def add_fake_engine(plan: Path) -> None:
    """Put the made-up engine beside the other engines of a plan."""
    shutil.copy(ENGINE, plan / "hybridlat_board")


def small_network(channels: int = 8) -> Network:
    """Conv, relu, identity (which engines remove), conv, add, global pool, flatten, gemm."""
    full = TensorType("float32", (1, channels, 12, 12))
    types = dict.fromkeys(("x", "c1", "r1", "i1", "c2", "a1"), full)
    types["p"] = TensorType("float32", (1, channels, 1, 1))
    types["f"] = TensorType("float32", (1, channels))
    types["y"] = TensorType("float32", (1, 10))
    pads = (("kernel_shape", (3, 3)), ("pads", (1, 1, 1, 1)))
    nodes = (
        Node("conv1", "Conv", ("x", "w1", "b1"), ("c1",), pads, version=11),
        Node("relu1", "Relu", ("c1",), ("r1",), version=13),
        Node("id1", "Identity", ("r1",), ("i1",), version=13),
        Node("conv2", "Conv", ("i1", "w2"), ("c2",), pads, version=11),
        Node("add1", "Add", ("c2", "r1"), ("a1",), version=13),
        Node("pool", "GlobalAveragePool", ("a1",), ("p",), version=1),
        Node("flat", "Flatten", ("p",), ("f",), (("axis", 1),), version=13),
        Node("fc", "Gemm", ("f", "w3", "b3"), ("y",), (("transB", 1),), version=13),
    )
    square = Constant(TensorType("float32", (channels, channels, 3, 3)))
    constants = {
        "w1": square, "b1": Constant(TensorType("float32", (channels,))), "w2": square,
        "w3": Constant(TensorType("float32", (10 * channels // channels, channels))),
        "b3": Constant(TensorType("float32", (10,))),
    }  # fmt: skip
    return Network(f"small{channels}", nodes, ("x",), ("y",), types, constants)


def lower(network: Network) -> Lowered:
    """Conv+Relu and Conv+Add fused, Identity and Flatten gone."""
    return lowered_of(network, Groups(((0, 1), (3, 4), (5,), (7,)), (2, 6)), "test")


@pytest.fixture
def make_plan(tmp_path: Path) -> MakePlan:
    """A written plan of one small network, or of several."""

    def make(
        runtime: str = "tensorrt", precision: str = "fp32", rounds: int = 1, count: int = 1
    ) -> Path:
        folder = tmp_path / "plan"
        networks = [(n.name, n) for n in map(small_network, range(8, 8 + count))]
        target = Target("board", runtime, precision)
        plans.write(plans.PlanRequest(networks, target, lower=lower, rounds=rounds), folder)
        if runtime == "fake":
            add_fake_engine(folder)
        return folder

    return make


@pytest.fixture
def run_sh(tmp_path: Path) -> RunScript:
    """Run a plan's run.sh with a stand-in for trtexec; the finished process."""
    link = tmp_path / "bin" / "trtexec"
    link.parent.mkdir()
    link.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {FAKE} "$@"\n')
    link.chmod(0o755)

    def run(
        folder: Path, version: str = "8.6", shell: str = "sh", **more: str
    ) -> subprocess.CompletedProcess[str]:
        path = f"{link.parent}{os.pathsep}/usr/bin{os.pathsep}/bin"
        environment = {"PATH": path, "FAKE_TRTEXEC": version, "FAKE_BOARD": "board one", **more}
        return subprocess.run(
            [shell, str(folder / "run.sh")], env=environment, capture_output=True, text=True,
            start_new_session=True,
        )  # fmt: skip

    return run


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A board behind ssh, an ssh that runs here, in the folder that is returned; it has no scp."""
    home, bin_ = tmp_path / "far", tmp_path / "bin"
    home.mkdir()
    bin_.mkdir()
    no_copies = "#!/bin/sh\necho 'there is no file transfer here' >&2\nexit 1\n"
    scripts = {
        "scp": no_copies, "sftp": no_copies,
        "ssh": SSH.replace("BOARD", str(home)),
        "trtexec": f'#!/bin/sh\nexec {sys.executable} -I -S {FAKE} "$@"\n',
    }  # fmt: skip
    for name, text in scripts.items():
        (bin_ / name).write_text(text)
        (bin_ / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("FAKE_BOARD", "far board")
    return home
