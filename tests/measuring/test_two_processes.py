"""Two processes that measure the same by a plan take turns, and measure it once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SCRIPT = """\
import logging, os, pathlib, subprocess, sys, time
from hybridlat.measuring.plans import PlanRequest
from hybridlat.measuring.plan_runs import measure_networks
from hybridlat.schema.target import Target
from hybridlat.store import Store
from tests.board.conftest import add_fake_engine, lower
from tests.networks import classifier

logging.basicConfig(format="%(message)s")
here = pathlib.Path(sys.argv[1])

def run(folder):
    with (here / "runs").open("a") as sink:
        sink.write(f"{os.getpid()}\\n")
    while not (here / "go").exists():
        time.sleep(0.05)
    add_fake_engine(folder)
    subprocess.run([sys.executable, folder / "worker.py", "run", "--engine", "fake"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

network = classifier()
target = Target("board", "fake-1.0", "fp32")
request = PlanRequest([(network.name, network)], target, lower=lower, rounds=1)
with Store(here / "s.db") as store:
    outcome = measure_networks(request, store, run)
    print(len(outcome.records), outcome.new, len({(r.kind, r.signature) for r in outcome.records}))
"""


Start = Callable[[], subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a process that measures; all that still run are ended behind the test."""
    started: list[subprocess.Popen[str]] = []

    def begin() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(tmp_path)], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        )  # fmt: skip
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def runs(folder: Path) -> list[str]:
    path = folder / "runs"
    return path.read_text().split() if path.exists() else []


def until_it_runs(folder: Path, process: subprocess.Popen[str]) -> None:
    while not runs(folder) and process.poll() is None:
        time.sleep(0.05)
    assert runs(folder) == [str(process.pid)], process.communicate()


def test_the_second_waits_and_takes_what_the_first_measured(tmp_path: Path, start: Start) -> None:
    first = start()
    until_it_runs(tmp_path, first)
    second = start()
    assert second.stderr is not None
    assert "another process measures classifier on board/fake-1.0/fp32" in second.stderr.readline()
    (tmp_path / "go").touch()
    one, two = (process.communicate() for process in (first, second))
    assert (first.returncode, second.returncode) == (0, 0), (one, two)
    assert runs(tmp_path) == [str(first.pid)]  # and nobody's plan was deleted under them
    records, new, distinct = map(int, one[0].split())
    assert records == new == distinct > 3
    assert list(map(int, two[0].split())) == [records, 0, distinct]
    assert not list((tmp_path / "cache" / "hybridlat" / "plans").iterdir())


def test_where_the_first_is_killed_the_second_goes_on(tmp_path: Path, start: Start) -> None:
    first = start()
    until_it_runs(tmp_path, first)
    second = start()
    assert second.stderr is not None and second.stderr.readline()
    first.kill()
    (tmp_path / "go").touch()
    out, err = second.communicate()
    assert second.returncode == 0, err
    assert runs(tmp_path) == [str(first.pid), str(second.pid)]
    assert int(out.split()[1]) > 3
