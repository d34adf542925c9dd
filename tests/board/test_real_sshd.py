"""A host behind a real sshd without SFTP, as small images are, whose power goes and comes back."""

import getpass
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from hybridlat.onnx_io import to_onnx
from tests.board.conftest import put_trtexec
from tests.cli.shell import call
from tests.networks import residual_block

SSHD = shutil.which("sshd", path=os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"]))
pytestmark = pytest.mark.skipif(
    not (SSHD and shutil.which("ssh") and shutil.which("ssh-keygen")),
    reason="there is no sshd or ssh: install openssh-server",
)
CONFIG = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/key
PidFile none
AuthorizedKeysFile {folder}/key.pub
StrictModes no
UsePAM no
PermitRootLogin yes
ForceCommand cd {folder} && export PATH={folder}:/usr/bin:/bin FAKE_TRTEXEC=8.6 FAKE_BOARD=board \
FAKE_TRTEXEC_LOG={folder}/calls HYBRIDLAT_LOCK={folder}/lock && exec sh -c "$SSH_ORIGINAL_COMMAND"
"""
SSH = """#!/bin/sh
exec {ssh} -o HostName=127.0.0.1 -o Port={port} -o User={user} -o IdentityFile={folder}/key \
-o IdentitiesOnly=yes -o UserKnownHostsFile=/dev/null -o StrictHostKeyChecking=no \
-o LogLevel=ERROR "$@"
"""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], psutil.Popen]]:
    """Starts the sshd of this user's host ``board``, whose sessions begin in a folder ``board``."""
    folder, started = tmp_path / "board", list[psutil.Popen]()
    put_trtexec(folder)
    subprocess.run(["ssh-keygen", "-qt", "ed25519", "-N", "", "-f", folder / "key"], check=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "config").write_text(CONFIG.format(port=port, folder=folder))
    ssh = SSH.format(port=port, folder=folder, user=getpass.getuser(), ssh=shutil.which("ssh"))
    (tmp_path / "ssh").write_text(ssh)
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where sshd of root locks itself in

    def start() -> psutil.Popen:
        command = [SSHD, "-D", "-e", "-f", str(folder / "config")]
        started.append(psutil.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True))
        while started[-1].poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return started[-1]
        raise AssertionError("sshd does not start")

    yield start
    kill(started[-1])


def kill(sshd: psutil.Popen) -> None:
    """As when the power goes: sshd, its sessions and all that they started, at once."""
    if sshd.poll() is None:
        for process in [*sshd.children(recursive=True), sshd]:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        sshd.wait(10)


def test_a_run_goes_on_after_a_power_cut(start: Callable[[], psutil.Popen], tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(to_onnx(residual_block(blocks=2), seed=1))
    command = ["measure", f"{tmp_path}/net.onnx", "--store", f"{tmp_path}/store.db"]
    command += ["--host", "board", "--target", "orin-nano/tensorrt-8.6/fp16"]
    sshd, results = start(), tmp_path / "board" / "hybridlat-plans"

    def power_cut() -> None:
        while not any(path.stat().st_size > 3000 for path in results.glob("*/results.jsonl")):
            time.sleep(0.02)
        kill(sshd)

    threading.Thread(target=power_cut, daemon=True).start()
    assert "board cannot be reached" in call(*command, code=3).err
    [visits] = [path.read_text() for path in results.glob("*/results.jsonl")]
    start()
    call(*command)
    # What was measured before the cut is not measured again, and nothing is left there.
    calls = (tmp_path / "board" / "calls").read_text().splitlines()
    assert len(visits.splitlines()) > 2 and not list(results.iterdir())
    call(*command, "--cells")
    assert (tmp_path / "board" / "calls").read_text().splitlines() == calls  # all is known
