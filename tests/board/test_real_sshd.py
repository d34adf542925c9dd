"""Boards behind real sshds without SFTP: measured, killed in the middle, together and in turn."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hybridlat.cli import main as cli
from hybridlat.onnx_io import to_onnx
from hybridlat.store import Store
from tests.board.sshd import WHY_NOT, Sshd
from tests.networks import residual_block

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
CALLS = 3
"""Of a board's trtexec, until its power is cut."""
TARGET = "orin/tensorrt-8.6/fp16"
DEVICE = '[[device]]\nname = "{name}"\ntarget = "{target}"\nhost = "{name}"\nrunner = "trtexec"\n\n'


@pytest.fixture
def boards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Sshd]]:
    """Two boards, left and right, that this user's ssh knows by name."""
    found = [Sshd(name, tmp_path / name) for name in ("left", "right")]
    for board in found:
        board.prepare()
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (tmp_path / "ssh_config").write_text("".join(board.client_config for board in found))
    ssh = shutil.which("ssh")
    (bin_ / "ssh").write_text(f'#!/bin/sh\nexec {ssh} -F {tmp_path}/ssh_config "$@"\n')
    (bin_ / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HYBRIDLAT_STORE", str(tmp_path / "store.db"))
    for board in found:
        board.start()
    yield found
    for board in found:
        board.kill()


@pytest.fixture
def net(tmp_path: Path) -> str:
    path = tmp_path / "net.onnx"
    path.write_bytes(to_onnx(residual_block(blocks=2), seed=1))
    return str(path)


def fleet_of(folder: Path, boards: list[Sshd]) -> str:
    path = folder / "fleet.toml"
    path.write_text("".join(DEVICE.format(name=b.name, target=TARGET) for b in boards))
    return str(path)


def once(board: Sshd, calls: int, act: Callable[[], None]) -> threading.Thread:
    """Does something when the board's trtexec has been called so often."""

    def wait() -> None:
        end = time.monotonic() + 60
        while board.calls < calls and time.monotonic() < end:
            time.sleep(0.02)
        act()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def test_a_board_without_sftp_is_measured(
    boards: list[Sshd], net: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.run(["measure", net, "--network", "--target", TARGET, "--host", "left"])
    said = capsys.readouterr()
    assert code == 0, said.err
    assert "left: measuring with trtexec" in said.err
    assert "net.onnx" in said.out.replace("\n", "")  # a long path is broken where the line ends


def test_one_of_two_boards_is_killed_and_the_other_measures_all(
    boards: list[Sshd], net: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left, right = boards
    thread = once(left, CALLS, left.kill)
    code = cli.run(["measure", net, "--fleet", fleet_of(tmp_path, boards)])
    said = capsys.readouterr()
    thread.join()
    assert code == 0, said.err
    assert "left is away (left cannot be reached" in said.err
    assert left.calls >= CALLS and right.calls
    with Store(str(tmp_path / "store.db")) as store:
        records = list(store.measurements())
    assert all(record.latency_us for record in records)
    assert len({(r.kind, r.signature) for r in records}) == len(records) == 2
    before = right.calls
    assert cli.run(["measure", net, "--fleet", fleet_of(tmp_path, [right])]) == 0
    assert right.calls == before  # all is known


def test_the_only_board_is_waited_for_and_goes_on(
    boards: list[Sshd], net: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = boards[0]

    def power_cut() -> None:
        left.kill()
        time.sleep(0.5)
        left.start()

    thread = once(left, CALLS, power_cut)
    code = cli.run(["measure", net, "--fleet", fleet_of(tmp_path, [left]), "--json"])
    said = capsys.readouterr()
    thread.join()
    assert code == 0, said.err
    assert "left is away" in said.err and "left is back" in said.err
    assert '"lost": 1' in said.out
    # What was measured before the cut is not measured again: every visit is there once.
    (results,) = left.home.glob("hybridlat-plans/*/results.jsonl")
    lines = [json.loads(line) for line in results.read_text().splitlines() if line.endswith("}")]
    visits = [(line["task"], line["round"]) for line in lines if line["kind"] == "visit"]
    assert len(visits) == len(set(visits)) > CALLS
