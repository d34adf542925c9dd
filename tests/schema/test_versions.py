"""Versions of engines: what came out, or may have since, passes."""

from __future__ import annotations

import pytest

from hybridlat.errors import TargetError
from hybridlat.estimate.lookup.named_target import on_record
from hybridlat.schema.names import engine_name, refuse_version

PASS = (
    "tensorrt-5 tensorrt-7.2 tensorrt-8.6.1 tensorrt-10.3 tensorrt-10-ultralytics tensorrt-11.9 "
    "tensorrt-12.0 tensorrt-trtutils tensorrt-rtx-1.9 tensorrt-rtx-2.0 onnxruntime-1.0 "
    "onnxruntime-1.40 onnxruntime-2.0 openvino-2026.4 openvino-2027.1 openvino-2020.3 torch-0.4 "
    "torch-1.13 torch-2.20 torch-3.0 torch-compile-2.4 torch-ngc paddle-tensorrt-2020 "
    "paddle-tensorrt-8.5 tvm-0.9 tvm-99"
)
FAIL = (
    "tensorrt-99 tensorrt-8.9 tensorrt-13 tensorrt-23.10 tensorrt-24.05 tensorrt-2023 "
    "tensorrt-8601 onnxruntime-0.3 onnxruntime-1.99 onnxruntime-3.0 openvino-2016.1 "
    "openvino-2035.1 openvino-1.0 torch-9 torch-1.15 torch-0.9 torch-24.01 "
    "torch-compile-1.13 paddle-tensorrt-99 tensorrt-rtx-8.6 tensorrt-rtx-10"
)


def parts(runtime: str) -> tuple[str, str]:
    engine, version = next(
        (name, runtime[len(name) + 1 :])
        for name in ("tensorrt-rtx", "torch-compile", "paddle-tensorrt", runtime.split("-")[0])
        if runtime.startswith(name)
    )
    return engine, version


@pytest.mark.parametrize("runtime", PASS.split())
def test_what_there_is_or_may_be_passes(runtime: str) -> None:
    refuse_version(*parts(runtime))


@pytest.mark.parametrize("runtime", FAIL.split())
def test_what_never_came_out_is_refused(runtime: str) -> None:
    engine, version = parts(runtime)
    with pytest.raises(TargetError, match=f"{engine}-{version} names no version of {engine}"):
        refuse_version(engine, version)
    with pytest.raises(TargetError, match="names no version"):
        engine_name(engine, version)


def test_all_that_is_shipped_passes() -> None:
    for target in on_record(None):
        refuse_version(target.engine, target.version)
