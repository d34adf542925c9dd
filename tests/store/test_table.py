"""Tables of networks as people write them: columns by name, by a mapping, and what is refused."""

import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from hybridlat.errors import InputError, StoreError
from hybridlat.schema.target import Target
from hybridlat.store.importers.sheets import ColumnMap, read_column_map
from hybridlat.store.importers.table import NetworkRow, Refusal, Rows, read_networks
from tests.networks import ROOT

T4 = Target("t4", "tensorrt-8.6", "fp16")


def read(tmp_path: Path, text: str, column_map: str = "", default: Target | None = None) -> Rows:
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    (tmp_path / "map.toml").write_text(column_map)
    return read_networks([tmp_path / "t.csv"], read_column_map(tmp_path / "map.toml"), default)


def only(found: Rows) -> NetworkRow:
    assert not found.refused
    (row,) = found.rows
    return row


def words_of(refusal: Refusal) -> str:
    return f"{refusal.reason}: {refusal.value}"


PAGE = ROOT / "docs" / "guides" / "importing.md"
(TIMM,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
WORDS = """labels = ['Submitter']
columns = {network = 'Benchmark', device = 'Accelerator', engine = 'Software', latency = 'Result'}
units = {latency = 'ms'}
constants = {precision = 'int8', batch = 1}
values = {network = {resnet = 'resnet50-v1.5'}}
"""
ON_T4 = "network,target,latency_ms"
CONSTANT = "columns = {batch = 'batch'}\nconstants = {batch = 1}"
SIZES = {"224x224x3": (224, 224), "2x320x640x3": (320, 640), "[2, 3, 8, 16]": (8, 16)}
SIZES |= {"(8,16)": (8, 16), "3 x 8 x 16": (8, 16), "8*16": (8, 16), "64x1": (64, 1)}
READ: list[tuple[str, str, str, dict[str, Any]]] = [
    *((f"{ON_T4},size", f'a,{T4},1,"{text}"', "", {"size": SIZES[text]}) for text in SIZES),
    (
        "Model,Device,Engine,engine_version,Precision,Batch Size,Latency (ms),Resolution,source",
        'ResNet-50,NVIDIA Tesla T4,TensorRT,8.6.1,FP16,8,"1,001.5",3x224x320,a page',
        "",
        {"names": ("ResNet-50",), "target": T4, "batch": 8, "size": (224, 320)}
        | {"latency_us": 1_001_500, "labels": {"source": "a page"}, "where": "t.csv, row 1"},
    ),
    (  # a latency goes before a throughput, the file before the model
        "onnx,model,target,layout,note,height,width,latency_ms,images_per_second",
        "nets/a.onnx,Net A,T4/TensorRT 8.6/FP16,nhwc,suspect,8,16,2,17",
        "",
        {"names": ("nets/a",), "target": T4, "batch": None, "size": (8, 16), "latency_us": 2000}
        | {"labels": {"layout": "nhwc", "note": "suspect", "model": "Net A"}},
    ),
    (
        "model,infer_samples_per_sec,infer_batch_size,infer_img_size,param_count",
        "resnet18,2000,100,224,11.69",
        TIMM,
        {"target": Target("rtx-4090", "torch-2.4", "amp"), "batch": 100, "size": (224, 224)}
        | {"latency_us": 50_000},
    ),
    (
        "Benchmark,Accelerator,Software,Result,Submitter",
        'resnet,NVIDIA T4,"TensorRT 8.6.1, CUDA 12",0.8,X',
        WORDS,
        {"names": ("resnet50-v1.5",), "target": Target("t4", "tensorrt-8.6", "int8")}
        | {"latency_us": 800, "batch": 1, "labels": {"Submitter": "X"}},
    ),
    (  # columns that say more or less of the target
        f"{ON_T4},precision,device,engine,cuda_graph,suspect",
        f"a,{T4},1.2,half,Tesla T4 (g4dn),TensorRT,yes,no",
        "",
        {"target": T4, "facts": {"launch": "graph", "suspect": False}},
    ),
    (f"{ON_T4},size", f"a,{T4},1,8x3x32x32", "", {"batch": 8, "size": (32, 32)}),
    (f"{ON_T4},batch", f"a,{T4},1,", CONSTANT, {"batch": 1}),  # fills the gaps of a named column
    ("#,onnx,latency_ms", "7,C:\\nets\\a.onnx,1", "", {"names": ("C:/nets/a",)}),
    ("network,batch,latency_ms,fps", "a,8,4,1500", "", {"latency_us": 4000}),
    ("network,batch,latency_ms,fps", "a,1,4,100", "", {"latency_us": 4000}),  # its host is slower
    ("network,latency_ms,img_h,input width", "a,4,8,16", "", {"size": (8, 16)}),
    ("network,batch,latency,fps", "a,8,4,2000", "", {"latency_us": 4000}),  # one has a unit
    ("network,latency", "a,4", "[units]\nlatency = 'us'", {"latency_us": 4}),
    ("network,bs,Throughput (img/s)", "a,8,2000", "", {"latency_us": 4000}),
    ("network,latency-ms,CUDA Graphs", "a,4,yes", "", {"facts": {"launch": "graph"}}),
    ("network,latency_ms,GPU clock (MHz)", "a,4,900 MHz", "", {"labels": {"clock": "900"}}),
    ("network,latency_ms,mem_clock_mhz", "a,4,405", "", {"labels": {"memory_clock": "405"}}),
    *(
        (f"network,latency_ms,{title}", "a,4,150 W", "", {"labels": {"power_limit": "150"}})
        for title in ("Power Limit (W)", "TDP", "TGP (W)")
    ),
]


@pytest.mark.parametrize(("header", "row", "column_map", "expected"), READ)
def test_what_a_row_says(
    tmp_path: Path, header: str, row: str, column_map: str, expected: dict[str, Any]
) -> None:
    read_row = only(read(tmp_path, f"{header}\n{row}\n", column_map, T4))
    assert {name: getattr(read_row, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("column", "value", "microseconds"),
    [
        *(("latency_us", "12.5", 12.5), ("latency_ms", "12.5", 12_500), ("latency_s", "1", 1e6)),
        *(("Median latency [µs]", "3", 3), ("inference time (sec)", "2", 2e6)),
        *(("Latency\u00a0(ms)", "3", 3000), ('"Latency\n(ms)"', "3", 3000)),
        *(("Latency/ms", "3", 3000), ("avg latency in us", "3", 3), ("latency, ms", "3", 3000)),
        *(("Latency per batch (ms)", "3", 3000), ("lat_us", "3", 3)),
        *(("images_per_second", "1000", 4000), ("fps", "2", 2e6), ("Images/s", "2", 2e6)),
        ("Latency (ms);GPU Compute Time (ms)", "12;10", 10_000),  # as trtexec prints them
        ("latency_ms;gpu_time_ms", "12;10", 10_000),
        ("throughput;latency_ms", "100;10", 10_000),  # it may be of images or of batches
    ],
)
def test_units(tmp_path: Path, column: str, value: str, microseconds: float) -> None:
    text = f"network;target;batch;{column}\na;t4/tensorrt-8.6/fp16;4;{value}\n"
    assert only(read(tmp_path, text)).latency_us == pytest.approx(microseconds)


NO_LATENCIES = ("1_5", "٥", "55%", "inf", "1e308", "-1", "nan", "soon")


def test_columns_that_parquet_types(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {
        "network": pa.array([b"a", b"\xff", b"c", b"d"]).cast(pa.binary()),
        "target": pa.array([str(T4)] * 4).dictionary_encode(),
        "latency_ms": pa.array([Decimal("1.250"), Decimal("2.5"), None, Decimal("1e3")]),
        "size": pa.array([[3, 224, 320]] * 4),
        "note": pa.array([0, 1, 2**62, 3], pa.timestamp("ns")),
        "batch": pa.array([2.5, 1.0, None, 8.0]),
        "source": pa.array([{"n": 1}, None, None, None]),
    }
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    found, unread = read_networks([tmp_path], ColumnMap()), "\N{REPLACEMENT CHARACTER}"
    rows = [(r.names, r.latency_us, r.size, r.batch) for r in found.rows]
    assert rows == [((unread,), 2500, (224, 320), 1), (("d",), 1e6, (224, 320), 8)]
    assert [(r.where, r.reason) for r in found.refused] == [
        ("t.parquet, row 1", "batch is not a whole number from 1 up"),
        ("t.parquet, row 3", "there is no latency"),
    ]
    twice = pa.table(
        [pa.array([str(T4)]), pa.array(["a"]), pa.array([1.0]), pa.array([2.0])],
        names=["target", "network", "latency_ms", "latency_ms"],
    )
    parquet.write_table(twice, tmp_path / "t.parquet")
    with pytest.raises(StoreError, match="the latency twice"):
        read_networks([tmp_path], ColumnMap())
    bad = pa.Table.from_arrays([pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")]
    ), pa.array([1.0])], names=["network", "latency_ms"])  # fmt: skip
    parquet.write_table(bad, tmp_path / "t.parquet")
    assert read_networks([tmp_path], ColumnMap(), T4).rows[0].names == (unread,)
    (tmp_path / "t.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(StoreError, match="cannot be read as Parquet"):
        read_networks([tmp_path], ColumnMap())


HEAD = "network,device,engine,precision,threads,batch,size,latency_ms,fps\n"


@pytest.mark.parametrize(
    ("row", "reason", "value"),
    [
        *((f"a,T4,torch,fp32,,1,,{text},", "the latency is not a positive number", text)
          for text in NO_LATENCIES),
        *((f"a,T4,torch,fp32,,{text},,1,", "batch is not a whole number from 1 up", text)
          for text in ("0", "2.5")),
        ("a,T4,torch,fp32,,1,,1\u202f250 us,", "the latency has another unit than its column",
         "1 250 us under ms"),
        *((f"a,T4,torch,fp32,,1,{text},1,", "the size is not HEIGHTxWIDTH", text)
          for text in ("big", "0x8", "11689512")),
        ("a,T4,torch,fp32,,1,,1e-9,", "the latency is none of a network", "1e-9 ms"),
        ("a,T4,torch,fp32,,1,,550us,", "the latency has another unit than its column",
         "550us under ms"),
        ('a,T4,torch,fp32,,1,,"1,250",', "the latency has two readings", "1,250 is 1.25 or 1250"),
        ('a,T4,torch,fp32,,"1,024",,1,', "the batch has two readings", "1,024 is 1.024 or 1024"),
        ("a,T4,torch,fp32,,1,,1,25,", "the row has not as many cells as the table has columns",
         "10 of 9 cells: a, T4, torch, fp32, , 1, , 1, 25, "),
        ("a,T4,torch,fp32,,1,,1", "the row has not as many cells as the table has columns",
         "8 of 9 cells: a, T4, torch, fp32, , 1, , 1"),
        ('a,T4,torch,fp32,,1,"1,250",1,', "the size is not HEIGHTxWIDTH", "1,250"),
        ("a,T4,torch,fp32,,1,3x224x3,1,", "the size does not show its channels", "3x224x3"),
        ("a,T4,torch,fp32,,1,8x3x32x32,1,", "the row contradicts itself", "batch 1, 8x3x32x32"),
        ("a,T4,torch,fp32,99999,1,,1,", "what it was measured on cannot be read",
         "T4, torch, fp32"),
        (",T4,torch,fp32,,1,,1,", "the row names no network", ""),
        ("a,T4,,,,1,,1,", "the device, engine or precision is not stated",
         "engine and precision missing"),
        ("a,T4,torch,fp9,,1,,1,", "what it was measured on cannot be read", "T4, torch, fp9"),
        ("a,T4,torch,fp32,two,1,,1,", "threads is not a whole number from 1 up", "two"),
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


def test_a_size_of_thousands_of_digits_is_refused(tmp_path: Path) -> None:
    found = read(tmp_path, f"network,latency_ms,size\na,1,{'9' * 5000}\nb,1,224\n", default=T4)
    assert [row.names for row in found.rows] == [("b",)]
    assert [refusal.reason for refusal in found.refused] == ["the size is not HEIGHTxWIDTH"]


NET = "network,t\na,1\n"


@pytest.mark.parametrize(
    ("text", "column_map", "message"),
    [
        ("", "", "is empty"),
        ("\n", "", "is empty"),
        ("# a comment\n", "", "is empty"),
        ("network,latency_ms\n", "", "has no rows below its header"),
        ("sep=|\nnetwork|latency_ms\na|1\n", "", "has the separator '|'"),
        ("network,latency_ms\na\0b,1\n", "", "holds NUL"),
        *(
            (f"network,latency_ms,batch\n{rows}", "", f"second header in row {number}")
            for number, rows in [
                (2, "a,1,2\nnetwork,batch,latency_ms\n"),
                (2, "a,1,2\nmodel,latency_us,fps\nb,900,1\n"),
                (1, ",fp16,int8\na,1,2\n"),
                (1, "-,[us],[1]\na,900,2\n"),
            ]
        ),
        ("network,latency\na,1\n", "", "the unit of 'latency' is not stated: write it"),
        ("network,latency,time_s\na,1,12\n", "", "the unit of 'latency' is not stated"),
        ("network,Latency,time (ms)\na,1,1\n", "", "the unit of 'Latency' is not stated"),
        ("network,latency,latency_ms\na,1,1\n", "", "the latency twice, by latency and latency_ms"),
        ("network,latency_us\na,1\n", "[units]\nlatency = 'ms'", "'latency_us' is another than ms"),
        *(
            (f"network,latency_ms,{title},x\na,1,5,z\n", "", "'latency_ms' twice, also as ")
            for title in ("", "Unnamed: 2", "Column3")
        ),
        ("network,target\na,b\n", "", "no column of latencies"),
        *(
            (f"network,latency_ms,Size\na,1,{size}\nb,1,224\n", "", f"pixels or MB: {size};")
            for size in (45, 98, 171, 16)
        ),
        ("network,Throughput\na,100\n", "", r"images_per_second.*of images, or of batches"),
        ("# all in us\nnetwork,latency_ms\na,1\n", "", "unit of 'latency_ms' is us by a comment"),
        (
            "network,latency_ms,Unit\na,1,us\nb,1,ms\n",
            "",
            "other units than ms in its column 'Unit'",
        ),
        *(
            (f"network,latency_ms,{twin}\na,1,5\n", "", f"'latency_ms' twice, also as '{twin}'")
            for twin in ("latency_ms.1", "latency_ms_1", "latency_ms2", "latency_ms_duplicated_0")
        ),
        (
            f"network,latency_us,measured_share,rests_on\na,1,0,{T4}\n",
            "",
            "hybridlat predicted: name",
        ),
        ("network|latency_ms\na|1\n", "", r"it has network\|latency_ms; rename"),
        ("latency_ms,target\n1,b\n", "", "no column network, model or onnx"),
        ('network,latency_ms\n"a"b,1\n', "", "cannot be read as CSV"),
        ('network,latency_ms\n"a,' + 140_000 * "1", "", "cannot be read as CSV"),
        # A field is stated once.
        *(
            (f"{ON_T4},{header}\na,{T4},1,1,1\n", "", f"twice, by {words}")
            for header, words in [
                ("latency_ms", "latency_ms and latency_ms"),
                ("Latency (us)", r"latency_ms and Latency \(us\)"),
                ("Batch,batch_size", "Batch and batch_size"),
                ("size,resolution", "size and resolution"),
                ("device,gpu", "device and gpu"),
                ("precision,dtype", "precision and dtype"),
                ("backend,framework", "framework and backend"),
            ]
        ),
        (f"{ON_T4},batch\na,{T4},1,1\n", "[constants]\nbatch = 1", "batch and the constant: name"),
        # Mappings.
        (NET, "[columns", "is not TOML"),
        (NET, "[colums]\n", "unknown field colums"),
        (NET, "[columns]\nname = 'x'", "columns knows no field 'name'"),
        (NET, "[columns]\nnetwork = ['x']", "columns.*expected str, got array"),
        (NET, "[constants]\nlatency = 3", "constants knows no field 'latency'"),
        (NET, "[units]\nlatency = 'h'", "enum value 'h'.*latency = ns, us, ms or s"),
        (NET, "labels = 'x'", r"labels: expected array.*\[columns\]"),
        (NET, "[columns]\nnetwork = 'nowhere'", "has no column 'nowhere'.*it has network, t"),
        (NET, "[columns]\nlatency = 't'", "the unit of 't' is not stated"),
        (NET, "labels = " + "[" * 3000 + "]" * 3000, "is not TOML"),
        (NET, f"[constants]\nbatch = {'9' * 5000}", "is not TOML"),
        (NET, "[constants]\nbatch = 2020-01-01", "expected .*str"),
    ],
)
def test_what_makes_no_sense(tmp_path: Path, text: str, column_map: str, message: str) -> None:
    with pytest.raises(InputError if text == NET else StoreError, match=message):
        read(tmp_path, text, column_map)


ONE = "network;target;batch;size;latency_ms\na;t4/tensorrt-8.6/fp16;2;{size};{latency}\n"


@pytest.mark.parametrize(
    ("latency", "separator", "ms"),
    [
        ("0,553", ";", 0.553), ("1,250", "\t", 1.25), ("1.250,5", ";", 1250.5), ("12.5", ";", 12.5),
        ("1 250,5", ";", 1250.5), ("1\u202f250,5", "\t", 1250.5), ("1'250.5", ";", 1250.5),
        ("1,250.5", "\t", 1250.5), ("1.250.000", ";", 1.25e6), ("1,25e1", ";", 12.5),
        ("0.55 ms", ",", 0.55), ("550e-3ms", ",", 0.55), ("+.5", ",", 0.5),
        ('"1,250,000"', ",", 1.25e6),
        ('"12,5"', ",", 12.5), ("1234.567", ",", 1234.567), ("1.250", ",", 1.25),
    ],
)  # fmt: skip
def test_numbers_as_written(tmp_path: Path, latency: str, separator: str, ms: float) -> None:
    text = ONE.format(size="224", latency="{}").replace(";", separator).format(latency)
    assert only(read(tmp_path, text)).latency_us == pytest.approx(1e3 * ms)


@pytest.mark.parametrize(
    ("numbers", "readings"),
    [
        (("1.250", "0,5"), (None, 500)),
        (("1.250", "1.250,5"), (1.25e6, 1_250_500)),
        (("1.250", "0.5"), (1250, 500)),
        (("1,250", "1,250.5"), (1.25e6, 1_250_500)),
        (("1,250", "0.5"), (None, 500)),
        (("1,250", "1.000.000"), (1250, 1e9)),
        (("1.250", "0.5", "2.500,5"), (None, 500, 2_500_500)),
        (("1.250", "-0.5"), (None, None)),
    ],
)
def test_a_column_shows_what_its_marks_mean(
    tmp_path: Path, numbers: tuple[str, ...], readings: tuple[float | None, ...]
) -> None:
    lines = [f"{i};t4/tensorrt-8.6/fp16;{number}" for i, number in enumerate(numbers)]
    found = read(tmp_path, "\n".join(["network;target;latency_ms", *lines]))
    latencies = {int(row.names[0]): row.latency_us for row in found.rows}
    assert [latencies.get(i) for i in range(len(numbers))] == list(readings)


STARTS = ["sep=;\r\n", "\ufeff", "\ufeffsep=;\n", '"sep=;"\n', "# by hand; in, haste\n\n", "\n"]
CODINGS = [("", coding) for coding in ("utf-16", "utf-16-le", "utf-16-be", "utf-8-sig")]


@pytest.mark.parametrize(("start", "coding"), [*((s, "utf-8") for s in STARTS), *CODINGS])
def test_what_stands_before_a_header(tmp_path: Path, start: str, coding: str) -> None:
    text = start + ONE.format(size="", latency="1,5;;") + "# more\n;;;;\n"
    (tmp_path / "t.csv").write_bytes(text.encode(coding))
    assert only(read_networks([tmp_path], ColumnMap())).latency_us == 1500


@pytest.mark.parametrize(
    ("header", "rows", "left_out"),
    [
        ("batch", ["a,1,{},2", "V100,,,", "b,1,{},2"], {3: "below a heading: V100"}),
        ("batch", ["a,1,{},2", "b,1,{},2", "* at 10 W,,,"], {3: "and precision missing"}),
        ("plan", ["a,1,{},7W", "a,2,{},15W", "b,1,{},7W"],
         {1: "differ in plan, not read: 7W", 2: "differ in plan, not read: 15W"}),
        *(("batch", [heading, "a,1,{},2"], {2: "below a heading: INT8"})
          for heading in ("INT8,INT8,INT8,INT8", "INT8,-,-,--")),
        *(("batch", [f"{one},,{other},", "a,1,{},2"], {2: f"below a heading: {one}, {other}"})
          for one, other in [("V100", "INT8"), ("TensorRT 10.3", "FP16"), ("batch 8", "of 2024")]),
        ("batch", ["V100,INT8,-,-", "a,1,{},2"], {2: "below a heading: V100, INT8, -, -"}),
        ("batch", ["b,,{},8", "a,1,{},2"], {1: "there is no latency: "}),
        ("statistic", ["a,1,{},mean", "a,0.1,{},std"], {2: "of latencies: statistic: std"}),
        (",x", ["a,1,{},mean,1", "b,1,{},mean,1", "a,2,{},p99,1"],
         {1: "a column without title, not read: mean", 3: "not read: p99"}),
        *((title, [f"a,1,{{}},{one}", f"a,2,{{}},{other}"], {})
          for title, one, other in [
              ("run", "1", "2"), ("p99", "1.5 ms", "3 ms"), ("note", "x", "y"),
              ("time_of_day", "2026-11-26T12:00:00Z", "2026-11-26T12:01:00Z")]),
    ],
)  # fmt: skip
def test_what_sets_rows_of_one_network_apart(
    tmp_path: Path, header: str, rows: list[str], left_out: dict[int, str]
) -> None:
    lines = [f"network,latency_ms,target,{header}", *(row.format(T4) for row in rows)]
    read_rows = read(tmp_path, "\n".join(lines))
    refused = {int(r.where.split()[-1]): words_of(r) for r in read_rows.refused}
    assert refused.keys() >= left_out.keys()
    assert all(refused[number].endswith(words) for number, words in left_out.items())
    assert len(read_rows.rows) + len(refused) == len(rows)
    assert bool(refused) == bool(left_out)


@pytest.mark.parametrize(
    ("title", "cell", "field"),
    [
        *((title, "8", "batch") for title in ("B", "batchsize", "Batch Size (N)", "Batch-Größe")),
        *((title, "8x3x224x224", "size") for title in ("input", "Shape")),
        *(("N", "8", "batch"), ("images_per_batch", "8", "batch"), ("H", "224", "size")),
        *(("ptq", "yes", "precision"), ("variant", "QAT INT8", "precision")),
        *(("channels_last", "True", "layout"), ("V100 (ms)", "0.9", "device")),
        *((title, "True", "precision") for title in ("half", "FP16", "amp", "use_fp16")),
        ("provider", "TensorrtExecutionProvider", "engine"),
        *((title, "4", "batch") for title in ("\u6279\u91cf", "Taille du lot", "trt_batch_size")),
        *(("num_bits", "8", "precision"), ("includes transfers", "yes", "host_copies")),
        *(("h2d included", "yes", "host_copies"), ("freq", "900 MHz", "gpu_clock_mhz")),
        *(("with CUDA graphs?", "yes", "cuda_graph"), ("GPU clock (GHz)", "1", "gpu_clock_mhz")),
        ("VRAM clock (GHz)", "5", "memory_clock_mhz"),
        *((title, "640", "size") for title in ("size (pixels)", "input res", "Input size (px)")),
        *((title, "10.3.0", "engine_version") for title in ("TRT version", "trt_ver", "tensorrt")),
        # what they hold says it, in any language
        *(("Genauigkeit", cell, "precision") for cell in ("INT8", "float16", "bf16")),
        *(("\u540e\u7aef", cell, "engine") for cell in ("PyTorch 2.4", "ONNX", "TensorRT")),
        *(("Ger\u00e4t", cell, "device") for cell in ("NVIDIA V100", "Jetson Nano", "RTX 4090")),
    ],
)
def test_a_column_that_states_a_field_by_another_name_is_not_passed_over(
    tmp_path: Path, title: str, cell: str, field: str
) -> None:
    text = f"network,latency_ms,{title}\na,1,{cell}\n"
    with pytest.raises(StoreError, match=rf"that may be the .*, .* name it {field}, say"):
        read(tmp_path, text, default=T4)
    assert only(read(tmp_path, text, f"labels = ['{title}']", T4)).labels == {title: cell}


@pytest.mark.parametrize(
    ("title", "cell"),
    [
        *(("Size (MB)", "6.2"), ("model_size", "12"), ("result", "ok"), ("torchvision", "0.15")),
        *(("library", "torchvision"), ("Unit", "ms"), ("GPUs", "1"), ("status", "FINISHED")),
        *(("use_dla", "no"), ("sparsity", "dense"), ("concurrency", "1.0")),
        *(("epochs", "300"), ("streams", ""), ("image", "nvcr.io/nvidia/pytorch:23.10-py3")),
        *(("error", "0.2%"), ("error", "±0.02 ms"), ("time_per_batch", "3"), ("exit_code", "0")),
        *(("task", "prediction"), ("valid", "yes"), ("kind", "measured")),
        *(("mean_latency_ms", "1.3"), ("power_draw", "7W"), ("p99, power_draw", "1.3,7W")),
        *(("layer", "all"), ("layers", "50"), ("scenario", "SingleStream"), ("warm-up", "10")),
        *(("pruned", "no"), ("width multiplier", "1.0"), ("throttling", "Not Active")),
        *(("compile_time_s", "3"), ("torch_compile_s", "3"), ("p99_ms", "3"), ("h2d_ms", "1")),
        *(("preprocess_ms", "1"), ("first_fp16_ms", "3"), ("fp16_speedup", "3"), ("mode", "eager")),
        *(
            ("mig", "disabled"),
            ("mode", "without CUDA graph"),
            ("outlier", "no"),
            ("power", "61 W"),
        ),
        *(("note", "no DLA, sparsity or MIG"), ("note", "without copies, NMS or end-to-end")),
        *(("parallel", "no"), ("NMS", "no"), ("profiler", "none"), ("quantile", "0.5")),
        *(("stage", "inference"), ("kernel", "6.1.0-aws"), ("total_streams", "1"), ("api", "sync")),
    ],
)
def test_a_column_of_something_else_is_only_named(tmp_path: Path, title: str, cell: str) -> None:
    text = f'network,latency_ms,{title}\na,1,"{cell}"\n'
    found = read(tmp_path, text if title == "note" else text.replace('"', ""), default=T4)
    is_read = title == "note"
    assert only(found).labels == ({"note": cell} if is_read else {})
    assert found.notes == [f"t.csv: not read are the columns {title}"] * (not is_read)


@pytest.mark.parametrize(
    ("title", "cell", "reason"),
    [
        *((title, "4", "several inferences run at once")
          for title in ("GPUs", "num_gpus", "Streams", "instances", "Concurrency", "# GPU",
                        "infStreams", "nireq", "parallel requests", "infer_requests",
                        "streams_total", "Total Accelerators", "a#")),
        *((title, cell, "its scenario runs several inferences at once")
          for title, cell in [("Scenario", "Server"), ("api", "async"), ("hint", "throughput")]),
        *((title, cell, "the row is of a part of the network")
          for title, cell in [("layer_name", "conv1"), ("kernel", "sgemm"), ("part", "head")]),
        ("Concurrency", "16 clients", "several inferences run at once"),
        ("useDLACore", "0", "the row is of a DLA"),
        *((title, cell, "the row is of a DLA, or of sparse weights")
          for title, cell in [("DLA", "1"), ("use_dla", "yes"), ("Sparsity", "2:4")]),
        *((title, cell, "the row says that its run failed")
          for title, cell in [("status", "FAILED"), ("Status\u2754", "\u274c"), ("x", "OOM")]),
        ("error", "CUDA out of memory", "the row says why its run failed"),
        ("runs on", "DLA0", "it ran on a DLA"),
        *((title, cell, "the network is pruned")
          for title, cell in [("pruned", "1"), ("Pruning (%)", "50")]),
        ("width_mult", "0.5", "the network is a wider or narrower one"),
        *((title, cell, "the GPU was slowed or shared")
          for title, cell in [("Throttled", "yes"), ("GPU share", "50%"), ("mps", "on")]),
        ("Unit", "ms/image", "the figure is of one image, not of the batch"),
        *(("MIG", "1g.5gb", "the row is of a slice of the GPU: write it in the device, "
           "as a100-mig-1g.5gb"), ("profile", "T4-8Q", "the row is of a virtual GPU")),
        *((title, cell, "the row is of a part of the GPU: write it in the device, "
           "as a100-mig-1g.5gb") for title, cell in [("MIG", "yes"), ("slice", "1/7")]),
        *((title, cell, "a CUDA graph was replayed: say so in a column cuda_graph")
          for title, cell in [("mode", "CUDA graph"), ("variant", "TensorRT + CUDA Graphs")]),
        ("launch", "graph", "a graph was replayed: say so in a column cuda_graph"),
        ("outlier", "yes", "the row is marked as none that is to be used"),
        ("used", "no", "the row is marked as none that counts"),
        ("instances per GPU", "4", "several inferences run at once"),
        *((title, cell, "the row is of a power mode: name the column power_mode")
          for title, cell in [("Mode", "7W"), ("power", "MAXN SUPER"), ("Power budget", "15 W")]),
        *((title, "5", "the latency may be in another column, whose title says more")
          for title in ("FP16 (ms)", "latency_fp16_ms", "tensorrt_latency_ms", "TRT time (us)",
                        "time_per_batch_ms", "inference (ms)")),
        *(("note", cell, "its note speaks of no plain run")
          for cell in ("DLA 0", "per image", "2 streams", "it throttled", "without warm-up",
                       "interpolated", "incl. NMS", "with pre- and postprocessing", "p95",
                       "outlier", "GPU was shared",
                       "includes H2D copies", "end-to-end", "min of 100 runs",
                       "on CPU", "2 GPUs", "includes data loading", "MIG slice",
                       "NMS included", "power-limited to 50 W", "DLA0 + GPU", "cold GPU",
                       # a negation counts in its own phrase
                       "no copies, two streams", "NMS included; not pruned", "not measured",
                       "another job was running", "covers postprocessing", "capped at 50 W",
                       "better of two runs", "on both GPUs", "by simulation", "throw-away run",
                       "sum over four images", "with the profiler on", "min over 10",
                       "while the others trained", "it throttles later",
                       "from the data sheet", "only the backbone, no head", "scaled from a V100",
                       "on a T4-8Q")),
        *((title, cell, "other work runs beside it")
          for title, cell in [("co-located", "yes"), ("other load", "90 %"), ("parallel", "x")]),
        *((title, "2", "several inferences run at once")
          for title in ("tp_size", "world size", "requests in flight")),
        *((title, cell, "more than the inference is timed")
          for title, cell in [("NMS", "included"), ("with NMS", "True"), ("NMS timed", "yes")]),
        ("includes", "pre+post", "what is timed beside the inference counts"),
        ("weights", "pruned", "the network is a pruned or a sparse one"),
        ("frames per clip", "16", "the row is of sequences of a stated length"),
        ("inflight", "8", "several inferences run at once"),
        ("timing", "e2e", "more than one inference on the device is timed"),
        *((title, "yes", "the latency was not measured") for title in ("estimated", "simulation")),
        ("alone", "no", "the row is marked as none that counts"),
        *((title, cell, "the row is of a part of the network")
          for title, cell in [("block", "stage3"), ("model part", "neck"), ("scope", "layer")]),
        ("dla_layers", "12", "the row is of a DLA, or of sparse weights"),
        ("agg", "min", "the figure is no median or mean of latencies"),
        ("profiler", "nsys", "the row is of a run under a profiler"),
        ("compute_unit", "DLA0 + GPU", "it ran on a DLA"),
        ("status", "throttled", "the GPU was throttled"),
        ("Temp throttled", "1", "the GPU was slowed or shared"),
        *(("quantile", cell, "the figure is no median or mean of latencies")
          for cell in ("0.99", ".05", "p999")),
        ("source", "roofline model", "the latency is none that was measured"),
        ("comment", "OOM", "the row says that its run failed"),
        ("Status", "RUNNING", "the row says that its run failed"),
        *((title, "128", "the row is of sequences of a stated length")
          for title in ("seq_len", "Sequence Length", "max_seq_length", "num_frames")),
        *((title, "137", "the row's run ended with an error") for title in ("rc", "exit_code")),
        *((title, cell, "the row is marked as none that counts")
          for title, cell in [("success", "False"), ("is_valid", "0"), ("warmup runs", "0")]),
        *((title, cell, "the figure is no inference in a steady state")
          for title, cell in [("phase", "training"), ("mode", "fwd+bwd"), ("stage", "NMS")]),
        ("Sparsity (%)", "50", "the row is of a DLA, or of sparse weights"),
        *((title, cell, "the latency is none that was measured")
          for title, cell in [("kind", "estimated"), ("method", "nn-Meter"),
                              ("source of it", "simulated"),
                              ("type", "roofline")]),
        *((title, cell, "the figure is no median or mean of latencies")
          for title, cell in [("statistic", "p99"), ("percentile", "95th"), ("metric", "energy")]),
    ],
)  # fmt: skip
def test_runs_of_something_else(tmp_path: Path, title: str, cell: str, reason: str) -> None:
    text = f'network,latency_ms,{title}\na,1,"{cell}"\nb,1,none\n'
    found = read(tmp_path, text, default=T4)
    assert [(row.where, row.reason) for row in found.refused] == [("t.csv, row 1", reason)]
    assert len(found.rows) == 1
    assert len(read(tmp_path, text, f"labels = ['{title}']", T4).rows) == 2


NANO, ANY_VERSION = replace(T4, device="orin-nano-7w"), replace(T4, runtime="tensorrt")
ON = f"a,1,{T4}"
MEASURED_ON = [
    ("device", "a,1,V100", T4, "v100/tensorrt-8.6/fp16"),
    ("engine", "a,1,TensorRT", T4, "t4/tensorrt-8.6/fp16"),
    ("engine", "a,1,TensorRT 8.6 INT8", T4, "t4/tensorrt-8.6/int8"),
    ("engine", "a,1,PyTorch 2.4 AMP", T4, "t4/torch-2.4/amp"),
    ("version", "a,1,8.6.1.6", T4, "t4/tensorrt-8.6/fp16"),
    # A version is of the engine that stands elsewhere, or the network's.
    ("version", "a,1,10.3.0", ANY_VERSION, "t4/tensorrt-10.3/fp16"),
    ("version", "a,1,10.3.0", T4, f"the version is not that of --target: 10.3.0, {T4}"),
    # A device that is more or less than the target's, or another.
    ("target,gpu", "a,1,a100-80gb/tensorrt/fp16,NVIDIA A100", T4, "a100-80gb/tensorrt/fp16"),
    ("target,gpu", f"{ON},Tesla T4 (g4dn)", T4, f"{T4}"),
    ("gpu", "a,1,Tesla T4 (Colab)", T4, f"{T4}"),
    ("target,gpu", "a,1,rtx-4090/tensorrt/fp16,RTX 4090 Laptop GPU", T4, "columns of the target"),
    ("target,gpu", "a,1,a100/tensorrt/fp16,A100 80GB", T4, "columns of the target contradict"),
    ("target,gpu", f"{ON},V100", T4, f"columns of the target contradict each other: {T4}, v100"),
    ("target,gpu", f"{ON},T4G", T4, f"columns of the target contradict each other: {T4}, t4g"),
    ("target,precision", f"{ON},fp32", T4, f"contradict each other: {T4}, fp32"),
    ("target,engine", f"{ON},TensorRT 10.3", T4, f"contradict each other: {T4}, tensorrt-10.3"),
    ("target,version", f"{ON},10.3", T4, f"contradict each other: {T4}, tensorrt-10.3"),
    # Of the rest of the row.
    ("engine,precision", "a,1,TensorRT INT8,fp16", T4, "contradicts itself: TensorRT INT8, fp16"),
    ("size,height,width", "a,1,32,8,8", T4, "the row contradicts itself: size (8, 8), 32"),
    ("height", "a,1,32", T4, "a height or a width alone: 32"),
    ("size,batch", "a,1,2x3x32x32,8", T4, "the row contradicts itself: batch 8, 2x3x32x32"),
    ("batch,fps", "a,1,8,1000", T4, "contradicts itself: 1 for a batch of 8, 1000 images a second"),
    *(("batch,fps", row, T4, "the row contradicts itself") for row in ("a,1,1,80", "a,9,8,90000")),
    # Dates, decimal commas, words that are no device, several of one, two engines.
    ("engine,version", "a,1,TensorRT,06/08/2024", T4, "what it was measured on cannot be read"),
    ("engine,version", 'a,1,TensorRT,"8,6"', T4, f"{T4}"),
    ("engine", "a,1,ONNX Runtime 1.16 CUDAExecutionProvider", T4, "t4/onnxruntime-1.16/fp16"),
    ("engine", "a,1,PyTorch 2.1 + TensorRT 8.6", T4, "t4/torch-tensorrt-2.1/fp16"),
    *(("engine", f"a,1,{cell}", T4, f"{T4}") for cell in ("trt_fp16", "trtexec 8.6")),
    *(
        ("engine", f"a,1,TensorRT 8.6 {how}", T4, "what it was measured on cannot be read")
        for how in (
            "(trtexec --best)",
            "(4 streams)",
            "bs=8",
            "CUDA graph",
            "/ 10.3",
            "to 10.3",
            "/10.x",
        )
    ),
    ("precision", "a,1,torch.float16", T4, f"{T4}"),
    *(
        ("device", f"a,1,{cell}", T4, "what it was measured on cannot be read")
        for cell in ("Orin DLA", "Xavier NX DLA0", "orin-dla-core-1")
    ),
    ("accelerator", "a,1,DLA0", T4, "what it was measured on cannot be read: DLA0"),
    ("engine", "a,1,TensorRT 8.6 + TensorFlow", T4, "t4/tensorflow-tensorrt-8.6/fp16"),
    ("engine", "a,1,TensorRT 8.6 (from PyTorch)", T4, f"{T4}"),
    *(
        ("gpu", f"a,1,{cell}", T4, "what it was measured on cannot be read")
        for cell in ("yes", "True", "T4 (4 GPUs)", "T4 or V100", "T4 & V100", "T4 / V100", "T4+L4")
    ),
    # A known device's name with more to it: a part of it, or one that was held back.
    *(
        ("gpu", f"a,1,{cell}", T4, f"known as a whole: {cell} is t4, a part of it or another")
        for cell in ("T4 (shared)", "half a T4", "T4 (throttled)", "T4-4Q", "T4/2", "T4 MIG off")
    ),
    ("target", "a,1,T4 50%/trt/fp16", T4, "known as a whole: T4 50% is t4, a part"),
    ("gpu", "a,1,GRID V100D-8Q", T4, "none that is known as a whole: GRID V100D-8Q"),
    ("gpu", "a,1,Orin Nano 12W", T4, "orin-nano-12w/tensorrt-8.6/fp16"),
    ("gpu", "a,1,RTX 7090", T4, "rtx-7090/tensorrt-8.6/fp16"),
    ("gpu", "a,1,RTX 5090D", T4, "rtx-5090-d/tensorrt-8.6/fp16"),
    ("gpu", "a,1,GTX 1080 Max-Q", T4, "gtx-1080-max-q/tensorrt-8.6/fp16"),
    *(
        ("gpu", f"a,1,{cell}", T4, f"{T4}")
        for cell in ("T4 (AWS g4dn.xlarge)", "Tesla T4 (driver 535.104)", "T4 g4dn.metal")
    ),
    # A power mode is a device.
    ("device,power_mode", "a,1,Orin Nano,7W", NANO, "orin-nano-7w/tensorrt-8.6/fp16"),
    ("device,Power Mode", "a,1,Orin Nano,15W", NANO, "orin-nano/tensorrt-8.6/fp16"),
    ("target,nvpmodel", "a,1,xavier-nx/trt/fp16,MODE_15W_6CORE", T4, "xavier-nx-15w/tensorrt/fp16"),
    ("device,power mode", "a,1,AGX Orin,MAXN", NANO, "orin-agx/tensorrt-8.6/fp16"),
    ("note,power_mode", "a,1,,10W", NANO, "orin-nano-10w/tensorrt-8.6/fp16"),
    ("device,power mode", "a,1,AGX Orin,0", NANO, "the power mode is not known: 0"),
    # A part of a note that is another batch, size or target; longer phrases are of anything.
    *(
        (columns, f"a,1,{values},{note}", T4, expected)
        for columns, values, expected, notes in (
            ("batch,note", "4", "contradict", "batch 8|FP32|at bs=1|on V100|run in PyTorch 2.1"),
            ("batch,note", "4", f"{T4}", "batch size 4. FP16|faster than FP32|V100 halves it|70W"),
            ("device,note", "Orin Nano", "contradict", "7W|MAXN mode|A100"),
            ("device,note", "Orin Nano", "orin-nano/tensorrt-8.6/fp16", "15 W mode|Orin|torch 2.1"),
            ("size,note", "32", "contradict", "at 64x64|TensorRT 10.3|BF16"),
            # behind a word such as "at" in a phrase that speaks of nothing else
            ("batch,note", "4", "contradict", "we had batch 8 by mistake|on the V100 of Bob"),
            ("batch,note", "4", "contradict", "engine was built for FP32 as it is|in batches of 8"),
            (
                "batch,note",
                "4",
                f"{T4}",
                "run at batch 4 as ever|not in INT8|with FP32 accumulation",
            ),
            (
                "size,note",
                "32",
                "contradict",
                "the input was 64x64 here|tried with TensorRT 10.3 once",
            ),
            ("size,note", "32", "contradict", "FP16 + INT8 mix|INT8 PTQ|auf der A100|bs 2"),
            ("size,note", "32", "contradict", "input 512|16 imgs/batch|in INT8 with FP32 fallback"),
            ("size,note", "32", f"{T4}", "was 1.4 ms with TensorRT 8.4|ONNX made with PyTorch 2.1"),
            ("size,note", "32", f"{T4}", "with 3x3 kernels|same as on V100|trained at 64x64 once"),
            ("size,note", "32", f"{T4}", "32x32 input|TensorRT 8.6.1|converted from INT8|opset 16"),
        )
        for note in notes.split("|")
    ),
    # A chip that several boards have.
    *(
        (column, f"a,1,{chip}{rest}", replace(T4, device=word), expected)
        for column, rest in (("device", ""), ("target", "/TensorRT 8.6/FP16"))
        for chip, word, expected in (
            ("Orin", "orin-nano", "orin-nano/tensorrt-8.6/fp16"),
            ("NVIDIA Tegra X1", "jetson-tx1", "jetson-tx1/tensorrt-8.6/fp16"),
            ("Orin", "t4", "several boards have this chip: Orin is orin-agx or orin-agx-32gb or"),
            ("Xavier", "t4", "several boards have this chip: Xavier is xavier-agx or xavier-nx"),
            ("Jetson Orin", "orin-nano-7w", "orin-nano-7w/tensorrt-8.6/fp16"),
            ("Thor", "t4", "thor-agx/tensorrt-8.6/fp16"),
            ("AGX Orin", "orin-nano", "orin-agx/tensorrt-8.6/fp16"),
            ("Jetson TX2", "t4", "tx2/tensorrt-8.6/fp16"),
        )
    ),
]


@pytest.mark.parametrize(("columns", "row", "default", "expected"), MEASURED_ON)
def test_what_a_row_was_measured_on(
    tmp_path: Path, columns: str, row: str, default: Target, expected: str
) -> None:
    found = read(tmp_path, f"network,latency_ms,{columns}\n{row}\n", default=default)
    (outcome,) = [*(str(row.target) for row in found.rows), *map(words_of, found.refused)]
    is_target = " " not in expected and expected.count("/") > 1  # a refusal may name it too
    assert outcome == expected if is_target else found.refused and expected in outcome, outcome


@pytest.mark.parametrize(
    ("latencies", "fall", "left_out"),
    [
        ("a,1,1.5 a,2,0.9 a,8,0.3", "a: 1.5 ms at 1, 0.9 ms at 2", ""),
        ("a,8,0.3 a,1,1.5 b,8,2", "a: 1.5 ms at 1, 0.3 ms at 8", ""),
        ("a,,1.5 a,8,0.3", "a: 1.5 ms at 1, 0.3 ms at 8", ""),
        ("a,1,1.5 a,8,0.3 b,1,1 b,8,5 c,1,1 c,8,0.2", "a: 1.5 ms at 1, 0.3 ms at 8", ""),
        ("a,1,1.5 a,2,1.4 a,8,9", "", ""),
        ("a,1,1.5 a,1,0.9 b,8,0.3", "", ""),
        # one that is odd, or a network of a table whose others rise
        ("a,1,1.5 a,2,2 a,4,0.3 a,8,7", "", "3"),
        ("a,1,15 a,2,2 a,4,3 a,4,3.1 b,1,1", "", "1"),
        ("a,1,1.5 a,2,0.9 a,8,5", "", "12"),
        ("a,1,1.5 a,8,0.3 b,1,1 b,8,5", "", "12"),
    ],
)
def test_latencies_of_one_image_beside_a_batch(
    tmp_path: Path, latencies: str, fall: str, left_out: str
) -> None:
    text = "\n".join(["network,batch,latency_ms", *latencies.split()])
    if not fall:
        found = read(tmp_path, text, default=T4)
        assert [refusal.where[-1] for refusal in found.refused] == [*left_out]
        assert len(found.rows) == len(latencies.split()) - len(left_out)
        return
    with pytest.raises(StoreError, match=rf"falls as the batch grows, .* \({fall}\): write that"):
        read(tmp_path, text, default=T4)


@pytest.mark.parametrize(
    ("comment", "is_other"),
    [
        *((f"# {text}", True)
          for text in ("INT8", "measured on V100", "Results on V100, FP16", "GPU: V100",
                       "precision = INT8", "TensorRT 10.3", "batch_size = 8", "2 streams",
                       "all networks in INT8", "int8 engine",
                       "trtexec --int8 --verbose", "Gerät: V100", "V100 / FP16",
                       "FP16 - batch 8", "target: l4/tensorrt/fp16")),
        *((f"# {text}", False)
          for text in ("FP16", "T4, TensorRT 8.6", "INT8 is slower", "by hand; in 2024",
                       "1000 iterations", "device: T4", "without NMS",
                       "baseline: V100", "latency in ms", "files/int8/a.onnx")),
    ],
)  # fmt: skip
def test_comments_that_state_another_run_than_a_row(
    tmp_path: Path, comment: str, is_other: bool
) -> None:
    text = "{}\nnetwork,latency_ms\n{}\na,1\n{}\nb,2\n{}\n"
    for place, outcomes in enumerate(("", "b", "a", "")):
        places = ["# a comment"] * 4
        places[place] = f"# more\n{comment}"
        found = read(tmp_path, text.format(*places), default=T4)
        assert "".join(row.names[0] for row in found.rows) == (outcomes if is_other else "ab")


def test_a_size_that_a_note_states_is_that_of_its_row(tmp_path: Path) -> None:
    for note, size in (
        ("at 64x32", (64, 32)),
        ("input 64x32", (64, 32)),
        ("imgsz=320", (320, 320)),
    ):
        found = read(tmp_path, f"network,latency_ms,note\na,1,{note}\n", default=T4)
        assert only(found).size == size


@pytest.mark.parametrize("words", ["(", "on the ", "a, no b; ", "not 4 streams, "])
def test_a_note_of_any_length_is_read_at_once(tmp_path: Path, words: str) -> None:
    note = words * (120_000 // len(words))
    assert only(read(tmp_path, f'network,latency_ms,note\na,1,"{note}"\n', default=T4))


def test_a_clock_that_a_note_states_is_that_of_its_row(tmp_path: Path) -> None:
    for note, label in (
        ("900 MHz", {"clock": "900"}),
        ("clocks had been locked to 900 MHz", {"clock": "900"}),
        ("application clocks 900 MHz", {"clock": "900"}),
        ("power limit of 50 W", {"power_limit": "50"}),
    ):
        found = read(tmp_path, f"network,latency_ms,note\na,1,{note}\n", default=T4)
        assert only(found).labels == {**label, "note": note}


@pytest.mark.parametrize("time", ["time_ms", "time (s)"])
@pytest.mark.parametrize(
    "rows",
    [
        "{},iterations\na,1,100",
        "{},reps\na,1,100",
        "{},count\na,1,100",
        "{},n_runs\na,1,1000",
        "{},note\na,1,100 loops",
        "{}\n# 100 runs\na,1",
    ],
)
def test_a_time_of_all_iterations(tmp_path: Path, time: str, rows: str) -> None:
    (refusal,) = read(tmp_path, "network," + rows.format(time), default=T4).refused
    assert refusal.reason.startswith("the time may be of all iterations: name it latency_ms")
    only(read(tmp_path, "network," + rows.format(f"latency {time[5:]}"), default=T4))
    only(read(tmp_path, "network," + re.sub("100+", "1", rows.format(time)), default=T4))


def test_files_that_are_not_read_are_named_or_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be read: No such file"):
        read_networks([tmp_path / "nowhere.csv"], ColumnMap())
    with pytest.raises(StoreError, match=r"holds no tables: nothing in it ends in .csv"):
        read_networks([tmp_path], ColumnMap())
    (tmp_path / "t.csv").write_bytes(b"network,latency_ms\n\xff\xfe\n")
    with pytest.raises(StoreError, match="is not text in UTF-8"):
        read_networks([tmp_path], ColumnMap())
    (tmp_path / "u.csv").write_text("network,target,latency_ms\na,t4/tensorrt-8.6/fp16,1\n")
    found = read_networks([tmp_path], ColumnMap())  # one bad file stops no other
    assert len(found.rows) == 1 and "is not text in UTF-8" in found.refused[0].value
    assert found.refused[0].where == "t.csv"
    with pytest.raises(InputError, match="cannot be read"):
        read_column_map(tmp_path / "nowhere.toml")
    for name in ("u.xlsx", "v.csv.gz", "run.txt", "net.onnx", ".hidden"):
        (tmp_path / name).write_text("x")
    (tmp_path / "t.csv").write_text(f"network,target,latency_ms\na,{T4},1\n")
    notes = read_networks([tmp_path], ColumnMap()).notes
    assert notes == ["not read are run.txt, u.xlsx, v.csv.gz: tables end in .csv, .tsv, .parquet"]
    assert not read_networks([tmp_path / "t.csv"], ColumnMap()).notes


@pytest.mark.parametrize(
    ("rows", "kept"),
    [
        ("a,V100,8,1 b,,8,2 c,,8,3 d,V100,8,4", "ad"),
        ("a,V100,8,1 b,V100,,2", "a"),
        ("a,T4,1,OOM b,V100,1,OOM c,,1,2", ""),  # what is above it was left out
        ("a,TeslaT4,1,1 b,,1,2 c,V100,1,3 d,,1,4", "abc"),  # both readings are one
        ("a,,,1 b,V100,8,2", "ab"),
    ],
)
def test_an_empty_cell_below_a_filled_one_has_two_readings(
    tmp_path: Path, rows: str, kept: str
) -> None:
    text = "\n".join(["network,device,batch,latency_ms", *rows.split()])
    found = read(tmp_path, text, default=T4)
    assert "".join(row.names[0] for row in found.rows) == kept
    reasons = {refusal.reason for refusal in found.refused} - {"the row says that its run failed"}
    assert reasons <= {"a cell is empty below a filled one", "the latency is not a positive number"}
    values = [refusal.value for refusal in found.refused if "empty" in refusal.reason]
    assert values == ["V100"] * len(values) or values == ["8"]
