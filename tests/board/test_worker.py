"""worker.py: old Pythons, going on after kills and cuts, hangs, other boards; one visit."""

import ast
import itertools
import json
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from hybridlat import board
from hybridlat.board.journal import Journal, read_lines
from hybridlat.board.plan import Plan
from hybridlat.board.runner import PlanRun, Worker
from hybridlat.board.visits import Engine, Reading, visit
from hybridlat.errors import StoreError
from hybridlat.measuring import plan_results, plans
from tests.board.conftest import MakePlan, add_fake_engine, lines_of, quick

FOLDER = Path(board.__file__).parent
PYTHONS = ("3.6", "3.7", "3.8", "3.10", "3.12", "3.13")


def run(folder: Path, *more: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    command = [python, str(folder / "worker.py"), "run", "--engine", "fake", *more]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda p: p.name)
def test_syntax_is_that_of_python_3_6(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 6))
    for node in ast.walk(tree):  # what newer Pythons brought beside syntax
        if isinstance(node, ast.ImportFrom):
            assert node.module not in ("__future__", "dataclasses", "contextvars")
        if isinstance(node, ast.keyword):
            assert node.arg not in ("capture_output", "text", "missing_ok", "dirs_exist_ok")


def old_python(version: str) -> str | None:
    """An interpreter that really starts: pyenv's shims are on the PATH without being able to."""
    known = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    for path in filter(None, [*map(str, known), shutil.which(f"python{version}")]):
        if subprocess.run([path, "-c", "0"], capture_output=True, check=False).returncode == 0:
            return path
    return None


@pytest.mark.parametrize("version", [*PYTHONS, "here"])
def test_every_python_runs_it_and_differentials_add_up(make_plan: MakePlan, version: str) -> None:
    python = sys.executable if version == "here" else old_python(version)
    if python is None:
        pytest.skip(f"there is no Python {version} on this machine")
    folder = quick(make_plan("fake"))
    done = run(folder, python=python)
    assert done.returncode == 0, done.stderr
    results = plan_results.read_results(folder)
    records, breakdowns = results.measurements, results.breakdowns
    assert all(r.failure is None for r in records)
    cells = {r.signature: r.latency_us for r in records if r.kind == "cell"}
    whole = next(r.latency_us for r in records if r.kind == "network")
    total = sum((cells[h] or math.nan) * n for h, n in breakdowns[0].cells)
    assert total == pytest.approx(whole, rel=0.05)
    assert str(records[0].target) == "board/fake-1.0/fp32"
    assert records[0].environment["sm_mhz"] == "1500.0"


