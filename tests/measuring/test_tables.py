"""Rows of tables as records: lowering, what is refused, and doing it once only."""

from collections import Counter
from pathlib import Path

import onnx
import pytest

from hybridlat.engines import registry
from hybridlat.errors import InputError
from hybridlat.graph.cells import cut, kernels
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.signature import hash_of, sign
from hybridlat.measuring import tables
from hybridlat.onnx_io import read_network, to_onnx
from hybridlat.schema.target import Target
from hybridlat.store.importers import ImportedRecords
from hybridlat.store.importers.table import NetworkRow, Refusal
from tests.networks import classifier, conv_relu
from tests.onnx_io.test_reading_shapes import model

TRT = Target("t4", "tensorrt-8.6", "fp16")
TORCH = Target("rtx-3090", "torch-2.4", "amp")


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


def taken(rows: list[NetworkRow], nets: Path | None) -> tuple[ImportedRecords, list[Refusal]]:
    """All that is made of the rows."""
    files = None if nets is None else tables.NetworkFiles(nets)
    return tables.take(rows, files, lambda *_: None)


def test_files_of_one_name_are_told_apart_by_their_folders(nets: Path) -> None:
    for folder, name in (("x", "net_b"), ("y", "net-a"), ("z", "net-a")):
        data = next(nets.rglob(f"{name}.onnx")).read_bytes()
        (nets / folder).mkdir()
        (nets / folder / "model.onnx").write_bytes(data)
    records, refused = taken([row("/home/x/model"), row("y/model"), row("v/model")], nets)
    assert [(each.reason, each.where) for each in refused] == [
        ("the ONNX file may be of another network", "t.csv, row 1")
    ]
    assert taken([row("model")], nets)[1][0].reason == "several ONNX files have this name"
    known = [read_network(nets / "deep" / f"{name}.onnx") for name in ("net_b", "net-a")]
    assert {each.signature for each in records.measurements} == {sign(n).hash for n in known}
    assert {each.labels["network"] for each in records.measurements} == {"model"}
    (nets / "x" / "model.onnx").unlink()  # the others are copies of one another
    assert len(taken([row("model")], nets)[0].measurements) == 1


@pytest.mark.parametrize("target", [TRT, TORCH], ids=str)
def test_a_network_is_kept_as_its_target_lowers_it(nets: Path, target: Target) -> None:
    imported = taken([row(target=target, batch=4, labels={"source": "x"})], nets)[0]
    (record,), (breakdown,) = imported.measurements, imported.breakdowns
    network = read_network(nets / "deep" / "net-a.onnx", 4)
    expected = Counter(sign(c.network).hash for c in cut(registry.lower(network, target), network))
    assert dict(breakdown.cells) == dict(expected)
    assert breakdown.signature == record.signature == sign(network).hash
    outside = (*network.inputs, *network.outputs)
    copied_bytes = sum(network.type_of(tensor).bytes for tensor in outside)
    labels = {"batch": "4", "size": "32x32", "lowering": registry.lowering_identity(target)}
    assert breakdown.labels == labels | {"copied_bytes": str(copied_bytes)}
    whole = Lowered(network, tuple((i,) for i in range(len(network.nodes))), (), "unfused")
    layers = Counter(sign(c.network).hash for c in kernels(whole))
    assert dict(breakdown.layers) == dict(layers)
    assert {h for h, _ in (*breakdown.cells, *breakdown.layers)} == set(imported.signatures)
    assert (record.kind, record.latency_us, record.target) == ("network", 100.0, target)
    assert record.labels == {"network": "net-a", "batch": "4", "size": "32x32", "source": "x"}
    assert all(hash_of(text) == h for h, text in imported.signatures.items())


def test_how_it_was_timed_is_kept_in_fields(nets: Path) -> None:
    stated = row(facts={"launch": "stream", "copies": True}, labels={"note": "CUDA graph"})
    noted, odd = (row(labels={"note": note}) for note in ("suspect", "not suspect"))
    records = taken([stated, noted, odd], nets)[0].measurements
    facts = [(r.launch, r.copies, r.suspect) for r in records]
    assert facts == [("stream", True, False), (None, None, True), (None, None, False)]


