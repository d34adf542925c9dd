"""Readers of public data: tiny frames of each set's form, and the real files where they are."""

from pathlib import Path

import pytest

from hybridlat.errors import StoreError
from hybridlat.graph.signature import hash_of, sign
from hybridlat.graph.signature_reading import read
from hybridlat.store import importers
from hybridlat.store.importers import ImportedRecords

pandas = pytest.importorskip("pandas")
from experiments.public_data import READERS  # noqa: E402

V100 = {"conv": "regular", "batch": 1, "c_in": 64, "h_in": 56, "w_in": 56, "c_out": 64,
        "kernel": 3, "stride": 1, "sum_fused": 0, "latency_us": 25.0}  # fmt: skip
CDE = {"device": "GTX1080Ti", "batch": 1, "in_hw": 33, "in_ch": 21, "out_ch": 22, "kernel": 4,
       "stride": 2, "padding": "same", "bias": True, "activation": "tanh", "latency_us": 240.0,
       "latency_us_std": 2.4}  # fmt: skip
NB = {"arch_str": "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|…", "e01": "nor_conv_3x3",
      "e02": "none", "e12": "skip_connect", "e03": "avg_pool_3x3", "e13": "nor_conv_1x1",
      "e23": "nor_conv_3x3", "1080ti_1_us": 9000.0, "pixel9_32_us": 8000.0}  # fmt: skip
FB = {"arch_str": "…", **{f"op{i:02d}": i % 9 for i in range(22)}, "titanx_1_us": 12000.0}


def load(name: str, folder: Path, **tables: list[dict[str, object]]) -> ImportedRecords:
    for file, rows in tables.items():
        pandas.DataFrame(rows).to_parquet(folder / f"{file}.parquet")
    return READERS[name](folder)


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


def test_cdecatapult_pads_as_tensorflow_does(tmp_path: Path) -> None:
    imported = load(
        "conv_cdecatapult", tmp_path,
        conv_forward=[CDE, {**CDE, "padding": "valid", "device": "Quadro RTX 8000"},
                      {**CDE, "padding": "odd"}],
    )  # fmt: skip
    well_formed(imported)
    shapes = [read(text).types["t1"].shape for text in imported.signatures.values()]
    assert shapes == [(1, 22, 17, 17), (1, 22, 15, 15)]
    assert [str(m.target) for m in imported.measurements] == [
        "gtx-1080-ti/tensorflow-1/fp32", "quadro-rtx-8000/tensorflow-1/fp32",
    ]  # fmt: skip
    assert imported.measurements[0].spread_share == pytest.approx(0.01)
    assert imported.skipped["padding or activation unknown"] == 1


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


@pytest.mark.parametrize("name", READERS)
def test_what_is_not_the_data_set_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="another data set"):
        READERS[name](tmp_path)
    with pytest.raises(StoreError, match="does not exist"):
        READERS[name](tmp_path / "nowhere")


@pytest.mark.parametrize("name", importers.IMPORTERS.names())
def test_an_importer_of_a_plug_in_refuses_what_is_not_there(name: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nowhere"):
        importers.read(name, tmp_path / "nowhere")
