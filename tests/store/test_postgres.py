"""Several processes write at once, are killed, or lose their server; its roles and its driver."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hybridlat.errors import StoreError
from hybridlat.schema.measurement import Breakdown
from hybridlat.store import Store, database
from tests import postgres
from tests.networks import ROOT
from tests.store.records import HASHES, TARGET, TEXTS, filled, measured

WRITER = """
import sys
from hybridlat.store import Store
from tests.store.records import HASHES, TEXTS, measured
url, name, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with Store(url) as store:
    for i in range(count):
        store.add_signatures(TEXTS)
        store.add([measured(HASHES[j], 1.0 + name + i / 1e4) for j in range(3)])
        store.add([measured(HASHES[0], 777.0)])
        print(i, flush=True)
"""


def writer(url: str, name: int, count: int) -> subprocess.Popen[str]:
    words, pipe = [sys.executable, "-c", WRITER, url, str(name), str(count)], subprocess.PIPE
    return subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True)


def test_eight_processes_write_at_once(url: str) -> None:
    writers = [writer(url, name, 15) for name in range(8)]
    for process in writers:
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
    with Store(url) as store:
        assert store.check() == []
        known = store.latencies(TARGET, HASHES)
        assert [known[h].records for h in HASHES[:3]] == [8 * 15 + 1, 8 * 15, 8 * 15]
        assert store.targets() == [TARGET]


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_killed_process_loses_at_most_the_transaction_in_flight(url: str) -> None:
    for round_ in range(3):
        process = writer(url, round_, 100_000)
        assert process.stdout is not None
        confirmed = -1
        for line in process.stdout:
            confirmed = int(line)
            if confirmed >= 5 + round_:
                break
        time.sleep(0.003 * round_)
        process.send_signal(signal.SIGKILL)
        confirmed = max([confirmed, *(int(rest) for rest in process.stdout if rest.endswith("\n"))])
        process.wait()
        process.stdout.close()
        assert process.stderr is not None
        process.stderr.close()
        with Store(url) as store:
            assert store.check() == []
            records = [store.measurements(TARGET, "cell", h) for h in HASHES[:3]]
            latencies_us = [[m.latency_us or 0.0 for m in each] for each in records]
        counts = {sum(1.0 + round_ <= us < 2.0 + round_ for us in each) for each in latencies_us}
        assert len(counts) == 1, "a transaction was stored in part"
        assert counts.pop() in (confirmed + 1, confirmed + 2)


PAGE = ROOT / "docs" / "guides" / "teams.md"


@pytest.fixture
def store(server: postgres.Server) -> Iterator[Store]:
    with Store(server.database()) as opened:
        yield opened


def restart(server: postgres.Server, mode: str) -> None:
    server.stop(mode)
    time.sleep(0.3)
    server.start()


def test_a_restart_loses_and_doubles_nothing(server: postgres.Server, store: Store) -> None:
    filled(store)
    rounds, names = 60, range(4)
    writers = [writer(store.url, name, rounds) for name in names]
    for process in writers:
        assert process.stdout is not None and process.stdout.readline() == "0\n"
    for mode in ("immediate", "fast"):
        restarting = threading.Thread(target=restart, args=(server, mode))
        restarting.start()
        is_over = False
        while not is_over:
            is_over = not restarting.is_alive()  # once more after it is
            assert store.latencies(TARGET, [HASHES[1]])[HASHES[1]].latency_us is not None
            assert len(list(store.breakdowns())) == 1
    for process in writers:
        # Not communicate(): it passes over what came together with the line read above.
        with process:
            assert process.stdout is not None and process.stderr is not None
            process.wait(timeout=240)  # what it says and its errors are short: no pipe fills up
            errors, said = process.stderr.read(), process.stdout.read()
        assert process.returncode == 0, errors
        assert said.split()[-1] == str(rounds - 1)
    assert store.check() == []
    found = [m.latency_us for m in store.measurements(TARGET, "cell", HASHES[1])]
    written = [1.0 + name + i / 1e4 for name in names for i in range(rounds)]
    assert sorted(v for v in found if v is not None) == sorted([*written, 20.0])


def test_a_server_that_stays_away_is_one_sentence(
    server: postgres.Server, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(store)
    monkeypatch.setattr(database, "BUSY_S", 0.2)
    server.stop()
    try:
        with pytest.raises(StoreError, match="cannot be used") as caught:
            store.latencies(TARGET, HASHES)
        assert "\n" not in str(caught.value)
        with Store(store.url) as other, pytest.raises(StoreError, match="cannot be used"):
            other.add([measured()])
    finally:
        server.start()
    assert len(store.latencies(TARGET, HASHES)) == 3


def test_one_that_never_answered_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    monkeypatch.setattr(time, "sleep", pytest.fail)
    with pytest.raises(StoreError, match=r"cannot be used.*HYBRIDLAT_STORE\)$"):  # no copy of it
        Store(f"postgresql://user:secret@/none?host={tmp_path}").targets()


def test_without_the_driver_it_says_which_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for scheme in ("postgresql+psycopg", "postgresql", "postgres"):
        with pytest.raises(StoreError, match=r'pip install "\.\[postgres\]"') as caught:
            Store(f"{scheme}://user:secret@host/db").targets()
        assert "secret" not in str(caught.value)


def test_texts_that_the_server_does_not_take(store: Store) -> None:
    """It keeps no NUL in texts; the records themselves are bytes and stay as they are."""
    failed = measured(latency_us=None, failure="a\0b")
    store.add_signatures(TEXTS)
    store.add([failed])
    store.add_breakdowns([Breakdown(TARGET, "n\0", HASHES[3], ((HASHES[0], 1),))])
    assert list(store.measurements()) == [failed]
    assert store.latencies(TARGET, HASHES)[HASHES[0]].failure == "a\N{REPLACEMENT CHARACTER}b"
    assert store.check() == []


def test_the_statements_of_the_page_make_a_store_of_a_team(server: postgres.Server) -> None:
    blocks = re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    by_administrator, by_owner = (
        [statement for part in block.split(";") if (statement := part.strip())] for block in blocks
    )
    server.execute(*by_administrator)
    with Store(server.url("latencies", "hybridlat")) as owned:
        filled(owned)
    server.execute(*by_owner, database="latencies", user="hybridlat")
    with Store(server.url("latencies", "alice")) as store:
        store.add_signatures(TEXTS)
        assert store.add([measured(latency_us=77.0)]) == 1
        store.cache_put({"a/1": "text"})
        assert store.cache_sweep(max_bytes=0).dropped == 1
        assert store.check() == []
    with pytest.raises(Exception, match="permission denied"):
        server.execute("DELETE FROM payload", database="latencies", user="alice")
    short = server.url("latencies", "report").replace("postgresql+psycopg", "postgres")
    with Store(short) as store:
        assert store.latencies(TARGET, HASHES)[HASHES[0]].records == 3
        assert store.stats()
        with pytest.raises(StoreError, match="permission denied"):
            store.add([measured(latency_us=78.0)])
