"""Tables of networks as people write them: columns by name, by a mapping, and what is refused."""

import re
from pathlib import Path

import pytest

from hybridlat.errors import InputError, StoreError
from hybridlat.schema.target import Target
from hybridlat.store.importers.columns import ColumnMap, read_column_map
from hybridlat.store.importers.table import NetworkRow, Rows, read_networks

T4 = Target("t4", "tensorrt-8.6", "fp16")


def read(tmp_path: Path, text: str, column_map: str = "", default: Target | None = None) -> Rows:
    (tmp_path / "t.csv").write_text(text)
    (tmp_path / "map.toml").write_text(column_map)
    return read_networks([tmp_path / "t.csv"], read_column_map(tmp_path / "map.toml"), default)


def only(found: Rows) -> NetworkRow:
    assert not found.refused
    (row,) = found.rows
    return row


def test_columns_known_by_their_names(tmp_path: Path) -> None:
    row = only(read(
        tmp_path,
        "Model,Device,Engine,engine_version,Precision,Batch Size,Latency (ms),Resolution,source\n"
        "ResNet-50,NVIDIA Tesla T4,TensorRT,8.6.1,FP16,8,\"1,001.5\",3x224x320,a page\n",
    ))  # fmt: skip
    assert (row.names, row.target, row.batch, row.size) == (("ResNet-50",), T4, 8, (224, 320))
    assert row.latency_us == pytest.approx(1_001_500)
    assert row.labels == {"source": "a page"}
    assert row.where == "t.csv, row 1"


@pytest.mark.parametrize(
    ("column", "value", "microseconds"),
    [
        ("latency_us", "12.5", 12.5), ("latency_ms", "12.5", 12_500), ("latency_s", "1", 1e6),
        ("Median latency [µs]", "3", 3), ("inference time (sec)", "2", 2e6),
        ("images_per_second", "1000", 4000), ("fps", "2", 2e6),
    ],
)  # fmt: skip
def test_units(tmp_path: Path, column: str, value: str, microseconds: float) -> None:
    text = f"network;target;batch;{column}\na;t4/tensorrt-8.6/fp16;4;{value}\n"
    assert only(read(tmp_path, text)).latency_us == pytest.approx(microseconds)


def test_a_latency_goes_before_a_throughput_and_onnx_before_the_model(tmp_path: Path) -> None:
    row = only(read(
        tmp_path,
        "onnx,model,target,layout,note,height,width,latency_ms,images_per_second\n"
        "nets/a.onnx,Net A,T4/TensorRT 8.6/FP16,nhwc,suspect,8,16,2,17\n",
    ))  # fmt: skip
    assert (row.names, row.target, row.batch, row.size) == (("a",), T4, None, (8, 16))
    assert row.latency_us == 2000
    assert row.labels == {"layout": "nhwc", "note": "suspect", "model": "Net A"}


