"""A board behind a real sshd without SFTP, as small images are, whose power goes and comes back.

It listens on the loopback address as the test's own user, with a folder of its own and a stand-in
for trtexec.
"""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hybridlat.cli import main as cli
from hybridlat.onnx_io import to_onnx
from tests.board.conftest import put_trtexec
from tests.networks import residual_block

SSHD = shutil.which("sshd", path=os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"]))
pytestmark = pytest.mark.skipif(
    not (SSHD and shutil.which("ssh") and shutil.which("ssh-keygen")),
    reason="there is no sshd or ssh: install openssh-server",
)
TARGET = "orin/tensorrt-8.6/fp16"
CALLS = 3
"""Of a board's trtexec, until its power is cut."""
CONFIG = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/key
PidFile none
AuthorizedKeysFile {folder}/key.pub
StrictModes no
UsePAM no
PermitRootLogin yes
ForceCommand cd {folder} && export PATH={folder}:/usr/bin:/bin FAKE_TRTEXEC=8.6 FAKE_BOARD={name} \
FAKE_TRTEXEC_LOG={folder}/calls HYBRIDLAT_LOCK={folder}/lock && exec sh -c "$SSH_ORIGINAL_COMMAND"
"""
CLIENT = """\
Host {name}
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {folder}/key
  IdentitiesOnly yes
  UserKnownHostsFile /dev/null
  StrictHostKeyChecking no
  LogLevel ERROR
"""


class Sshd:
    """One board; its sessions begin in ``folder``."""

    def __init__(self, name: str, folder: Path) -> None:
        folder.mkdir()
        self.name, self.folder = name, folder
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")]
        subprocess.run(key, check=True)
        put_trtexec(folder)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        facts = {"port": self.port, "folder": folder, "name": name, "user": getpass.getuser()}
        (folder / "sshd_config").write_text(CONFIG.format(**facts))
        self.client_config = CLIENT.format(**facts)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def calls(self) -> int:
        """How often its trtexec was called."""
        log = self.folder / "calls"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def start(self) -> None:
        """Listen; returns once it answers."""
        assert SSHD is not None
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # where sshd of root locks itself in
        command = [SSHD, "-D", "-e", "-f", str(self.folder / "sshd_config")]
        with (self.folder / "sshd.log").open("ab") as log:
            self._process = subprocess.Popen(command, stderr=log, start_new_session=True)
        end = time.monotonic() + 20
        while time.monotonic() < end and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise AssertionError((self.folder / "sshd.log").read_text())

    def kill(self) -> None:
        """As when its power goes: sshd, its sessions and all that they started, at once."""
        if self._process is None or self._process.poll() is not None:
            return
        own = psutil.Process(self._process.pid)
        for process in [own, *own.children(recursive=True)]:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self._process.wait(10)


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    """A board that this user's ssh knows by the name ``left``."""
    board = Sshd("left", tmp_path / "left")
    (tmp_path / "ssh_config").write_text(board.client_config)
    (tmp_path / "ssh").write_text(
        f'#!/bin/sh\nexec {shutil.which("ssh")} -F {tmp_path}/ssh_config "$@"\n'
    )
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    board.start()
    yield board
    board.kill()


def test_after_a_power_cut_the_next_run_goes_on(
    board: Sshd, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.onnx").write_bytes(to_onnx(residual_block(blocks=2), seed=1))
    command = ["measure", f"{tmp_path}/net.onnx", "--host", "left", "--target", TARGET]
    command += ["--store", f"{tmp_path}/store.db"]

    def power_cut() -> None:
        end = time.monotonic() + 60
        while board.calls < CALLS and time.monotonic() < end:
            time.sleep(0.02)
        board.kill()

    thread = threading.Thread(target=power_cut, daemon=True)
    thread.start()
    assert cli.run(command) == 3
    thread.join()
    assert "left cannot be reached" in capfd.readouterr().err
    board.start()
    assert cli.run(command) == 0
    # What was measured before the cut is not measured again: every visit is there once.
    calls = (board.folder / "calls").read_text().splitlines()
    visits = [call for call in calls if "--duration=0" not in call]
    assert len(visits) > CALLS
    assert not list(board.folder.glob("hybridlat-plans/*"))
    before = board.calls
    assert cli.run([*command, "--cells"]) == 0
    assert board.calls == before  # all cells are known
