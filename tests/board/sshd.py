"""Real sshds on the loopback address, as the test's own user: each a board with its own folder.

None has an SFTP subsystem, as small images have none; a stand-in for trtexec is on their path.
"""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.board.conftest import FAKE

SSHD = shutil.which("sshd", path=os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"]))
WHY_NOT = (
    "there is no sshd: install openssh-server" if SSHD is None
    else "" if shutil.which("ssh") and shutil.which("ssh-keygen")
    else "there is no ssh: install openssh-client"
)  # fmt: skip
CONFIG = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile {folder}/user_key.pub
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
PubkeyAuthentication yes
PrintMotd no
ForceCommand cd {home} && export PATH={bin}:/usr/bin:/bin FAKE_TRTEXEC=8.6 FAKE_BOARD={name} \
FAKE_TRTEXEC_LOG={log} && exec sh -c "$SSH_ORIGINAL_COMMAND"
"""
CLIENT = """\
Host {name}
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
  UserKnownHostsFile /dev/null
  StrictHostKeyChecking no
  LogLevel ERROR
"""


@dataclass
class Sshd:
    """One board: ``home`` is where its sessions begin, ``log`` what its trtexec was called with."""

    name: str
    folder: Path
    port: int = 0
    _process: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def calls(self) -> int:
        log = self.folder / "calls"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def prepare(self) -> None:
        """Keys, configuration and the stand-in."""
        self.home.mkdir(parents=True)
        for key in ("host_key", "user_key"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / key)],
                check=True,
            )
        bin_ = self.folder / "bin"
        bin_.mkdir()
        (bin_ / "trtexec").write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {FAKE} "$@"\n')
        (bin_ / "trtexec").chmod(0o755)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        config = CONFIG.format(
            port=self.port, folder=self.folder, home=self.home, bin=bin_, name=self.name,
            log=self.folder / "calls",
        )  # fmt: skip
        (self.folder / "sshd_config").write_text(config)

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
        if self._process is None:
            return
        try:
            whole = [p := psutil.Process(self._process.pid), *p.children(recursive=True)]
        except psutil.NoSuchProcess:
            whole = []
        for process in whole:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self._process.wait(10)
        self._process = None

    @property
    def client_config(self) -> str:
        return CLIENT.format(
            name=self.name, port=self.port, user=getpass.getuser(), folder=self.folder
        )
