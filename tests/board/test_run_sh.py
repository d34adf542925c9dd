"""plan → run.sh with a stand-in trtexec of every dialect → records."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hybridlat.errors import StoreError
from hybridlat.measuring import plan_results
from hybridlat.measuring.statistics import level_us
from tests.board.conftest import MakePlan, RunScript

VERSIONS = {"8.2": "8.2", "8.5": "8.5", "8.6": "8.6", "10": "10.2", "11": "11.4"}


def visits(folder: Path) -> list[tuple[str, int]]:
    texts = (folder / "results.jsonl").read_text().splitlines()
    lines = [json.loads(text) for text in texts if text.endswith("}")]
    return [(line["task"], line["round"]) for line in lines if line["kind"] == "visit"]


@pytest.mark.parametrize(
    ("version", "precision"),
    [
        ("8.2", "fp32"),
        ("8.2", "fp32-strict"),
        ("8.5", "fp32"),
        ("8.6", "fp16"),
        ("10", "fp16"),
        ("11", "fp32"),
        ("11", "fp16"),
    ],
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


def test_a_differential_is_the_pair_less_its_first_half(
    make_plan: MakePlan, run_sh: RunScript
) -> None:
    folder = make_plan()
    assert run_sh(folder).returncode == 0
    manifest = json.loads((folder / "manifest.json").read_text())
    lines = [json.loads(t) for t in (folder / "results.jsonl").read_text().splitlines()]
    level = {
        line["task"]: level_us(line["samples_us"][line["task"]])
        for line in lines
        if line["kind"] == "visit" and line["round"] == 0
    }
    records = plan_results.read_results(folder).measurements
    tasks = {t["task"]: t["items"] for t in manifest["tasks"]}
    pairs = [
        (record.latency_us, level[items[0]] - level[items[1]])
        for record, spec in zip(records, manifest["records"], strict=True)
        if len(items := tasks[spec["task"]]) == 2
    ]
    assert any(wanted > 50 for _, wanted in pairs)
    assert all(us == pytest.approx(wanted, rel=0.01) for us, wanted in pairs if wanted > 50)


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
    killed = run_sh(folder, FAKE_TRTEXEC_DIE=str(die))
    assert killed.returncode < 0
    with (folder / "results.jsonl").open("a") as sink:
        sink.write('{"kind": "visit", "task": "cut o')
    assert run_sh(folder).returncode == 0
    assert sorted(visits(folder)) == sorted(visits(whole))
    assert len(set(visits(folder))) == len(visits(folder))
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
    with pytest.raises(StoreError, match="is from the board"):
        plan_results.read_results(folder, board_id=sorted(boards)[0])


def test_mixed_or_changed_results_are_refused(make_plan: MakePlan, run_sh: RunScript) -> None:
    folder = make_plan()
    assert run_sh(folder).returncode == 0
    good = (folder / "results.jsonl").read_text()
    last = json.loads(good.splitlines()[-1])
    for change, words in (
        ({"board_id": "other"}, "mixes results of two boards"),
        ({"samples_us": {next(iter(last["samples_us"])): [-1.0]}}, "cannot be latencies"),
        ({"samples_us": {"unknown": [1.0]}}, "not in the plan"),
        ({"format": 9}, "format 9"),
    ):
        (folder / "results.jsonl").write_text(good + json.dumps({**last, **change}) + "\n")
        with pytest.raises(StoreError, match=words):
            plan_results.read_results(folder)
    (folder / "results.jsonl").write_text(good)
    manifest = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(manifest.replace('"device": "board"', '"device": "b"'))
    with pytest.raises(StoreError, match="was changed"):
        plan_results.read_results(folder)
