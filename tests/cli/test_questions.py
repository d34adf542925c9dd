"""What users ask besides the latency: `sweep`, in this process, on shipped networks."""

import csv
import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, get_args
from unittest.mock import Mock

import onnx
import pytest

import hybridlat
from hybridlat import Device, Predictor, onnx_io
from hybridlat.api.arguments import Query
from hybridlat.api.explain_log import Run
from hybridlat.cli.predict import compare
from hybridlat.cli.questions import explain, sweep
from hybridlat.errors import HybridlatError, InputError
from hybridlat.model.conformal import normal_quantile
from hybridlat.onnx_io.file import shipped_networks
from hybridlat.report.explain import read_layers
from hybridlat.report.sweep import Over, Sweep
from hybridlat.schema.target import Target
from hybridlat.store.importers.trtexec_run import TrtexecLog
from tests.cli.shell import call, run

L4, ORIN, T4 = "l4/tensorrt/fp16", "orin-nano/tensorrt/fp16", "t4/tensorrt/fp16"
CPU, SMALL = "epyc-26-2/onnxruntime-1.31/fp32/1t", {"input": (1, 3, 160, 160)}


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYBRIDLAT_STORE", str(tmp_path / "s.db"))
    monkeypatch.chdir(tmp_path)


def test_a_sweep_over_widths_is_a_curve_in_every_form(tmp_path: Path) -> None:
    words = ("resnet18", "--target", L4, "--width", "0.5:1:0.25", "--html", "w.html")
    body = json.loads(run(sweep, *words, "--json").stdout)
    assert [p["width"] for p in body["points"]] == [0.5, 0.75, 1.0] and body["over"] == "width"
    assert body["points"][0]["step"] == "start" and body["refused"] == []
    latencies = [p["latency_us"] for p in body["points"]]
    assert latencies == sorted(latencies)
    assert [p["cheaper"] for p in body["points"]] == [None, 0.5, 0.75]
    page = Path("w.html").read_text()
    assert 'data-over="width" data-values="0.5 0.75 1.0"' in page and "resnet18 over widths" in page
    rows = list(csv.DictReader(io.StringIO(run(sweep, *words[:5], "--csv", "-").stdout)))
    assert [float(row["latency_us"]) for row in rows] == latencies
    assert latencies[-1] == pytest.approx(Predictor(L4).predict("resnet18").latency_us)


def test_a_sweep_finds_the_knee_of_the_throughput_and_calls_no_bend_a_step() -> None:
    curve = Predictor(L4).sweep("mobilenetv2_100", "batch", [1, 2, 4, 8, 16, 32])
    rates = [one.throughput_per_s or 0.0 for one in curve.estimates.values()]
    knee = curve.steps.index("knee")
    assert rates[knee] >= 0.9 * max(rates) > max(rates[:knee]) and curve.steps.count("knee") == 1
    assert "knee" in str(curve) and "next that saves" not in str(curve)
    assert [estimate.batch for estimate in curve.estimates.values()] == [1, 2, 4, 8, 16, 32]
    bends: Any = (("batch", 1, 0), ("size", 2, 0), ("size", 2, 450), ("width", 1, 0))
    for over, power, more_us in bends:  # beside launches, a constant
        us = {float(x): 90.0 + 9 * x**power + more_us * (x > 6) for x in range(2, 9)}
        steps = Sweep(over, {x: replace(curve.estimates[1], latency_us=us[x]) for x in us}).steps
        assert [i for i, kind in enumerate(steps) if kind == "step"] == [5] * bool(more_us)
    whole = curve.estimates[1]
    lacking: Any = {"latency_us": None, "interval_us": None}, {"interval_us": (1.0, math.inf)}
    for unknown in lacking:  # what has no upper end saves nothing
        least = replace(whole, **{"latency_us": 1.0, **unknown})
        assert Sweep("size", {1: least, 2: whole}).cheaper(2) is None


