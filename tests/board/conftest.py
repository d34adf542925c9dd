"""Plans of small networks, and ways to run their runners."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hybridlat.board.plan import name_of
from hybridlat.engines.tensorrt import lowering as tensorrt
from hybridlat.graph.network import Lowered, Network
from hybridlat.measuring import plans
from hybridlat.schema.target import Target
from tests.networks import stem

FAKE = Path(__file__).with_name("fake_trtexec.py")
ENGINE = Path(__file__).parents[1] / "fakes" / "board" / "engine_fake.py"
SSH = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift 2; done
case $1 in user@board | user@other) ;; *) echo "could not resolve $1" >&2; exit 255 ;; esac
mkdir -p "HOSTS/$1" && cd "HOSTS/$1" && FAKE_BOARD="far $1" exec sh -c "$2"
"""

SMI = """#!/bin/sh
[ "$1" != --query-gpu=name ] || echo "$FAKE_BOARD"
"""

MakePlan = Callable[..., Path]
RunScript = Callable[..., subprocess.CompletedProcess[str]]


def put_trtexec(folder: Path, **more: str) -> str:
    """A PATH of the system and a folder with a stand-in for trtexec and these scripts."""
    folder.mkdir(exist_ok=True)
    trtexec = f'#!/bin/sh\nexec {sys.executable} -I -S {FAKE} "$@"\n'
    scripts = {"trtexec": trtexec, "nvidia-smi": SMI, **more}
    for name, text in scripts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin"


def add_fake_engine(plan: Path) -> None:
    """Put the made-up engine beside the other engines of a plan."""
    shutil.copy(ENGINE, plan / "hybridlat_board")


def lower(network: Network) -> Lowered:
    """As TensorRT does, whatever the engine of the plan."""
    return tensorrt.lower(network, Target("board", "tensorrt", "fp32"))


def change(folder: Path, edit: Callable[[dict[str, Any]], object]) -> Path:
    """The plan with an edited manifest, its hash made right again."""
    body = json.loads((folder / "manifest.json").read_text())
    edit(body)
    (folder / "manifest.json").write_text(json.dumps(body | {"plan": name_of(body)}))
    return folder


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """The whole lines in a plan's results so far."""
    results = folder / "results.jsonl"
    texts = results.read_text().splitlines() if results.exists() else []
    return [json.loads(text) for text in texts if text.endswith("}")]


def quick(folder: Path, **settings: float) -> Path:
    """Less warm-up and fewer samples: a made-up engine needs none."""
    settings = {"warm_s": 0.01, "samples": 20, **settings}
    return change(folder, lambda body: body["settings"].update(settings))


@pytest.fixture
def make_plan(tmp_path: Path) -> MakePlan:
    """A written plan of ``count`` small networks; its folder."""

    def make(
        runtime: str = "tensorrt", precision: str = "fp32", rounds: int = 1, count: int = 1
    ) -> Path:
        folder = tmp_path / "plan"
        networks = [(f"net{c}", stem(c)) for c in range(8, 8 + count)]
        target = Target("board", runtime, precision)
        plans.draft_for(networks, target, lower=lower, rounds=rounds).write(folder)
        if runtime == "fake":
            add_fake_engine(folder)
        return folder

    return make


@pytest.fixture
def run_sh(tmp_path: Path) -> RunScript:
    """Run a plan's run.sh with a stand-in for trtexec, ``more`` in its environment."""
    path = put_trtexec(tmp_path / "bin")

    def run(folder: Path, version: str = "8.6", **more: str) -> subprocess.CompletedProcess[str]:
        usual = {"PATH": path, "FAKE_TRTEXEC": version, "FAKE_BOARD": "board one"}
        environment = {**usual, "HYBRIDLAT_LOCK": str(tmp_path / "lock"), **more}
        command, pipe = ["sh", str(folder / "run.sh")], subprocess.PIPE
        return subprocess.run(
            command, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )

    return run


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two boards behind ssh, an ssh that runs here, without scp; the folder of ``user@board``."""
    home = tmp_path / "far" / "user@board"
    home.mkdir(parents=True)
    no_copies = "#!/bin/sh\necho 'there is no file transfer here' >&2\nexit 1\n"
    ssh = SSH.replace("HOSTS", str(home.parent))
    path = put_trtexec(tmp_path / "bin", scp=no_copies, sftp=no_copies, ssh=ssh)
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return home