def test_a_clock_that_is_set_ends_no_run_and_warms_nothing_for_hours(
    make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", iter(range(9**6, 0, -3600)).__next__)
    visit(Steady(), ["5000"], 20, 0.0, 0.05)
    monkeypatch.setattr(time, "time", itertools.count(0, 3600).__next__)
    folder = quick(make_plan("fake"))
    start = partial(Worker, str(folder / "worker.py"), "fake", {})
    assert PlanRun(Plan(str(folder)), start, budget_s=900).run()["left"] == 0


def task_file(folder: Path) -> str:
    """The first task's model."""
    plan = Plan(str(folder))
    return Path(plan.items[plan.tasks[0]["items"][0]]["file"]).name


@pytest.mark.parametrize(
    ("how", "says", "tries"),
    [
        ("crash", "status 139", 2),
        ("lose_device", "the made-up device is gone", 2),
        ("hang", "no answer in 1 s (build)", 1),  # which costs its time-out once
    ],
)
def test_what_takes_the_worker_down_is_given_up(
    make_plan: MakePlan, how: str, says: str, tries: int
) -> None:
    folder = quick(make_plan("fake"), build_s=1.0)
    option = ("--option", f"{how}={task_file(folder)}")
    done = run(folder, *option)
    assert done.returncode == 0, done.stderr
    failed = [line for line in lines_of(folder) if line["kind"] == "failure"]
    assert len(failed) == tries and all(("lost" in line) == (tries > 1) for line in failed)
    (failure,) = [r.failure for r in plan_results.read_results(folder).measurements if r.failure]
    assert says in failure == failed[-1]["error"]
    before = (folder / "results.jsonl").read_bytes()
    assert run(folder, *option).returncode == 0
    assert (folder / "results.jsonl").read_bytes() == before


def test_a_worker_that_is_lost_in_a_visit_is_replaced_and_builds_its_models_again(
    make_plan: MakePlan, tmp_path: Path
) -> None:
    folder = quick(make_plan("fake", count=2))
    done = run(folder, "--option", f"crash_once={tmp_path / 'crashed'}")
    assert done.returncode == 0, done.stderr
    (failed,) = [line for line in lines_of(folder) if line["kind"] == "failure"]
    assert failed["lost"] and "status 139" in failed["error"]
    assert all(r.failure is None for r in plan_results.read_results(folder).measurements)


@pytest.mark.parametrize(
    ("option", "code", "says"),
    [
        ("sleep_s=0.9", 4, "left"),
        ("hang={}", 4, "left 4"),
        ("full_disk={}", 2, "the run ends ([Errno 28] No space left on device)"),
    ],
)
def test_what_the_budget_or_a_full_disk_cuts_off_is_begun_anew(
    make_plan: MakePlan, option: str, code: int, says: str
) -> None:
    folder = quick(make_plan("fake"), build_s=2.5)
    cut = run(folder, "--budget", "2s", "--option", option.format(task_file(folder)))
    assert cut.returncode == code and says in cut.stderr
    before = lines_of(folder)
    assert not [line for line in before if line["kind"] == "failure"]
    assert run(folder).returncode == 0
    after = lines_of(folder)
    assert len(after) == 1 + len(Plan(str(folder)).tasks)
    processes, later = ({line.get("process") for line in part} for part in (before, after))
    assert later == {*processes, len(processes)}  # one more than there were
    assert all(r.failure is None for r in plan_results.read_results(folder).measurements)


def test_without_memory_the_models_that_are_kept_make_room(make_plan: MakePlan) -> None:
    folder = quick(make_plan("fake", count=2))
    assert run(folder, "--option", "room=3").returncode == 0
    assert all(r.failure is None for r in plan_results.read_results(folder).measurements)


def test_a_reference_that_cannot_be_built_takes_nothing_else_along(make_plan: MakePlan) -> None:
    folder = quick(make_plan("fake"))
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / manifest["items"][manifest["reference"]]["file"]).write_bytes(b"nothing")
    plans.write_sums(folder, Plan(str(folder)).files)
    done = run(folder)
    assert done.returncode == 0, done.stderr
    assert "without its reference" in done.stderr
    visits = [line for line in lines_of(folder) if line["kind"] == "visit"]
    assert len(visits) == len(manifest["tasks"])
    assert not any("reference_us" in line for line in visits)


def test_another_board_is_refused(make_plan: MakePlan) -> None:
    folder = quick(make_plan("fake"))
    assert run(folder).returncode == 0
    before = (folder / "results.jsonl").read_bytes()
    refused = run(folder, "--option", "board=other")
    assert refused.returncode == 2
    assert "another board" in refused.stderr
    assert "'fake board' then, 'other' now" in refused.stderr
    assert (folder / "results.jsonl").read_bytes() == before


def test_results_of_another_engine_are_refused(make_plan: MakePlan) -> None:
    folder = quick(make_plan("tensorrt"))
    add_fake_engine(folder)
    assert run(folder).returncode == 0
    with pytest.raises(StoreError, match="was measured with fake"):
        plan_results.read_results(folder)


def test_a_missing_engine_is_one_sentence(make_plan: MakePlan) -> None:
    done = run(make_plan("fake"), "--option", "missing=yes")
    assert done.returncode == 3
    assert done.stderr.strip() == "worker.py: the fake engine is missing"


class Steady(Engine):
    """Each model takes the time that its key says, in microseconds."""

    def __init__(self) -> None:
        self.order: list[str] = []

    def run_us(self, key: str, count: int, during: Callable[[], None] | None = None) -> list[float]:
        self.order.append(key)
        if during is not None:
            during()
        return [float(key)] * count

    def read_sensors(self) -> Reading:
        return {"sm_mhz": 1500.0}


def test_a_pair_alternates_and_the_slow_one_gets_its_samples() -> None:
    engine = Steady()
    visited = visit(engine, ["5000", "20"], 60, 0.0, 30.0, "10")
    assert set(visited["samples_us"]) == {"5000", "20"}
    assert 60 <= len(visited["samples_us"]["5000"]) < 70
    assert 200 <= len(visited["samples_us"]["20"]) < 500  # and the quick one not thousands
    assert visited["reference_us"] == 10.0
    taking = engine.order[-9:]
    assert taking == ["5000", "20", "10"] * 3
    assert visited["sensors"]["20"]["sm_mhz"] == 1500.0


def test_a_limit_ends_it_with_what_there_is() -> None:
    visited = visit(Steady(), ["5000"], 10_000_000, 0.0, 0.05)
    assert visited["samples_us"]["5000"]
    assert "reference_us" not in visited
    visited = visit(Steady(), ["10"], 20, 0.0, 5.0, "10")  # a reference is measured as well
    assert visited["reference_us"] == pytest.approx(10.0)
    assert len(visited["samples_us"]["10"]) >= 20


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
