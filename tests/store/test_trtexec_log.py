"""Logs of trtexec of several versions, in short."""

import json
import re
from pathlib import Path, PurePath
from typing import Any

import pytest

from hybridlat.schema.measurement import facts_of_note
from hybridlat.schema.target import Target
from hybridlat.store.importers.table import Refusal
from hybridlat.store.importers.trtexec_log import read_log, read_logs, read_runs, row_of
from hybridlat.store.importers.trtexec_run import TrtexecLog

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
    assert (row.names, str(row.target)) == (("/nets/net_a",), "t4/tensorrt-8.6/fp16")
    assert row.latency_us == pytest.approx(1230)
    assert (row.batch, row.shapes) == (None, {"input": (8, 3, 32, 48)})
    assert (log.times, row.protocol, row.labels) == ("times.json", "trtexec log", {})
    replayed = read_log(LOG_8.replace("--fp16", "--fp16 --useCudaGraph"))
    note = row_of(Path("run1.log"), replayed, None).labels["note"]
    assert facts_of_note(note)["launch"] == "graph"
    bounded = options("--fp16", "--memPoolSize=workspace:64", "--maxAuxStreams=0", "--verbose")
    assert bounded.labels == {"options": "--maxAuxStreams=0 --memPoolSize=workspace:64"}
    text = LOG_8.replace("TensorRT.trtexec [TensorRT v8601] # trtexec", "# tensorrt_rtx")
    rtx = read_log(text.replace("8.6.1", "1.2.0"))  # an engine of its own
    assert rtx.is_typed and str(row_of(Path("a"), rtx, None).target) == "t4/tensorrt-rtx-1.2/fp32"
    unversioned = read_log(text.replace("TensorRT version", "Nothing"))
    row = row_of(Path("a"), unversioned, Target("t4", "tensorrt-8.6", "fp32"))
    assert str(row.target) == "t4/tensorrt-rtx/fp32"  # another engine than that of --target


def test_a_log_of_7_and_a_target_for_what_it_does_not_state() -> None:
    row = row_of(Path("run.log"), read_log(LOG_7), Target("x", "tensorrt-7.1", "fp32"))
    assert (row.names, str(row.target)) == (("net_b", "run"), "xavier-agx/tensorrt-7.1/int8")
    assert row.latency_us == pytest.approx(7800)
    assert (row.batch, row.shapes) == (4, {})
    text = LOG_8.replace("--onnx=/nets/net_a.onnx --fp16", "--loadEngine=net_a.plan")
    with pytest.raises(Refusal, match="is not stated") as refused:
        row_of(Path("run.log"), read_log(text), None)
    assert refused.value.value == "precision missing"
    row = row_of(Path("run.log"), read_log(text), Target("x", "tensorrt", "bf16"))
    assert str(row.target) == "t4/tensorrt-8.6/bf16"


@pytest.mark.parametrize(
    ("tag", "version"), [("8601", "8.6"), ("7103", "7.1"), ("100300", "10.3"), ("101100", "10.11")]
)
def test_versions_in_the_first_line(tag: str, version: str) -> None:
    text = LOG_8.replace("v8601", f"v{tag}").replace("TensorRT version", "Nothing")
    assert read_log(text).fields["version"] == version
    text = CUT.replace("version: 8.6.1", f"version: {tag}")  # as 8.0 prints it
    assert read_log(text).fields["version"] == version


def test_a_folder_of_logs_and_times(tmp_path: Path) -> None:
    (tmp_path / "one.log").write_text(LOG_8.replace("--exportTimes=out/times.json", ""))
    warning = "[W] * GPU compute time is unstable, with coefficient of variance = 7.2%.\n"
    (tmp_path / "two.log").write_text(LOG_8 + warning)
    (tmp_path / "times.json").write_text(json.dumps([{"computeMs": t} for t in (1.0, 1.3, 4.0)]))
    (tmp_path / "other.txt").write_text("nothing\n")
    compute = [2, 2.4, 2.2, 2.1, 2.3]
    (tmp_path / "net_c.json").write_text(json.dumps([{"compute": t} for t in compute]))
    read = read_logs([tmp_path], Target("t4", "tensorrt-8.6", "fp16"))
    rows = [(row.where, row.latency_us) for row in read.rows]
    assert rows == [("one.log, line 1", 1230), ("times.json", 1300), ("net_c.json", 2200)]
    one, times, alone = read.rows
    assert (one.names, one.samples_us) == (("/nets/net_a",), ())
    assert (times.names, times.target) == (("/nets/net_a",), one.target)
    assert (alone.names, alone.batch) == (("net_c",), None) and 0 < alone.spread_share < 0.1
    assert alone.samples_us == tuple(1e3 * t for t in compute)
    assert [row.facts for row in read.rows] == [{}, {"suspect": True}, {}]
    suspect, unsized = read.notes
    assert suspect.startswith("times.json: trtexec calls the time unstable, or timed hardly any")
    assert unsized.startswith("net_c.json: no sizes are stated: they are those of the file")
    refused = {r.where: r.reason for r in read.refused}
    assert refused == {"other.txt": "the log states no median of GPU Compute Time"}
    (refusal,) = read_logs([tmp_path / "net_c.json"]).refused
    assert "is not stated" in refusal.reason


def options(*words: str, version: str = "8.6.1") -> TrtexecLog:
    text = LOG_8.replace("--fp16 ", " ".join((*words, ""))).replace("8.6.1", version)
    return read_log(text.replace("Precision: FP32+FP16", "Precision: FP32"))


