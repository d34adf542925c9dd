"""Engines, precisions and targets in the words of tables and logs."""

import pytest

from hybridlat.errors import TargetError
from hybridlat.schema.engine_names import engine_name, precision_name, target_named
from hybridlat.schema.target import PRECISIONS


@pytest.mark.parametrize(
    ("raw", "version", "name"),
    [
        ("tensorrt-8.0", "", "tensorrt-8.0"),
        ("TensorRT 8.6.1, CUDA 12.2", "", "tensorrt-8.6"),
        ("TensorRT", "8.6.1", "tensorrt-8.6"),
        ("TensorRT-RTX 1.0", "", "tensorrt-rtx-1.0"),
        ("paddle+tensorrt", "unstated (2020-04)", "paddle-tensorrt-2020"),
        ("Paddle Inference + TensorRT 8.0.3.4", "", "paddle-tensorrt-8.0"),
        ("PyTorch 2.4.0+cu121", "", "torch-2.4"),
        ("pytorch-1.8", "", "torch-1.8"),
        ("torch", "NGC container", "torch-ngc"),
        ("torch.compile (PyTorch 2.4)", "", "torch-compile-2.4"),
        ("torch-compile-2.9", "", "torch-compile-2.9"),
        ("Torch-TensorRT 2.2", "", "torch-tensorrt-2.2"),
        ("ONNX Runtime 1.16 (TensorRT)", "", "onnxruntime-tensorrt-1.16"),
        ("onnxruntime", "", "onnxruntime"),
        ("TVM v0.9", "", "tvm-0.9"),
    ],
)
def test_engines(raw: str, version: str, name: str) -> None:
    assert engine_name(raw, version) == name
    assert engine_name(name) == name


def test_what_names_no_engine_is_refused() -> None:
    with pytest.raises(TargetError, match="names no engine"):
        engine_name(" 8.6 ")


def test_precisions() -> None:
    assert [precision_name(p) for p in PRECISIONS] == list(PRECISIONS)
    words = ("Float32", "half", "AMP FP16", "bfloat16", "INT8", "channels")
    assert [precision_name(w) for w in words[:-1]] == ["fp32", "fp16", "amp", "bf16", "int8"]
    with pytest.raises(TargetError, match="'channels' is not a precision: choose one of fp32"):
        precision_name(words[-1])


def test_targets() -> None:
    assert str(target_named("Tesla T4/TensorRT 7.2/FP16")) == "t4/tensorrt-7.2/fp16"
    assert str(target_named("Xeon 8481C/onnxruntime-1.31/fp32/1t")).endswith("/fp32/1t")
    with pytest.raises(TargetError, match="write it as device"):
        target_named("t4")
