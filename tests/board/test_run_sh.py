"""plan → run.sh with a stand-in trtexec of every dialect → records."""

import contextlib
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from hybridlat.board import BoardError
from hybridlat.board.lock import hold, let_go
from hybridlat.board.plan import Plan
from hybridlat.errors import StoreError
from hybridlat.measuring import plan_results
from hybridlat.measuring.statistics import level_us
from tests.board.conftest import MakePlan, RunScript, change, lines_of, put_trtexec

SLOW = """#!/bin/sh
[ "$1" != --help ] || {{ echo "[TensorRT v8601]"; exit; }}
touch {began}
exec sleep 600
"""
VERSIONS = {"8.2": "8.2", "8.5": "8.5", "8.6": "8.6", "10": "10.2", "11": "11.4"}


def visits(folder: Path) -> list[tuple[str, int]]:
    return [(line["task"], line["round"]) for line in lines_of(folder) if line["kind"] == "visit"]


@pytest.mark.parametrize(
    ("version", "precision"),
    [("8.2", "fp32-strict"), ("8.5", "fp32"), ("8.6", "fp16"), ("10", "fp16"), ("11", "fp16")],
)
def test_every_dialect_measures_the_whole_plan(
    make_plan: MakePlan, run_sh: RunScript, version: str, precision: str, tmp_path: Path
) -> None:
    folder = make_plan(precision=precision)
    log = tmp_path / "calls"
    done = run_sh(folder, version, FAKE_TRTEXEC_LOG=str(log))
    assert done.returncode == 0, done.stderr
    calls = log.read_text().splitlines()
    assert all(("--fp16" in c) == (precision == "fp16" and version != "11") for c in calls)
    assert version == "8.2" or all("timingCacheFile=engines/" in call for call in calls)
    assert all(("--noTF32" in c) == (precision == "fp32-strict") for c in calls)
    results = plan_results.read_results(folder)
    records = results.measurements
    assert {r.kind for r in records} == {"network", "cell"}
    assert all(str(r.target) == f"board/tensorrt-{VERSIONS[version]}/{precision}" for r in records)
    assert all(r.failure is None and r.latency_us for r in records)
    assert {r.signature for r in records if r.kind == "cell"} <= set(results.signatures)
    whole = next(r for r in records if r.kind == "network")
    # The warm-up, 9.9 ms an inference where the version exports it, is left out.
    assert all(20 <= s <= 2100 for visit in whole.visits for s in visit.samples_us)
    assert whole.environment["gpu"] == "board one"
    assert {r.launch for r in records} == {"graph"}
    journal = folder / "results.jsonl"
    journal.write_text(journal.read_text().replace('"launch": "graph"', '"launch": "enqueue"'))
    assert {r.launch for r in plan_results.read_results(folder).measurements} == {"stream"}