def test_sizes_that_a_file_cannot_have_are_left_out_with_the_reason() -> None:
    done = run(sweep, "vgg19", "--target", ORIN, "--size", "192,224", code=3)
    assert "224" in done.stdout and "left out is size 192: vgg19 at size 192" in done.stderr
    assert done.stderr.startswith("hybridlat: predicting vgg19 over size\n")  # it may take long
    assert "export it again with these sizes or dynamic axes" in done.stderr
    both = Predictor(ORIN).sweep("resnet18", "size", [224, 448])
    assert "step" not in str(both)  # a column that says nothing is left out
    assert [e.batch for e in both.estimates.values()] == [1, 1] and not both.refused


def test_a_sweep_is_over_one_thing_whose_values_make_a_curve() -> None:
    for words in ((), ("--width", "0.5,1", "--size", "224,256"), ("--batch", "2")):
        done = run(sweep, "resnet18", "--target", L4, *words, code=2)
        assert "Give one of --size, --width and --batch" in done.stderr
    odd: list[Any] = [("batch", [1]), ("size", [0, 8]), ("batch", [1.5, 2])]
    with Predictor(L4) as predictor:
        with pytest.raises(InputError, match="'depth' cannot be swept: choose batch, size, width"):
            predictor.sweep("resnet18", cast(Any, "depth"), [1, 2])
        for over, values in odd:
            with pytest.raises(InputError, match=f"^{str(values)[1:-1]} makes no curve"):
                predictor.sweep("resnet18", over, values)
        with pytest.raises(InputError, match="batch=3 contradicts"):
            predictor.sweep("resnet18", "batch", [1, 2], batch=3)
        shapes = {"input": (1, 3, 32, 32)}  # those of other inputs are held to
        for over in get_args(Over):
            if over != "width":
                with pytest.raises(HybridlatError, match="contradicts"):
                    predictor.sweep("resnet18", over, [2, 64], shapes=shapes)


def explained(network: str, target: str, measured_us: float) -> Any:
    with Predictor(target) as predictor:
        return predictor.explain(network, measured_us)


def test_a_normal_latency_and_two_that_nothing_explains() -> None:
    expected = Predictor(L4).predict("resnet50").latency_us or 0.0
    normal = explained("resnet50", L4, expected)
    assert normal.verdict == "normal" and normal.suspects[0].kind == "as predicted"
    assert sum(one.probability for one in normal.suspects) + normal.nothing == pytest.approx(1)
    for far_us in (expected / 50, expected * 500):
        far = explained("resnet50", L4, far_us)
        assert far.verdict == "not explained" and far.nothing > 0.9


@pytest.mark.parametrize(
    ("kind", "target", "planted"),
    [
        ("precision", L4, lambda: Predictor("l4/tensorrt/fp32").predict("resnet50")),
        ("power mode", ORIN, lambda: Predictor("orin-nano-7w/tensorrt/fp16").predict("vgg19")),
        ("size", CPU, lambda: Predictor(CPU).predict("resnet18", shapes=SMALL)),
        ("batch", L4, lambda: Predictor(L4).predict("resnet18", batch=256)),
        ("threads", CPU, lambda: Predictor(CPU).predict("resnet18", shapes=SMALL)),
    ],
)
def test_a_known_circumstance_is_among_the_suspects(kind: str, target: str, planted: Any) -> None:
    """Which of them comes first, is no matter of a test: the guide says how often it is right."""
    network = {"precision": "resnet50", "power mode": "vgg19"}.get(kind, "resnet18")
    latency_us = planted().latency_us
    answer = explained(network, target, latency_us)
    suspects, tied = {one.kind: one for one in answer.suspects}, [one.kind for one in answer.tied]
    assert answer.to_json()["tied"] == tied == [*suspects][: len(tied)]
    is_tie = answer.verdict == "explained" and len(tied) > 1
    assert (f"The first {len(tied)} are too close to tell apart" in str(answer)) == is_tie
    assert not is_tie or all(suspects[each].text in answer.headline() for each in {kind, *tied})
    low_us, high_us = suspects[kind].interval_us
    assert low_us < latency_us < high_us and suspects[kind].check