def test_parquet_is_read_as_csv_is(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    rows = {"network": ["a", "b"], "target": [str(T4)] * 2, "batch": [1.0, None],
            "latency_us": [7.0, None]}  # fmt: skip
    pandas.DataFrame(rows).to_parquet(tmp_path / "t.parquet")
    found = read_networks([tmp_path], ColumnMap())
    assert [(r.names, r.batch, r.latency_us) for r in found.rows] == [(("a",), 1, 7.0)]
    assert [(r.where, r.reason) for r in found.refused] == [
        ("t.parquet, row 2", "there is no latency"),
    ]  # fmt: skip
    (tmp_path / "t.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(StoreError, match="cannot be read as Parquet"):
        read_networks([tmp_path], ColumnMap())


PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "importing.md"


def test_the_mapping_of_the_documentation(tmp_path: Path) -> None:
    (column_map,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    text = (
        "model,infer_samples_per_sec,infer_batch_size,infer_img_size,param_count\n"
        "resnet18,2000,100,224,11.69\n"
    )
    row = only(read(tmp_path, text, column_map))
    assert (str(row.target), row.batch, row.size) == ("rtx-4090/torch-2.4/amp", 100, (224, 224))
    assert row.latency_us == pytest.approx(50_000)
    assert row.labels["layout"] == "nhwc" and row.labels["param_count"] == "11.69"


def test_a_mapping_translates_values_and_keeps_labels(tmp_path: Path) -> None:
    row = only(read(
        tmp_path,
        "Benchmark,Accelerator,Software,Result,Submitter\n"
        'resnet,NVIDIA T4,"TensorRT 8.6.1, CUDA 12",0.8,X\n',
        "labels = ['Submitter']\n"
        "[columns]\nnetwork='Benchmark'\ndevice='Accelerator'\nengine='Software'\n"
        "latency='Result'\n[units]\nlatency='ms'\n[constants]\nprecision='int8'\nbatch=1\n"
        "[values.network]\nresnet='resnet50-v1.5'\n",
    ))  # fmt: skip
    assert (row.names, str(row.target)) == (("resnet50-v1.5",), "t4/tensorrt-8.6/int8")
    assert (row.latency_us, row.batch, row.labels) == (800, 1, {"Submitter": "X"})


def test_a_default_target_gives_what_is_not_stated(tmp_path: Path) -> None:
    found = read(tmp_path, "network,device,latency_ms\na,V100,1\nb,,1\n", default=T4)
    assert [str(r.target) for r in found.rows] == [
        "v100/tensorrt-8.6/fp16", "t4/tensorrt-8.6/fp16",
    ]  # fmt: skip


HEAD = "network,device,engine,precision,threads,batch,size,latency_ms,fps\n"


@pytest.mark.parametrize(
    ("row", "reason", "value"),
    [
        (",T4,torch,fp32,,1,,1,", "the row names no network", ""),
        ("a,T4,,,,1,,1,", "the device, engine or precision is not stated",
         "engine and precision missing"),
        ("a,T4,torch,fp9,,1,,1,", "what it was measured on cannot be read", "T4, torch, fp9"),
        ("a,T4,torch,fp32,two,1,,1,", "threads is not a whole number from 1 up", "two"),
        ("a,T4,torch,fp32,,0,,1,", "batch is not a whole number from 1 up", "0"),
        ("a,T4,torch,fp32,,2.5,,1,", "batch is not a whole number from 1 up", "2.5"),
        ("a,T4,torch,fp32,,1,big,1,", "the size is not HEIGHTxWIDTH", "big"),
        ("a,T4,torch,fp32,,1,0x8,1,", "the size is not HEIGHTxWIDTH", "0x8"),
        ("a,T4,torch,fp32,,1,,-1,", "the latency is not a positive number", "-1"),
        ("a,T4,torch,fp32,,1,,nan,", "the latency is not a positive number", "nan"),
        ("a,T4,torch,fp32,,1,,soon,", "the latency is not a positive number", "soon"),
        ("a,T4,torch,fp32,,1,,,0", "the throughput is not a positive number", "0"),
        ("a,T4,torch,fp32,,,,,9", "a throughput alone, and no batch", "9"),
        ("a,T4,torch,fp32,,1,,,", "there is no latency", ""),
    ],
)  # fmt: skip
def test_rows_that_do_not_fit(tmp_path: Path, row: str, reason: str, value: str) -> None:
    found = read(tmp_path, f"{HEAD}ok,T4,torch-2.4,fp32,,1,,1,\n{row}\n")
    assert len(found.rows) == 1
    (refused,) = found.refused
    assert (refused.where, refused.reason, refused.value) == ("t.csv, row 2", reason, value)
    assert refused.fix


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("network,latency\na,1\n", "'latency' does not say its unit"),
        ("network,target\na,b\n", "no column of latencies"),
        ("latency_ms,target\n1,b\n", "no column network, model or onnx"),
        ('network,latency_ms\n"a"b,1\n', "cannot be read as CSV"),
    ],
)
def test_files_that_are_no_such_table(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("column_map", "message"),
    [
        ("[columns", "is not TOML"),
        ("[colums]\n", "unknown field colums"),
        ("[columns]\nname = 'x'", "columns knows no field 'name'"),
        ("[columns]\nnetwork = ['x']", "columns.*expected str, got array"),
        ("[constants]\nlatency = 3", "constants knows no field 'latency'"),
        ("[units]\nlatency = 'h'", "write latency = ns, us, ms or s"),
        ("labels = 'x'", r"labels: expected array.*\[columns\]"),
        ("[columns]\nnetwork = 'nowhere'", "has no column 'nowhere'.*it has network, t"),
        ("[columns]\nlatency = 't'", "the unit of 't' is not stated"),
    ],
)
def test_mappings_that_make_no_sense(tmp_path: Path, column_map: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, "network,t\na,1\n", column_map)


def test_files_that_are_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist: give files or folders"):
        read_networks([tmp_path / "nowhere.csv"], ColumnMap())
    with pytest.raises(StoreError, match=r"holds no tables: nothing in it ends in .csv"):
        read_networks([tmp_path], ColumnMap())
    (tmp_path / "t.csv").write_bytes(b"network,latency_ms\n\xff\xfe\n")
    with pytest.raises(StoreError, match="is not text in UTF-8"):
        read_networks([tmp_path], ColumnMap())
    with pytest.raises(InputError, match="cannot be read"):
        read_column_map(tmp_path / "nowhere.toml")
