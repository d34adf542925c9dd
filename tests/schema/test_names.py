"""One name for a device, an engine and a precision; targets are read back as they were written."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hybridlat.engines import device_sheets as devices
from hybridlat.engines import host
from hybridlat.errors import TargetError
from hybridlat.estimate.lookup.named_target import targets_on_record
from hybridlat.schema.names import (
    device_name,
    engine_name,
    engine_text,
    precision_name,
    refuse_version,
    target_named,
)
from hybridlat.schema.target import PRECISIONS, Target, version_key

NAMES = {
    "Tesla K40c": "k40", "Tesla V100-SXM2-32GB": "v100", "Tesla V100-DGXS-32GB": "v100",
    "Tesla V100-FHHL-16GB": "v100", "NVIDIA A100-SXM-64GB": "a100-64gb",
    "NVIDIA L4 Tensor Cores": "l4", "NVIDIA A10G Graphics Processing Unit": "a10g",
    "NVIDIA V100 Accelerator": "v100", "NVIDIA A100-SXM4-80GB MIG 1g.10gb": "a100-80gb-mig-1g.10gb",
    "NVIDIA A40-48Q": "a40-48q", "NVIDIA H100 PCIe": "h100-pcie", "NVIDIA GH200 480GB": "gh200",
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb+me": "h100-mig-1g.10gb", "DGX Spark": "gb10",
    "GB10 Grace Blackwell Superchip": "gb10", "Quadro RTX A6000": "a6000",
    "NVIDIA T1000 8GB": "t1000", "GTX1080Ti": "gtx-1080-ti", "1080ti": "gtx-1080-ti",
    "GeForce GTX 1060 3GB": "gtx-1060-3gb", "GeForce GTX 1080 with Max-Q Design": "gtx-1080-max-q",
    "GeForce GTX TITAN X": "titan-x-maxwell", "titanx": "titan-x", "2080ti": "rtx-2080-ti",
    "NVIDIA Tegra X1": "jetson-nano", "NVIDIA Tegra X2": "tx2", "Xavier": "xavier-agx",
    "Jetson-AGX": "xavier-agx", "Orin (nvgpu)": "orin-agx",
    "NVIDIA Jetson Orin Nano Developer Kit": "orin-nano",
    "NVIDIA Jetson Orin NX Engineering Reference Developer Kit": "orin-nx",
    "orin-nano@15W": "orin-nano", "Orin Nano MAXN_SUPER": "orin-nano-super",
    "orin-nano@MAXN": "orin-nano-super", "Jetson Orin Nano Super 25W": "orin-nano-25w",
    "Orin NX Super": "orin-nx-40w", "Xavier NX MODE_15W_6CORE": "xavier-nx-15w",
    "AGX Xavier MODE_30W_ALL": "xavier-agx-30w", "TX2 Max-N": "tx2",
    "Jetson Nano 10 watts": "jetson-nano", "Intel i7-12700H": "i7-12700h",
    "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz": "xeon-8481c", "AMD EPYC 9B14": "epyc-9b14",
    "AMD Ryzen 9 7950X 16-Core Processor": "ryzen-9-7950x", "Some New Chip": "some-new-chip",
    "NVIDIA Z9000 Ultra 640GB HBM9": "z9000-ultra-hbm9", "GA102 [GeForce RTX 3090]": "rtx-3090",
    "gtx1660s": "gtx-1660-super", "RTX™ 4090": "rtx-4090",
    # the same chip with other units, another memory or another mode
    "GeForce RTX 2060 12GB": "rtx-2060-12gb", "GTX 1060 5GB": "gtx-1060-5gb",
    "RTX 3050 6GB Laptop GPU": "rtx-3050-laptop-6gb", "NVIDIA A800 40GB Active": "a800-40gb",
    "Tesla P100-PCIE-12GB": "p100-12gb", "H100 96GB": "h100-96gb",
    "Jetson AGX Xavier 8GB": "xavier-agx-8gb", "Jetson TX2 4GB": "tx2-4gb",
    "Jetson Nano 8GB": "jetson-nano-8gb", "GTX 1650 GDDR6": "gtx-1650-gddr6",
    "RTX 3060 Ti GDDR6X": "rtx-3060-ti-gddr6x", "RTX 4070 GDDR6": "rtx-4070-gddr6",
    "H100 80GB HBM2e": "h100-pcie", "GH200 HBM3e": "gh200-144gb", "RTX 3090 GDDR6X": "rtx-3090",
    "Orin Nano 4GB Super": "orin-nano-4gb-super", "Orin Nano 4GB MAXN": "orin-nano-4gb-super",
    "Orin NX 8GB 20W": "orin-nx-8gb-20w", "AGX Orin 32GB (40 W)": "orin-agx-32gb-40w",
    "Orin Nano 4GB 25W": "orin-nano-4gb-super", "Orin NX 8GB Super": "orin-nx-8gb-40w",
    "Orin Nano 4GB 10W": "orin-nano-4gb", "AGX Orin 60W": "orin-agx",
    "Orin Nano Super 8GB MAXN_SUPER": "orin-nano-super",
    # as tables write them
    "RTX 4090M": "rtx-4090-laptop", "A10M": "a10m", "Mobile RTX 3060": "rtx-3060-laptop",
    "rtx_4090m": "rtx-4090-laptop", "RTX 4090D": "rtx-4090-d",
    "Jetson OrinNano devkit": "orin-nano", "XavierNX": "xavier-nx", "TeslaT4": "t4",
    "A100 1g.5gb": "a100-mig-1g.5gb", "1x A100": "a100", "A100-SXM-80GBx1": "a100-80gb",
    "GPU 0: Tesla T4 (UUID: GPU-92a5a8ff-2f4c-e1d2)": "t4", "cuda:0 NVIDIA L4": "l4",
    "RTX 6000 Pro": "rtx-pro-6000", "RTX 4000 SFF": "rtx-4000-sff-ada",
    "RTX 3060 LHR": "rtx-3060", "RTX 3090 FE": "rtx-3090", "Quadro P4000": "quadro-p4000",
    "NVIDIA RTX PRO 5000 72GB Blackwell": "rtx-pro-5000-72gb", "RTX 8000": "quadro-rtx-8000",
    "NVIDIA GeForce RTX 3050 4GB Laptop GPU": "rtx-3050-laptop-4gb", "RTX 5090D": "rtx-5090-d",
    "RTX 5000 Ada Generation Laptop GPU": "rtx-5000-ada-laptop", "T4 x1": "t4",
    "AMD Phenom(tm) II X4 955 Processor": "phenom-ii-x4-955",
}  # fmt: skip


@pytest.mark.parametrize("text", NAMES)
def test_names_of_devices(text: str) -> None:
    assert device_name(text) == NAMES[text]
    named = target_named(f"{text}/ORT TRT 1_17/fp16/4T")
    assert str(named) == f"{NAMES[text]}/onnxruntime-tensorrt-1.17/fp16/4t"


@pytest.mark.parametrize("name", devices.names())
def test_a_sheet_s_name_and_title_lead_to_it(name: str) -> None:
    assert device_name(name) == name
    title = devices.load(name).title
    if name not in ("k80", "m60", "a16"):  # "one of its two GPUs"
        assert device_name(title) == name


@pytest.mark.parametrize(
    ("gpu", "board", "name"),
    [
        ("Orin", "NVIDIA Jetson Orin Nano Developer Kit", "orin-nano"),
        ("Orin", "NVIDIA Orin NX Developer Kit", "orin-nx"),
        ("Orin", "", "orin-agx"),
        ("Orin", "Some carrier board", "orin-agx"),
        ("NVIDIA Tegra X1", "NVIDIA Jetson TX1 Developer Kit", "jetson-tx1"),
        ("AD107M [GeForce RTX 4060 Max-Q / Mobile]", "", "rtx-4060-laptop"),
        ("Xavier", "NVIDIA Jetson Xavier NX Developer Kit", "xavier-nx"),
        ("GeForce RTX 4090/PCIe/SSE2", "NVIDIA Jetson Orin Nano Developer Kit", "rtx-4090"),
    ],
)
def test_a_jetson_s_board_tells_which_it_is(gpu: str, board: str, name: str) -> None:
    assert device_name(gpu, board) == name


NO_DEVICES = ["", "  ", "NVIDIA", "(R)", "+-.", "cpu", "cuda:0", "GPU 1", "7", "\u04224"]
NO_DEVICES += ["A\uff11\uff10\uff10", "RTX 4090\u00b2", "8x A100", "8xA100", "4 \u00d7 L4", "2*T4"]
NO_DEVICES += ["A100 x8", "A100 (x8)", "A100-SXM-80GBx8", "dual RTX 3090", "RTX 3090 \u00d7 2"]


@pytest.mark.parametrize("text", NO_DEVICES)
def test_what_names_nothing_or_several_is_refused(text: str) -> None:
    with pytest.raises(TargetError, match=r"names (no|several) devices?"):
        device_name(text)


@given(st.text(max_size=40) | st.text("NVIDIARTXGe 0123456789-()GB.tisxm+", max_size=40))
@example("0G.:A")
@example("0G.")
@example("PCIe_CPU_max-q_nano")
@example("4090-ada-CPU-4090")
@example("1g.5gb-CPU")
def test_any_name_is_a_target_s_device_and_stays(text: str) -> None:
    try:
        name = device_name(text)
    except TargetError:
        return
    assert Target.parse(f"{name}/tensorrt/fp16").device == name
    assert device_name(name) == name


X86 = "processor : {}\nvendor_id : X\ncpu family : 26\nmodel : 2\nmodel name : {}\n\n"
ARM = "processor : {}\nCPU implementer : {}\nCPU part : {}\n\n"
JETSON = "processor : {}\nmodel name : ARMv8 Processor rev {} (v8l)\n"
CPUS = {
    X86.format(0, "12th Gen Intel(R) Core(TM) i7-12700H"): "i7-12700h",
    X86.format(0, "AMD EPYC") + X86.format(1, "AMD EPYC"): "epyc-26-2",
    X86.format(0, "AMD Ryzen 7 5800H with Radeon Graphics"): "ryzen-7-5800h-radeon-graphics",
    # Kernels of ARM name no model,
    ARM.format(0, "0x41", "0xd0c"): "neoverse-n1",
    ARM.format(0, "0x41", "0xd4f") + ARM.format(1, "0x41", "0xd4f"): "neoverse-v2",
    ARM.format(0, "0x4e", "0x004"): "carmel",
    ARM.format(0, "0x61", "0x032") + ARM.format(1, "0x61", "0x033"): "apple-m2",
    ARM.format(0, "0x41", "0xFFF"): "arm-0x41-0xfff",
    # or the architecture in its place, or one of two kinds of cores.
    JETSON.format(0, 1) + ARM.format(0, "0x41", "0xd42"): "cortex-a78ae",
    ARM.format(0, "0x41", "0xd05") + ARM.format(4, "0x41", "0xd0b"): "cortex-a55-cortex-a76",
    ARM.format(0, "0x4e", "0x003") + ARM.format(1, "0x41", "0xd07"): "cortex-a57-denver2",
    "processor : 0\n\nCPU implementer : 0x41\nCPU part : 0xd03\n": "cortex-a53",
    # Other architectures have words of their own, or none.
    "processor : 0\nisa : rv64imafdc\nuarch : sifive,u74-mc\n": "sifive-u74-mc",
    "system type : X\nprocessor : 0\ncpu model : Loongson-3A4000 V1.0": "loongson-3a4000-v1-0",
    "processor : 0\n": "s390x",
    "": "s390x",
}


@pytest.mark.parametrize("cpuinfo", CPUS, ids=list(CPUS.values()))
def test_this_machine_s_cpu(cpuinfo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    (tmp_path / "machine").write_text("s390x\n")
    monkeypatch.setenv(host.IDENTITY_VARIABLE, str(tmp_path))
    assert host.cpu().name == CPUS[cpuinfo] == device_name(CPUS[cpuinfo])
    assert host.cpu_environment()["cpu"]


ENGINES = {
    "tensorrt": ["TensorRT (CUDA 12.1)", "TensorRT via Ultralytics 8.2.0", "YOLOv8 (TensorRT)"],
    "tensorrt-8.6": ["CUDA 12.1 TensorRT 8.6", "TensorRT|CUDA 12.1, 8.6.1", "8.6 TensorRT"],
    "tensorrt-8.5": ["TensorRT 8,5"],
    "tensorrt-dla-8.6": ["TensorRT 8.6 (DLA)"],
    "tensorrt-llm-0.9": ["TensorRT-LLM 0.9"],
    "triton-tensorrt-8.6": ["Triton (TensorRT 8.6)"],
    "deepstream-tensorrt-8.6": ["TensorRT 8.6 in DeepStream"],
    "tensorrt-rtx-1.0": ["TensorRT-RTX 1.0"],
    "tensorrt-sparse-8.6": ["TensorRT 8.6 sparse"],
    "tensorflow-tensorrt-2.12": ["TF-TRT 2.12"],
    "torch-tensorrt-0.4": ["torch2trt 0.4"],
    "onnxruntime": ["ONNX Runtime with CUDA 11.8", "CUDAExecutionProvider"],
    "onnxruntime-directml-1.18": ["ORT 1.18 DirectML EP"],
    "onnxruntime-openvino": ["OpenVINOExecutionProvider"],
    "onnxruntime-openvino-1.18": ["onnxruntime-openvino 1.18"],
    "onnxruntime-tensorrt": ["TensorrtExecutionProvider"],
    "onnxruntime-tensorrt-1.16": ["ONNX Runtime 1.16 (TensorRT)"],
    "paddle-tensorrt-2020": ["paddle+tensorrt|unstated (2020-04)"],
    "torch-2.1": ["Python 3.10 PyTorch 2.1+cu118"],
    "torch-2.4": ["cu121 torch2.4"],
    "torch-compile-2.4": ["torch.compile (PyTorch 2.4)"],
    "torch-ngc": ["NGC 23.10 PyTorch"],
    "tvm-0.9": ["TVM v0.9"],
}


@pytest.mark.parametrize("name", ENGINES)
def test_engines(name: str) -> None:
    for raw, _, version in (text.partition("|") for text in ENGINES[name]):
        assert engine_name(raw, version) == name
    assert engine_name(name) == name


@pytest.mark.parametrize("name", [device_name, engine_name])
def test_what_is_too_long_for_a_name_is_refused_at_once(name: Callable[[str], str]) -> None:
    with pytest.raises(TargetError, match="names nothing: it has 100,000 letters"):
        name("[" * 100_000)  # patterns would take hours


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (" 8.6 ", "names no engine"),
        ("TensorRT \uff18.6", "names no engine: the letter"),
        ("TensorRT|6-Aug", "'6-Aug' is a date, not a version"),
        ("TensorRT|03. Okt", "is a date"),
        ("ORT|Jan 17", "is a date"),
        ("TensorRT 8.6 (CUDA graph)", "leave out 'cuda graph'"),
        ("torch.compile max-autotune", "leave out 'max-autotune'"),
        ("torch.compile (mode=reduce-overhead)", "leave out 'reduce-overhead'"),
    ],
)
def test_what_names_no_engine_or_more_is_refused(text: str, message: str) -> None:
    raw, _, version = text.partition("|")
    with pytest.raises(TargetError, match=re.escape(message)):
        engine_name(raw, version)


def test_precisions_and_targets_of_too_few_parts() -> None:
    assert [precision_name(p) for p in PRECISIONS] == list(PRECISIONS)
    words = ("Float32", "half", "AMP FP16", "bfloat16", "INT8", "channels")
    assert [precision_name(w) for w in words[:-1]] == ["fp32", "fp16", "amp", "bf16", "int8"]
    with pytest.raises(TargetError, match="'channels' is not a precision: choose one of fp32"):
        precision_name(words[-1])
    with pytest.raises(TargetError, match="write it as device"):
        target_named("t4")


def test_what_timed_a_table_is_read_and_left_out() -> None:
    for text, plain, harness in (
        ("t4/tensorrt-mlperf/int8", "t4/tensorrt/int8", "mlperf"),
        ("t4/tensorrt-10-ultralytics/fp16", "t4/tensorrt-10/fp16", "ultralytics"),
        ("v100/torch-ngc/amp", "v100/torch/amp", "ngc"),
        ("t4/tensorrt-10-yolo12/fp16", "t4/tensorrt-10/fp16", "yolo12"),
        ("v100/tensorrt-jetson-inference/fp16", "v100/tensorrt/fp16", "jetson-inference"),
        ("v100/torch-compile-2.9/amp", "v100/torch-compile-2.9/amp", ""),
        ("v100/torch-compile/amp", "v100/torch-compile/amp", ""),
    ):
        target = Target.parse(text)
        assert (str(target.plain), target.harness) == (plain, harness)


def test_versions_are_in_the_order_of_their_numbers() -> None:
    versions = ["trtutils", "", "10-ultralytics", "8.6", "10.3", "8.6.1", "10"]
    ordered = ["trtutils", "", "8.6", "8.6.1", "10-ultralytics", "10", "10.3"]
    assert sorted(versions, key=version_key) == ordered
    targets = [Target.parse(f"epyc-26-2/openvino/fp32{tail}") for tail in ("/4t", "", "/1t")]
    assert [one.threads for one in sorted(targets)] == [None, 1, 4]


parts = st.from_regex(r"[a-z0-9][a-z0-9._+-]{0,12}", fullmatch=True)


@given(parts, parts, st.sampled_from(PRECISIONS), st.none() | st.integers(1, 9999))
def test_targets_are_read_back(
    device: str, runtime: str, precision: str, threads: int | None
) -> None:
    target = Target(device, runtime, precision, threads)
    assert Target.parse(str(target)) == target
    assert "/" not in target.folder
    assert target.runtime == target.engine + (f"-{target.version}" if target.version else "")


@pytest.mark.parametrize(
    "text",
    [
        "v100\n/tensorrt/fp16", "v100/tensorrt\n/fp16", "v100/tensorrt/fp16\n/1t",
        "v100/tensorrt/fp16/1t\n/", "../x/fp16", "a b/c/fp32", "V100/tensorrt/fp16",
        "v100/tensorrt", "v100/tensorrt/fp8", "v100/tensorrt/fp16/0t", "",
    ],
)  # fmt: skip
def test_what_would_be_a_strange_folder_is_no_target(text: str) -> None:
    with pytest.raises(TargetError) as caught:
        Target.parse(text)
    assert "\n" not in str(caught.value)


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


@pytest.mark.parametrize("runtime", FAIL.split())
def test_what_never_came_out_is_refused(runtime: str) -> None:
    target = Target("x", runtime, "fp32")
    with pytest.raises(
        TargetError, match=f"{runtime} names no version of {engine_text(target.engine)}"
    ):
        refuse_version(target.engine, target.version)
    with pytest.raises(TargetError, match="names no version"):
        engine_name(target.engine, target.version)


def test_what_there_is_or_may_be_passes() -> None:
    for target in (
        *[Target("x", runtime, "fp32") for runtime in PASS.split()],
        *targets_on_record(None)[1],
    ):
        refuse_version(target.engine, target.version)