@pytest.mark.parametrize(
    ("target", "foreign"),
    [(CPU, "trtexec|nvidia-smi|tegrastats"), ("l4/torch/amp", "trtexec"), (L4, "torch|lscpu")],
)
def test_what_tells_suspects_apart_is_there_with_the_engine(target: str, foreign: str) -> None:
    low_us = Predictor(target).predict("resnet18").low_us or 0.0
    checks = {one.kind: one.check for one in explained("resnet18", target, 3 * low_us).suspects}
    assert {"batch", "busy", "clock"} <= checks.keys() and all(checks[k] for k in ("batch", "busy"))
    assert not re.search(foreign, str(checks))


LOG = """\
{above}
&&&& RUNNING TensorRT.trtexec [TensorRT v8601] # trtexec --onnx={onnx}.onnx {options}
[I] Selected Device: {device}
[I] Compute Clock Rate: {clock} GHz
[I] Created input binding for input with dimensions {dims}
[I] Latency: min = {low} ms, max = 99 ms, mean = {all} ms, median = {all} ms
[I] End-to-End Host Latency: min = {low} ms, max = 99 ms, mean = 77 ms, median = 77 ms
[I] Enqueue Time: min = 0.01 ms, max = 1 ms, mean = 0.1 ms, median = {enqueue} ms
[I] GPU Compute Time: min = {low} ms, max = 99 ms, mean = {gpu} ms, median = {gpu} ms
"""


def write_log(ms: float, **stated: Any) -> str:
    """A log of that latency, as on an L4 at batch 1 in FP16 but for what is ``stated``."""
    fields = {"options": "--fp16", "device": "NVIDIA L4", "clock": 2.04, "enqueue": 0.01}
    fields["above"] = ""
    fields |= {"onnx": "resnet18", "dims": "1x3x224x224", "all": ms, "gpu": ms, "low": ms / 2}
    text = LOG.format(**fields | stated)
    Path("run.log").write_text(text)
    return text


NANO, SUPER = "orin-nano/tensorrt-8.6/fp16", "orin-nano-super/tensorrt-8.6/fp16"
NANO_7W, SEVEN = "orin-nano-7w/tensorrt-8.6/fp16", "NV Power Mode: 7W"
L4_86, T4_86 = "l4/tensorrt-8.6/fp16", "t4/tensorrt-8.6/fp16"
BOUND = {"enqueue": 2.2, "dims": "4x3x224x224", "gpu": 2.3}


@pytest.mark.parametrize(
    ("cause", "asked", "planted", "batch", "stated", "unsuspected"),
    [
        ("precision", T4_86, "t4/tensorrt-8.6/fp32", 1, {"options": "", "device": "T4"}, "size"),
        ("batch", L4_86, L4_86, 8, {"dims": "8x3x224x224"}, "precision"),
        ("power mode", SUPER, NANO, 1, {"clock": 0.624, "device": "Orin"}, "host copies"),
        ("power mode", SUPER, NANO_7W, 1, {"above": SEVEN, "device": "Orin"}, "power mode"),
        ("device", T4_86, L4_86, 1, {}, "batch"),
        ("host copies", L4_86, L4_86, 1, {"all": 5.0}, "launches"),
        ("launches", L4_86, L4_86, 4, BOUND, "size"),
    ],
)
def test_a_log_of_trtexec_settles_what_it_states(
    cause: str, asked: str, planted: str, batch: int, stated: Any, unsuspected: str
) -> None:
    ms = (Predictor(planted).predict("resnet18", batch=batch).latency_us or 0.0) / 1e3
    write_log(ms, **stated)
    words = ("resnet18", "--target", asked, "--measured", "run.log", "--json")
    body = json.loads(run(explain, *words).stdout)
    assert (body["verdict"], body["cause"]) == ("explained", cause)
    assert cause in [one["kind"] for one in body["stated"]]
    assert unsuspected not in [one["kind"] for one in body["suspects"]]


def test_a_batch_that_a_log_states_is_that_of_the_input_that_has_it() -> None:
    target, sizes = Target.parse(L4_86), {"rois": (100, 4), "x": (1, 8, 50, 50)}
    log = TrtexecLog(shapes={**sizes, "x": (4, 8, 50, 50)})
    (one,) = Run(1e3, target, log).stated(target, Query(), sizes)
    assert (one.kind, one.text) == ("batch", "at batch 4")


