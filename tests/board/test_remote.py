"""A board behind ssh: an ssh and an scp that run here, in a folder of their own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from hybridlat import plan
from hybridlat.errors import BackendUnavailable, InputError, MeasurementError
from hybridlat.remote import Board
from tests.board.conftest import FAKE

SSH = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift 2; done
[ "$1" = user@board ] || { echo "could not resolve $1" >&2; exit 255; }
cd BOARD && exec sh -c "$2"
"""
SCP = """#!/bin/sh
shift
while [ "${1#-}" != "$1" ]; do shift 2; done
from=$1 to=$2
case $from in user@board:*) from=BOARD/${from#*:} ;; esac
case $to in user@board:*) to=BOARD/${to#*:} ;; esac
exec cp "$from" "$to"
"""


@pytest.fixture
def far(tmp_path: Path, monkeypatch):
    home, bin_ = tmp_path / "far", tmp_path / "bin"
    home.mkdir()
    bin_.mkdir()
    scripts = {
        "ssh": SSH.replace("BOARD", str(home)), "scp": SCP.replace("BOARD", str(home)),
        "trtexec": f'#!/bin/sh\nexec {sys.executable} -I -S {FAKE} "$@"\n',
    }  # fmt: skip
    for name, text in scripts.items():
        (bin_ / name).write_text(text)
        (bin_ / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("FAKE_BOARD", "far board")
    return home


def test_copy_run_fetch_and_again(far, make_plan):
    folder = make_plan()
    said: list[str] = []
    results = Board("user@board", folder).measure("trtexec", report=said.append)
    assert results == folder / "results.jsonl"
    _, records = plan.read_results(folder)
    assert all(r.failure is None and r.environment["gpu"] == "far board" for r in records)
    assert any("model 1 of" in line for line in said)
    assert all(r.environment["engine_layers"] for r in records)
    before = results.read_bytes()
    said.clear()
    Board("user@board", folder).measure("trtexec", report=said.append)
    assert results.read_bytes() == before
    assert any("0 measured now" in line for line in said)
    assert not any("copying" in line for line in said)


def test_auto_takes_run_sh_where_the_worker_has_no_engine(far, make_plan):
    said: list[str] = []
    Board("user@board", make_plan()).measure(report=said.append)
    assert "user@board: measuring with trtexec" in said


def test_a_run_that_takes_too_long_is_ended_and_what_there_is_fetched(far, make_plan):
    folder = make_plan(count=2, rounds=3)
    with pytest.raises(MeasurementError, match="stopped after 2 s"):
        Board("user@board", folder).measure("trtexec", timeout_s=2.0)
    assert (folder / "results.jsonl").exists()


def test_what_cannot_work_is_said_plainly(far, make_plan):
    folder = make_plan()
    with pytest.raises(InputError, match="is no host"):
        Board("-oProxyCommand=x", folder)
    with pytest.raises(InputError, match="is no plan"):
        Board("user@board", far)
    with pytest.raises(BackendUnavailable, match="cannot be reached"):
        Board("user@elsewhere", folder).measure()
