"""``hybridlat lower``: the kernels of each kind of target, and where rules and engine differ."""

import json
from typing import Any

import pytest

from hybridlat.cli.targets import lower
from hybridlat.engines import rtx_compiler
from hybridlat.engines.fusion.groups import Groups
from hybridlat.errors import MeasurementError
from hybridlat.graph.network import Network
from tests.cli.shell import run
from tests.networks import NETS


def text(name: str, target: str, *options: str) -> str:
    return run(lower, str(NETS / f"{name}.onnx"), "--target", target, *options).stdout


def answer(name: str, target: str) -> Any:
    return json.loads(text(name, target, "--json"))


def ops(result: Any) -> list[str]:
    return [kernel["op"] for kernel in result["kernels"]]


def test_precision_and_version_of_the_target_decide() -> None:
    half = answer("mobilenetv3_small_100", "h100/tensorrt-8.6/fp16")
    full = answer("mobilenetv3_small_100", "h100/tensorrt-8.6/fp32")
    older, newer = (answer("efficientnet_b0", f"h100/tensorrt-{v}/fp16") for v in ("8.6", "10.7"))
    assert half["by"] == full["by"] == "rules tensorrt-8.6"
    assert newer["by"] == "rules tensorrt-10.7"
    assert ops(half)[-2:] == ["Conv+HardSwish", "Gemm"]  # a matrix product has this epilogue
    assert ops(full)[-3:] == ["Conv", "HardSwish", "Gemm"]
    depthwise = 16  # take their activation until 10.7
    assert ops(newer).count("Sigmoid+Mul") == ops(older).count("Sigmoid+Mul") + depthwise


@pytest.mark.skipif(not rtx_compiler.installed(), reason="the extra rtx is not installed")
def test_where_the_rules_and_the_engine_differ_is_marked() -> None:
    result = answer("bvlc_alexnet", "h100/tensorrt/fp32")
    differ = {kernel["op"] for kernel in result["kernels"] if kernel["engine_differs"]}
    assert differ == {"Conv+Relu", "LRN"}
    shown = text("bvlc_alexnet", "h100/tensorrt/fp32")
    assert "← TensorRT-RTX differs" in shown and "87.5 % of the operators" in shown
    asked = answer("bvlc_alexnet", "rtx-3090/tensorrt-rtx-1.7/fp32")
    assert asked["by"].startswith("tensorrt-rtx") and "Relu+LRN" in ops(asked)
    assert {kernel["engine_differs"] for kernel in asked["kernels"]} == {None}


def test_what_another_compiler_fuses_is_under_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classic TensorRT is never asked: that its rules are wrong is more than anyone knows."""

    def split(network: Network, precision: str) -> tuple[Groups, str]:
        if precision == "fp32":
            raise MeasurementError("no importer")
        return Groups(tuple((i,) for i in range(len(network.nodes))), ()), "tensorrt-rtx"

    monkeypatch.setattr(rtx_compiler, "installed", lambda: True)
    monkeypatch.setattr(rtx_compiler, "groups_of", split)
    shown = text("squeezenet", "h100/tensorrt-8.6/fp16")
    assert "Conv+Relu  ← TensorRT-RTX differs" in shown and "the engine" not in shown
    refused = answer("squeezenet", "h100/tensorrt-8.6/fp32")["kernels"]  # the rules are unmarked
    assert {kernel["engine_differs"] for kernel in refused} == {None}