@pytest.mark.parametrize(
    ("stated", "verdict", "named"),
    [
        ({"dims": "64x3x224x224"}, "not explained", "at batch 64"),
        ({"onnx": "nets/other"}, "normal", "of the network nets/other"),
    ],
)
def test_a_number_as_expected_is_not_normal_for_another_run(
    stated: Any, verdict: str, named: str
) -> None:
    write_log((Predictor(L4_86).predict("resnet18").latency_us or 0.0) / 1e3, **stated)
    answer = Predictor(L4_86).explain("resnet18", "run.log")
    assert answer.verdict == verdict and answer.headline().endswith(f"; by the log {named}")


def test_a_run_by_a_cuda_graph_is_held_against_one() -> None:
    expected_us = Predictor(L4_86).predict("squeezenet").latency_us or 0.0
    ms = expected_us * 0.7e-3
    write_log(ms, options="--fp16 --useCudaGraph", onnx="squeezenet")
    words = ("squeezenet", "--target", L4_86, "--measured", "run.log", "--json")
    (stated,) = json.loads(run(explain, *words).stdout)["stated"]
    assert (stated["kind"], stated["text"]) == ("launches", "replayed from a CUDA graph")
    assert stated["latency_us"] < expected_us
    suspects = {one.kind: one for one in explained("squeezenet", L4_86, 1e3 * ms).suspects}
    assert suspects["launches"].text == stated["text"]
    by_graph = explained("resnet34", "h200/tensorrt-8.6/fp16", 280.0).suspects
    assert stated["text"] not in [one.text for one in by_graph]  # it is answered so already


def test_the_batch_of_a_suspect_stands_behind_the_steps() -> None:
    """Ten steps at batch 1 are no batch of 10: longer is a few sequences, not a hundred."""
    text = "g (float[10,batch,8] x, float[1,64,8] w, float[1,64,16] r) => (y)"
    made = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> {text} {{ y = LSTM<hidden_size=16>(x, w, r) }}'
    )
    explained = Predictor("t4/tensorrt-10/fp16").explain(made, 250.0)
    (batch,) = [one.text for one in explained.suspects if one.kind == "batch"]
    assert int(batch.removeprefix("at batch ")) < 32


def test_suspects_are_of_the_same_file_sheet_and_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is read once, a sheet in place of the device's counts for all, as the batch does."""
    sheet = Device("l4", "gpu", {"fp32": 5e12, "fp16": 9e12}, 60e9, units=20, clock_hz=1.5e9)
    monkeypatch.setattr(onnx_io, "load", load := Mock(wraps=onnx_io.load))
    eight = {"input": (8, 3, 224, 224)}
    answer = Predictor(L4, device=sheet).explain("resnet18", 4e4, shapes=eight)
    assert [call.args[0] for call in load.call_args_list].count("resnet18") == 1
    suspects = {one.kind: one for one in answer.suspects}
    by_sheet = Predictor("l4/tensorrt/fp32", device=sheet).predict("resnet18", shapes=eight)
    assert suspects["precision"].interval_us == pytest.approx(by_sheet.interval_us, rel=0.02)
    (side,) = (int(one) for one in re.findall("at size ([0-9]+)", suspects["size"].text))
    sized = Predictor(L4, device=sheet).predict("resnet18", shapes={"input": (8, 3, side, side)})
    assert suspects["size"].interval_us == pytest.approx(sized.interval_us, rel=0.02)


def test_sizes_that_a_file_leaves_open_are_those_of_the_log() -> None:
    made = onnx.load(str(shipped_networks()["resnet18"]))
    (sizes,) = (one.type.tensor_type.shape.dim for one in made.graph.input)
    for at, axis in ((0, "n"), (2, "h"), (3, "w")):
        sizes[at].dim_param = axis
    onnx.save(made, "open.onnx")
    estimate = Predictor(L4_86).predict("open.onnx", shapes={"input": (4, 3, 192, 256)})
    write_log((estimate.latency_us or 0.0) / 1e3, dims="4x3x192x256", onnx="open")
    explained = Predictor(L4_86).explain("open.onnx", "run.log")
    assert (explained.verdict, explained.estimate.batch, explained.stated) == ("normal", 4, ())