OTHERS = """--useDLACore=0 --streams=4 --sparsity=force --best --layerPrecisions=*:fp16
--inputIOFormats=fp16:chw --outputIOFormats=fp32:hwc8 --refit --builderOptimizationLevel=0
--warmUp=-1 --hardwareCompatibilityLevel=ampere+
--allowWeightStreaming --dumpProfile --idleTime=5 --warmUp=0
--cudaGraphStrategy=wholeGraph --newInVersion12=3 --optShapes=input:1x3x32x48 --infStreams=8
--directIO --heuristic"""
NOTHING = """--useDLACore=-1 --allowGPUFallback --streams=1 --warmUp=500 --sparsity=disable
--builderOptimizationLevel=3 --inputIOFormats=fp32:chw,int32:chw --optShapes=input:8x3x32x48
--hardwareCompatibilityLevel=none --idleTime=0 --profilingVerbosity=detailed"""


@pytest.mark.parametrize("option", OTHERS.split())
def test_an_option_that_changes_what_is_timed_leaves_the_run_out(option: str) -> None:
    log = options("--fp16", option)
    assert log.objection is not None
    assert log.objection.value == option.partition("--optShapes=")[2].replace("1x", "8x") or option
    assert log.median_us == 1230  # what explains a log does not mind


@pytest.mark.parametrize("option", [*NOTHING.split(), "--dumpProfile --separateProfileRun"])
def test_an_option_that_changes_nothing_changes_nothing(option: str) -> None:
    assert options("--fp16", option) == options("--fp16")


PROFILED = """Generating '/tmp/nsys-report-1.qdstrm'
==PROF== Disconnected from process 7
==7== NVPROF is profiling process 7, command: trtexec
Using an engine plan file across different models of devices is not recommended
trtexec_safe --loadEngine=a.plan
[DlaLayer] {ForeignNode[conv1...relu1]}
soctherm: OC ALARM 0x00000001
========= ERROR SUMMARY: 0 errors"""


@pytest.mark.parametrize("line", PROFILED.splitlines())
def test_a_run_that_its_log_calls_no_plain_one_is_left_out(line: str) -> None:
    objection = read_log(f"{LOG_8}{line}\n").objection
    assert objection is not None and objection.value == line


@pytest.mark.parametrize(
    ("words", "version", "precision", "note"),
    [
        *(("", "8.6.1", "fp32", None), ("--noTF32", "8.6.1", "fp32-strict", None)),
        *(("--bf16", "10.3.0", "bf16", None), ("--int8 --fp16", "8.6.1", "int8", None)),
        *(("--fp16 --noTF32", "8.6.1", "fp16", None), ("--fp16 --bf16", "8.6.1", None, None)),
        *(("--stronglyTyped", "10.3.0", "fp32", None), ("", "11.0.0", "fp32", "CUDA graph")),
        ("--noTF32", "11.2.1", "fp32-strict", "CUDA graph"),
        ("--loadEngine=x.plan --fp8", "8.6.1", None, None),
        ("--useCudaGraph", "8.6.1", "fp32", "CUDA graph"),
        ("--noCudaGraph", "11.0.0", "fp32", None),
    ],
)
def test_the_precision_and_the_launch(
    words: str, version: str, precision: str | None, note: str | None
) -> None:
    log = options(words, version=version)
    assert log.fields.get("precision") == precision
    assert (log.objection is None) == (precision is not None)
    assert log.is_typed == (words == "--stronglyTyped" or version.startswith("11"))
    assert log.labels.get("note") == note
    ignored = "The inference will be launched without using CUDA graph launch.\n"
    assert read_log(LOG_8.replace("--fp16", "--useCudaGraph") + ignored).labels == {}


BOUND = "Input binding for {} with dimensions {} is created."
LEFT = "Dynamic dimensions required for input: x, but no shapes were provided. Automatically "


@pytest.mark.parametrize(
    ("command", "lines", "batch", "shapes"),
    [
        ("--onnx=a.onnx --batch=8", "", None, {}),
        ("--loadEngine=a.plan --batch=8", "[I] Batch: Explicit", None, {}),
        ("--deploy=a --batch=8", f"[I] {BOUND.format('x', '3x4x5')}", 8, {"x": (8, 3, 4, 5)}),
        ("--onnx=a '--shapes=in:0:8x9x3,b:1x10'", "", None, {"in:0": (8, 9, 3), "b": (1, 10)}),
        ("--onnx=a.onnx", BOUND.format("my v", "8x3"), None, {"my v": (8, 3)}),
        ("--onnx=a.onnx", BOUND.format("v", "1x3x8x9x9"), None, {"v": (1, 3, 8, 9, 9)}),
        ("--onnx=a.onnx", f"[W] {LEFT}overriding shape to: 1x3x64", None, {"x": (1, 3, 64)}),
    ],
)
def test_batch_and_shapes(
    command: str, lines: str, batch: int | None, shapes: dict[str, tuple[int, ...]]
) -> None:
    log = read_log(f"&&&& RUNNING TensorRT.trtexec # trtexec {command}\n{lines}\n")
    assert (log.batch, log.shapes) == (batch, shapes)


