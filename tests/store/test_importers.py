"""Importers on tiny frames of each data set's form, and on the real files where they are."""

import json
import time
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from hybridlat.errors import InputError, StoreError
from hybridlat.graph.signature import hash_of, sign
from hybridlat.graph.signature_reading import read
from hybridlat.schema import plugins
from hybridlat.store import Store, importers
from hybridlat.store.importers.base import ImportedRecords
from tests.cli.shell import process
from tests.slow import slow

pandas = pytest.importorskip("pandas")
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

V100 = {"conv": "regular", "batch": 1, "c_in": 64, "h_in": 56, "w_in": 56, "c_out": 64,
        "kernel": 3, "stride": 1, "sum_fused": 0, "latency_us": 25.0}  # fmt: skip
CDE = {"device": "GTX1080Ti", "batch": 1, "in_hw": 33, "in_ch": 21, "out_ch": 22, "kernel": 4,
       "stride": 2, "padding": "same", "bias": True, "activation": "tanh", "latency_us": 240.0,
       "latency_us_std": 2.4}  # fmt: skip
NEU = {"device": "Tesla T4", "batch": 3, "in_hw": 9, "in_ch": 7, "out_ch": 5, "kernel": 3,
       "stride": 1, "padding": 1, "latency_us": 12.5}  # fmt: skip
NB = {"arch_str": "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|…", "e01": "nor_conv_3x3",
      "e02": "none", "e12": "skip_connect", "e03": "avg_pool_3x3", "e13": "nor_conv_1x1",
      "e23": "nor_conv_3x3", "1080ti_1_us": 9000.0, "pixel9_32_us": 8000.0}  # fmt: skip
FB = {"arch_str": "…", **{f"op{i:02d}": i % 9 for i in range(22)}, "titanx_1_us": 12000.0}
LAYER: dict[str, Any] = {
    "model": "tiny", "input_width": 8, "op": "Conv2D", "in_h": 8, "in_w": 8, "in_c": 3,
    "out_h": 4, "out_w": 4, "out_c": 5, "k_h": 3, "k_w": 3, "activation": "relu",
}  # fmt: skip


def load(name: str, folder: Path, **tables: list[dict[str, object]]) -> ImportedRecords:
    for file, rows in tables.items():
        pandas.DataFrame(rows).to_parquet(folder / f"{file}.parquet")
    return importers.load(name).read(folder)


def well_formed(imported: ImportedRecords) -> None:
    for hash_, text in imported.signatures.items():
        assert hash_of(text) == hash_
        assert sign(read(text)).hash == hash_
    cells = {m.signature for m in imported.measurements if m.kind == "cell"}
    assert cells <= set(imported.signatures)
    networks = {m.signature for m in imported.measurements if m.kind == "network"}
    assert networks == {b.signature for b in imported.breakdowns}
    assert not networks & set(imported.signatures)  # a network's text is never asked for
    for breakdown in imported.breakdowns:
        assert {h for h, _ in breakdown.cells} <= set(imported.signatures)


def test_v100(tmp_path: Path) -> None:
    imported = load(
        "v100_tensorrt_conv", tmp_path,
        conv_fp16=[
            V100, {**V100, "sum_fused": 1}, {**V100, "conv": "depthwise"},
            {**V100, "latency_us": -1.0}, {**V100, "latency_us": float("nan")},
            {**V100, "stride": 0}, {**V100, "conv": "strange"}, {**V100, "c_in": 2.5},
        ],
    )  # fmt: skip
    well_formed(imported)
    assert {str(m.target) for m in imported.measurements} == {"v100/tensorrt/fp16"}
    assert len(imported.measurements) == 3
    assert dict(imported.skipped) == {
        "latency is not a positive number": 2,
        "shape makes no sense": 3,
    }
    ops = [read(text).nodes[0].qualified_op for text in imported.signatures.values()]
    assert sorted(ops) == ["fused::Conv+Add+Relu", "fused::Conv+Relu", "fused::Conv+Relu"]