def test_an_option_of_a_run_is_a_circumstance_and_a_broken_log_is_refused() -> None:
    log = write_log(2.5, options="--fp16 --infStreams=4", low=2.49)
    streams = Predictor(L4_86).explain("resnet18", Path("run.log"))
    assert streams.cause.kind == "options" and "--infStreams=4" in streams.headline()
    assert "by the log" not in str(streams)
    write_log(2.5, above="nvidia-smi -pl 40", low=2.49)
    cause = Predictor(L4_86).explain("resnet18", Path("run.log")).cause
    assert (cause.kind, cause.text) == ("options", "the GPU's power was held below its own (40 W)")
    Path("run.log").write_text(log.replace("input with dimensions 1", "x with dimensions 8"))
    assert "by the log  At batch 8" in str(Predictor(L4_86).explain("resnet18", "run.log"))
    Path("run.log").write_text(log.replace("resnet18", "nets/other"))
    assert "Of the network nets/other" in str(Predictor(L4_86).explain("resnet18", "run.log"))
    built = re.sub(".*GPU Compute.*\n", "", write_log(2.5, options="--fp16 --saveEngine=a.plan"))
    run = write_log(2.5, options="--loadEngine=a.plan").replace("--onnx=resnet18.onnx ", "")
    Path("run.log").write_text(built + run)
    assert Predictor(L4_86).explain("resnet18", "run.log").measured_us == 2500
    failed = re.sub(".*GPU Compute.*\n", "&&&& FAILED TensorRT.trtexec\n", log)
    Path("run.log").write_text(failed + log)
    assert Predictor(L4_86).explain("resnet18", "run.log").measured_us == 2500
    vgpu = log.replace("NVIDIA L4", "GRID T4-16Q")
    for text, said in (
        (log + log, "2 runs"),
        ("nothing", "no median of GPU Compute Time"),
        (log.replace("NVIDIA L4", "Orin"), "several boards have this name .*orin-nano"),
        (vgpu, "run.log: the device is none that is known as a whole"),
    ):
        Path("run.log").write_text(text)
        with pytest.raises(InputError, match=said):
            Predictor(L4_86).explain("resnet18", "run.log")
    write_log(2.5)
    words = ("explain", "resnet18", "--target", CPU, "--measured")
    assert "run.log is of trtexec, a GPU's" in call(*words, "run.log", code=2).err


def test_runs_that_vary_point_to_another_program() -> None:
    us, shares = 3 * (Predictor(L4_86).predict("resnet18").latency_us or 0.0), list[float]()
    for high in (1.01, 1.6):
        log = write_log(us / 1e3).rstrip()
        log = log.replace("Created input binding for input with", "").replace("--onnx", "--verbose")
        Path("run.log").write_text(f"{log}, percentile(90%) = {high * us / 1e3} ms")
        answer = Predictor(L4_86).explain("resnet18", "run.log")
        shares += [one.probability for one in answer.suspects if one.kind == "busy"]
        vary = f"Single runs vary by {100 * (answer.spread or 0):.1f} %"
        assert vary in str(answer).partition("look at")[0]  # which stands before what to look at
    assert shares[1] > 3 * shares[0]