PRINTED = """Layer Precisions: *:fp16
Layer Device Types: a:DLA
Build DLA standalone mode: Enabled
Input(s)s format: fp16:chw
Output(s)s format: int8:CHW32
Input(s): fp16:chw
Profile: Enabled
Export profile to JSON file: p.json
Idle time: 5ms
Duration: 3s (+ 0ms warm up)
BuilderOptimizationLevel: 0
Heuristic: Enabled
Persistent Cache Ratio: 0.5
DLACore: 0(With GPU fallback)
Inference Streams: 4
Strip weights: Enabled
Precision: FP32+FP16 (obey precision constraints)
Optimization Profile Index: 1
Input build shape (profile 0): input=1x3x32x48+4x3x32x48+8x3x32x48"""
CUT = LOG_8.partition("\n")[2]
USUAL = """Model: /nets/net_a.onnx
Max batch: explicit batch
Input(s)s format: fp32:CHW
Load engine:
BuilderOptimizationLevel: -1
DLACore:
Idle time: 0ms
Layer Device Types:
Sparsity: Disabled
TensorRT runtime: full
Runtime Platform: Same As Build
Duration: 3s (+ 200ms warm up)
Persistent Cache Ratio: 0
Batch: Explicit
Input inference shape: input=8x3x32x48"""


def cut(*lines: str) -> TrtexecLog:
    """A log whose command is cut off, with these lines."""
    return read_log(CUT + "".join(f"[05/01/2023-10:00:00] [I] {line}\n" for line in lines))


@pytest.mark.parametrize("line", PRINTED.splitlines())
def test_what_a_log_without_its_command_prints(line: str) -> None:
    plain = cut(*USUAL.splitlines())
    assert (plain.objection, plain.names) == (None, ("/nets/net_a",))
    assert cut(*USUAL.splitlines(), line).objection is not None
    assert cut("CUDA Graph: Enabled").labels == {"note": "CUDA graph"}


def test_what_a_cut_log_prints_is_as_its_command() -> None:
    typed = read_log(CUT.replace("FP32+FP16", "Strongly Typed") + "[I] Model: a.onnx\n")
    assert (typed.is_typed, typed.fields["precision"]) == (True, "fp32")
    mixed = read_log(CUT.replace("FP32+FP16", "FP32+FP8")).objection
    assert str(mixed) == "no target has this precision or this mix"
    assert "precision" not in cut("Load engine: a.plan", "Max batch: 1", "Batch: 1").fields
    assert cut("Load engine: a.plan", "Max batch: 1", "Batch: 1").batch is None
    assert cut("Max batch: 8", "Batch: 8").batch == 8
    pasted = read_log(
        LOG_8.replace("--fp16", "\u2014streams=4").replace("--shapes=", "\u2013shapes=\u201c")
    )
    assert str(pasted.objection) == "several inferences run at once"
    assert pasted.shapes == {"input": (8, 3, 32, 48)}
    assert cut("Separate profiling: Enabled", "Profile: Enabled").objection is None


def test_lines_of_another_run_leave_a_run_out() -> None:
    first, *rest = LOG_8.splitlines(keepends=True)
    ended = "".join((first.replace("net_a", "net_b"), *rest, first.replace("RUNNING", "PASSED")))
    others = "Selected Device: Tesla T40", "TensorRT version: 8.5.3", "Model: /nets/net_b.onnx"
    for text in (ended, *(f"{LOG_8}[I] {line}\n" for line in others)):
        objection = read_log(text).objection
        assert objection is not None and objection.reason.startswith("lines of another run")
    whole = LOG_8 + first.replace("RUNNING", "PASSED").partition(" --fp16")[0]  # wrapped
    assert read_log(whole).objection is None


def test_the_logs_own_name_is_that_of_a_network_only_where_the_run_names_none() -> None:
    engine = LOG_7 + LOG_7.replace("net_b", "net_c.onnx")
    assert [run.names for run in read_runs("&&&& RUNNING" + LOG_7[12:])] == [("net_b", "")]
    assert [run.names for run in read_runs(engine)] == [("net_b",), ("net_c",)]
    caffe = LOG_7.replace("--loadEngine=net_b.engine", "--deploy=a.prototxt")
    assert [run.objection is None for run in read_runs(caffe + LOG_7)] == [False, True]


def build(words: str, engine: str = "out/x.plan") -> str:
    command = f"{words} --saveEngine={engine} --skipInference"
    text = LOG_8.replace("--fp16 --shapes=input:8x3x32x48 --exportTimes=out/times.json", command)
    return re.sub(".*(Precision|median|binding).*\n", "", text)


LOADED = LOG_8.replace("--onnx=/nets/net_a.onnx --fp16", "--loadEngine=x.plan")
USED = LOADED.replace("Precision: FP32+FP16", "Precision: FP32")
DYNAMIC = "--fp16 --minShapes=input:1x3x32x48 --optShapes=input:8x3x32x48"


BUILT = {
    "--fp16": "t4/tensorrt-8.6/fp16",
    "--int8 --fp16": "t4/tensorrt-8.6/int8",
    "": "t4/tensorrt-8.6/fp32",
    "--fp16 --minShapes=input:1x3x32x48 --optShapes=input:8x3x32x48": "t4/tensorrt-8.6/fp16",
    "--fp16 --useDLACore=0": "part of the network runs on a DLA",
    "--fp16 --sparsity=force": "the weights are sparse",
    "--fp16 --best": "no target has this precision or this mix",
    "--fp16 --bf16": "no target has this precision or this mix",
    "--fp16 --shapes=input:1x3x32x48": "the engine is built for other sizes",
}


