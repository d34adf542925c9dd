"""Rows of tables as records, and the boards that they name: what is refused, what is done once."""

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
from hybridlat.measuring.tables import board_of, device_of
from hybridlat.onnx_io import read_network, to_onnx
from hybridlat.schema.target import Target
from hybridlat.store.importers import ImportedRecords
from hybridlat.store.importers.table import NetworkRow, Refusal
from tests.networks import classifier, conv_relu
from tests.onnx_io.test_reading_shapes import model

TRT = Target("t4", "tensorrt-8.6", "fp16")


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


@pytest.mark.parametrize("target", [TRT, Target("rtx-3090", "torch-2.4", "amp")], ids=str)
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
    assert dict(breakdown.layers) == Counter(sign(c.network).hash for c in kernels(whole))
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
    for whose, clock in (("GPU", "clock"), ("memory", "memory_clock")):
        slow = refusal([row(target=Target("t4", "torch", "fp32"), labels={clock: "900"})], nets)
        words = f"the {whose}'s clock was held below its own"
        assert (slow.reason, slow.value) == (words, "900 MHz")
    faster = row(target=Target("orin-nano", "tensorrt", "fp16"), labels={"clock": "1020"})
    assert refusal([faster], nets).reason == "the GPU's clock is of another power mode"
    unknown = refusal([row(target=Target("xeon-8370c", "tensorrt", "fp16"))], nets)
    assert unknown.reason == "the engine runs on GPUs alone"
    on_t4 = Target("t4", "torch", "fp32")
    limited = refusal([row(target=on_t4, labels={"power_limit": "60"})], nets)
    assert (limited.reason, limited.value) == ("the GPU's power was held below its own", "60 W")
    assert taken([row(target=on_t4, labels={"power_limit": "70"})], nets)[0].measurements
    relu("net-c_bs8", "N,8", nets)
    named = refusal([row("net-c_bs8")], nets)
    assert named.reason == "the network's name has another batch"
    assert len(taken([row("net-c_bs8", batch=8)], nets)[0].measurements) == 1
    amp = refusal([row(target=Target("t4", "tensorrt-8.6", "amp"))], nets)
    assert amp.reason == "automatic mixes are of frameworks alone"
    size = refusal([row(size=(1, 0))], nets)
    assert size.reason == "the ONNX file does not take the batch or the size"
    assert "net-a" in size.value
    (nets / "none").mkdir()
    for place, why in (("x", "is not a folder"), ("none", "holds no .onnx file")):
        with pytest.raises(InputError, match=f"{why}: --nets"):
            tables.NetworkFiles(nets / place)


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
    (record,) = taken([row("last", shapes={"input:0": (1, 48, 64, 3)})], nets)[0].measurements
    assert record.labels["size"] == "48x64"


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


GIB = 2**30


@pytest.mark.parametrize(
    ("name", "units", "memory_gib", "word", "board"),
    [("Orin", 16, None, "", "orin-agx"), ("Orin", 14, None, "", "orin-agx-32gb"),
     ("Orin", 16, 28.2, "", "orin-agx"), ("Orin", 8, 15.3, "", "orin-nx"),
     ("Orin", 4, 3.4, "", "orin-nano-4gb"), ("Orin", 8, 61, "", "orin-agx-30w"),
     ("Orin", 8, 7.4, "orin-nano", "orin-nano"), ("Orin", 8, None, "orin-nano-7w", "orin-nano-7w"),
     ("Orin", 8, None, "my-orin", "my-orin"), ("Orin", None, None, "orin-nx", "orin-nx"),
     ("Xavier", 8, None, "", "xavier-agx"), ("Xavier", 6, None, "", "xavier-nx"),
     ("NVIDIA Thor", 20, None, "", "thor-agx"), ("NVIDIA Tegra X1", 1, 3.9, "", "jetson-nano"),
     ("NVIDIA Tegra X1", 1, 1.9, "", "jetson-nano-2gb"), ("NVIDIA Tegra X1", 2, 4, "",
      "jetson-tx1"),
     ("NVIDIA A100-SXM4-40GB", 108, None, "", "a100"),
     ("NVIDIA A100-PCIE-40GB", 14, 4.7, "", "a100-mig-1g.5gb"),
     ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", 14, 9.5, "", "a100-80gb-mig-1g.10gb"),
     ("NVIDIA H100 PCIe", 114, 79, "", "h100-pcie"), ("NVIDIA H100 80GB HBM3", 132, 79, "", "h100"),
     ("NVIDIA GeForce RTX 3060", 28, 7.9, "", "rtx-3060-8gb"),
     ("NVIDIA GeForce RTX 3060", 28, None, "", "rtx-3060"),
     ("NVIDIA GeForce RTX 4090", 76, 15.9, "", "rtx-4090-laptop"),
     ("NVIDIA GeForce RTX 3060 Laptop GPU", 30, 6, "rtx-3060-laptop", "rtx-3060-laptop"),
     ("NVIDIA GeForce RTX 2060", 30, 5.8, "", "rtx-2060"),
     ("NVIDIA GeForce RTX 2060", 34, 12, "rtx-2060-12gb", "rtx-2060-12gb"),
     ("NVIDIA V100-SXM2-32GB", 80, 31.7, "", "v100"),
     ("NVIDIA New 9", 7, 1, "", "new-9")],
)  # fmt: skip
def test_the_board(
    name: str, units: int | None, memory_gib: float | None, word: str, board: str
) -> None:
    memory_bytes = None if memory_gib is None else int(memory_gib * GIB)
    assert board_of(name, units, memory_bytes, word) == (board, "")


