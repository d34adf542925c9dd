"""A board behind ssh: an ssh that runs here, in a folder of its own; what it says names no file."""

import json
import math
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hybridlat.api.measure import measure_on_host
from hybridlat.board import BoardError
from hybridlat.board.plan import Plan, in_order
from hybridlat.errors import BackendUnavailable, InputError, MeasurementError, StoreError
from hybridlat.graph.builder import null_network
from hybridlat.graph.signature import sign
from hybridlat.measuring import plan_results
from hybridlat.measuring.measurer import unknown_to
from hybridlat.measuring.plan_results import MISSING
from hybridlat.measuring.plans import draft_for
from hybridlat.measuring.ssh import RemoteHost
from hybridlat.schema.measurement import Measurement
from hybridlat.schema.target import Target
from hybridlat.store import Store
from tests.board.conftest import MakePlan, change
from tests.networks import stem


def test_copy_run_fetch_and_again(far: Path, make_plan: MakePlan) -> None:
    folder = make_plan()
    lines: list[str] = []
    host = RemoteHost("user@board", "trtexec", on_message=lines.append)
    host.measure(folder)
    results = folder / "results-user_board.jsonl"
    records = plan_results.read_results(folder).measurements
    assert all(r.failure is None and r.environment["gpu"] == "far user@board" for r in records)
    assert any("model 1 of" in line for line in lines)
    before = results.read_bytes()
    lines.clear()
    host.measure(folder)
    assert results.read_bytes() == before
    assert any("0 measured now" in line for line in lines)
    assert not any("copying" in line for line in lines)
    (there,) = far.glob("hybridlat-plans/*")
    shutil.rmtree(there)
    there.mkdir()  # a copy that was cut off is made again
    shutil.copy(folder / "plan.txt", there)
    for name in (".env", "big/file", "models/weights.bin", "hybridlat_board/.netrc"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("secret")
    host.measure(folder)  # only the plan is copied, with what is measured of it
    assert not [p for p in there.rglob("*") if p.is_file() and p.read_bytes() == b"secret"]
    assert (there / "results.jsonl").read_bytes() == before
    host.forget(folder)
    assert not there.exists()


def test_a_run_that_takes_too_long_is_ended_and_what_there_is_fetched(
    far: Path, make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def timer(seconds: float, act: Callable[[], None]) -> threading.Thread:
        """Goes off once there is something to fetch."""

        def wait() -> None:
            while not list(far.glob("hybridlat-plans/*/results.jsonl")):
                time.sleep(0.02)
            act()

        thread = threading.Thread(target=wait, daemon=True)
        thread.cancel = thread.join  # type: ignore[attr-defined]
        return thread

    monkeypatch.setattr(threading, "Timer", timer)
    folder = make_plan(count=2, rounds=3)
    with pytest.raises(MeasurementError, match="stopped after 0 s"):
        RemoteHost("user@board", "trtexec", timeout_s=0.0).measure(folder)
    assert (folder / "results-user_board.jsonl").exists()


def test_a_board_without_engines_says_so(far: Path, make_plan: MakePlan, tmp_path: Path) -> None:
    plan = make_plan()
    (tmp_path / "bin" / "trtexec").unlink()
    with pytest.raises(BackendUnavailable, match="has no TensorRT that can be used") as caught:
        RemoteHost("user@board").measure(plan)
    assert "set TRTEXEC to its path" in str(caught.value)
    assert "there is no NVIDIA driver" in str(caught.value)
    (tmp_path / "bin" / "python3").write_text("#!/bin/sh\nexit 127\n")  # nor Python
    (tmp_path / "bin" / "python3").chmod(0o755)
    with pytest.raises(BackendUnavailable, match=r"worker\.py: it ended without a word; run\.sh"):
        RemoteHost("user@board").measure(plan)


def test_a_run_that_still_goes_on_there_is_ended_first(far: Path, make_plan: MakePlan) -> None:
    folder = make_plan(rounds=2)
    host = RemoteHost("user@board", "trtexec")
    host.measure(folder)
    (script,) = far.glob("hybridlat-plans/*/run.sh")
    other = far / "other" / "run.sh"  # a file of its own: a shell reads its script as it goes
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nsleep 100\nexit 0\n")
    old = subprocess.Popen(["sh", str(other)])
    (script.parent / "run.pid").write_text(f"{old.pid}\n")
    script.write_text("#!/bin/sh\nexit 0\n")
    host.measure(folder)
    assert old.wait() != 0


def test_networks_are_measured_on_a_host_all_in_one_plan(far: Path) -> None:
    networks = [("a", stem(8)), ("b", stem(16))]
    lines: list[str] = []
    host = RemoteHost("user@board", on_message=lines.append)
    there = Target.parse("orin/tensorrt-8.6/fp16")
    with Store("sqlite://") as store:
        reports = measure_on_host(networks, Target.parse("orin/tensorrt/fp16"), store, host)
        store.add([Measurement(there, sign(null_network(1)).hash, "cell", 7.0)])
        again = measure_on_host(networks, there, store, host, what="cells")
        # A file of another folder under the first one's name, and a copy of it under another.
        namesakes = [("a", stem(8)), ("a", stem(24)), ("copy", stem(8))]
        of_names = measure_on_host(namesakes, there, store, host, what="network")
        wholes = store.count(there, "network")
    assert [(r.network, r.target) for r in reports] == [("a", str(there)), ("b", str(there))]
    assert sum("copying" in line for line in lines) == 2  # one plan each, which are gone by now
    assert not list(far.glob("hybridlat-plans/*"))
    first, second, copy = [[r.signature for r in report.records] for report in of_names]
    assert first == copy != second and len(first) == len(second) == 1
    assert wholes == 4  # two at first: a copy is not measured again
    for report, known in zip(reports, again, strict=True):
        assert report.latency_us and report.sum_of_cells_us and not report.failures
        assert known.records == () and known.known > 0
        # The same number as on this machine: with the dispatch overhead, where there is one.
        assert known.sum_of_cells_us == pytest.approx(report.sum_of_cells_us + 7.0)


@pytest.mark.parametrize(("calls", "board"), [(2, "board"), (9, "board"), (4, "other")])
def test_a_run_that_was_cut_off_is_gone_on_with_there_and_made_anew_elsewhere(
    far: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int, board: str
) -> None:
    lost, log = tmp_path / "lost", tmp_path / "log"
    lost.write_text(str(calls))
    target = Target.parse("orin/tensorrt-8.6/fp16")
    host, networks = RemoteHost("user@board", "trtexec"), [("a", stem(8))]
    with Store("sqlite://") as store:
        monkeypatch.setenv("FAKE_TRTEXEC_LOG", str(log))
        monkeypatch.setenv("FAKE_TRTEXEC_LOST", str(lost))
        with pytest.raises(MeasurementError, match=r"the GPU is lost.*until then is kept"):
            measure_on_host(networks, target, store, host)
        first = list(store.measurements())
        monkeypatch.delenv("FAKE_TRTEXEC_LOST")
        host = RemoteHost(f"user@{board}", "trtexec")
        (report,) = measure_on_host(networks, target, store, host)
        cells = draft_for(networks, target, unknown_to(store, target, "cells")).manifest()["tasks"]
    assert first and all(MISSING in record.environment for record in first)
    whole = [record for record in report.records if MISSING not in record.environment]
    assert {(len(r.visits), r.environment["gpu"]) for r in whole} == {(3, f"far user@{board}")}
    assert not cells  # nothing is left to be measured
    # What asks the board for its GPU after a failure is no visit.
    runs = [line for line in log.read_text().splitlines() if "--duration=0" not in line]
    tasks = draft_for(networks, target).manifest()["tasks"]
    items = {item for task in tasks for item in task["items"]}
    once = 3 * (len(items) + math.ceil(len(items) / 10))
    assert len(runs) == once + calls * (board == "other")  # each visit, once on a board
    assert not list((tmp_path / "cache" / "hybridlat" / "plans").iterdir())
    assert not list(far.parent.glob(f"user@{board}/hybridlat-plans/*"))


OUTSIDE = ("../evil", "/etc/passwd", "models/../../evil", "models/", "models/.hidden", "a\0b", "")
EDITS: dict[str, Callable[[dict[str, Any], str], object]] = {
    "file": lambda body, name: body["items"].update(m={"file": name or "elsewhere.onnx"}),
    "item": lambda body, name: body["items"].update({name: {}}),
    "noise": lambda body, name: body["noise"].update({name: 10}),
    "task": lambda body, name: body["tasks"][0].update(items=[name]),
    "reference": lambda body, name: body.update(reference=name or "../evil"),
}


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_a_manifest_that_names_files_outside_is_refused_on_both_sides(
    make_plan: MakePlan, name: str, edit: Callable[[dict[str, Any], str], object]
) -> None:
    folder = change(make_plan("fake"), lambda body: edit(body, name))
    with pytest.raises(BoardError, match="is no name"):
        Plan(str(folder))
    with pytest.raises(StoreError, match="is no name"):
        plan_results.read_results(folder)


def test_a_message_about_a_manifest_is_one_that_a_person_reads(make_plan: MakePlan) -> None:
    odd = {"\x1b[2J": 1}
    folder = change(make_plan("fake"), lambda body: body["records"][0].update(labels=odd))
    with pytest.raises(BoardError, match=r"labels\.'\\x1b\[2J' 1 is no text"):
        Plan(str(folder))


def test_a_plans_name_is_sixteen_digits_before_it_is_part_of_a_command(make_plan: MakePlan) -> None:
    folder = make_plan("fake")
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"plan": "x; rm -rf ~"}))
    with pytest.raises(InputError, match="is no hash"):
        RemoteHost("user@board").measure(folder)


@pytest.mark.parametrize("host", ["user@board\n", "-oProxyCommand=x", "a b", "", "$(x)", "a;b"])
def test_what_is_no_host(host: str) -> None:
    with pytest.raises(InputError, match="is no host"):
        RemoteHost(host)


def test_rounds_of_a_group_come_before_the_next_group() -> None:
    tasks: list[dict[str, Any]] = [
        {"task": f"t{n}", "items": [f"a{n}", f"b{n}"], "stage": 1, "rounds": 2} for n in range(60)
    ]
    tasks += [{"task": "whole", "items": ["w"], "stage": 0, "rounds": 2}]
    order = [(task["task"], number) for number, task in in_order(tasks)]
    assert sorted(order) == sorted((t["task"], n) for t in tasks for n in range(2))
    assert order[:2] == [("whole", 0), ("whole", 1)]
    assert order[2] == ("t0", 0)
    second = order.index(("t0", 1))
    # Apart in time, and all models, two a task, still on the device.
    assert 10 < len({name for name, _ in order[2:second]}) < 24
