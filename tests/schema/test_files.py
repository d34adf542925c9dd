"""Files of others are read within bounds; files of hybridlat are whole or not there."""

import os
import platform
import resource
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hybridlat.schema import files
from hybridlat.schema.files import read_bytes, scratch_folder, write_text
from hybridlat.schema.shown import visible


def test_only_regular_files_of_some_size_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    os.mkfifo(tmp_path / "pipe")
    assert read_bytes(tmp_path / "file", 5) == b"12345"
    for place in ("/dev/zero", tmp_path / "pipe", tmp_path):
        with pytest.raises(OSError, match="no regular file"):
            read_bytes(place)
    with pytest.raises(OSError, match="larger than 0 MiB"):
        read_bytes(tmp_path / "file", 4)


@pytest.mark.parametrize("before", [None, "what was there"])
def test_a_full_disk_leaves_what_was_there(tmp_path: Path, before: str | None) -> None:
    file = tmp_path / "page.html"
    if before is not None:
        file.write_text(before)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"page\.html"):
            write_text(file, "x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert [path.name for path in tmp_path.iterdir()] == ([] if before is None else ["page.html"])
    assert before is None or file.read_text() == before


def test_files_written_at_once_are_each_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [tmp_path / f"{'x' * 60}{number}.html" for number in range(2)]
    written = threading.Barrier(2, timeout=10)
    replace = Path.replace

    def late(partial: Path, place: Path) -> Path:
        written.wait()
        return replace(partial, place)

    monkeypatch.setattr(Path, "replace", late)
    with ThreadPoolExecutor() as threads:
        list(threads.map(write_text, both, ("0", "1")))
    assert [path.read_text() for path in both] == ["0", "1"]


def test_links_modes_and_what_is_no_file_stay(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "file").chmod(0o640)
    (tmp_path / "link").symlink_to("file")
    write_text(tmp_path / "link", os.fsdecode(b"net\xff.onnx"))
    assert (tmp_path / "file").read_text() == "net\\udcff.onnx" and (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640
    write_text("/dev/null", "x")
    assert Path("/dev/null").is_char_device()


def test_folders_of_killed_processes_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    script = (
        "import os; from hybridlat.schema.files import scratch_folder\n"
        "with scratch_folder() as folder: (folder / 'x').touch(); os._exit(9)"
    )
    subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False
    )
    (left,) = tmp_path.iterdir()
    number, chance = left.name.rsplit("-", 2)[1:]
    # A host whose name goes on there may have a process of any number.
    other = left.with_name(f"hybridlat-{platform.node()}-{number}-1-{chance}")
    other.mkdir()
    files.sweep.cache_clear()
    with scratch_folder() as folder:
        assert {*tmp_path.iterdir()} == {folder, other}


def test_nothing_that_is_shown_steers_what_shows_it() -> None:
    odd = "a\x1b[2J\r\n\x9b\u202e\u2028\u2066\udcff\0\x7f\ue000\u0378"
    assert visible(odd).isprintable() and len(visible(odd)) == len(odd)
    assert visible(odd, breaks=True).count("\n") == 1
    assert visible("né ×2 → µs – 日本 👍") == "né ×2 → µs – 日本 👍"