@pytest.mark.parametrize(
    ("units", "power_mode", "word", "board"),
    [(8, "7W", "orin-nano-7w", "orin-nano-7w"), (8, "15W", "orin-nano", "orin-nano"),
     (16, "MODE_30W", "", "orin-agx-30w"), (16, "MAXN", "", "orin-agx"),
     (16, "MODE_10W", "", "orin-agx-10w"), (8, "7W", "my-orin", "my-orin"),
     (8, "MAXN_SUPER", "orin-nano-super", "orin-nano-super"), (8, "MAXN", "orin-nx", "orin-nx")],
)  # fmt: skip
def test_the_power_mode_of_a_log(units: int, power_mode: str, word: str, board: str) -> None:
    assert board_of("Orin", units, None, word, power_mode) == (board, "")
    with pytest.raises(Refusal, match="contradicts") as refused:
        board_of("Orin", 8, None, "orin-nano", "MAXN")
    assert refused.value.value == "'Orin' in the mode MAXN is orin-nano-super, not orin-nano"


KIT = "NVIDIA Jetson Orin Nano Developer Kit"
SUPER = "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super"


@pytest.mark.parametrize(
    ("ordered", "gpu", "model", "power_mode", "device"),
    [("t4", "NVIDIA L4", "", "", "l4"), ("t4", "Tesla T4", "", "", "t4"), ("t4", "", "", "", "t4"),
     ("rtx-3060", "NVIDIA GeForce RTX 3060 Laptop GPU", "", "", "rtx-3060-laptop"),
     ("rtx-3060-8gb", "NVIDIA GeForce RTX 3060", "", "", "rtx-3060-8gb"),
     ("h100", "NVIDIA H100 PCIe", "", "", "h100-pcie"), ("t4", "NVIDIA New 9", "", "", "t4"),
     ("my-t4", "Tesla T4", "", "", "my-t4"), ("orin-nano", "Orin", "", "", "orin-nano"),
     ("orin-nano", "Orin", KIT, "7W", "orin-nano-7w"), ("orin-agx", "Orin", KIT, "", "orin-nano"),
     ("orin-nano-7w", "Orin", KIT, "", "orin-nano-7w"), ("t4", "Orin", "x", "", "orin-agx"),
     ("orin-nano", "Orin", SUPER, "15W", "orin-nano"), ("t4", "Graphics Device", "", "", "t4"),
     ("orin-nano", "Orin", KIT, "MAXN_SUPER", "orin-nano-super"),
     ("tx2", "NVIDIA Tegra X2", "", "MAXP_CORE_ARM", "tx2-max-p")],
)  # fmt: skip
def test_a_board_that_is_another_than_ordered(
    ordered: str, gpu: str, model: str, power_mode: str, device: str
) -> None:
    is_unsure = gpu in ("NVIDIA New 9", "Graphics Device") or ordered == "my-t4"
    assert device_of(ordered, gpu, model, power_mode) == (device, is_unsure)


@pytest.mark.parametrize(
    ("units", "word", "reason"),
    [(8, "", "several boards"), (None, "", "several boards"), (7, "", "several boards"),
     (8, "orin-agx", "contradicts"), (16, "orin-nano", "contradicts"), (8, "t4", "contradicts")],
)  # fmt: skip
def test_an_orin_that_is_none_or_several(units: int | None, word: str, reason: str) -> None:
    with pytest.raises(Refusal, match=reason) as refused:
        board_of("Orin", units, None, word)
    assert "orin-nano" in refused.value.value


def test_a_name_that_says_all_is_kept_and_an_odd_count_remarked() -> None:
    board, remark = board_of("NVIDIA L4", 40, None, "")
    assert (board, remark) == ("l4", "l4 has 58 multiprocessors, this device 40")
    with pytest.raises(Refusal, match="contradicts"):
        board_of("NVIDIA L4", 58, None, "t4")
    # A card of another name's units that the driver calls so; a slice has fewer, not more.
    assert board_of("NVIDIA GeForce RTX 2060", 34, None, "") == ("rtx-2060-12gb", "")
    for memory_bytes in (None, 8 * GIB):
        with pytest.raises(Refusal, match="another device of this name") as refused:
            board_of("NVIDIA GeForce RTX 2070", 40, memory_bytes, "")
        assert refused.value.value == "rtx-2070 has 36 multiprocessors, this device 40"
