"""Results that were cut off at any byte: what was whole counts, and the next run goes on."""

import json
import subprocess
from pathlib import Path

import pytest

from hybridlat import board
from hybridlat.board.journal import Journal, read_lines

FACTS = {"engine": "e", "engine_version": "1"}
ABOUT = {"format": 1, "board_id": "b", "at": "2026-11-21T10:00:00Z"}
VISIT = {"task": "t", "round": 0, "samples_us": {"t": [1.5, 2]}, "sensors": {"t": {"sm_mhz": 1.0}}}
LINES = [
    {"kind": "board", **ABOUT, "plan": "p", "board": {**FACTS, "gpu": 'a "}" \\ {'}},
    {"kind": "visit", **ABOUT, **VISIT},
    {"kind": "failure", **ABOUT, "task": "u", "round": 0, "error": "é{"},
]
DATA = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in LINES).encode()
CUT_AND_CLEAN = """
eval "$(sed -n '/^whole_lines()/,/^}/p' "$1")"
size=$(wc -c <data)
n=0
while [ "$n" -le "$size" ]; do
    { head -c "$n" data; head -c "$2" /dev/zero; } >cut
    whole_lines cut | cksum
    n=$((n + 1))
done
"""


@pytest.mark.parametrize("tail", [b"", b"\0\0\0"])
def test_worker_py_goes_on_behind_a_cut_at_every_byte(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "results.jsonl"
    for size in range(len(DATA) + 1):
        path.write_bytes(DATA[:size] + tail)
        whole = [*LINES[: DATA[:size].count(b"\n")]]
        is_whole_but_its_end = not tail and DATA[size : size + 1] == b"\n"
        assert list(read_lines(str(path))) == LINES[: len(whole) + is_whole_but_its_end]
        journal = Journal(str(path), "p", "b", FACTS)
        journal.write({"kind": "failure", "task": "v", "round": 1, "error": "x"})
        lines = list(read_lines(str(path)))
        assert lines[: len(whole)] == whole and lines[-1]["task"] == "v"
        assert {line["kind"] for line in lines} >= {"board", "failure"}
        again = Journal(str(path), "p", "b", FACTS)
        assert again.done == {(ln["task"], ln["round"]) for ln in lines if ln["kind"] != "board"}


@pytest.mark.parametrize("zeros", [0, 3])
def test_run_sh_keeps_the_whole_lines_of_a_cut_at_every_byte(tmp_path: Path, zeros: int) -> None:
    (tmp_path / "data").write_bytes(DATA)
    script = Path(board.__file__).with_name("run.sh")
    command = ["sh", "-c", CUT_AND_CLEAN, "sh", str(script), str(zeros)]
    printed = subprocess.check_output(command, cwd=tmp_path, text=True, env={"LC_ALL": "C"})
    ends = [0, *(i + 1 for i, byte in enumerate(DATA) if byte == 10)]
    kept = [int(line.split()[1]) for line in printed.splitlines()]
    for size, length in enumerate(kept):
        whole = max(end for end in ends if end <= size)
        assert length == (size + 1 if not zeros and size + 1 in ends[1:] else whole)
