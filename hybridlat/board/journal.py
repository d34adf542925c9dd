"""results.jsonl: one line a result of one board, appended and flushed; what is in it is done.

A line counts once it is whole: what a cut or a loss of power left of one is measured anew.
"""

import hashlib
import json
import os
import platform
import subprocess
import time
from contextlib import suppress
from typing import Any, Dict, Iterator, Optional, Tuple

from . import BoardError
from .plan import COUNT, FACT, FLAG, NUMBER, TEXT, TIME, matching, misfit, parse, read_file

FORMAT = 1
MAX_LOST = 2  # times that a model may take the worker down before it counts as failed
_MOST_BYTES, _LONGEST_BYTES = 128 << 20, 1 << 20  # of a file, and of a line
_LINE = {
    "format": COUNT,
    "kind": matching("kind of line", "board|visit|failure"),
    "board_id": TEXT,
    "at": TIME,
}
_RESULT = dict(_LINE, task=TEXT, round=COUNT)
_SHAPES = {
    "board": dict(_LINE, plan=TEXT, board={
        TEXT: FACT, "engine": matching("engine", "[a-z0-9][a-z0-9-]{0,40}"),
        "engine_version": matching("version", "[0-9][0-9.]{0,40}"),
    }),
    "failure": dict(_RESULT, **{"error": TEXT, "lost?": FLAG}),
    "visit": dict(_RESULT, **{
        "samples_us": {TEXT: [NUMBER]}, "sensors?": {TEXT: {TEXT: FACT}}, "visit?": COUNT,
        "process?": COUNT, "reference_us?": NUMBER, "launch?": TEXT, "built?": {TEXT: {TEXT: FACT}},
    }),
}  # fmt: skip
SAME = (
    "runner", "engine", "engine_version", "gpu", "model", "uuid", "driver", "jetpack",
    "power_mode", "power_limit_w", "max_sm_mhz", "settings",
)  # fmt: skip
"""Facts that name a board and how it ran: its id is their hash."""


class Journal(object):
    """The results of one board; BoardError when the file belongs to another."""

    def __init__(self, path: str, plan: str, board_id: str, facts: Dict[str, str]) -> None:
        self._path = path
        self.done: set[Tuple[str, int]] = set()
        self.board_id = board_id
        self.processes = 0  # of earlier runs
        lost: Dict[Tuple[str, int], int] = {}
        header: Optional[Dict[str, Any]] = None
        for line in read_lines(path):
            if line.get("kind") == "board":
                header = header or line
                self._check(line, plan, facts)
                continue
            self.processes = max(self.processes, line.get("process", 0))
            key = (str(line["task"]), int(line["round"]))
            if line["kind"] == "visit" or not line.get("lost"):
                self.done.add(key)
            else:
                lost[key] = lost.get(key, 0) + 1
        self.done.update(key for key, times in lost.items() if times >= MAX_LOST)
        _end_line(path)
        if header is None:
            self.write({"kind": "board", "plan": plan, "board": facts})

    def _check(self, line: Dict[str, Any], plan: str, facts: Dict[str, str]) -> None:
        if line.get("plan") != plan:
            raise BoardError(
                "%s holds results of another plan: move it away to measure this one" % self._path
            )
        if line.get("board_id") != self.board_id:
            both = [(key, line["board"].get(key, ""), facts.get(key, "")) for key in SAME]
            changed = "; ".join("%s %r then, %r now" % one for one in both if one[1] != one[2])
            raise BoardError(
                "%s holds results of another board (%s): use --results with another file name"
                % (self._path, changed)
            )

    def write(self, line: Dict[str, Any]) -> None:
        """Append one line; it is on the disk when this returns."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = dict(line, format=FORMAT, board_id=self.board_id, at=at)
        text = json.dumps(line, sort_keys=True, ensure_ascii=False) + "\n"
        try:
            with open(self._path, "ab") as sink:
                sink.write(text.encode("utf-8", "replace"))
                sink.flush()
                os.fsync(sink.fileno())
        except OSError as error:
            raise BoardError("%s cannot be written: %s" % (self._path, error.strerror))


def read_lines(path: str) -> Iterator[Dict[str, Any]]:
    """The whole lines of a results file, none without a file; BoardError for what is no result."""
    try:
        texts = read_file(path, _MOST_BYTES).split(b"\n")
    except (FileNotFoundError, NotADirectoryError):
        return
    for place, text in enumerate(texts):
        line = _whole(text)
        if line is None:
            continue
        problem = misfit(line, _LINE, "it") or misfit(line, _SHAPES[line["kind"]], "it")
        if problem:
            raise BoardError("%s, line %d is no result: %s" % (path, place + 1, problem))
        yield line


def _whole(text: bytes) -> Optional[Dict[str, Any]]:
    """A line's object; None for what is left of a line that was cut off or lost."""
    with suppress(ValueError):
        line = parse(text.decode("utf-8-sig", "replace")) if len(text) <= _LONGEST_BYTES else None
        return line if isinstance(line, dict) else None
    return None


def _end_line(path: str) -> None:
    """End a whole last line that lacks its end, and take away what is no whole line."""
    with suppress(FileNotFoundError), open(path, "rb+") as file:
        content = file.read()
        last = content[content.rfind(b"\n") + 1 :]
        if _whole(last) is None:
            file.truncate(len(content) - len(last))
        else:
            file.write(b"\n")


def board_id(facts: Dict[str, str]) -> str:
    """16 hex digits that name device, driver, engine version, runner and power mode together."""
    text = "\n".join("%s=%s" % (key, facts.get(key, "")) for key in SAME)
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
    with suppress(OSError), open(path, "rb") as source:
        return source.read(4096).decode("utf-8", "replace").split("\n")[0].strip("\0 \t\r")
    return ""
