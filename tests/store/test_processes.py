"""Several processes write at once, and one that is killed loses only what it was writing."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hybridlat.store import Store
from tests.store.records import HASHES, TARGET

ROOT = Path(__file__).parents[2]
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
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, url, str(name), str(count)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )


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
            mine = {
                h: [m for m in store.measurements(TARGET, "cell", h) if is_of(m.latency_us, round_)]
                for h in HASHES[:3]
            }
        counts = {len(records) for records in mine.values()}
        assert len(counts) == 1, "a transaction was stored in part"
        assert counts.pop() in (confirmed + 1, confirmed + 2)


def is_of(latency_us: float | None, name: int) -> bool:
    return latency_us is not None and 1.0 + name <= latency_us < 2.0 + name
