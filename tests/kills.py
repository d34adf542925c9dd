"""Commands killed at random moments: nothing committed is lost, and no process stays behind.

``python -m tests.kills COUNT [SEED [COMMAND ...]]``. Each try starts a command on a store of its
kind, waits for a random moment, sends KILL, TERM or INT to its process or to its group, and checks:
the records that were committed before the signal are there, ``store check`` finds nothing wrong,
the next call answers, and no process that the command started is left. Faults are printed as they
are found, then figures by command and signal; the exit code is 1 where there was one.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hybridlat.estimate.lookup.models import keep_device
from hybridlat.onnx_io import to_onnx
from hybridlat.store import Store
from tests.evaluation.made_pack import DEVICE, TARGET, fill
from tests.networks import ROOT, classifier, conv_relu, residual_block

MARK = "HYBRIDLAT_KILLS"
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
ENDS_IN_S, LEAVES_IN_S = 60.0, 15.0
PACK = ROOT / "data" / "packs" / "epyc-26-2_onnxruntime-1.31_fp32_1t"
NETS = {f"net{n}": classifier(8 + n, classes=9 + n) for n in range(4)}
NETS |= {"conv": conv_relu(), "blocks": residual_block(blocks=3)}
COMMANDS = {
    "predict": ["predict", "{nets}", "--measure", "always"],
    "predict --jobs": ["predict", "{nets}", "--target", "l4/tensorrt-10/fp16", "--jobs", "2"],
    "measure": ["measure", "{nets}"],
    "onboard": ["onboard", "--time-limit", "15s", "--nets", "{folder}", "--full", "--no-track"],
    "import": ["import", str(PACK)],
    "train": ["train", "--target", str(TARGET), "--no-track"],
    "train --jobs": ["train", "--target", str(TARGET), "--no-track", "--jobs", "2"],
}


@dataclass
class Stage:
    """Where one command is tried: its folder, with a store and networks, and how long it takes."""

    name: str
    folder: Path
    took_s: float = 0.0
    figures: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        (self.folder / "nets").mkdir(parents=True)
        for name, network in NETS.items():
            (self.folder / "nets" / f"{name}.onnx").write_bytes(to_onnx(network, seed=1))
        with Store(str(self.store)) as store:
            if self.name.startswith("train"):
                fill(store, networks=14, sweep=30)
                keep_device(TARGET, store, DEVICE)

    def clear(self) -> None:
        """Forget what was measured or imported: the next call is to do it again."""
        for file in () if self.name.startswith("train") else self.folder.glob("store.db*"):
            file.unlink()

    @property
    def store(self) -> Path:
        return self.folder / "store.db"

    def start(self, words: Sequence[str], mark: str) -> subprocess.Popen[bytes]:
        """A command on the stage's store, in a group of its own; ``mark`` is in its environment."""
        nets = [str(path) for path in sorted((self.folder / "nets").iterdir())]
        each = {"{nets}": nets, "{folder}": [str(self.folder / "nets")]}
        filled = [word for one in words for word in each.get(one, [one])]
        homes = {
            f"XDG_{kind}_HOME": str(self.folder / kind) for kind in ("DATA", "CACHE", "CONFIG")
        }
        own = {MARK: mark, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        with (self.folder / "errors").open("ab") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "hybridlat", *filled, "--store", str(self.store)],
                stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True, cwd=self.folder,
                env={**os.environ, **homes, **own},
            )  # fmt: skip

    def run(self, *words: str) -> int:
        """Run a command to its end; its exit code."""
        with self.start(words, "no mark") as process:
            return process.wait(600)

    def records(self) -> int:
        """How many records are committed."""
        with Store(str(self.store)) as store:
            return sum(1 for _ in store.measurements())

    def attempt(self, rng: random.Random) -> list[str]:
        """Start, kill and check once; the faults."""
        number, to_group = rng.choice(SIGNALS), rng.random() < 0.5
        self.clear()
        if not self.took_s:
            began = time.monotonic()
            self.run(*COMMANDS[self.name])
            self.took_s = time.monotonic() - began
            self.clear()
        mark = uuid.uuid4().hex
        with self.start(COMMANDS[self.name], mark) as process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(0.02, 1.0) * self.took_s)
            before, faults = self.records(), []
            is_live = process.poll() is None
            if is_live:
                (os.killpg if to_group else os.kill)(process.pid, number)
            try:
                process.wait(ENDS_IN_S)
            except subprocess.TimeoutExpired:
                faults.append(f"does not end within {ENDS_IN_S:.0f} s")
                process.kill()
        left = wait_for_none(mark)
        faults += [f"leaves {words}" for words in left.values()]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if (after := self.records()) < before:
            faults.append(f"{before - after} of {before} records are lost")
        if self.store.exists() and (code := self.run("store", "check")):
            faults.append(f"store check ends with {code}")
        answered = self.run(
            "predict", str(self.folder / "nets" / "conv.onnx"), "--measure", "never"
        )
        if answered not in (0, 3):
            faults.append(f"the next predict ends with {answered}")
        what = f"{signal.Signals(number).name} to the {'group' if to_group else 'process'}"
        self.figures[f"{what}: tried"] += 1
        self.figures[f"{what}: live"] += is_live
        self.figures[f"{what}: faults"] += bool(faults)
        return [f"{self.name}, {what}: {fault}" for fault in faults]


def marked(mark: str) -> dict[int, str]:
    """The processes that have the mark in their environment, and their words."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                words = (
                    (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
                if words:  # a zombie has none
                    found[int(folder.name)] = words[:120]
    return found


def wait_for_none(mark: str) -> dict[int, str]:
    """What is left of a command once it had time to end."""
    end = time.monotonic() + LEAVES_IN_S
    while (left := marked(mark)) and time.monotonic() < end:
        time.sleep(0.2)
    return left


def main(count: int, seed: int = 0, names: Sequence[str] = tuple(COMMANDS)) -> int:
    """Kill ``count`` commands in turn; 1 where a fault was found."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job of a shell may ignore it
    rng, faults = random.Random(seed), 0
    with tempfile.TemporaryDirectory(prefix="hybridlat-kills-") as folder:
        stages = [Stage(name, Path(folder) / str(place)) for place, name in enumerate(names)]
        try:
            for number in range(count):
                for fault in stages[number % len(stages)].attempt(rng):
                    print(f"FAULT {number}: {fault}", flush=True)
                    faults += 1
        finally:  # an interrupted series has figures too
            for stage in stages:
                for what, figure in sorted(stage.figures.items()):
                    print(f"{stage.name:14} {what:32} {figure}")
    return 1 if faults else 0


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:3]]
    sys.exit(main(numbers[0], sum(numbers[1:]), sys.argv[3:] or tuple(COMMANDS)))
