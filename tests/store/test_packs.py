"""Packs: the same records, the same bytes each time; what others made is taken within bounds."""

import gzip
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hybridlat.errors import StoreError
from hybridlat.schema.measurement import Breakdown
from hybridlat.schema.target import Target
from hybridlat.store import Store, packs
from hybridlat.store.importers import ImportedRecords
from hybridlat.store.integrity import check_pack
from hybridlat.store.packs import PackLookup, file_digest, lookup_of, packs_for, shipped_packs
from hybridlat.store.records import row_of
from hybridlat.store.store import ImportCounts
from tests.store.records import HASHES, OTHER, TARGET, TEXTS, filled, measured

GOLDEN = Path(__file__).parents[1] / "golden" / "pack_format_2"
INFO, MEASUREMENTS, LOOKUP = "pack.json", "measurements.jsonl.gz", "lookup.json.gz"
MEMBERS = (MEASUREMENTS, "signatures.jsonl.gz", "breakdowns.jsonl.gz", LOOKUP)


@pytest.fixture
def store() -> Store:
    return filled(Store("sqlite://"))


@pytest.fixture
def pack(store: Store, tmp_path: Path) -> Path:
    return store.export(tmp_path / "packs", TARGET, source="a test", licence="CC0-1.0")[0]


def ids(store: Store) -> list[str]:
    return sorted([m.id for m in store.measurements()] + [b.id for b in store.breakdowns()])


def test_export_and_import_are_inverse(store: Store, tmp_path: Path) -> None:
    folders = store.export(tmp_path)
    assert [f.name for f in folders] == [TARGET.folder, OTHER.folder]
    again = Store("sqlite://")
    assert again.import_(tmp_path) == ImportCounts(4, 7, 1, 8)
    assert again.import_(tmp_path) == ImportCounts(0, 0, 0, 8)
    assert ids(again) == ids(store)
    assert again.signature_texts(HASHES) == TEXTS
    assert [check_pack(f) for f in folders] == [[], []]


def test_an_anonymous_pack_names_neither_a_person_nor_a_machine(tmp_path: Path) -> None:
    uuid = "GPU-0a1b2c3d-1111-2222-3333-444455556666"
    facts = {
        "engine": "tensorrt 8.6", "gpu": "NVIDIA H100", "driver": "550.54", "uuid": uuid,
        "pci_bus": "0000:65:00.0", "system": "Linux 6.1.0-acme x86_64", "serial": "1422719003",
        "board_id": "feedfeedfeedfeed", "plan": "feedfeedfeedfeed", "hostname": "jane-desktop",
        "model": "/home/jane/board", "load": "0.1",
    }  # fmt: skip
    labels = {"network": "acme_secret", "options": "--staticPlugins=/home/jane/x.so", "role": "r",
              "source": "jane", "note": "measured by jane", "model": "acme"}  # fmt: skip
    record = measured(HASHES[0], 7.0, target=OTHER)
    broken = measured(HASHES[1], None, target=OTHER, failure="no /home/jane/n.onnx on jane-desktop")
    with Store(f"sqlite:///{tmp_path}/jane.db") as store:
        store.add_signatures(TEXTS)
        store.add([replace(one, environment=facts, labels=labels) for one in (record, broken)])
        store.add([replace(record, labels={"network": "resnet18"})])
        cells = ((HASHES[0], 1),)
        store.add_breakdowns([Breakdown(OTHER, "acme_secret", HASHES[3], cells, (), labels)])
        (folder,) = store.export(tmp_path / "packs", anonymous=True)
    text = "".join(
        (gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()).decode()
        for file in folder.iterdir()
    )
    leak = re.search(".*(jane|acme|1422719|0000:65:00|GPU-0a1b|feedfeed).*", text)
    assert leak is None, leak[0]
    assert check_pack(folder) == []
    again = Store("sqlite://")
    again.import_(folder)
    kept = {r.labels["network"]: r for r in again.measurements() if r.latency_us}
    hidden = kept.pop(f"network-{hashlib.sha256(b'acme_secret').hexdigest()[:12]}")
    assert [*kept] == ["resnet18"] and hidden.latency_us == 7.0 and hidden.labels["role"] == "r"
    kept_facts = {name: facts[name] for name in ("engine", "gpu", "load", "driver")}
    assert hidden.environment == kept_facts | {"system": "Linux 6.1"}


def test_same_records_are_same_bytes(url: str, store: Store, pack: Path, tmp_path: Path) -> None:
    with Store(url) as other:  # on every database, and in any order
        other.add_breakdowns(store.breakdowns())
        for record in reversed(list(store.measurements())):
            other.add([record])
        for hash_ in sorted(TEXTS, reverse=True):
            other.add_signatures({hash_: TEXTS[hash_]})
        again = other.export(tmp_path / "again", TARGET, source="a test", licence="CC0-1.0")[0]
    for file in pack.iterdir():
        assert file.read_bytes() == (again / file.name).read_bytes(), file.name


