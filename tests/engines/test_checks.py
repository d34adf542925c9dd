"""The commands that check an estimate with an engine's own tool."""

import ast
import shlex

import pytest

from hybridlat.engines.base import check_of
from hybridlat.schema.target import Target
from hybridlat.store.importers import trtexec_options

IMAGE = {"in put": (4, 3, 8, 8)}


@pytest.mark.parametrize("precision", ["fp32", "fp32-strict", "tf32", "fp16", "bf16", "int8"])
@pytest.mark.parametrize("graphs", [False, True])
def test_trtexec_times_what_a_log_of_it_is_imported_as(precision: str, graphs: bool) -> None:
    command, field = check_of(Target("l4", "tensorrt", precision), "a b.onnx", IMAGE, graphs)
    tool, onnx, *flags = shlex.split(command)
    assert (tool, onnx, field) == ("trtexec", "--onnx=a b.onnx", "GPU Compute Time: median")
    assert "--shapes=in put:4x3x8x8" in flags and ("--useCudaGraph" in flags) == graphs
    pairs = [flag.removeprefix("--").partition("=") for flag in flags]
    trtexec_options.check({name: value for name, _, value in pairs}, "")  # refuses what times more


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("x/onnxruntime/fp32/2t", "onnxruntime_perf_test -e cpu -x 2 -m times -r 200 -I 'a b"),
        ("x/openvino/fp32/2t", "benchmark_app -m 'a b.onnx' -d CPU"),
        ("x/openvino/bf16/1t", "-infer_precision bf16 -nstreams 1 -nthreads 1"),
        ("x/torch/amp", 'torch.autocast("cuda", torch.float16)'),
        ("x/torch-compile/fp32", '"f": torch.compile(model)'),
        ("x/paddle-tensorrt/fp16", ""),
        ("x/tensorrt-rtx/fp16", ""),
        ("x/torch/int8", ""),
    ],
)
def test_each_engine_has_its_tool_or_none(target: str, words: str) -> None:
    command, field = check_of(Target.parse(target), "a b.onnx", {}, False)
    assert words in command and bool(command) == bool(field) == bool(words)
    if "torch." in command:
        ast.parse(command)
    if "openvino" in target:
        assert "-shape 'in put[4,3,8,8]'" in check_of(Target.parse(target), "a", IMAGE, False)[0]
    if "onnxruntime" in target:  # its tool binds no sizes
        assert check_of(Target.parse(target), "a.onnx", IMAGE, False) == ("", "")
