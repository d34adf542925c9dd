"""Readers of public data: tiny frames of each set's form, and the real files where they are."""

from pathlib import Path

import pytest

from hybridlat.errors import StoreError
from hybridlat.graph.signature import hash_of, read, sign
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


Rows = list[dict[str, object]]


def imported(name: str, folder: Path, table: str, rows: Rows) -> ImportedRecords:
    """What a reader makes of a table: every text has its hash, and nothing is missing."""
    (folder / name).mkdir()
    pandas.DataFrame(rows).to_parquet(folder / name / f"{table}.parquet")
    read_in = READERS[name](folder / name)
    for hash_, text in read_in.signatures.items():
        assert hash_of(text) == sign(read(text)).hash == hash_
    by_kind: dict[str, set[str]] = {"cell": set(), "network": set()}
    for one in read_in.measurements:
        by_kind[one.kind].add(one.signature)
    for breakdown in read_in.breakdowns:
        by_kind["cell"] |= {h for h, _ in breakdown.cells}
    assert by_kind["cell"] == set(read_in.signatures)  # a network's text is never asked for
    assert by_kind["network"] == {b.signature for b in read_in.breakdowns}
    assert not by_kind["network"] & by_kind["cell"]
    return read_in


@pytest.mark.parametrize(
    ("name", "table", "rows", "targets", "skipped"),
    [
        ("v100_tensorrt_conv", "conv_fp16",
         [V100, {**V100, "sum_fused": 1}, {**V100, "conv": "depthwise"},
          {**V100, "latency_us": -1.0}, {**V100, "latency_us": float("nan")},
          {**V100, "stride": 0}, {**V100, "conv": "strange"}, {**V100, "c_in": 2.5}],
         ["v100/tensorrt/fp16"] * 3,
         {"latency is not a positive number": 2, "shape makes no sense": 3}),
        ("conv_cdecatapult", "conv_forward",
         [CDE, {**CDE, "device": "Quadro RTX 8000"}, {**CDE, "padding": "odd"}],
         ["gtx-1080-ti/tensorflow-1/fp32", "quadro-rtx-8000/tensorflow-1/fp32"],
         {"padding or activation unknown": 1}),
        ("nasbench201", "networks", [NB, {**NB, "e01": "conv_9x9"}],
         ["gtx-1080-ti/pytorch-1.8/fp32", "pixel9/pytorch-1.8/fp32"], {"operator unknown": 2}),
        ("fbnet", "networks", [FB, {**FB, "op00": 11}],
         ["titan-x/pytorch-1.8/fp32"], {"block unknown": 1}),
    ],
)  # fmt: skip
def test_rows_are_records_or_are_counted(
    name: str, table: str, rows: Rows, targets: list[str], skipped: dict[str, int], tmp_path: Path
) -> None:
    read_in = imported(name, tmp_path, table, rows)
    assert [str(one.target) for one in read_in.measurements] == targets
    assert dict(read_in.skipped) == skipped


def test_convolutions_are_fused_and_padded_as_their_engines_do(tmp_path: Path) -> None:
    fused = imported("v100_tensorrt_conv", tmp_path, "conv_fp16", [V100, {**V100, "sum_fused": 1}])
    ops = [read(text).nodes[0].qualified_op for text in fused.signatures.values()]
    assert sorted(ops) == ["fused::Conv+Add+Relu", "fused::Conv+Relu"]
    rows: Rows = [CDE, {**CDE, "padding": "valid"}]
    padded = imported("conv_cdecatapult", tmp_path, "conv_forward", rows)
    shapes = [read(text).types["t1"].shape for text in padded.signatures.values()]
    assert shapes == [(1, 22, 17, 17), (1, 22, 15, 15)]
    assert padded.measurements[0].spread_share == pytest.approx(0.01)


def test_networks_fall_into_the_kernels_of_their_words(tmp_path: Path) -> None:
    cells = imported("nasbench201", tmp_path, "networks", [NB])
    names = [b.network for b in cells.breakdowns]
    assert names == [f"{NB['arch_str']} batch {batch}" for batch in (1, 32)]
    pools = {
        kernel.nodes[0].attribute("kernel_shape"): n
        for h, n in cells.breakdowns[0].cells
        if (kernel := read(cells.signatures[h])).nodes[0].op == "AveragePool"
        and kernel.types["t0"].shape == (1, 16, 32, 32)
    }
    assert pools == {(3, 3): 5, (2, 2): 1}  # one in each of five cells, and the shortcut's
    blocks = imported("fbnet", tmp_path, "networks", [FB])
    counts = {read(blocks.signatures[h]).nodes[0].op: n for h, n in blocks.breakdowns[0].cells}
    assert (counts["GlobalAveragePool"], counts["Flatten+Gemm"]) == (1, 1)
    (last,) = (read(text) for text in blocks.signatures.values() if "Gemm" in text)
    assert last.types[last.outputs[0]].shape == (1, 1000)


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
