"""results.jsonl: one line a result of one board, appended and flushed; what is in it is done."""

import hashlib
import json
import os
import platform
import subprocess
import time
from contextlib import suppress
from typing import Any, Dict, Iterator, Optional, Tuple

from . import BoardError

FORMAT = 1
_MAX_LOST = 2  # times that a model may take the worker down before it counts as failed
_SAME = (
    "runner", "engine", "engine_version", "gpu", "model", "uuid", "driver", "jetpack",
    "power_mode", "power_limit_w", "max_sm_mhz", "settings",
)  # fmt: skip


class Journal(object):
    """The results of one board; BoardError when the file belongs to another."""

    def __init__(self, path: str, plan: str, board_id: str, facts: Dict[str, str]) -> None:
        self._path = path
        self.done: set[Tuple[str, int]] = set()
        self.board_id = board_id
        lost: Dict[Tuple[str, int], int] = {}
        header: Optional[Dict[str, Any]] = None
        for line in read_lines(path):
            if line.get("kind") == "board":
                header = header or line
                self._check(line, plan, facts)
                continue
            key = (str(line["task"]), int(line["round"]))
            if line["kind"] == "visit" or not line.get("lost"):
                self.done.add(key)
            else:
                lost[key] = lost.get(key, 0) + 1
        self.done.update(key for key, times in lost.items() if times >= _MAX_LOST)
        _end_line(path)
        if header is None:
            self.write({"kind": "board", "plan": plan, "board": facts})

    def _check(self, line: Dict[str, Any], plan: str, facts: Dict[str, str]) -> None:
        if line.get("plan") != plan:
            raise BoardError(
                "%s holds results of another plan: move it away to measure this one" % self._path
            )
        if line.get("board_id") != self.board_id:
            both = [(key, line["board"].get(key, ""), facts.get(key, "")) for key in _SAME]
            changed = "; ".join("%s %r then, %r now" % one for one in both if one[1] != one[2])
            raise BoardError(
                "%s holds results of another board (%s): use --results with another file name"
                % (self._path, changed)
            )

    def write(self, line: Dict[str, Any]) -> None:
        """Append one line; it is on the disk when this returns."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = dict(line, format=FORMAT, board_id=self.board_id, at=at)
        with open(self._path, "a") as sink:
            sink.write(json.dumps(line, sort_keys=True) + "\n")
            sink.flush()
            os.fsync(sink.fileno())


def read_lines(path: str) -> Iterator[Dict[str, Any]]:
    """The whole lines of a results file; a last line that was cut off is passed over."""
    try:
        with open(path, "r") as source:
            lines = source.read().split("\n")
    except FileNotFoundError:
        return
    for index, text in enumerate(lines):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
        except ValueError:
            # A run that was killed while writing leaves half a line; the next run ends it.
            was_cut = text.startswith("{") and not text.rstrip().endswith("}")
            if index >= len(lines) - 1 or was_cut:
                continue
            raise BoardError("%s, line %d is damaged" % (path, index + 1))
        if isinstance(line, dict):
            yield line


def _end_line(path: str) -> None:
    with suppress(FileNotFoundError), open(path, "rb+") as file:
        file.seek(0, os.SEEK_END)
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")


def board_id(facts: Dict[str, str]) -> str:
    """16 hex digits that name device, driver, engine version, runner and power mode together."""
    text = "\n".join("%s=%s" % (key, facts.get(key, "")) for key in _SAME)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def board_model() -> str:
    """The board's own name where its system has one: a Jetson's, whose GPU has but a chip's."""
    return first_line("/proc/device-tree/model")


def system_facts() -> Dict[str, str]:
    """The system's facts about the board: model, JetPack's release, power mode, kernel."""
    facts = {"system": "%s %s %s" % (platform.system(), platform.release(), platform.machine())}
    stated = {"model": board_model(), "jetpack": first_line("/etc/nv_tegra_release")}
    facts.update((name, text) for name, text in stated.items() if text)
    with suppress(OSError, subprocess.SubprocessError):
        mode = subprocess.check_output(
            ["nvpmodel", "-q"], stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, timeout=10
        )
        facts["power_mode"] = " ".join(mode.decode("utf-8", "replace").split())
    return facts


def first_line(path: str) -> str:
    """The first line of a file, stripped; empty where it cannot be read."""
    try:
        with open(path, "rb") as source:
            text = source.read(4096).decode("utf-8", "replace")
    except OSError:
        return ""
    return text.split("\n")[0].strip("\0 \t\r")