def test_v100_refuses_a_precision_it_cannot_name(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="conv_fp99"):
        load("v100_tensorrt_conv", tmp_path, conv_fp99=[V100])


def test_cdecatapult_pads_as_tensorflow_does(tmp_path: Path) -> None:
    imported = load(
        "conv_cdecatapult", tmp_path,
        conv_forward=[CDE, {**CDE, "padding": "valid", "device": "Quadro RTX 8000"},
                      {**CDE, "padding": "odd"}],
    )  # fmt: skip
    well_formed(imported)
    shapes = [read(text).types["t3"].shape for text in imported.signatures.values()]
    assert shapes == [(1, 22, 17, 17), (1, 22, 15, 15)]
    assert [str(m.target) for m in imported.measurements] == [
        "gtx-1080-ti/tensorflow-1/fp32", "quadro-rtx-8000/tensorflow-1/fp32",
    ]  # fmt: skip
    assert imported.measurements[0].spread_share == pytest.approx(0.01)
    assert imported.skipped["padding or activation unknown"] == 1


def test_neusight(tmp_path: Path) -> None:
    imported = load("conv_neusight", tmp_path, conv_forward=[NEU, {**NEU, "in_ch": 0}])
    well_formed(imported)
    (record,) = imported.measurements
    assert (str(record.target), record.latency_us) == ("t4/pytorch-2.1/fp32", 12.5)
    assert imported.skipped["shape makes no sense"] == 1


def test_nasbench201(tmp_path: Path) -> None:
    imported = load("nasbench201", tmp_path, networks=[NB, {**NB, "e01": "conv_9x9"}])
    well_formed(imported)
    assert {str(m.target) for m in imported.measurements} == {
        "gtx-1080-ti/pytorch-1.8/fp32", "pixel9/pytorch-1.8/fp32",
    }  # fmt: skip
    assert [b.network for b in imported.breakdowns] == [
        f"{NB['arch_str']} batch 1", f"{NB['arch_str']} batch 32",
    ]  # fmt: skip
    pools = {
        read(imported.signatures[h]).nodes[0].attribute("kernel_shape"): n
        for h, n in imported.breakdowns[0].cells
        if read(imported.signatures[h]).nodes[0].op == "AveragePool"
        and read(imported.signatures[h]).types["t0"].shape == (1, 16, 32, 32)
    }
    assert pools == {(3, 3): 5, (2, 2): 1}  # one in each of five cells, and the shortcut's
    assert imported.skipped["operator unknown"] == 2


def test_fbnet(tmp_path: Path) -> None:
    imported = load("fbnet", tmp_path, networks=[FB, {**FB, "op00": 11}])
    well_formed(imported)
    (record,) = imported.measurements
    assert str(record.target) == "titan-x/pytorch-1.8/fp32"
    kernels = {read(imported.signatures[h]).nodes[0].op: n for h, n in imported.breakdowns[0].cells}
    assert (kernels["GlobalAveragePool"], kernels["Flatten+Gemm"]) == (1, 1)
    last = [h for h, _ in imported.breakdowns[0].cells if "Gemm" in imported.signatures[h]]
    network = read(imported.signatures[last[0]])
    assert network.types[network.outputs[0]].shape == (1, 1000)
    assert record.signature == imported.breakdowns[0].signature
    assert imported.skipped["block unknown"] == 1


def test_edge_networks(tmp_path: Path) -> None:
    layers = [{**LAYER, "layer_idx": i} for i in range(2)]
    layers.append({**LAYER, "layer_idx": 0, "model": "odd", "op": "Mystery"})
    run = {"model": "tiny", "input_width": 8, "device": "Jetson AGX Xavier", "latency_us": 100.0}
    imported = load(
        "edge_networks", tmp_path, layers=layers,
        networks=[run, {**run, "model": "odd"}, {**run, "model": "unlisted"}],
    )  # fmt: skip
    well_formed(imported)
    assert [n for _, n in imported.breakdowns[0].cells] == [2]
    assert str(imported.measurements[0].target) == "xavier-agx/tensorflow-1/fp32"
    assert dict(imported.skipped) == {
        "a layer makes no sense": 1,
        "network without a list of layers": 1,
    }


