"""Logs of trtexec of several versions, in short."""

import json
from pathlib import Path

import pytest

from hybridlat.schema.measurement import facts_of_note
from hybridlat.schema.target import Target
from hybridlat.store.importers.table import Refusal
from hybridlat.store.importers.trtexec_log import TrtexecLog, read_log, read_logs, row_of

LOG_8 = """\
&&&& RUNNING TensorRT.trtexec [TensorRT v8601] # trtexec --onnx=/nets/net_a.onnx --fp16 \
--shapes=input:8x3x32x48 --exportTimes=out/times.json
[05/01/2023-10:00:00] [I] === Model Options ===
[05/01/2023-10:00:00] [I] Precision: FP32+FP16
[05/01/2023-10:00:01] [I] Selected Device: Tesla T4
[05/01/2023-10:00:01] [I] TensorRT version: 8.6.1
[05/01/2023-10:00:09] [I] Created input binding for input with dimensions 8x3x32x48
[05/01/2023-10:00:12] [I] Latency: min = 1.1 ms, max = 2 ms, mean = 1.4 ms, median = 1.35 ms
[05/01/2023-10:00:12] [I] GPU Compute Time: min = 1.0 ms, max = 1.9 ms, mean = 1.3 ms, \
median = 1.23 ms, percentile(99%) = 1.8 ms
[05/01/2023-10:00:12] [I] GPU Compute Time: the GPU latency to execute the kernels for a query.
"""
LOG_7 = """\
&&&& RUNNING TensorRT.trtexec # ./trtexec --loadEngine=net_b.engine --int8 --batch=4
[I] Selected Device: Xavier
[I] Host Latency
[I] median: 9.5 ms (end to end 9.6 ms)
[I] Enqueue Time
[I] median: 0.1 ms
[I] GPU Compute
[I] min: 7.0 ms
[I] max: 8.5 ms
[I] mean: 7.9 ms
[I] median: 7.8 ms
"""


def test_a_log_of_8() -> None:
    log = read_log(LOG_8)
    row = row_of(Path("run1.log"), log, None)
    assert (row.names, str(row.target)) == (("net_a", "run1"), "t4/tensorrt-8.6/fp16")
    assert row.latency_us == pytest.approx(1230)
    assert (row.batch, row.size) == (8, (32, 48))
    assert (log.times, row.protocol, row.labels) == ("times.json", "trtexec log", {})


def test_a_run_by_a_graph_is_recorded_as_one() -> None:
    log = read_log(LOG_8.replace("--fp16", "--fp16 --useCudaGraph"))
    row = row_of(Path("run1.log"), log, None)
    assert facts_of_note(row.labels["note"])["launch"] == "graph"


def test_a_log_of_7_and_a_target_for_what_it_does_not_state() -> None:
    log = read_log(LOG_7)
    row = row_of(Path("run.log"), log, Target("x", "tensorrt-7.1", "fp32"))
    assert (row.names, str(row.target)) == (("net_b", "run"), "xavier-agx/tensorrt-7.1/int8")
    assert row.latency_us == pytest.approx(7800)
    assert (row.batch, row.size) == (4, None)


@pytest.mark.parametrize(
    ("tag", "version"), [("8601", "8.6"), ("7103", "7.1"), ("100300", "10.3"), ("101100", "10.11")]
)
def test_versions_in_the_first_line(tag: str, version: str) -> None:
    text = LOG_8.replace("v8601", f"v{tag}").replace("TensorRT version", "Nothing")
    assert read_log(text).fields["version"] == version


def test_a_loaded_engine_does_not_tell_its_precision() -> None:
    text = LOG_8.replace("--onnx=/nets/net_a.onnx --fp16", "--loadEngine=net_a.plan")
    with pytest.raises(Refusal, match="is not stated") as refused:
        row_of(Path("run.log"), read_log(text), None)
    assert refused.value.value == "precision missing"
    row = row_of(Path("run.log"), read_log(text), Target("x", "tensorrt", "bf16"))
    assert str(row.target) == "t4/tensorrt-8.6/bf16"


@pytest.mark.parametrize("text", ["", "some other log\n", LOG_8.replace("median", "middle")])
def test_a_log_without_a_median_is_refused(text: str) -> None:
    with pytest.raises(Refusal, match="no median of GPU Compute Time"):
        row_of(Path("run.log"), read_log(text), Target("x", "tensorrt", "fp16"))


def test_exported_times_alone() -> None:
    times, t4 = (10.0, 12.0, 11.0), Target("t4", "tensorrt-8.6", "fp16")
    alone = row_of(Path("net_c.json"), TrtexecLog(), t4, times)
    assert (alone.names, alone.latency_us, alone.batch) == (("net_c",), 11.0, None)
    assert alone.samples_us == times
    assert 0 < alone.spread_share < 0.1
    with pytest.raises(Refusal, match="is not stated"):
        row_of(Path("net_c.json"), TrtexecLog(), None, times)


def test_a_folder_of_logs_and_times(tmp_path: Path) -> None:
    (tmp_path / "one.log").write_text(LOG_8.replace("--exportTimes=out/times.json", ""))
    (tmp_path / "two.log").write_text(LOG_8)
    (tmp_path / "times.json").write_text(json.dumps([{"computeMs": t} for t in (1.0, 2.0, 4.0)]))
    for name, text in (("other", "[]"), ("cut", "["), ("words", '["x", {"computeMs": "x"}]')):
        (tmp_path / f"{name}.json").write_text(text)
    (tmp_path / "other.txt").write_text("nothing\n")
    read = read_logs([tmp_path])
    assert [(r.where, r.latency_us) for r in read.rows] == [("one.log", 1230), ("times.json", 2000)]
    one, times = read.rows
    assert (one.names, one.samples_us) == (("net_a", "one"), ())
    assert (times.names, times.batch, times.target) == (("net_a", "times"), 8, one.target)
    refused = {r.where: r.reason for r in read.refused}
    assert refused.pop("other.txt") == "the log states no median of GPU Compute Time"
    assert refused.keys() == {"other.json", "cut.json", "words.json"}
    assert set(refused.values()) == {"the file holds no times of trtexec"}
