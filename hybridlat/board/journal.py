"""results.jsonl: one line a result, appended and flushed; what is in it is done."""

import json
import os
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple

from .errors import BoardError
from .identity import difference

FORMAT = 1
_MAX_LOST = 2  # a model that took the worker down this often is given up


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
            raise BoardError(
                "%s holds results of another board (%s): use --results with another file name"
                % (self._path, difference(line.get("board", {}), facts))
            )

    def write(self, line: Dict[str, Any]) -> None:
        """Append one line; it is on the disk when this returns."""
        line = dict(line, format=FORMAT, board_id=self.board_id, at=_now())
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
            if index >= len(lines) - 1 or _was_cut(lines, index):
                continue
            raise BoardError("%s, line %d is damaged" % (path, index + 1))
        if isinstance(line, dict):
            yield line


def _was_cut(lines: List[str], index: int) -> bool:
    # A run that was killed while writing leaves half a line; the next run ends it and goes on.
    return lines[index].startswith("{") and not lines[index].rstrip().endswith("}")


def _end_line(path: str) -> None:
    try:
        with open(path, "rb+") as file:
            file.seek(0, os.SEEK_END)
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
    except FileNotFoundError:
        pass


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
