"""Rows of tables as records: lowering, what is refused, and doing it once only."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

import onnx
import pytest

from hybridlat.engines import registry
from hybridlat.errors import InputError
from hybridlat.graph.cells import cut, kernels
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.signature import hash_of, sign
from hybridlat.measuring import network_files, tables
from hybridlat.measuring.network_files import NetworkFile, NetworkFiles
from hybridlat.onnx_io import read_network, to_onnx
from hybridlat.schema.target import Target
from hybridlat.store import Store
from hybridlat.store.importers.table import NetworkRow, Refusal
from tests.networks import classifier, conv_relu

TRT = Target("t4", "tensorrt-8.6", "fp16")
TORCH = Target("rtx-3090", "torch-2.4", "amp")
DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "whole_networks"


@pytest.fixture
def nets(tmp_path: Path) -> Path:
    folder = tmp_path / "nets" / "deep"
    folder.mkdir(parents=True)
    (folder / "net-a.onnx").write_bytes(to_onnx(classifier(8, 32), seed=None))
    (folder / "net_b.onnx").write_bytes(to_onnx(conv_relu(), seed=None))
    (folder / "bad.onnx").write_bytes(b"not a model")
    return tmp_path / "nets"


def row(name: str = "net-a", target: Target = TRT, **more: object) -> NetworkRow:
    return NetworkRow("t.csv, row 1", (name,), target, 100.0, **more)  # type: ignore[arg-type]


def taken(
    rows: list[NetworkRow], nets: Path | None, store: Store | None = None
) -> tables.RecordBatch:
    files = None if nets is None else NetworkFiles(nets)
    whole = tables.RecordBatch()
    for part in tables.take(rows, files, store):
        whole.refused += part.refused
        whole.imported.measurements += part.imported.measurements
        whole.imported.breakdowns += part.imported.breakdowns
        whole.imported.signatures.update(part.imported.signatures)
        if store is not None:
            store.add_signatures(part.imported.signatures)
            store.add(part.imported.measurements)
            store.add_breakdowns(part.imported.breakdowns)
    return whole


@pytest.mark.parametrize("target", [TRT, TORCH], ids=str)
def test_a_network_is_kept_as_its_target_lowers_it(nets: Path, target: Target) -> None:
    imported = taken([row(target=target, batch=4, labels={"source": "x"})], nets).imported
    (record,), (breakdown,) = imported.measurements, imported.breakdowns
    network = read_network(nets / "deep" / "net-a.onnx", 4)
    expected = Counter(sign(c.network).hash for c in cut(registry.lower(network, target), network))
    assert dict(breakdown.cells) == dict(expected)
    assert breakdown.signature == record.signature == sign(network).hash
    outside = (*network.inputs, *network.outputs)
    assert breakdown.labels == {
        "batch": "4", "size": "32x32", "lowering": registry.lowering_identity(target),
        "copied_bytes": str(sum(network.type_of(tensor).bytes for tensor in outside)),
    }  # fmt: skip
    whole = Lowered(network, tuple((i,) for i in range(len(network.nodes))), (), "unfused")
    layers = Counter(sign(c.network).hash for c in kernels(whole))
    assert dict(breakdown.layers) == dict(layers)
    assert {h for h, _ in (*breakdown.cells, *breakdown.layers)} == set(imported.signatures)
    assert (record.kind, record.latency_us, record.target) == ("network", 100.0, target)
    assert record.labels == {"network": "net-a", "batch": "4", "size": "32x32", "source": "x"}
    assert all(hash_of(text) == h for h, text in imported.signatures.items())


def test_sizes_are_bound(nets: Path) -> None:
    model = onnx.load(nets / "deep" / "net-a.onnx")
    for place, name in ((0, "n"), (2, "h"), (3, "w")):
        model.graph.input[0].type.tensor_type.shape.dim[place].dim_param = name
    onnx.save(model, nets / "free.onnx")
    for name in ("free", "net-a"):
        (record,) = taken([row(name, batch=2, size=(48, 64))], nets).imported.measurements
        assert (record.labels["batch"], record.labels["size"]) == ("2", "48x64")
    same = [taken([row(name, size=(32, 32))], nets).imported for name in ("free", "net-a")]
    assert same[0].measurements[0].signature == same[1].measurements[0].signature


def test_several_sources_are_several_records_of_one_partition(nets: Path) -> None:
    rows = [row(labels={"source": s}) for s in ("x", "y")]
    imported = taken(rows, nets).imported
    assert len({m.id for m in imported.measurements}) == 2
    assert len({b.id for b in imported.breakdowns}) == 1


def test_names_that_differ_in_dashes_and_case_are_the_same(nets: Path) -> None:
    (record,) = taken([row("NetB")], nets).imported.measurements
    assert record.labels["network"] == "net_b"
    assert record.labels["model"] == "NetB"
    (nets / "netb.onnx").write_bytes(to_onnx(conv_relu(), seed=None))
    (refused,) = taken([row("NetB")], nets).refused  # two are meant alike: neither is taken
    assert "no ONNX file" in refused.reason


def refusal(batch: tables.RecordBatch) -> Refusal:
    assert not batch.imported.measurements
    (refused,) = batch.refused
    assert refused.where == "t.csv, row 1"
    return refused


def test_what_cannot_be_lowered_is_refused_with_its_reason(nets: Path) -> None:
    none = refusal(taken([row()], None))
    assert (none.reason, none.value) == ("the network's ONNX file is needed", "net-a")
    assert "--nets" in none.fix
    assert "there is no ONNX file" in refusal(taken([row("nowhere")], nets)).reason
    damaged = refusal(taken([row("bad")], nets))
    assert damaged.reason == "the ONNX file cannot be read" and "not an ONNX" in damaged.value
    engine = refusal(taken([row(target=Target("t4", "tvm-0.9", "fp32"))], nets))
    assert (engine.reason, engine.value) == ("it is not known how the engine fuses", "tvm-0.9")
    assert "tensorrt" in engine.fix
    size = refusal(taken([row(size=(1, 0))], nets))
    assert size.reason == "the ONNX file does not take the batch or the size"
    assert "net-a" in size.value


def test_a_file_without_images_takes_no_size(nets: Path, tmp_path: Path) -> None:
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Relu", ["x"], ["y"])], "flat",
            [onnx.helper.make_tensor_value_info("x", 1, [1, 8])],
            [onnx.helper.make_tensor_value_info("y", 1, [1, 8])],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8,
    )  # fmt: skip
    (nets / "flat.onnx").write_bytes(model.SerializeToString())
    assert taken([row("flat")], nets).imported.measurements
    refused = refusal(taken([row("flat", size=(8, 8))], nets))
    assert "no input of images" in refused.reason and refused.value == "flat: x [1, 8]"


def test_an_archive_that_unpacks_to_more_than_memory_holds_is_refused(
    nets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = nets / "deep" / "net-a.onnx"
    with zipfile.ZipFile(tmp_path / "nets.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(file, "a.onnx")
        archive.write(file, "b.onnx")
    with tarfile.open(tmp_path / "nets.tar.gz", "w:gz") as tar:
        tar.add(file, "a.onnx")
        tar.add(file, "b.onnx")
    monkeypatch.setattr(network_files, "MOST_UNPACKED_BYTES", 1.5 * file.stat().st_size)
    for name in ("nets.zip", "nets.tar.gz"):
        with pytest.raises(InputError, match="unpack it, and name the folder"):
            NetworkFiles(tmp_path / name)


def test_an_archive_serves_as_a_folder(nets: Path, tmp_path: Path) -> None:
    content = (nets / "deep" / "net-a.onnx").read_bytes()
    with tarfile.open(tmp_path / "nets.tar.gz", "w:gz") as tar:
        member = tarfile.TarInfo("nets/net-a.onnx")
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    with zipfile.ZipFile(tmp_path / "nets.zip", "w") as archive:
        archive.writestr("net-a.onnx", content)
    places = (nets, tmp_path / "nets.tar.gz", tmp_path / "nets.zip")
    signatures = {taken([row()], place).imported.measurements[0].signature for place in places}
    assert len(signatures) == 1


def test_places_without_onnx_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist: --nets"):
        NetworkFiles(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"holds no \.onnx file"):
        NetworkFiles(tmp_path)
    (tmp_path / "x.tar.gz").write_bytes(b"no archive")
    with pytest.raises(InputError, match="as a folder or an archive"):
        NetworkFiles(tmp_path / "x.tar.gz")


def test_a_second_import_lowers_nothing_and_adds_nothing(
    nets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row(), row(batch=2), row("net_b", TORCH)]
    with Store(tmp_path / "s.db") as store:
        first = taken(rows, nets, store)
        before = store.stats()
        assert store.check() == []
        monkeypatch.setattr(registry, "lower", lambda *_: pytest.fail("lowered again"))
        again = taken(rows, nets, store)
        assert again.imported.measurements == first.imported.measurements
        assert again.imported.breakdowns == first.imported.breakdowns
        assert store.stats() == before
        assert store.check() == []


def test_an_import_that_is_cut_off_leaves_no_cell_without_its_text(
    nets: Path, tmp_path: Path
) -> None:
    with Store(tmp_path / "s.db") as store:
        next(tables.take([row()], NetworkFiles(nets), store))  # given out, never stored
        taken([row()], nets, store)
        assert store.check() == []


def test_targets_with_the_same_rules_share_a_lowering(
    nets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Target] = []
    lower = registry.lower

    def asking(network: Network, target: Target) -> Lowered:
        asked.append(target)
        return lower(network, target)

    monkeypatch.setattr(registry, "lower", asking)
    targets = [Target(d, r, "amp") for d in ("v100", "t4") for r in ("torch-2.1", "torch-2.4")]
    imported = taken([row(target=t) for t in targets], nets).imported
    assert len(imported.measurements) == 4
    assert len(asked) == 1
    taken([row(target=Target("v100", "torch-1.12", "amp"))], nets)
    assert len(asked) == 2


def test_logs_and_times_of_trtexec(nets: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    head = "&&&& RUNNING TensorRT.trtexec [TensorRT v8601] # trtexec --onnx=net-a.onnx --fp16"
    tail = "[I] Selected Device: Tesla T4\n[I] GPU Compute Time: min = 1 ms, median = 1.5 ms\n"
    (runs / "one.log").write_text(f"{head}\n{tail}")
    (runs / "two.log").write_text(f"{head} --exportTimes=two.json\n{tail}")
    (runs / "two.json").write_text(json.dumps([{"computeMs": t} for t in (1.0, 2.0, 4.0)]))
    (runs / "other.json").write_text("[]")
    (runs / "other.txt").write_text("nothing\n")
    read = tables.read_rows("trtexec", [runs])
    assert [(r.where, r.latency_us) for r in read.rows] == [("one.log", 1500), ("two.json", 2000)]
    assert [(r.where, r.reason) for r in read.refused] == [
        ("other.json", "the file holds no times of trtexec"),
        ("other.txt", "the log states no median of GPU Compute Time"),
    ]  # fmt: skip
    records = taken(list(read.rows), nets).imported.measurements
    assert {str(r.target) for r in records} == {"t4/tensorrt-8.6/fp16"}
    assert sorted(len(r.visits) for r in records) == [0, 1]
    with pytest.raises(InputError, match="--columns is for tables"):
        tables.read_rows("trtexec", [runs], tmp_path / "map.toml")
    with pytest.raises(InputError, match="choose one of networks, trtexec"):
        tables.read_rows("sheets", [runs])


def test_a_device_without_a_data_sheet_is_noted() -> None:
    (note,) = tables.notes([TRT, Target("pixel9", "torch-2.4", "fp32")])
    assert note.startswith("pixel9 has no data sheet: write ")


def test_channels_may_be_last(tmp_path: Path) -> None:
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Relu", ["x"], ["y"])], "last",
            [onnx.helper.make_tensor_value_info("x", 1, [1, 8, 8, 3])],
            [onnx.helper.make_tensor_value_info("y", 1, ["n", "h", "w", 3])],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8,
    )  # fmt: skip
    from hybridlat.measuring.network_files import network_at

    net = network_at(NetworkFile("last", model.SerializeToString()), 2, (16, 24))
    assert net.types["y"].shape == (2, 16, 24, 3)
