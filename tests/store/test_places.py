"""Where a store lies: what cannot be written is read, and what is cut off holds what it can."""

import logging
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hybridlat import Predictor
from hybridlat.errors import StoreError
from hybridlat.onnx_io import to_onnx
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.workers import Progress
from hybridlat.store import Store, connection
from tests.fakes.fake_backend import FAKE
from tests.networks import classifier
from tests.store.records import HASHES, TARGET, filled, measured

NOBODY = 65534
NETWORK = to_onnx(classifier(8), seed=1)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user reaches, which pytest's are not."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    path.chmod(0o755)
    shutil.rmtree(path)


def in_child(work: object, *arguments: object) -> None:
    """Call ``work`` in a fork that is not root; it must not raise."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            work(*arguments)  # type: ignore[operator]
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def predicted(store: str) -> Estimate:
    with Predictor(FAKE, store=store, measure="auto" if "/" in store[9:] else "never") as predictor:
        return predictor.predict(NETWORK, name="n")


def only_reads(path: Path) -> None:
    words: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: words.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("hybridlat").addHandler(handler)
    with Store(path) as store:
        assert store.latencies(TARGET, HASHES)[HASHES[1]].latency_us == 20.0
        assert store.is_read_only and store.check() == [] and len(store.stats()) == 2
        store.cache_put({"key": "1"})
        assert store.cache_read("key", str) is None and store.add_signatures({HASHES[0]: "x"}) == 0
        with pytest.raises(StoreError, match=r"can be read and not written.*--store"):
            store.add([measured(latency_us=3.0)])
    assert len(words) == 1 and "nothing is kept in it" in words[0], words
    measures_nothing(path)
    assert len(words) == 2, words
    steps: list[Progress] = []
    refused = pytest.raises(StoreError, match="can be read and not written")
    with Predictor(FAKE, store=str(path), progress=steps.append) as predictor, refused:
        predictor.measure(NETWORK)
    assert not steps


def measures_nothing(path: Path) -> None:
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        os.environ[name] = str(path.parent)  # root's own are not this user's
    estimate = predicted(f"sqlite:///{path}")
    assert not (estimate.measured_now or estimate.network_measured_now)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("mode", [0o555, 0o755])
def test_a_store_that_cannot_be_written_is_read(folder: Path, mode: int) -> None:
    path = folder / "store.db"
    filled(Store(path)).close()
    path.chmod(0o444)
    folder.chmod(mode)
    predicted("sqlite://")  # the child may not be able to load what it needs
    in_child(only_reads, path)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_where_no_store_can_be_made_nothing_is_measured(folder: Path) -> None:
    folder.chmod(0o555)
    predicted("sqlite://")  # the child may not be able to load what it needs
    in_child(measures_nothing, folder / "store.db")


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "ext4"])
def test_no_wal_on_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    place, journal = tmp_path / "a share", "wal" if kind == "ext4" else "delete"
    place.mkdir()
    escaped = str(place).replace(" ", "\\040")
    (tmp_path / "mounts").write_text(f"root / ext4 rw 0 0\nboard:/x {escaped} {kind} rw 0 0\n")
    monkeypatch.setattr(connection, "MOUNTS", tmp_path / "mounts")
    filled(Store(place / "store.db")).close()
    with closing(sqlite3.connect(place / "store.db")) as raw:
        assert raw.execute("PRAGMA journal_mode").fetchone() == (journal,)
    assert ("PostgreSQL" in caplog.text) == (journal == "delete")


def test_a_file_that_a_full_disk_left_empty_reads_as_a_new_store(tmp_path: Path) -> None:
    (tmp_path / "store.db").touch()
    store = Store(tmp_path / "store.db")
    assert store.targets() == []
    assert (tmp_path / "store.db").stat().st_size == 0
    assert filled(store).targets() != []
    store.close()
    filled(Store(tmp_path / "new.db")).close()
    assert (tmp_path / "new.db").stat().st_mode & 0o777 == 0o600  # its user's alone


def test_a_removed_store_is_missed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Store(tmp_path / "store.db") as store:
        filled(store)
        (tmp_path / "store.db").unlink()
    assert "was removed meanwhile" in caplog.text


def grown(path: Path) -> tuple[bytes, bytes]:
    """A store's file and its WAL while its writer lives."""
    with filled(Store(path)) as store:
        for number in range(3):
            store.add([measured(HASHES[1], 21.0 + number)])
        return path.read_bytes(), path.with_name(f"{path.name}-wal").read_bytes()


def test_a_cut_wal_holds_whole_transactions(tmp_path: Path) -> None:
    body, wal = grown(tmp_path / "store.db")
    last, cut_path = 0, tmp_path / "cut.db"
    frame = 24 + 4096
    cuts = {32 + frame * n + d for n in range(len(wal) // frame + 1) for d in (0, 1, 2000)}
    for cut in sorted(c for c in cuts if 0 <= c <= len(wal)):
        for name, data in (("", body), ("-wal", wal[:cut])):
            Path(f"{cut_path}{name}").write_bytes(data)
        Path(f"{cut_path}-shm").unlink(missing_ok=True)
        with Store(cut_path) as store:
            assert store.check() == [], cut
            known = store.latencies(TARGET, HASHES[1:2])
        records = known[HASHES[1]].records if known else 0
        assert records >= last, cut
        last = records
    assert last == 4