def test_a_differential_is_a_pair_less_its_first(make_plan: MakePlan, run_sh: RunScript) -> None:
    folder = make_plan()
    assert run_sh(folder).returncode == 0
    manifest = json.loads((folder / "manifest.json").read_text())
    level = {
        line["task"]: level_us(line["samples_us"][line["task"]])
        for line in lines_of(folder)
        if line["kind"] == "visit" and line["round"] == 0
    }
    records = plan_results.read_results(folder).measurements
    tasks = {t["task"]: t["items"] for t in manifest["tasks"]}
    pairs = [
        (record.latency_us, level[items[0]] - level[items[1]])
        for record, spec in zip(records, manifest["records"], strict=True)
        if len(items := tasks[spec["task"]]) == 2
    ]
    assert any(apart > 50 for _, apart in pairs)
    assert all(us == pytest.approx(apart, rel=0.01) for us, apart in pairs if apart > 50)
    # The same where the board runs each second line at four fifths of its speed.
    header, *lines = lines_of(folder)
    reference = next(line for line in lines if line["task"] == manifest["reference"])
    slowed = [header]
    for place, line in enumerate(lines):
        for each in ({**reference, "round": 10**6 + place}, line):
            pace = 1 + place % 2 / 4
            timed = {i: [us * pace for us in s] for i, s in each["samples_us"].items()}
            slowed.append({**each, "samples_us": timed})
    (folder / "results.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in slowed))
    again = plan_results.read_results(folder).measurements
    for record, steady in zip(again, records, strict=True):
        assert record.latency_us == pytest.approx(steady.latency_us, rel=0.02, abs=2.0)


def test_sessions_of_a_board_share_a_pace_short_rounds_aside(
    make_plan: MakePlan, run_sh: RunScript
) -> None:
    folder = make_plan(rounds=2)
    assert run_sh(folder).returncode == 0
    later = lines_of(folder)
    for line in later:  # the board is slower by then, and one round of each is cut short
        for item, samples in line.get("samples_us", {}).items():
            few = samples[:4] if line["round"] else samples
            line["samples_us"][item] = [1.25 * sample for sample in few]
    (folder / "results-later.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in later))
    records = plan_results.read_results(folder).measurements
    slow, quick = records[: len(records) // 2], records[len(records) // 2 :]
    assert {len(r.visits) for r in quick} == {2} and {len(r.visits) for r in slow} == {1}
    for one, other in zip(slow, quick, strict=True):
        assert one.latency_us == pytest.approx(other.latency_us, rel=0.05, abs=1.0)


@pytest.mark.parametrize("calls", [0, 5])
def test_killed_and_run_again_nothing_is_measured_twice_or_lost(
    make_plan: MakePlan, run_sh: RunScript, calls: int, tmp_path: Path
) -> None:
    folder = make_plan(rounds=2)
    whole = tmp_path / "whole"
    shutil.copytree(folder, whole)
    assert run_sh(whole).returncode == 0
    die = tmp_path / "die"
    die.write_text(str(calls))
    assert run_sh(folder, FAKE_TRTEXEC_DIE=str(die)).returncode < 0
    with (folder / "results.jsonl").open("a") as sink:
        sink.write('}\0\n{"kind": "visit", "task": "cut o')
    for engine in folder.glob("engines/*/*.plan"):
        engine.write_bytes(b"cut off")
    assert run_sh(folder).returncode == 0
    assert sorted(visits(folder)) == sorted(visits(whole))
    assert len(set(visits(folder))) == len(visits(folder))
    numbers = [line["visit"] for line in lines_of(folder) if line["kind"] == "visit"]
    assert len(set(numbers)) == len(numbers)  # each of a process of its own
    here, there = (plan_results.read_results(each).measurements for each in (folder, whole))
    assert len(here) == len(there)


def test_a_model_that_fails_is_a_record_and_an_unknown_flag_is_dropped(
    make_plan: MakePlan, run_sh: RunScript
) -> None:
    """The flag is one that the help promises and the tool refuses."""
    folder = make_plan()
    manifest = json.loads((folder / "manifest.json").read_text())
    bad = Path(manifest["items"][manifest["tasks"][0]["items"][0]]["file"]).name
    lies = "maxAuxStreams timingCacheFile"
    assert run_sh(folder, FAKE_TRTEXEC_LIES=lies, FAKE_TRTEXEC_BAD=bad).returncode == 0
    (failed,) = [r.failure for r in plan_results.read_results(folder).measurements if r.failure]
    assert "could not find any implementation" in failed
    assert "é" in failed and "\ufffd" not in failed  # cut between two characters


@pytest.mark.parametrize(
    ("precision", "more", "reason"),
    [
        ("bf16", {}, "Unknown option: --bf16"),  # TensorRT 8.6 has none
        ("fp32-strict", {"FAKE_TRTEXEC_LIES": "noTF32"}, "Unknown option: --noTF32"),
        ("fp16", {"FAKE_TRTEXEC_LIES": "useCudaGraph"}, "Unknown option: --useCudaGraph"),
        ("fp16", {"FAKE_TRTEXEC_BUILT": "FP32"}, "built FP32 and not fp16"),
        ("fp32", {"FAKE_TRTEXEC_BUILT": "FP32+INT8"}, "built FP32+INT8 and not fp32"),
    ],
)
def test_what_was_not_run_as_ordered_is_a_failure_and_no_latency(
    make_plan: MakePlan, run_sh: RunScript, precision: str, more: dict[str, str], reason: str
) -> None:
    folder = make_plan(precision=precision)
    assert run_sh(folder, **more).returncode == 0
    records = plan_results.read_results(folder).measurements
    assert records and all(reason in str(record.failure) for record in records)


def test_where_the_gpu_is_lost_the_rest_is_left_for_the_next_run(
    make_plan: MakePlan, run_sh: RunScript, tmp_path: Path
) -> None:
    folder = make_plan()
    for calls in ("3", "0"):  # in the middle, and still after the board came back
        (tmp_path / "lost").write_text(calls)
        done = run_sh(folder, FAKE_TRTEXEC_LOST=str(tmp_path / "lost"))
        assert done.returncode == 5 and "lost" in done.stderr
        assert len(visits(folder)) == 3
    assert run_sh(folder).returncode == 0
    assert all(r.failure is None for r in plan_results.read_results(folder).measurements)
    assert len(set(visits(folder))) == len(visits(folder))


def test_a_model_that_takes_the_gpu_down_twice_has_failed(
    make_plan: MakePlan, run_sh: RunScript, tmp_path: Path
) -> None:
    folder = make_plan()
    for _ in range(2):
        (tmp_path / "lost").write_text("1")  # it is there again, until this model
        assert run_sh(folder, FAKE_TRTEXEC_LOST=str(tmp_path / "lost")).returncode == 5
    (failure,) = [line for line in lines_of(folder) if line["kind"] == "failure"]
    assert "unknown error" in failure["error"]


@pytest.mark.parametrize("name", ["blocks", "models", "items.txt", "files.txt"])
def test_a_plan_that_was_cut_off_is_refused(
    make_plan: MakePlan, run_sh: RunScript, name: str
) -> None:
    folder = make_plan()
    path = folder / name
    path = sorted(path.iterdir())[0] if path.is_dir() else path
    path.write_bytes(path.read_bytes()[:-9] if path.suffix == ".txt" else b"")
    done = run_sh(folder)
    assert done.returncode == 2 and "copy the plan again" in done.stderr
    with pytest.raises(BoardError, match=f"{path.name} is not as it was written: copy"):
        Plan(str(folder)).check_files()


def test_plans_of_another_version_are_refused(make_plan: MakePlan, run_sh: RunScript) -> None:
    folder = make_plan("tensorrt-8.6")
    (folder / "logs").write_text("as if no folder could be made")
    assert f"{folder} cannot be written: copy the plan to" in run_sh(folder).stderr
    (folder / "logs").unlink()
    done = run_sh(folder, "10")
    assert done.returncode == 2 and "make one for tensorrt-10.2" in done.stderr
    assert not (folder / "results.jsonl").exists()


@pytest.mark.parametrize(
    ("ordered", "device", "warning"),
    [("tensorrt-10.3", "board", "with tensorrt-8.6, not tensorrt-10.3"),
     ("tensorrt", "board", "with tensorrt-8.6, not the newest tensorrt"),
     ("tensorrt-ngc", "board", "with tensorrt-8.6, not the newest tensorrt"),
     ("tensorrt-8.6", "board", ""), ("tensorrt-8.6", "t4", "with board, not t4"),
     ("tensorrt-8.6", "board", "GPU named 'board one', and counts as board")],
)  # fmt: skip
def test_results_of_another_version_or_board_are_kept_as_what_they_are(
    make_plan: MakePlan,
    run_sh: RunScript,
    ordered: str,
    device: str,
    warning: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A table's name orders no version; how networks fall into cells follows it."""
    folder = make_plan()
    assert run_sh(folder).returncode == 0
    old = json.loads((folder / "manifest.json").read_text())["plan"]
    change(folder, lambda body: body.update(runtime=ordered, device=device))
    monkeypatch.setattr(plan_results, "device_of", lambda *_: ("board", "named" in warning))
    new = json.loads((folder / "manifest.json").read_text())["plan"]
    results = folder / "results.jsonl"
    results.write_text(results.read_text().replace(old, new))
    read = plan_results.read_results(folder)
    assert {str(r.target) for r in read.measurements} == {"board/tensorrt-8.6/fp32"}
    assert bool(read.breakdowns) == ("not" not in warning)
    assert warning in caplog.text and bool(warning) == bool(caplog.text)
    results.write_text("\N{ZERO WIDTH NO-BREAK SPACE}" + results.read_text().replace("\n", "\r\n"))
    assert len(plan_results.read_results(folder).measurements) == len(read.measurements)


def test_a_board_of_less_power_than_its_own_is_named(
    make_plan: MakePlan, run_sh: RunScript, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make_plan()
    assert run_sh(folder).returncode == 0
    change(folder, lambda body: body.update(device="v100", runtime="tensorrt-8.6"))
    plan = json.loads((folder / "manifest.json").read_text())["plan"]
    header, *lines = lines_of(folder)
    for gpu, limit_w, is_named in [
        ("Tesla V100-SXM2-16GB", "200.00", True),
        ("Tesla V100-SXM2-16GB", "300.00", False),
        ("Tesla V100-SXM2-16GB", "[N/A]", False),
        ("Tesla V100-PCIE-16GB", "250.00", False),
    ]:
        board = {**header["board"], "gpu": gpu, "power_limit_w": limit_w}
        texts = map(json.dumps, [{**header, "plan": plan, "board": board}, *lines])
        (folder / "results.jsonl").write_text("\n".join([*texts, ""]))
        caplog.clear()
        assert plan_results.read_results(folder).measurements
        words = "power was held below its own (200.00 W), and counts as v100"
        assert (words in caplog.text) == bool(caplog.text) == is_named
    for mhz, is_named in [([900, 900], True), ([900, 1110], False), ([1530, 1530], False)]:
        for line, number in zip(lines, itertools.cycle(mhz), strict=False):
            line["sensors"] = {"x": {"sm_mhz_before": mhz[0], "sm_mhz_after": number}}
        texts = map(json.dumps, [{**header, "plan": plan, "board": board}, *lines])
        (folder / "results.jsonl").write_text("\n".join([*texts, ""]))
        caplog.clear()
        assert plan_results.read_results(folder).measurements
        assert ("clock was held below its own (900 MHz)" in caplog.text) == is_named


def test_a_second_run_waits_for_the_first_and_names_it(
    make_plan: MakePlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_plan()
    monkeypatch.setenv("HYBRIDLAT_LOCK", str(tmp_path / "lock"))
    held = hold(str(tmp_path / "lock"), pytest.fail)
    command = ["sh", str(folder / "run.sh")]
    environment = {**os.environ, "PATH": put_trtexec(tmp_path / "bin"), "FAKE_BOARD": ""}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as second:
        assert second.stderr is not None
        first_line = second.stderr.readline()
        assert f"another run measures on this board (process {os.getpid()} in" in first_line
        let_go(held)
        assert second.wait() == 0


def test_what_is_stopped_stops_its_trtexec(make_plan: MakePlan, tmp_path: Path) -> None:
    folder, lock, began = make_plan(), tmp_path / "lock", tmp_path / "began"
    slow = put_trtexec(tmp_path / "bin", trtexec=SLOW.format(began=began))
    environment = {"PATH": slow, "FAKE_BOARD": "", "HYBRIDLAT_LOCK": str(lock)}
    with subprocess.Popen(["sh", str(folder / "run.sh")], env=environment) as running:
        while not began.exists():
            assert running.poll() is None
            time.sleep(0.02)
        running.terminate()
        assert running.wait() == 143
    with lock.open() as file:  # nothing that inherited it is left: its sleep is long
        for _attempt in range(3000):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(0.02)
        else:
            pytest.fail("something that run.sh started still holds the lock")


def test_another_board_or_version_is_refused(make_plan: MakePlan, run_sh: RunScript) -> None:
    folder = make_plan()
    assert run_sh(folder).returncode == 0
    before = (folder / "results.jsonl").read_bytes()
    for more in ({"FAKE_BOARD": "board two"}, {"version": "10"}):
        refused = run_sh(folder, **more)
        assert refused.returncode == 2
        assert "another board" in refused.stderr
    assert (folder / "results.jsonl").read_bytes() == before
    done = run_sh(folder, FAKE_BOARD="board two", RESULTS="results-two.jsonl")
    assert done.returncode == 0
    boards = {r.environment["board_id"] for r in plan_results.read_results(folder).measurements}
    assert len(boards) == 2


def test_what_is_missing_or_undated_is_named(
    make_plan: MakePlan, run_sh: RunScript, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make_plan()
    assert run_sh(folder).returncode == 0
    header, *lines = lines_of(folder)
    for at, (year, kept) in enumerate((("1970", 4), ("2199", 99), ("2024", 99))):
        dated = [{**line, "at": f"{year}-01-01T00:00:00Z"} for line in (header, *lines[:kept])]
        (folder / "results.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in dated))
        records = plan_results.read_results(folder).measurements
        assert {r.measured_at[:4] for r in records} == {"2024" if at == 2 else ""}
        named = f"clock was wrong ({year}-01-01T00:00:00Z)" in caplog.text
        assert named == (at < 2) and ("of 4 records lack visits" in caplog.text) == (not at)
        caplog.clear()


def test_mixed_or_changed_results_are_refused(make_plan: MakePlan, run_sh: RunScript) -> None:
    folder = make_plan()
    assert run_sh(folder).returncode == 0
    good = (folder / "results.jsonl").read_text()
    last = json.loads(good.splitlines()[-1])
    for changes, words in (
        ({"board_id": "other"}, "mixes results of two boards"),
        ({"samples_us": {next(iter(last["samples_us"])): [-1.0]}}, "cannot be latencies"),
        ({"samples_us": {"unknown": [1.0]}}, "not in the plan"),
        ({"format": 9}, "format 9"),
    ):
        (folder / "results.jsonl").write_text(good + json.dumps({**last, **changes}) + "\n")
        with pytest.raises(StoreError, match=words):
            plan_results.read_results(folder)
    (folder / "results.jsonl").write_text(good)
    manifest = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(manifest.replace('"device": "board"', '"device": "b"'))
    with pytest.raises(StoreError, match="was changed"):
        plan_results.read_results(folder)
