"""Two that measure the same by a plan take turns, and measure it once."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from hybridlat.errors import MeasurementError, StoreError
from hybridlat.measuring.measurer import import_results, measure_draft
from hybridlat.measuring.plans import draft_for
from hybridlat.schema.measurement import Measurement
from hybridlat.schema.target import Target
from hybridlat.store import Store
from tests.board.conftest import add_fake_engine, lower
from tests.networks import classifier

NETWORK = classifier(8)
TARGET = Target("board", "fake-1.0", "fp32")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def work(folder: Path) -> None:
    add_fake_engine(folder)
    command = [sys.executable, str(folder / "worker.py"), "run", "--engine", "fake"]
    subprocess.run(command, check=True, capture_output=True)


def worked_plan(tmp_path: Path, rounds: int) -> tuple[Path, Path]:
    """The folder of a plan that was measured, and the results in it."""
    folder = tmp_path / "plan"
    folder.mkdir()
    draft_for([(NETWORK.name, NETWORK)], TARGET, lower=lower, rounds=rounds).write(folder)
    work(folder)
    (results,) = folder.glob("results*.jsonl")
    return folder, results


def test_a_plan_has_a_lock_of_its_own(tmp_path: Path) -> None:
    locks = tmp_path / "cache" / "hybridlat" / "locks"

    def run(folder: Path) -> None:
        assert [lock.name for lock in locks.iterdir()] == [folder.name.rpartition("-")[2]]
        work(folder)

    draft = draft_for([(NETWORK.name, NETWORK)], TARGET, lower=lower, rounds=1)
    with Store(tmp_path / "s.db") as store:
        assert measure_draft(draft, TARGET, store, run)


def test_a_store_takes_cells_in_one_kind_of_layout(tmp_path: Path) -> None:
    folder, results = worked_plan(tmp_path, rounds=1)
    first, *rest = results.read_text().splitlines(keepends=True)

    def lay(**layouts: str) -> None:
        header = json.loads(first)
        header["board"]["settings"] = json.dumps({"tensorrt": "8.6.0", **layouts})
        results.write_text("".join([json.dumps(header) + "\n", *rest]))

    refused = pytest.raises(StoreError, match=r"cells? of .* layouts and with layouts=any")
    with Store(tmp_path / "s.db") as store, Store("sqlite://") as other:
        lay()
        _, new = import_results(folder, store)
        assert new and import_results(folder, store)[1] == 0
        lay(layouts="any")
        with refused:
            import_results(folder, store)
        import_results(folder, other)
        (pack,) = store.export(tmp_path / "packs")
        lay()
        with refused:
            other.import_(pack)
        (folder / "results-any.jsonl").write_text(results.read_text())
        lay(layouts="any")
        with refused:
            import_results(folder, Store("sqlite://"))
        assert len(list(store.measurements())) == new


def test_a_visit_counts_once_in_copies_of_a_results_file(tmp_path: Path) -> None:
    folder, results = worked_plan(tmp_path, rounds=2)
    lines = results.read_bytes().splitlines(keepends=True)
    with Store("sqlite://") as store:
        once, new = import_results(folder, store)
        results.write_bytes(b"".join([*lines, *lines[1:]]))  # appended to itself
        (folder / "results (1).jsonl").write_bytes(b"".join(lines[: len(lines) // 2]))
        again, newer = import_results(folder, store)
    assert new == len(once) and newer == 0
    assert [(m.signature, m.visits) for m in again] == [(m.signature, m.visits) for m in once]


def both(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, first_run: Callable[[Path], None]
) -> tuple[list[Future[list[Measurement]]], int]:
    """Measured twice, the second time while the first still runs; how often there was a run."""
    running, go = threading.Event(), threading.Event()
    runs: list[Path] = []

    def run(folder: Path) -> None:
        runs.append(folder)
        running.set()
        go.wait()
        (work if len(runs) > 1 else first_run)(folder)

    def measure() -> list[Measurement]:
        draft = draft_for([(NETWORK.name, NETWORK)], TARGET, lower=lower, rounds=1)
        with Store(tmp_path / "s.db") as store:
            return measure_draft(draft, TARGET, store, run)

    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(measure)]
        running.wait()
        futures.append(pool.submit(measure))
        while f"another run measures {NETWORK.name} on board/fake-1.0/fp32" not in caplog.text:
            time.sleep(0.02)
        go.set()
    assert not list((tmp_path / "cache" / "hybridlat" / "plans").iterdir())
    return futures, len(runs)


def test_the_second_waits_and_takes_what_the_first_measured(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (one, two), runs = both(tmp_path, caplog, work)
    ids = {record.id for record in one.result()}
    assert runs == 1 and len(ids) > 3
    assert {record.id for record in two.result()} == ids


def test_where_the_first_fails_the_second_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_: Path) -> None:
        raise MeasurementError("cut off")

    (one, two), runs = both(tmp_path, caplog, fails)
    assert runs == 2 and str(one.exception()) == "cut off"
    assert len(two.result()) > 3