def test_a_bag_of_layers_is_the_same_in_any_order(tmp_path: Path) -> None:
    layers = [{**LAYER, "layer_idx": 0}, {**LAYER, "layer_idx": 1, "out_c": 7}]
    other = [{**row, "model": "turned", "layer_idx": 1 - row["layer_idx"]} for row in layers]
    run = {"model": "tiny", "input_width": 8, "device": "Jetson Nano", "latency_us": 100.0}
    imported = load(
        "edge_networks", tmp_path, layers=[*layers, *other],
        networks=[run, {**run, "model": "turned"}],
    )  # fmt: skip
    assert len({m.signature for m in imported.measurements}) == 1
    assert [b.network for b in imported.breakdowns] == ["tiny@8", "turned@8"]


def test_reading_tells_how_far_it_is(tmp_path: Path) -> None:
    pandas.DataFrame([V100] * 600).to_parquet(tmp_path / "conv_fp16.parquet")
    told: list[tuple[int, int]] = []
    importers.load("v100_tensorrt_conv").read(tmp_path, lambda done, of: told.append((done, of)))
    assert told == [(0, 600), (256, 600), (512, 600)]


def test_the_command_imports_once(tmp_path: Path) -> None:
    pandas.DataFrame([V100, {**V100, "c_in": 32}, {**V100, "stride": 0}]).to_parquet(
        tmp_path / "conv_fp16.parquet"
    )
    command = (
        "store", "import", "--from", "v100_tensorrt_conv", str(tmp_path),
        "--store", str(tmp_path / "s.db"), "--json",
    )  # fmt: skip
    first, again = (json.loads(process(*command).stdout) for _ in range(2))
    assert first == {
        "read": 2, "measurements": 2, "breakdowns": 0, "signatures": 2,
        "skipped": {"shape makes no sense": 1}, "targets": ["v100/tensorrt/fp16"],
    }  # fmt: skip
    assert again == {**first, "measurements": 0, "signatures": 0}


def test_networks_of_public_data_pass_the_check_of_the_store(tmp_path: Path) -> None:
    imported = load("nasbench201", tmp_path, networks=[NB])
    with Store(tmp_path / "s.db") as store:
        store.add_signatures(imported.signatures)
        store.add(imported.measurements)
        store.add_breakdowns(imported.breakdowns)
        assert store.check() == []


@pytest.mark.parametrize("name", importers.names())
def test_what_is_not_the_data_set_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="another data set"):
        importers.load(name).read(tmp_path)
    with pytest.raises(StoreError, match="does not exist"):
        importers.load(name).read(tmp_path / "nowhere")


def test_an_unknown_name_gives_the_choices() -> None:
    with pytest.raises(InputError, match="nasbench201"):
        importers.load("imagenet")


@pytest.mark.skipif(not DATA.is_dir(), reason="the public data is not beside the repository")
@pytest.mark.parametrize(
    ("name", "records", "targets"),
    [
        ("conv_neusight", 14_917, 3),
        pytest.param("conv_cdecatapult", 62_442, 5, marks=slow),
        pytest.param("edge_networks", 2_846, 2, marks=slow),
    ],
)
def test_the_real_files(name: str, records: int, targets: int) -> None:
    start = time.process_time()
    imported = importers.load(name).read(DATA / name)
    assert len(imported.measurements) == records
    assert len({m.target for m in imported.measurements}) == targets
    assert time.process_time() - start < 60


def test_another_package_may_offer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("mine", "hybridlat.store.importers.fbnet", "hybridlat.importers")
    monkeypatch.setattr(
        "importlib.metadata.entry_points",
        lambda group: [point] if group == "hybridlat.importers" else [],
    )
    offered = plugins.Plugins("hybridlat.importers", importers.IMPORTERS.own)
    monkeypatch.setattr(importers, "IMPORTERS", offered)
    assert "mine" in importers.names()
    assert importers.load("mine") is importers.load("fbnet")
