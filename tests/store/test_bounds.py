"""What others made is taken within bounds: packs, their members, and rows of a store."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hybridlat.errors import StoreError
from hybridlat.store import Store, packs
from hybridlat.store.importers import ImportedRecords
from hybridlat.store.integrity import check_pack
from hybridlat.store.packs import PackLookup, file_digest, lookup_of
from hybridlat.store.records import row_of
from tests.store.records import HASHES, OTHER, TARGET, TEXTS, filled, measured

MEMBERS = ("measurements.jsonl.gz", "signatures.jsonl.gz", "breakdowns.jsonl.gz", "lookup.json.gz")


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    return filled(Store("sqlite://")).export(tmp_path / "packs", TARGET)[0]


def rehashed(pack: Path, **facts: Any) -> Path:
    """The pack as it would be if it had been made of its files."""
    info = json.loads((pack / "pack.json").read_text()) | facts
    for name, entry in info["files"].items():
        if (pack / name).is_file():
            entry["sha256"] = file_digest(pack / name)
    (pack / "pack.json").write_text(json.dumps(info))
    return pack


def refused(pack: Path, words: str) -> None:
    """A check names it, and the import takes nothing."""
    assert any(words in str(problem) for problem in check_pack(pack)), check_pack(pack)
    store = Store("sqlite://")
    with pytest.raises(StoreError) as caught:
        store.import_(pack)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 900
    assert not store.targets() and not store.signature_texts(HASHES)


@pytest.mark.parametrize("name", MEMBERS)
@pytest.mark.parametrize("place", ["/dev/zero", "fifo", "folder"])
def test_only_regular_files_are_read(pack: Path, name: str, place: str) -> None:
    (pack / name).unlink()
    if place == "fifo":
        os.mkfifo(pack / name)
    elif place == "folder":
        (pack / name).mkdir()
    else:
        (pack / name).symlink_to(place)
    refused(pack, "it is no regular file")
    with pytest.raises(StoreError, match="it is no regular file"):
        list(PackLookup(pack).measurements() if "meas" in name else check_all(PackLookup(pack)))


def check_all(pack: PackLookup) -> list[object]:
    pack.latencies(TARGET, HASHES)
    return [*pack.all_signature_texts(), *pack.breakdowns()]


@pytest.mark.parametrize("name", MEMBERS)
@pytest.mark.parametrize(
    "text", [b"[" * 100_000, b'{"a":' * 100_000, b" " * (65 << 20) + b"{}", b"1" * 5000]
)
def test_depth_and_length_are_bounded(pack: Path, name: str, text: bytes) -> None:
    (pack / name).write_bytes(gzip.compress(text, 1))
    refused(rehashed(pack), name)


def test_lines_without_an_end_are_bounded(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = pack / MEMBERS[0]
    file.write_bytes(gzip.compress(gzip.decompress(file.read_bytes()) * 100))
    monkeypatch.setattr(packs, "_ANY_RATIO_BYTES", 0)  # as if it were that long
    monkeypatch.setattr(packs, "_MOST_RATIO", 20)
    refused(rehashed(pack), "more than 20 bytes for each that is stored")


@pytest.mark.parametrize("text", [b"[" * 100_000, b" " * (2 << 20) + b"{}", b'{"format": 1e999}'])
def test_pack_json_is_bounded(pack: Path, text: bytes) -> None:
    (pack / "pack.json").write_bytes(text)
    refused(pack, "pack.json")


def longer(record: dict[str, Any]) -> None:
    record["latency_us"] *= 1000


def shorter(record: dict[str, Any]) -> None:
    record["latency_us"] /= 1000


def of_yesterday(record: dict[str, Any]) -> None:
    record["measured_at"] = "yesterday"


def of_another_target(record: dict[str, Any]) -> None:
    record["target"] = str(OTHER)


def below_zero(record: dict[str, Any]) -> None:
    record["visits"][0]["samples_us"][0] = -1.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (longer, "above its slowest sample"), (shorter, "below its fastest sample"),
        (of_yesterday, "measured_at 'yesterday' is no time"),
        (below_zero, "sample is not positive"),
        (of_another_target, "it is of h100/tensorrt-8.6/fp16, the pack of fake/"),
    ],
)  # fmt: skip
def test_import_asks_what_a_check_asks(
    pack: Path, change: Callable[[dict[str, Any]], None], words: str
) -> None:
    text = gzip.decompress((pack / MEMBERS[0]).read_bytes())
    lines = [json.loads(line) for line in text.splitlines()]
    change(next(line for line in lines if line["latency_us"]))
    text = "\n".join(map(json.dumps, lines)).encode()
    (pack / MEMBERS[0]).write_bytes(gzip.compress(text))
    rows: dict[tuple[str, str], list[Any]] = {}
    for record in PackLookup(pack).measurements():
        rows.setdefault((record.kind, record.signature), []).append(row_of(record))
    (pack / MEMBERS[3]).write_bytes(gzip.compress(json.dumps(lookup_of(rows)).encode()))
    refused(rehashed(pack), words)


def test_breakdowns_of_another_target_and_missing_texts_are_refused(pack: Path) -> None:
    copy = Path(shutil.copytree(pack, pack.parent / "copy"))
    refused(rehashed(copy, target="fake/fake-1.0/fp32/2t"), "the pack of fake/fake-1.0/fp32/2t")
    (pack / MEMBERS[1]).write_bytes(gzip.compress(b""))
    refused(rehashed(pack), "signatures have no text")


@pytest.mark.parametrize(
    "change",
    [
        *(f"latency_us = {value}" for value in ("-5", "0", "1e308", "9e999", "1e11")),
        *(f"spread_share = {value}" for value in ("-1", "1e308", "9e999")),
    ],
)
def test_rows_of_the_look_up_are_not_believed(tmp_path: Path, change: str) -> None:
    path = tmp_path / "store.db"
    filled(Store(path)).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE measurement SET {change} WHERE latency_us = 20")
    with Store(path) as store:
        assert any("differs from the record" in str(problem) for problem in store.check())
        with pytest.raises(StoreError, match=r"is damaged: \[\d+\]\[\d\]: expected float"):
            store.latencies(TARGET, HASHES)


def test_a_plug_in_s_records_are_asked_the_same(store: Store) -> None:
    with pytest.raises(StoreError, match="takes no record in which latency_us"):
        store.add_all(ImportedRecords(TEXTS, [replace(measured(), latency_us=10_000.0)], []))
    assert not store.targets() and not store.signature_texts(HASHES)
