"""What a cache holds can be made again: a damaged entry costs an answer nothing."""

import sqlite3
from pathlib import Path

import pytest

from hybridlat import predict
from hybridlat.estimate.lookup.models import keep_device, known_device
from hybridlat.estimate.partition import PARTITION_FORMAT
from hybridlat.onnx_io.facts import FACTS_FORMAT
from hybridlat.schema.target import Device, Target
from hybridlat.store import Store

NET = Path(__file__).resolve().parents[2] / "data" / "nets" / "ghostnet_100.onnx"
TARGET = "epyc-26-2/onnxruntime-1.31/fp32/1t"


def texts(path: Path) -> list[str]:
    """What is cached of files and partitions."""
    formats = f"[{FACTS_FORMAT},", f"[{PARTITION_FORMAT},"
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT text FROM cache ORDER BY key")
        return [text for (text,) in rows if text.startswith(formats)]


@pytest.mark.parametrize("damage", ["substr(text, 1, length(text) / 2)", "'[]'", "'x'", "'[4, 7]'"])
def test_a_file_is_answered_though_its_caches_are_damaged(damage: str, tmp_path: Path) -> None:
    path, latencies = tmp_path / "s.db", []
    for _ in range(2):
        latencies.append(predict(NET, TARGET, store=str(path), measure="never").latency_us)
        whole = texts(path)
        assert len(whole) == 2
        with sqlite3.connect(path) as connection:
            connection.execute(f"UPDATE cache SET text = {damage}")
    latencies.append(predict(NET, TARGET, store=str(path), measure="never").latency_us)
    assert len(set(latencies)) == 1
    assert texts(path) == whole  # made again


def test_a_damaged_micro_benchmark_counts_as_none(tmp_path: Path) -> None:
    target, path = Target.parse("abacus/onnxruntime/fp32/1t"), tmp_path / "s.db"
    device = Device("abacus", "cpu", {"fp32": 1e9}, 1e9, 1, 1e9)
    with Store(path) as store:
        keep_device(target, store, device)
        assert known_device(target, store) == device
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE cache SET text = '[]'")
        assert known_device(target, Store(path)) is None
