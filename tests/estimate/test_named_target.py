"""Targets as people write them: any wording, typos mended part by part, versions left open."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridlat import Predictor
from hybridlat.engines import host
from hybridlat.engines.registry import resolve
from hybridlat.errors import TargetError
from hybridlat.estimate.lookup.named_target import known_target, named_target
from hybridlat.onnx_io import to_onnx
from hybridlat.schema.measurement import Measurement
from hybridlat.schema.plugins import Plugins
from hybridlat.schema.target import Target
from hybridlat.store import Store
from tests.cli.shell import call
from tests.networks import classifier

MEANT = {
    "4090/torch.compile 2.9/AMP FP16": "rtx-4090/torch-compile-2.9/amp",
    "NVIDIA GeForce RTX 4090/trt8.6/half": "rtx-4090/tensorrt-8.6/fp16",
    "orin-nx@10W/trt/fp16": "orin-nx-10w/tensorrt/fp16",
    "a100 80gb/TensorRT 10.3.0/int8": "a100-80gb/tensorrt-10.3/int8",
    "EPYC 26-2/ORT 1.31/fp32/1T": "epyc-26-2/onnxruntime-1.31/fp32/1t",
    # a new device keeps the name that it is given, as far as that is one
    "my_board/TensorRT/fp16": "my_board/tensorrt/fp16",
}
NEWEST = {
    "rtx-4090/torch-compile/amp": "rtx-4090/torch-compile-2.9/amp",
    "4090/torch/amp": "rtx-4090/torch-2.9/amp",
    # what timed a public table is no part of a target
    "Orin Nano/TensorRT-trtutils/half": "orin-nano/tensorrt/fp16",
    "t4/tensorrt-8-openppl/int8": "t4/tensorrt-8/int8",
    "epyc-26-2/onnxruntime/fp32": "epyc-26-2/onnxruntime-1.31/fp32/1t",
    # a number is newer than a year alone
    "v100/paddle-tensorrt/fp32": "v100/paddle-tensorrt-8.5/fp32",
    # on record without a version, or with none at all: itself
    "v100/tensorrt/fp16": "v100/tensorrt/fp16",
    "T4/TensorRT/FP16": "t4/tensorrt/fp16",
    "l4/tensorrt/fp16": "l4/tensorrt/fp16",
    # a CPU has threads, on record or not
    "i7-12700h/openvino/fp32": "i7-12700h/openvino/fp32/1t",
    # all power modes of a board open to one version
    "orin-nano-7w/tensorrt/fp16": "orin-nano-7w/tensorrt/fp16",
}
WRONG = {
    "l4/tensort/fp16": "unknown engine 'tensort'; did you mean l4/tensorrt/fp16? Engines: ",
    "h100/tensorrt/fp17": "unknown precision 'fp17'; did you mean h100/tensorrt/fp16?",
    "h100/tensorrt/int4": "unknown precision 'int4'; Precisions: ",
    "l4/tensort/fp17": "did you mean l4/tensorrt/fp16?",
    "l4/nonsense/fp16": "unknown engine 'nonsense'; Engines: ",
    "l4": "l4 needs an engine and a precision, e.g. l4/tensorrt/fp16 (hybridlat targets l4)",
    "epyc-26-2": "e.g. epyc-26-2/onnxruntime-1.31/fp32/1t",
    "l4/torch": "l4/torch needs a precision, e.g. l4/torch/fp16",
    "l44/tensorrt/fp16": "unknown device 'l44': did you mean l4 or l40? "
    "(describe your own: --device-sheet FILE.toml; ",
    # No other CPU stands in for one that nobody has measured,
    "xeon/onnxruntime-1.31/fp32": "unknown device 'xeon' (describe your own",
    "raspberry-pi-5/onnxruntime/fp32/4t": "a CPU is known once hybridlat has run on it or ",
    "cpu/onnxruntime/fp32/1t": f"this machine's is {host.cpu().name})",
    "jetson/tensorrt/fp16": "unknown device 'jetson': did you mean jetson-nano or",
    "titan/tensorrt/fp16": "titan-x? (`hybridlat targets titan` lists all 5 that are called so)",
    "Orin/tensorrt/fp16": "'Orin' is the chip of orin-agx, orin-agx-32gb, orin-nano, orin-nano-4gb",
    "xavier": "'xavier' is the chip of xavier-agx, xavier-nx: name the board",
    "rtx-6000/tensorrt/fp16": "did you mean quadro-rtx-6000 or rtx-6000-ada or rtx-pro-6000?",
    "RTX 2080 Max-Q/tensorrt/fp16": "unknown device 'rtx-2080-max-q': did you mean rtx-2080 or",
    "DGX A100/tensorrt/fp16": "unknown device 'dgx-a100': did you mean a100 or",
    "MSI RTX 3060 Ti Gaming/torch/fp16": "did you mean rtx-3060-ti or rtx-3060 or",
    "8x A100/tensorrt/fp16": "'8x A100' names several devices",
    # nor has a GPU threads, or an engine a version that never came out or does not run there.
    "orin-nano/tensorrt/fp16/2t": "which CPUs alone have: write orin-nano/tensorrt/fp16",
    "l4/onnxruntime/fp32/4t": "ONNX Runtime is known on CPUs alone, and l4 is none: choose from ",
    "epyc-26-2/tensorrt/fp16": "TensorRT is known on GPUs alone, and epyc-26-2 is none: choose",
    f"{host.cpu().name}/torch/amp": "choose from `hybridlat targets",
    "l4/torch/int8": "PyTorch has no int8",
    "l4/tensorrt/amp": "TensorRT has no amp",
    "orin-nano/tensorrt-99/fp16": "tensorrt-99 names no version of TensorRT: the newest known is ",
    "rtx-5090/TensorRT 8.6/fp16": "10.8 is the first that does: write that, or no version",
    "v100/tensorrt-10.5/fp16": "TensorRT 10.5 does not run on v100: 10.4 is the last that does",
    "t4/openvino/fp32": "OpenVINO is known on CPUs alone, and t4 is none: choose from `hyb",
    "l4/tensorrt-23.10/fp16": "23.10 is a container's year and month: write the version of Tensor",
    "l4//fp16": "is not a target: write it as device/",
    "l4/tensorrt/fp16/many": "write 1t, 2t",
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store(str(tmp_path_factory.mktemp("store") / "s.db")) as opened:
        yield opened


@pytest.mark.parametrize("text", MEANT)
def test_parts_in_any_wording(text: str, store: Store) -> None:
    assert str(named_target(text, store)) == MEANT[text]


@pytest.mark.parametrize("text", NEWEST)
def test_an_open_version_is_the_newest_on_record(text: str, store: Store) -> None:
    assert str(known_target(text, store)) == NEWEST[text]


def test_threads_hold_where_none_are_on_record() -> None:
    with Predictor("i7-12700h/onnxruntime/fp32", threads=4, measure="never") as one:
        assert str(one.target) == "i7-12700h/onnxruntime/fp32/4t"


parts = st.from_regex(r"[a-z0-9][a-z0-9._+-]{0,12}", fullmatch=True)


@settings(max_examples=20)
@given(parts, parts, st.sampled_from(["fp32", "amp"]), st.none() | st.integers(1, 64))
def test_names_on_record_stay_to_the_letter(
    device: str, runtime: str, precision: str, threads: int | None
) -> None:
    target = Target(device, runtime, precision, threads)

    class Known(Store):
        def __init__(self) -> None: ...

        def targets(self) -> list[Target]:
            return [target]

    assert named_target(f" {target} ", Known()) == target == known_target(str(target), Known())


def test_other_packages_are_searched_for_foreign_engines_alone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Plugins, "names", pytest.fail)
    assert str(named_target("l4/tensorrt/fp16", store)) == "l4/tensorrt/fp16"


def test_records_make_a_device_known(tmp_path: Path) -> None:
    with Store(str(tmp_path / "s.db")) as store:
        older, newer = (Target("pixel9", f"tensorrt-{v}", "fp16") for v in ("9.2", "10.0"))
        store.add([Measurement(one, "0" * 32, "cell", 1.0, 0.01) for one in (newer, older)])
        assert known_target("Pixel9/TRT/fp16", store) == newer
        with pytest.raises(TargetError, match="pixel9 needs an engine"):
            known_target("pixel9", store)


def test_what_was_measured_goes_before_public_tables(tmp_path: Path) -> None:
    with Store(str(tmp_path / "s.db")) as store:
        store.add([Measurement(Target("orin-nx", "tensorrt-10.3", "fp16"), "0" * 32, "cell", 1, 0)])
        for device in ("orin-nx", "orin-nx-10w"):
            opened = known_target(f"{device}/tensorrt/fp16", store)
            assert str(opened) == f"{device}/tensorrt-10.3/fp16"


def test_this_machine_stands_for_what_a_target_leaves_open() -> None:
    own = resolve(None).target
    for less in (replace(own, runtime=own.engine), replace(own, threads=None)):
        engine = resolve(less)
        assert engine.backend is not None and engine.target == own
        engine.backend.close()


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "a.onnx").write_bytes(to_onnx(classifier(8), seed=1))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYBRIDLAT_STORE", str(tmp_path / "s.db"))
    return tmp_path


@pytest.mark.parametrize("typed", [*list(MEANT)[:4], "4090/torch-compile/amp"])
def test_predict_says_which_target_was_meant(nets: Path, typed: str) -> None:
    answer = call("predict", "a.onnx", "--json", "--target", typed, or_code=3).body
    meant = answer["answered_as"]
    assert meant == MEANT.get(typed, NEWEST["rtx-4090/torch-compile/amp"])
    with Predictor(typed) as predictor:
        assert str(predictor.target) == meant


@pytest.mark.parametrize("typed", WRONG)
def test_predict_refuses_in_one_line(nets: Path, typed: str) -> None:
    out, err = call("predict", "a.onnx", "--target", typed, code=2)
    assert not out and len(err.splitlines()) == 1 and WRONG[typed] in err


@pytest.mark.parametrize(
    ("words", "code", "shown"),
    [
        ("predict a.onnx --target l4/tensorrt/fp16 --threads 2", 2, "goes with CPUs alone"),
        ("compare a.onnx a.onnx", 2, "unknown device 'l44': did you mean l4"),
        ("evaluate --no-track", 2, "unknown device 'l44': did you mean l4"),
        ("train --no-track", 2, "unknown device 'l44': did you mean l4"),
        ("measure a.onnx", 3, "cannot be measured here"),
    ],
)
def test_what_needs_another_target_says_so(nets: Path, words: str, code: int, shown: str) -> None:
    of_none = [] if "--target" in words else ["--target", "l44/TensorRT/FP16"]
    assert shown in call(*words.split(), *of_none, code=code).err


def test_any_device_can_be_planned(nets: Path) -> None:
    planned = call("plan", "a.onnx", "-o", "p", "--target", "l44/TensorRT 8.6/FP16")
    assert "planned in p for l44/tensorrt-8.6/fp16" in planned.out
