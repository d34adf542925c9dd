"""Commands killed at random moments: nothing committed is lost, and no process stays behind.

A command starts on a store of its kind, gets KILL, TERM or INT after a random time, itself or its
group, and then: the records that were committed before are there, ``store check`` objects to
nothing, the next call answers, and no process of the command is left.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hybridlat.estimate.lookup.models import keep_device
from hybridlat.onnx_io import to_onnx
from hybridlat.store import Store
from tests.evaluation.made_pack import DEVICE, TARGET, fill
from tests.networks import ROOT, classifier, conv_relu, residual_block
from tests.slow import slow

MARK = "HYBRIDLAT_KILLS"
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
ENDS_IN_S, LEAVES_IN_S = 60.0, 15.0
PACK = ROOT / "data" / "packs" / "epyc-26-2_onnxruntime-1.31_fp32_1t"
NETS = {f"net{n}": classifier(8 + n, classes=9 + n) for n in range(4)}
NETS |= {"conv": conv_relu(), "blocks": residual_block(blocks=3)}
PATHS = [f"nets/{name}.onnx" for name in NETS]
COMMANDS = {
    "predict": ["predict", *PATHS, "--measure", "always"],
    "predict --jobs": ["predict", *PATHS, "--target", "l4/tensorrt-10/fp16", "--jobs", "2"],
    "measure": ["measure", *PATHS],
    "onboard": ["onboard", "--time-limit", "15s", "--nets", "nets", "--full", "--no-track"],
    "import": ["import", str(PACK)],
    "train": ["train", "--target", str(TARGET), "--no-track", "--jobs", "2"],
    "evaluate": ["evaluate", "--target", str(TARGET), "--no-track"],
}


def start(folder: Path, words: list[str], mark: str) -> subprocess.Popen[bytes]:
    """A command on the folder's store, in a group of its own; ``mark`` is in its environment."""
    homes = {f"XDG_{kind}_HOME": str(folder / kind) for kind in ("DATA", "CACHE", "CONFIG")}
    with (folder / "errors").open("ab") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "hybridlat", *words, "--store", "store.db"],
            stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True, cwd=folder,
            env={**os.environ, **homes, MARK: mark, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip


def run(folder: Path, *words: str) -> int:
    with start(folder, [*words], "no mark") as process:
        return process.wait(600)


def records(folder: Path) -> int:
    with Store(str(folder / "store.db")) as store:
        return sum(1 for _ in store.measurements())


def marked(mark: str) -> dict[int, bytes]:
    """The live processes that have the mark in their environment, and their words."""
    alive = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes()  # a zombie has none
            if words and f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                alive[int(folder.name)] = words
    return alive


@slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", COMMANDS)
def test_a_killed_command_loses_and_leaves_nothing(name: str, seed: int, tmp_path: Path) -> None:
    rng, mark = random.Random(seed), tmp_path.name
    (tmp_path / "nets").mkdir()
    for net, network in NETS.items():
        (tmp_path / "nets" / f"{net}.onnx").write_bytes(to_onnx(network, seed=1))
    if name in ("train", "evaluate"):
        with Store(str(tmp_path / "store.db")) as store:
            fill(store, networks=14, sweep=30)
            keep_device(TARGET, store, DEVICE)
    with start(tmp_path, COMMANDS[name], mark) as process:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(rng.uniform(0.2, 8.0))
        before = records(tmp_path)
        if process.poll() is None:
            (os.killpg if rng.random() < 0.5 else os.kill)(process.pid, rng.choice(SIGNALS))
        process.wait(ENDS_IN_S)
    end = time.monotonic() + LEAVES_IN_S
    while (left := marked(mark)) and time.monotonic() < end:
        time.sleep(0.2)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == {}
    assert records(tmp_path) >= before
    if (tmp_path / "store.db").exists():
        assert run(tmp_path, "store", "check") == 0
    assert run(tmp_path, "predict", "nets/conv.onnx", "--measure", "never") in (0, 3)