def test_layers_of_a_profile_stand_beside_the_cells(tmp_path: Path) -> None:
    estimate = Predictor(L4).predict("resnet18", describe=True)
    first, second = (cell.nodes[0] for cell in estimate.cells[:2])
    layers = [
        {"count": 200},
        {"name": f"{first} + PWN(broadcast_{second})", "averageMs": 0.25, "timeMs": 50.0},
        {"name": f"Reformatting CopyNode for Input Tensor 0 to {first}", "averageMs": 0.125},
        {"name": "{ForeignNode[unknown]}", "averageMs": 0.25},
        {"name": "{ForeignNode[unknown]}", "averageMs": 0.25},  # of one name, as TensorRT 7 has
    ]
    Path("p.json").write_text(json.dumps(layers))
    words = ("resnet18", "--target", L4, "--measured", "1ms", "--layers", "p.json")
    body = json.loads(run(explain, *words, "--json").stdout)
    assert body["layers"]["cells"][0]["profiled_us"] == 250.0
    assert body["layers"]["cells"][1]["profiled_us"] is None
    assert body["layers"]["others_us"] == {"{ForeignNode[unknown]}": 500.0}
    assert [*body["layers"]["moved_us"].values()] == [125.0]
    assert "67 % of p.json is of no operator of resnet18" in call(*("explain", *words)).err
    Path("p.json").write_text(json.dumps([*layers[:-1], {"name": second, "averageMs": 0.5}]))
    assert "of no operator" not in call(*("explain", *words)).err
    shown = run(explain, *words).stdout
    assert "reformats and copies" in shown and "no layer" in shown and "are expected" in shown
    odd = ('"0.1"', "NaN", "Infinity", "-1", "null")
    for text in ('{"a": 1}', *(f'[{{"name": "a", "averageMs": {one}}}]' for one in odd)):
        Path("p.json").write_text(text)
        with pytest.raises(InputError, match="holds no layers"):
            read_layers("p.json")
    assert "p.json holds no" in call("explain", "none.onnx", *words[1:], code=2).err  # read first
    Path("p.json").write_text(json.dumps(layers))
    of_cpu = ("explain", "resnet18", "--target", CPU, "--measured", "9ms", "--layers", "p.json")
    assert "p.json is of trtexec, a GPU's" in call(*of_cpu, code=2).err
    asked = call("explain", *words[:3], "--batch", "4", "--measured", "2000fps", "--json")
    assert json.loads(asked.out)["measured_us"] == 2000.0 and "2.00 ms a batch" in asked.err
    err = call("explain", *words[:3], "--measured", "none.log", code=2).err
    assert "'none.log' is not a latency" in err and "(there is no such file)" in err


def test_ratios_are_narrower_than_the_two_intervals() -> None:
    found = hybridlat.compare(["seresnet50", "resnet50"], L4)
    _, ratio = found.ratios
    assert ratio is not None and ratio.is_sure and ratio.probability_faster > 0.95
    first, other = found.estimates
    assert (other.high_us or 0.0) > (first.low_us or 0.0)  # the intervals overlap
    # Calibration narrows both intervals by the pace of GPUs, of which a ratio has nothing.
    reach = math.log(ratio.interval[1] / ratio.ratio)
    assert reach == pytest.approx(normal_quantile(0.9) * found.ratio_log_sds[1])
    known = hybridlat.compare(["resnet50", "resnet18"], "h200/tensorrt-8.6/fp16")
    both = [math.log((e.high_us or 0.0) / (e.latency_us or 1.0)) for e in known.estimates]
    assert known.ratios[1] is not None and known.estimates[0].grade == "measured"
    end = known.ratios[1].interval[1] / known.ratios[1].ratio
    assert math.log(end) == pytest.approx(math.hypot(*both), rel=0.01)
    _, itself = hybridlat.compare(["resnet50", "resnet50"], L4).ratios
    assert itself is not None and not itself.is_sure and itself.interval[1] < 1.01


def test_one_network_is_compared_on_several_targets_and_sizes() -> None:
    words = ("resnet18", "--target", L4, "--target", "l4/tensorrt/fp32")
    body = json.loads(run(compare, *words, "--json", "--html", "c.html").stdout)
    assert [one["target"] for one in body["networks"]] == [L4, "l4/tensorrt/fp32"]
    assert all(min(row["count"]) > 0 for row in body["differences"][:5])
    assert "Cells that make the difference" in Path("c.html").read_text()
    with pytest.raises(InputError, match="or one on several targets"):
        hybridlat.compare(["resnet18"], L4)


@pytest.mark.parametrize(
    ("networks", "limit", "code", "said"),
    [
        (("resnet18", "resnet50"), "2%", 1, "resnet50 is slower than the first: "),
        (("resnet50", "resnet34"), "5%", 3, "resnet34 may be slower than the first: "),
        (("resnet50", "resnet18"), "5%", 0, ""),
        (("resnet18", "--target", "h100/tensorrt/fp16"), "5%", 3, f"{T4} may be slower"),
    ],
)
def test_slower_than_the_base_is_an_exit_code(
    networks: tuple[str, ...], limit: str, code: int, said: str
) -> None:
    done = run(compare, *networks, "--target", T4, "--max-slower", limit, code=code)
    assert said in done.stderr and bool(said) == bool(done.stderr)