def test_sizes_are_bound(nets: Path) -> None:
    made = onnx.load(nets / "deep" / "net-a.onnx")
    for place, name in ((0, "n"), (2, "h"), (3, "w")):
        made.graph.input[0].type.tensor_type.shape.dim[place].dim_param = name
    onnx.save(made, nets / "free.onnx")
    for name in ("free", "net-a"):
        (record,) = taken([row(name, batch=2, size=(48, 64))], nets)[0].measurements
        assert (record.labels["batch"], record.labels["size"]) == ("2", "48x64")
    relu("wide", "1,3,48,64", nets)
    (record,) = taken([row("wide", size=(64, 48))], nets)[0].measurements  # width first
    assert record.labels["size"] == "48x64"
    same = [taken([row(name, size=(32, 32))], nets)[0] for name in ("free", "net-a")]
    assert same[0].measurements[0].signature == same[1].measurements[0].signature


def test_names_that_differ_in_dashes_and_case_are_the_same(nets: Path) -> None:
    (record,) = taken([row("NetB")], nets)[0].measurements
    assert record.labels["network"] == "net_b"
    assert record.labels["model"] == "NetB"
    (nets / "netb.onnx").write_bytes(to_onnx(conv_relu(), seed=None))
    (refused,) = taken([row("NetB")], nets)[1]  # two are meant alike: neither is taken
    assert "no ONNX file" in refused.reason


def refusal(rows: list[NetworkRow], nets: Path | None) -> Refusal:
    imported, (refused,) = taken(rows, nets)
    assert not imported.measurements
    assert refused.where == "t.csv, row 1"
    return refused


def test_what_cannot_be_lowered_is_refused_with_its_reason(nets: Path) -> None:
    none = refusal([row()], None)
    assert (none.reason, none.value) == ("the network's ONNX file is needed", "net-a")
    assert "--nets" in none.fix
    assert "there is no ONNX file" in refusal([row("nowhere")], nets).reason
    damaged = refusal([row("bad")], nets)
    assert damaged.reason == "the ONNX file cannot be read" and "not an ONNX" in damaged.value
    engine = refusal([row(target=Target("t4", "tvm-0.9", "fp32"))], nets)
    assert (engine.reason, engine.value) == ("it is not known how the engine fuses", "tvm-0.9")
    assert "tensorrt" in engine.fix
    threads = refusal([row(target=Target("t4", "torch-2.4", "fp32", 4))], nets)
    assert (threads.reason, threads.value) == ("threads are of CPUs alone", "t4/torch-2.4/fp32/4t")
    cpu = refusal([row(target=Target("i7-12700h", "tensorrt-8.6", "fp32"))], nets)
    assert cpu.reason == "the engine runs on GPUs alone"
    amp = refusal([row(target=Target("t4", "tensorrt-8.6", "amp"))], nets)
    assert amp.reason == "automatic mixes are of frameworks alone"
    size = refusal([row(size=(1, 0))], nets)
    assert size.reason == "the ONNX file does not take the batch or the size"
    assert "net-a" in size.value


def relu(name: str, sizes: str, nets: Path) -> None:
    made = model(f"g (float[{sizes}] x) => (float[{sizes}] y) {{ y = Relu(x) }}")
    onnx.save(made, nets / f"{name}.onnx")


def test_a_file_without_images_takes_no_size_and_channels_may_be_last(nets: Path) -> None:
    relu("flat", "1,8", nets)
    assert taken([row("flat")], nets)[0].measurements
    refused = refusal([row("flat", size=(8, 8))], nets)
    assert "no input of images" in refused.reason and refused.value == "flat: x [1, 8]"
    relu("last", "1,8,8,3", nets)
    (record,) = taken([row("last", batch=2, size=(16, 24))], nets)[0].measurements
    assert (record.labels["batch"], record.labels["size"]) == ("2", "16x24")


@pytest.mark.parametrize(("place", "why"), [("x", "is not a folder"), ("", "holds no .onnx file")])
def test_places_without_onnx_files_are_refused(tmp_path: Path, place: str, why: str) -> None:
    with pytest.raises(InputError, match=f"{why}: --nets"):
        tables.NetworkFiles(tmp_path / place)


def test_targets_of_the_same_rules_lower_once(nets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lowered: list[Target] = []
    lower = registry.lower

    def counting(network: Network, target: Target) -> Lowered:
        lowered.append(target)
        return lower(network, target)

    monkeypatch.setattr(registry, "lower", counting)
    targets = [Target(d, r, "amp") for d in ("v100", "t4") for r in ("torch-2.1", "torch-2.4")]
    rows = [row(target=t, labels={"source": source}) for t in targets for source in "xy"]
    imported = taken(rows, nets)[0]
    assert len({record.id for record in imported.measurements}) == 8
    assert len({breakdown.id for breakdown in imported.breakdowns}) == 4
    assert len(lowered) == 1
    taken([row(target=Target("v100", "torch-1.12", "amp"))], nets)
    assert len(lowered) == 2