@pytest.mark.parametrize(("words", "outcome"), BUILT.items())
@pytest.mark.parametrize("is_apart", [False, True])
def test_a_run_of_an_engine_is_as_the_engine_was_built(
    tmp_path: Path, words: str, outcome: str, is_apart: bool
) -> None:
    (tmp_path / "z.log").write_text(build(words) + USED * (not is_apart))
    if is_apart:
        (tmp_path / "a.log").write_text(USED)
    read = read_logs([tmp_path])
    assert [str(row.target) for row in read.rows] + [r.reason for r in read.refused] == [outcome]
    assert all(row.names[0] == "/nets/net_a" for row in read.rows)


def test_the_command_is_that_of_the_run_and_not_of_a_line_above() -> None:
    above = "./trtexec --onnx=a.onnx --fp16 --optShapes=input:8x3x32x48 --saveEngine=a.plan\n"
    text = above + re.sub(".*RUNNING.*\n", "", LOG_8)
    log = read_log(f"{text}&&&& PASSED TensorRT.trtexec [TensorRT v8401] # trtexec --loadEngine=b")
    assert log.options["loadEngine"] == "b" and "fp16" not in log.options
    assert read_log(text).options["saveEngine"] == "a.plan"  # as the log is cut off


@pytest.mark.parametrize(("opt", "outcome"), [("1", 1230), ("8", "built for other sizes")])
def test_an_engine_runs_at_one_where_no_sizes_are_stated(
    tmp_path: Path, opt: str, outcome: object
) -> None:
    cut = re.sub(".*binding.*\n", "", USED.replace(" --shapes=input:8x3x32x48", ""))
    words = DYNAMIC.replace("input:8x", f"input:{opt}x") + " --maxShapes=input:8x3x32x48"
    (tmp_path / "a.log").write_text(build(words) + cut)
    read = read_logs([tmp_path])
    reasons = [refusal.reason.removeprefix("the engine is ") for refusal in read.refused]
    assert [*(row.latency_us for row in read.rows), *reasons] == [outcome]
    assert all(row.batch is None and not row.shapes for row in read.rows)  # the file's own: 1


def test_a_failed_build_saves_no_engine(tmp_path: Path) -> None:
    failed = build("--int8") + "&&&& FAILED TensorRT.trtexec\n"
    for above, outcomes in ((build("--fp16"), ["fp16"]), ("", [])):
        (tmp_path / "a.log").write_text(above + failed + USED)
        read = read_logs([tmp_path])
        assert [row.target.precision for row in read.rows] == outcomes
        assert any("the run failed" in refusal.reason for refusal in read.refused)


def test_an_engine_of_any_name_is_that_of_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(build("--int8", "model.plan") + build("--fp16", "y.plan"))
    (tmp_path / "b.log").write_text(USED.replace("x.plan", "model.plan"))
    (tmp_path / "c.log").write_text(USED.replace("x.plan", "y.plan").replace("T4", "V100"))
    again = build("--fp16", "model.plan").replace("net_a", "net_b")
    (tmp_path / "d.log").write_text(again + USED.replace("x.plan", "model.plan"))
    read = read_logs([tmp_path])
    assert [(row.where, row.names[0]) for row in read.rows] == [("d.log, line 6", "/nets/net_b")]
    refused = [f"{refusal.where[:5]}: {refusal.reason}" for refusal in read.refused]
    assert refused[:2] == ["a.log: nothing is timed"] * 2
    assert refused[2:] == [f"{n}.log: the device, engine or precision is not stated" for n in "bc"]


@pytest.mark.parametrize(
    "name", ["'/my nets/net.onnx'", "C:\\my nets\\net.onnx", "/a b/net.onnx --fp16 > a.log 2>&1"]
)
def test_a_path_with_spaces(name: str) -> None:
    log = read_log(f"&&&& RUNNING TensorRT.trtexec # trtexec --onnx={name} --noTF32")
    assert [PurePath(name).name for name in log.names] == ["net"]