def test_a_pack_answers_as_its_store(store: Store, pack: Path) -> None:
    lookup = PackLookup(pack)
    assert lookup.info["source"] == "a test"
    assert (lookup.info["records"], lookup.info["failures"]) == (6, 1)
    for kind in ("cell", "network", "layer"):
        answer = lookup.latencies(TARGET, [*HASHES, "0" * 32], kind)
        assert answer == store.latencies(TARGET, HASHES, kind)
    assert lookup.latencies(OTHER, HASHES) == {}
    assert list(lookup.measurements()) == list(store.measurements(TARGET))
    assert list(lookup.breakdowns()) == list(store.breakdowns(TARGET))
    assert not [*lookup.measurements(OTHER), *lookup.breakdowns(OTHER)]
    assert lookup.signature_texts(HASHES[:2]) == {h: TEXTS[h] for h in HASHES[:2]}


def test_packs_are_found_by_target(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "packs"
    store.export(folder)
    shutil.copytree(folder / TARGET.folder, folder / f"{TARGET.folder}+more")
    names = [p.folder.name for p in packs_for(TARGET, folder)]
    assert names == [TARGET.folder, f"{TARGET.folder}+more"]
    assert [p.target for p in packs_for(OTHER, folder)] == [OTHER]
    assert len(shipped_packs(folder)) == 3
    assert packs_for(TARGET, tmp_path / "nowhere") == []
    with pytest.raises(StoreError, match="is not a pack"):
        PackLookup(tmp_path)


def test_shipped_packs_are_sound() -> None:
    for pack in shipped_packs():
        assert packs_for(pack.target), pack.folder
        assert pack.info["licence"], pack.folder
        assert check_pack(pack.folder) == []


def test_the_frozen_pack_of_format_2_reads_for_ever() -> None:
    assert check_pack(GOLDEN) == []
    assert PackLookup(GOLDEN).target == TARGET
    store = Store("sqlite://")
    assert store.import_(GOLDEN) == ImportCounts(4, 6, 1, 7)
    assert store.latencies(TARGET, HASHES)[HASHES[0]].latency_us == 10.5
    assert store.signature_texts(HASHES) == TEXTS
    assert ids(store) == json.loads((GOLDEN.parent / "pack_format_2_ids.json").read_text())


def test_what_is_no_pack_is_not_imported(store: Store, pack: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("network,latency_ms")
    for path in (tmp_path / "nowhere", tmp_path / "t.csv", tmp_path):
        with pytest.raises(StoreError, match=r"is not a pack and holds none"):
            store.import_(path)


def with_info(pack: Path, **facts: Any) -> Path:
    """The pack with other facts, and the digests of the files that it has."""
    info = json.loads((pack / INFO).read_text())
    for name, entry in info["files"].items():
        if (pack / name).is_file():
            entry["sha256"] = file_digest(pack / name)
    (pack / INFO).write_text(json.dumps(info | facts))
    return pack


def refused(pack: Path, words: str) -> None:
    """A check names it, and the import takes nothing."""
    assert any(words in str(problem) for problem in check_pack(pack)), check_pack(pack)
    store = Store("sqlite://")
    with pytest.raises(StoreError) as caught:
        store.import_(pack)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 900
    assert not store.targets() and not store.signature_texts(HASHES)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"format": 3}, "upgrade hybridlat"),
        ({"format": 1}, "export it again"),
        ({"format": "1"}, "format: expected int, got str"),
        ({"target": "nothing"}, "nothing"),
        ({"files": []}, "files: expected object"),
        ({"files": {"../x": {"sha256": ""}}}, "outside the pack"),
        ({"files": {"a\0b": {"sha256": ""}}}, "outside the pack"),
        ({"files": {}}, "breakdowns.jsonl.gz: pack.json does not list it"),
        ({"records": 12_345}, "it states 12345 records, and there are 6"),
        ({"target": "fake/fake-1.0/fp32/2t"}, "the pack of fake/fake-1.0/fp32/2t"),
        (b"[" * 100_000, INFO),
        (b" " * (2 << 20) + b"{}", INFO),
        (b'{"format": 1e999}', INFO),
    ],
)
def test_facts_that_cannot_be(pack: Path, facts: dict[str, Any] | bytes, words: str) -> None:
    if isinstance(facts, bytes):
        (pack / INFO).write_bytes(facts)
    else:
        with_info(pack, **facts)
    refused(pack, words)


@pytest.mark.parametrize("name", MEMBERS)
@pytest.mark.parametrize(
    "content",
    ["missing", "/dev/zero", "fifo", "folder", "cut", b"hello", b'{"a": 1}\n', b"[" * 100_000,
     b'{"a":' * 100_000, b" " * (65 << 20) + b"{}", b"1" * 5000],
)  # fmt: skip
def test_damaged_files_are_named(pack: Path, name: str, content: str | bytes) -> None:
    file = pack / name
    body = file.read_bytes()
    file.unlink()
    if content == "fifo":
        os.mkfifo(file)
    elif content == "folder":
        file.mkdir()
    elif content == "/dev/zero":
        file.symlink_to(content)
    elif content == "cut":
        file.write_bytes(body[: len(body) // 2])
    elif isinstance(content, bytes):
        file.write_bytes(content if content == b"hello" else gzip.compress(content, 1))
    refused(with_info(pack), name)
    lookup = PackLookup(pack)
    reads: dict[str, Callable[[], object]] = {
        "lookup": lambda: lookup.latencies(TARGET, HASHES),
        "measurements": lambda: list(lookup.measurements()),
        "breakdowns": lambda: list(lookup.breakdowns()),
        "signatures": lambda: lookup.signature_texts(HASHES),
    }
    words = "it is no regular file" if content in ("fifo", "folder", "/dev/zero") else "is damaged"
    with pytest.raises(StoreError, match=words):
        reads[name.partition(".")[0]]()


def test_lines_without_an_end_are_bounded(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = pack / MEASUREMENTS
    file.write_bytes(gzip.compress(gzip.decompress(file.read_bytes()) * 100))
    monkeypatch.setattr(packs, "_ANY_RATIO_BYTES", 0)  # as if it were that long
    monkeypatch.setattr(packs, "_MOST_RATIO", 20)
    refused(with_info(pack), "more than 20 bytes for each that is stored")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"latency_us": 10_000.0}, "above its slowest sample"),
        ({"latency_us": 0.01}, "below its fastest sample"),
        ({"measured_at": "yesterday"}, "measured_at 'yesterday' is no time"),
        ({"target": str(OTHER)}, "it is of h100/tensorrt-8.6/fp16, the pack of fake/"),
        ({"environment": {"engine": "tensorrt"}}, "its engine is tensorrt, and not that of fake/"),
        ({"environment": {"gpu": "NVIDIA A100"}}, "its GPU is NVIDIA A100, and not that of fake/"),
        ({"visits": [{"samples_us": [-1.0], "drift": 1.0, "process": 1}]}, "is not positive"),
    ],
)
def test_import_asks_what_a_check_asks(pack: Path, change: dict[str, Any], words: str) -> None:
    lines = list(map(json.loads, gzip.decompress((pack / MEASUREMENTS).read_bytes()).splitlines()))
    next(line for line in lines if line["latency_us"]).update(change)
    (pack / MEASUREMENTS).write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    rows: dict[tuple[str, str], list[Any]] = {}
    for record in PackLookup(pack).measurements():
        rows.setdefault((record.kind, record.signature), []).append(row_of(record))
    (pack / LOOKUP).write_bytes(gzip.compress(json.dumps(lookup_of(rows)).encode()))
    refused(with_info(pack), words)


def test_files_that_do_not_fit_each_other_are_refused(pack: Path) -> None:
    copies = [Path(shutil.copytree(pack, pack.parent / f"copy{n}")) for n in range(2)]
    (pack / MEMBERS[1]).write_bytes(gzip.compress(b""))
    refused(with_info(pack), "signatures without text")
    (copies[0] / MEMBERS[1]).write_bytes(gzip.compress(b'{"hash": "00", "text": "x"}\n'))
    refused(with_info(copies[0]), "the text hashes to")
    table = json.loads(gzip.decompress((copies[1] / LOOKUP).read_bytes()))
    table["cell"][HASHES[0]][0] = 1.0
    (copies[1] / LOOKUP).write_bytes(gzip.compress(json.dumps(table).encode()))
    refused(with_info(copies[1]), "does not say what the records say")


def test_a_plug_in_s_records_are_asked_the_same() -> None:
    store = Store("sqlite://")
    with pytest.raises(StoreError, match="takes no record in which latency_us"):
        store.add_all(ImportedRecords(TEXTS, [replace(measured(), latency_us=10_000.0)], []))
    assert not store.targets() and not store.signature_texts(HASHES)


def test_a_second_export_replaces_the_first_unknown_targets_fail(store: Store, pack: Path) -> None:
    store.add([measured(HASHES[1], 21.0)])
    store.export(pack.parent, TARGET)
    assert check_pack(pack) == []
    assert PackLookup(pack).latencies(TARGET, HASHES)[HASHES[1]].latency_us == 20.5
    with pytest.raises(StoreError, match=r"no records of a/b/fp32: it has fake/"):
        store.export(pack.parent, Target.parse("a/b/fp32"))


def test_an_export_does_not_replace_the_records_of_others(pack: Path, tmp_path: Path) -> None:
    before = {file.name: file.read_bytes() for file in pack.iterdir()}
    with Store(str(tmp_path / "other.db")) as other:
        own = [*PackLookup(pack).measurements()]
        own[0] = replace(own[0], latency_us=10.05)  # of the same moment, as a table's without dates
        other.add_all(ImportedRecords(TEXTS, own))
        with pytest.raises(StoreError, match=r"of others: import it first, or choose another"):
            other.export(pack.parent, TARGET)
        assert {file.name: file.read_bytes() for file in pack.iterdir()} == before
        other.import_(pack)
        other.export(pack.parent, TARGET, anonymous=True)
        assert PackLookup(pack).info["records"] == 7