@pytest.mark.parametrize("coding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("end", ["\r\n", "\r\r\n", "\r"])
def test_texts_of_other_shells(tmp_path: Path, coding: str, end: str) -> None:
    text = LOG_8.replace("median = 1.23", "median 1,23").replace("[I]", "\x1b[32m[I]\x1b(B\x1b[m")
    text += "\x1b]0;title\x07[I] DLACore: \x1b[2J\x1b[?25l\n"
    (tmp_path / "a.log").write_bytes(text.replace("\n", end).encode(coding))
    (row,) = read_logs([tmp_path]).rows
    assert (row.latency_us, row.target.device) == (1230, "t4")


def test_a_log_within_quotes(tmp_path: Path) -> None:
    text = LOG_8.replace("--onnx=/nets/net_a.onnx", '"--onnx=/my nets/net_a.onnx"')
    text = text.replace("[I] Latency", "\x1b[32m[I]\x1b[0m Latency") + "[I] DLACore: \n"
    lines = text.splitlines()
    in_json = ",\n".join(f"    {json.dumps(line)}" for line in lines)
    for quoted in (
        "".join(f"{json.dumps({'log': f'{x}{chr(10)}', 'stream': 'stdout'})}\n" for x in lines),
        f'ok: [edge-04] => {{\n  "out.stdout_lines": [\n{in_json}\n  ]\n}}\n',
        f'"msg": {json.dumps(lines)}',
        "".join(f"{json.dumps({'level': 'info', 'msg': line})}\n" for line in lines),
        f"changed: [edge-04] => {json.dumps({'stdout': text, 'rc': 0})}\n",
        f"{text.encode()!r}\n",
        "stdout_lines:\n" + "".join(f"  - '{line}'\n" for line in lines),
    ):
        (tmp_path / "a.log").write_text(quoted)
        (row,) = read_logs([tmp_path]).rows
        assert (row.latency_us, row.names) == (1230, ("/my nets/net_a",))
        assert str(row.target) == "t4/tensorrt-8.6/fp16"


@pytest.mark.parametrize("name", ["a.log", "a.txt", "a.json"])
@pytest.mark.parametrize("indent", [None, 1])
def test_a_notebook_is_refused_as_one(tmp_path: Path, name: str, indent: int | None) -> None:
    output = {"output_type": "stream", "text": LOG_8.splitlines(keepends=True)}
    cell = {"cell_type": "code", "outputs": [output]}
    text = json.dumps({"cells": [cell], "nbformat": 4}, indent=indent)
    (tmp_path / name).write_text(text)
    (tmp_path / "net_b.log").write_text(LOG_8)
    read = read_logs([tmp_path])
    assert [row.where for row in read.rows] == ["net_b.log, line 1"]
    assert [(r.where, r.reason) for r in read.refused] == [(name, "the file is a notebook")]


LOCKED = """$ nvidia-smi -lgc 900
GPU clocks set to "(gpuClkMin 300, gpuClkMax 900)" for GPU 00000000:1E:00.0
# nvidia-smi -i 0 --lock-gpu-clocks=300,900
$ nvidia-smi --lock-gpu-clocks="tdp, tdp"
# nvidia-smi -ac 5001,900
$ nvidia-smi --applications-clocks="405, 1590"
$ nvidia-smi -lmc '405'
# echo 306000000 > /sys/class/devfreq/17000000.ga10b/max_freq
$ echo "306000000" | sudo tee /sys/devices/gpu.0/devfreq/17000000.ga10b/max_freq
Memory clocks set to "(memClkMin 405, memClkMax 405)" for GPU 00000000:1E:00.0
$ sudo nvpmodel -m 2"""


HINDERED = """export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50
export CUDA_LAUNCH_BLOCKING=1
export NVIDIA_TF32_OVERRIDE=0"""


HOT = """    Clocks Event Reasons
        Idle                              : Not Active
        SW Power Cap                      : Active
        HW Slowdown                       : Not Active
            HW Thermal Slowdown           : Active
            HW Power Brake Slowdown       : Not Active
"""


UNLOCKED = "$ nvidia-smi -rgc\n$ nvidia-smi -rmc\n$ nvpmodel -q\nNV Power Mode: 7W\n"


def test_several_runs_in_a_log_are_several_rows(tmp_path: Path) -> None:
    other = LOG_8.replace("net_a", "net_b").replace("1.23", "1.5").replace("times.json", "b.json")
    failed = LOG_8.replace("net_a", "net_c") + "&&&& FAILED TensorRT.trtexec\n"
    (tmp_path / "a.log").write_text("before\n" + LOG_8 + other + failed)
    read = read_logs([tmp_path])
    rows = [(row.where, row.names[0], row.latency_us) for row in read.rows]
    assert rows == [("a.log, line 2", "/nets/net_a", 1230), ("a.log, line 11", "/nets/net_b", 1500)]
    assert [refusal.where for refusal in read.refused] == ["a.log, line 20"]
    seven, most = "NV Power Mode: 7W\n", "nvpmodel -m 2\nNV Power Mode: MAXN\n"
    for words in ("# in 7 W mode", "jtop: NVP model MODE_7W", "7W power mode", "# modo 7W"):
        (run,) = read_runs(f"{words}\n{LOG_8}")
        assert run.power_mode in ("7W", "MODE_7W")
    modes = {f"{seven}{LOG_8}{most}{other}": ["7W", "MAXN"], f"{LOG_8}{other}{seven}": ["7W"] * 2}
    for text, of_runs in modes.items():
        assert [run.power_mode for run in read_runs(text)] == of_runs
    for word in LOCKED.splitlines():
        first, second = read_runs(f"{word}\n{LOG_8}{UNLOCKED}{other}")
        assert first.objection is not None and second.objection is None
        assert re.fullmatch(r"the (GPU|memory)'s clock was .*|.* has no name", str(first.objection))
    for word in HINDERED.splitlines():
        first, second = read_runs(f"{word}\n{LOG_8}unset {word[7:].partition('=')[0]}\n{other}")
        assert first.objection is not None and second.objection is None
        assert first.objection.value == word[7:]
    assert read_runs(f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100\n{LOG_8}")[0].objection is None
    first, second = read_runs(f"{HOT}{LOG_8}{HOT.replace(': Active', ': Not Active')}{other}")
    assert first.objection is not None and second.objection is None
    assert "HW Thermal Slowdown" in first.objection.value
    below = f"{LOG_8}&&&& PASSED TensorRT.trtexec\nModel: Orin Nano\nBatch: 16\nStreams: 4\n"
    first, second = read_runs(f"{below}NV Power Mode[1]: 7W\n{other}")  # of a script, or a tool
    assert (first.objection, second.objection, second.power_mode) == (None, None, "7W")
    rate = "[I] Compute Clock Rate: 0.9 GHz\n[I] Memory Clock Rate: 5 GHz\n"  # locks steady it
    for words in ("nvidia-smi -ac 5001,900", "jetson_clocks", "nvidia-smi -pl 70", "nvpmodel -m 0"):
        assert read_runs(f"{words}\n{LOG_8}{rate}")[0].objection is None
    denied = (
        "nvidia-smi -lgc 300\nThe current user does not have permission to change clocks for GPU\n"
    )
    assert read_runs(denied + LOG_8)[0].objection is None
    said = "Power limit for GPU 00000000:01:00.0 was set to 60.00 W from 70.00 W.\n"
    runs = read_runs(f"nvidia-smi -pl 90\n{said}{LOG_8}nvidia-smi --power-limit=70\n{other}")
    assert [run.labels["power_limit"] for run in runs] == ["60", "70"]
    refused = "nvidia-smi -pl 9\nProvided power limit 9.00 W is not a valid power limit\n"
    assert "power_limit" not in read_runs(refused + LOG_8)[0].labels
    for word in ("$ nsys profile -o a trtexec --onnx=a.onnx", "==PROF== Connected to process 7"):
        first, second = read_runs(f"{word}\n{LOG_8}{other}")
        assert first.objection is not None and second.objection is None
        first, second = read_runs(f"{LOG_8}{word}\n{other}")
        assert first.objection is None and second.objection is not None
    (tmp_path / "a.log").write_text(LOG_8 + LOG_8.replace("&&&&", "").replace("1.23", "1.5"))
    (refusal,) = read_logs([tmp_path]).refused
    assert refusal.reason == "the log holds several runs of one command"


def smi(*rows: tuple[str, str]) -> str:
    """The table of nvidia-smi for GPUs of these powers and uses."""
    lines = "|   {}  Tesla T4      Off  | 00000000:00:1E.0 Off |                  0 |\n"
    lines += "| 30%   34C    P0    {} |   6014MiB / 15360MiB |    {}      Default |\n"
    return "".join(lines.format(number, *row) for number, row in enumerate(rows))


def timed(name: str, begin: int, begun: int, end: int, words: str, machine: str = "") -> str:
    """A log of a run between these seconds of a minute."""
    text = LOG_8.replace("--fp16", f"--fp16 {words}").replace("net_a", name).replace("times", name)
    text = re.sub(r"-10:00:[0-9]{2}\]", f"-10:00:{end:02}]", text)
    text = text.replace(f":{end:02}] [I] === Model", f":{begin:02}] [I] === Model")
    text = text.replace("[05/01/2023-10:00:12] [I] Latency", "[I] Latency")
    started = f"[05/01/2023-10:00:{begun:02}] [I] Starting inference\n[I] Latency"
    return re.sub(r"\[\S+ \[I\] Latency", started, text) + f"[I]   UUID: {machine}\n"


@pytest.mark.parametrize(
    ("other", "kept"),
    [
        (("net_b", 10, 30, 40, ""), "b"),  # the first was timed while it was built
        (("net_b", 10, 25, 25, "", "GPU-a"), "b"),
        (("net_b", 0, 10, 20, ""), "a"),  # it was timed while the first was built
        (("net_b", 0, 10, 21, ""), ""),
        (("net_b", 0, 2, 5, ""), "ab"),
        (("net_b", 25, 30, 40, ""), "ab"),
        (("net_a", 5, 20, 25, ""), "ab"),  # a copy
        (("net_b", 10, 30, 40, "--device=1"), "ab"),
        (("net_b", 10, 30, 40, "", "GPU-b"), "ab"),
    ],
)
def test_runs_at_once_on_one_gpu(tmp_path: Path, other: tuple[Any, ...], kept: str) -> None:
    (tmp_path / "a.log").write_text(timed("net_a", 5, 20, 25, "", "GPU-a"))
    (tmp_path / "b.log").write_text(timed(*other))
    read = read_logs([tmp_path])
    assert "".join(row.where[0] for row in read.rows) == kept
    assert all("another run was going on" in refusal.reason for refusal in read.refused)


@pytest.mark.parametrize("words", ["--", "**", "# ", '"'])
def test_a_line_of_any_length_is_read_at_once(words: str) -> None:
    (run,) = read_runs(f"{words * 100_000}\n{LOG_8}")
    assert run.median_us == 1230


COMMENTED = {
    "# GPU 0 alone, 1.23 ms": "",
    "# batch 8, 32x48": "",
    "## resnet on DLA": "no plain run",
    "// measured in INT8": "contradict",
    "note: someone else's job was running": "no plain run",
    "-- batch 16": "contradicts itself",
    "* on a T4-8Q": "no plain run",
    "# trtexec --int8": "",
    "### throw-away run": "no plain run",
    "#SBATCH --partition=shared": "",
}


@pytest.mark.parametrize(("comment", "reason"), COMMENTED.items())
def test_a_comment_above_a_run_or_below_all(tmp_path: Path, comment: str, reason: str) -> None:
    plain = LOG_8.replace("--exportTimes=out/times.json", "")
    ended = plain + plain.partition("\n")[0].replace("RUNNING", "PASSED") + "\n"
    for text in (f"{comment}\n{plain}", f"{ended}\n{comment}\n"):
        (tmp_path / "a.log").write_text(text)
        read = read_logs([tmp_path])
        assert len(read.rows) + len(read.refused) == 1
        assert [reason in refusal.reason for refusal in read.refused] == [True] * bool(reason)
    (tmp_path / "a.log").write_text(f"{comment}\n{ended}# by hand\n{plain}")
    assert len(read_logs([tmp_path]).rows) == 2 - bool(reason)
    (run,) = read_runs(f"# clocks at 300 MHz\n{plain}")
    (tmp_path / "a.log").write_text(f"# clocks at 300 MHz\n{plain}")
    assert read_logs([tmp_path]).rows[0].labels["clock"] == "300"
    assert run.comment == "# clocks at 300 MHz\n"


IDLE, IN_USE = ("9W /  70W", "  3%"), ("65W /  70W", " 97%")
CSV = "$ nvidia-smi --query-gpu=name,utilization.gpu --format=csv\nname, utilization.gpu [%]\n"
OTHER_JOB = "$ nohup trtexec --onnx=b.onnx > b.log 2>&1 &\n[1] 71\n"
OWN_JOB = f"$ {LOG_8.partition(' # ')[2].partition(chr(10))[0]} > a.log 2>&1 &\n"
DMON = "# gpu   pwr gtemp mtemp    sm   mem\n# Idx     W     C     C     %     %\n"
DMON += "    0    68    71     -    {}    60\n"
GR3D = "RAM 3312/7620MB EMC_FREQ 3%@2133 GR3D_FREQ {}%@[306] VDD_IN 4803mW\n"
SHARED = {
    smi(IN_USE): True,
    smi(IDLE): False,
    smi(("N/A /  N/A", " N/A")): False,
    smi(IN_USE).replace("P0", "P8"): False,  # of a desktop, at idle clocks
    smi(IDLE, IN_USE): False,
    smi(IN_USE, IDLE): True,
    smi(IN_USE) + smi(IDLE): False,
    f"{CSV}Tesla T4, 98 %\n": True,
    f"{CSV}Tesla T4, 98 %\n{CSV}Tesla T4, 2 %\n": False,
    "$ nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader\n87 %\n": True,
    "    Utilization\n        Gpu                      : 97 %\n": True,
    "    Utilization\n        GPU                      : 0 %\n": False,
    "[0] Tesla T4         | 64'C,  97 % |  6014 / 15360 MB | bob(6012M)\n": True,
    "[0] Tesla T4         | 34'C,   0 % |     2 / 15360 MB |\n": False,
    "$ ./gpu_burn 600 &\n": True,
    OTHER_JOB: True,
    OTHER_JOB.replace("--onnx", "--device=2 --onnx"): False,
    "$ python3 train.py --device=2 &\n": True,
    f"{OTHER_JOB}$ wait\n": False,
    f"{OTHER_JOB}[1]+  Done    trtexec --onnx=b.onnx\n": False,
    "$ tmux new -d 'trtexec --loadEngine=b.plan --duration=600'\n": True,
    "$ docker run -d nvcr.io/nvidia/tensorrt:23.10-py3 trtexec --loadEngine=b.plan\n": True,
    "for m in a b; do\n  trtexec --onnx=$m.onnx &\ndone\nwait\n": True,
    "for m in a b; do\n  trtexec --onnx=$m.onnx\ndone\n": False,
    DMON.format(98): True,
    DMON.format(0): False,
    "# gpu   pid  type  sm  mem\n# Idx     #   C/G     %     %\n    0  12   C     98    60\n": True,
    OWN_JOB: False,
    "$ python3 train.py > t.txt &\n": True,
    "$ python3 monitor.py > t.txt &\n$ nvidia-smi dmon &\n": False,
    f"{OTHER_JOB}{OWN_JOB}$ wait\n$ cat a.log\n": True,
    f"{OWN_JOB}$ wait\n{OTHER_JOB}$ wait\n": False,
    "$ ls *.onnx | xargs -P 2 -I{} trtexec --onnx={}\n": True,
    f"{GR3D.format(0)}{GR3D.format(99)}": True,
    f"{GR3D.format(99)}{GR3D.format(3)}": False,
    f"{GR3D.format(99)}&&&& PASSED TensorRT.trtexec\n": False,
    "nvidia.com/gpu.product=Tesla-T4-SHARED\n": True,
    "  nvidia.com/gpu.replicas: 4\n": True,
    "  nvidia.com/gpu.replicas: 1\n": False,
}


@pytest.mark.parametrize(("printed", "is_shared"), SHARED.items())
@pytest.mark.parametrize("prefix", ["", "2024-09-10T08:01:02.12Z "])
def test_a_gpu_in_use_above_a_run(printed: str, is_shared: bool, prefix: str) -> None:
    text = "".join(f"{prefix}{line}" for line in (printed + LOG_8).splitlines(keepends=True))
    (run,) = read_runs(text)
    assert (run.objection is not None) == is_shared
    (run,) = read_runs(text.replace("&&&&", "$ CUDA_VISIBLE_DEVICES=1 trtexec\n&&&&", 1))
    if "Tesla T4      Off" in text:
        assert (run.objection is not None) == (printed == smi(IDLE, IN_USE))
    (run,) = read_runs(text.replace("--fp16", "--fp16 --device=1"))
    if "Tesla T4      Off" in text:
        assert (run.objection is not None) == (printed == smi(IDLE, IN_USE))


def test_a_power_limit_that_nvidia_smi_prints() -> None:
    (run,) = read_runs(smi(("9W /  50W", "0%")) + LOG_8)
    assert run.labels["power_limit"] == "50"
    (run,) = read_runs(smi(("9W / 50W", "0%")) + "nvidia-smi -pl 60\n" + LOG_8)
    assert run.labels["power_limit"] == "60"
    lines = "    Current Power Limit   : {} W\n    Requested Power Limit : {} W\n"
    for of in (lines, "        Power Limit         : {} W\n"):
        text = of + "    Default Power Limit   : 70.00 W\n    Max Power Limit       : 75.00 W\n"
        (run,) = read_runs(text.replace("{}", "50.00") + LOG_8)
        assert run.labels["power_limit"] == "50"
        assert "power_limit" not in read_runs(text.replace("{}", "70.00") + LOG_8)[0].labels
    other_form = LOG_8.replace("Tesla T4", "Tesla V100-PCIE-16GB")  # 250 W, its sheet is of 300 W
    assert "power_limit" not in read_runs(smi(("9W / 250W", "0%")) + other_form)[0].labels


def test_a_jetson_under_load_keeps_its_clock() -> None:
    busy = "RAM 3312/7620MB EMC_FREQ 3%@2133 GR3D_FREQ {}%@{} VDD_IN 4803mW\n"
    for lines, clock in {
        busy.format(99, "[611,611]"): {"clock": "611"},
        busy.format(99, 306) + busy.format(99, 624): {"clock": "624"},
        busy.format(12, 306): {},
    }.items():
        assert read_log(LOG_8 + lines).labels == clock
        assert read_log(f"{LOG_8}&&&& PASSED TensorRT.trtexec\n{lines}").labels == {}
    shown = "GPU MinFreq=306000000 MaxFreq=408000000 CurrentFreq=306000000\n"
    shown += "EMC MinFreq=204000000 MaxFreq=665600000 CurrentFreq=665600000 FreqOverride=0\n"
    (run,) = read_runs(shown + LOG_8)  # as jetson_clocks --show prints them
    assert run.labels == {"clock": "408", "memory_clock": "665"}


@pytest.mark.parametrize("median", ["9.23", "0.1", "0", "nan", "-1.23", "1.2.3", "9" * 400])
def test_a_median_out_of_its_range(median: str) -> None:
    log = read_log(LOG_8.replace("median = 1.23", f"median = {median}"))
    assert log.objection is not None or log.median_us is None


ODD_TIMES = [
    f'[{{"computeMs": {odd}}}]' for odd in ("NaN", "Infinity", "-1", "0", '"1.5"', "9" * 400)
]
ODD_TIMES += ["[" * 100_000, "[" + "9" * 400 + "]", "{}", "[]", "[", '["x"]', "\0", "null"]
ODD_TIMES += ['[{"count": 100}, {"name": "conv", "averageMs": 1}]', '{"Layers": ["conv"]}']
AT_ONCE = [{"startComputeMs": 1.3 * (i // 2), "computeMs": 1.2} for i in range(90)]


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        *((times, "the file holds no times of trtexec") for times in ODD_TIMES),
        (json.dumps(AT_ONCE), "several inferences run at once"),
        ('[{"computeMs": 4}]', "the times are of another run than the log"),
    ],
)
def test_times_that_are_none_leave_the_run_out(tmp_path: Path, times: str, reason: str) -> None:
    (tmp_path / "a.log").write_text(LOG_8)
    (tmp_path / "times.json").write_text(times)
    (tmp_path / "b.log").write_text(LOG_8.replace("--exportTimes=out/times.json", ""))
    read = read_logs([tmp_path])
    assert [row.where for row in read.rows] == ["b.log, line 1"]
    (refused,) = read.refused
    assert (refused.where, refused.reason) == ("times.json", reason)


def test_times_belong_to_the_log_of_their_folder(tmp_path: Path) -> None:
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.log").write_text(LOG_8.replace("net_a", name))
        (tmp_path / name / "times.json").write_text('[{"computeMs": 1.3}]')
    read = read_logs([tmp_path])
    assert [row.names[0] for row in read.rows] == ["/nets/x", "/nets/y"]
    assert [row.where for row in read.rows] == [str(tmp_path / n / "times.json") for n in "xy"]
    (tmp_path / "x" / "c.log").write_text(LOG_8)
    read = read_logs([tmp_path / "x"])
    assert [row.where for row in read.rows] == ["a.log, line 1", "c.log, line 1"]
    assert [refusal.where for refusal in read.refused] == ["times.json"]


SAME = "t4/tensorrt-8.6/fp16 t4/tensorrt/fp16 t4/tensorrt-8/fp16"
OTHER = "l4/tensorrt-8.6/fp16 t4/tensorrt-8.5/fp16 t4/tensorrt-8.6/fp32 t4/onnxruntime-1.2/fp16"


@pytest.mark.parametrize("target", [*SAME.split(), *OTHER.split()])
def test_a_log_of_another_target_is_left_out(tmp_path: Path, target: str) -> None:
    (tmp_path / "a.log").write_text(LOG_8)
    read = read_logs([tmp_path], Target.parse(target))
    if target in SAME:
        assert [str(row.target) for row in read.rows] == ["t4/tensorrt-8.6/fp16"]
    else:
        (refusal,) = read.refused
        assert refusal.reason == "the log contradicts --target"
        assert refusal.value == f"t4/tensorrt-8.6/fp16, not {target}"
