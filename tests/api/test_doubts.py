"""Grade, trust, tolerance, verdict, exit code and warnings of one answer never contradict."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridlat import Estimate, Predictor, predict
from hybridlat.cli import main as cli
from hybridlat.cli.predict import doubt_of
from hybridlat.schema.structure import EstimateWarning, half_width_share
from tests.networks import NETS

HEAVY = {"bvlc_alexnet", "vgg19", "wide_resnet50_2", "zfnet512"}  # OpenVINO takes seconds over them
NAMES = sorted({path.stem for path in NETS.glob("*.onnx")} - HEAVY)
TARGETS = (
    "v100/torch/fp32", "l4/torch-compile/fp16", "t4/tensorrt-8.6/int8", "h100/tensorrt/fp16",
    "orin-nano/tensorrt/fp16", "rtx-4090/tensorrt-10/fp16", "gtx-1080-ti/tensorrt/fp32",
    "epyc-26-2/onnxruntime-1.31/fp32/1t", "epyc-26-2/openvino/fp32/1t",
)  # fmt: skip
DOUBTS = ("beyond-physics", "surprising")


@functools.cache
def answer(target: str, name: str, known: float | None) -> Estimate:
    with Predictor(target, store="sqlite://", measure="never") as predictor:
        if known is not None:
            predictor.give({NETS / "squeezenet.onnx": known}, batch=1)
        return predictor.predict(NETS / f"{name}.onnx")


def agree(one: Estimate) -> None:
    codes, (code, _) = {w.code for w in one.warnings}, doubt_of(one)
    low, high = one.interval_us or (0.0, math.inf)
    doubted = bool(codes.intersection(DOUBTS)) or one.busy or one.contradicted
    if one.grade in ("measured", "good"):
        assert not doubted and one.supported
    if codes.intersection(DOUBTS):
        assert one.grade in (None, "order of magnitude") and not one.within_tolerance
    if one.grade == "good" and one.latency_us:
        assert 0.8 * one.latency_us <= low <= high <= 1.2 * one.latency_us
    if one.tolerance_given and one.trusted:
        share = half_width_share(one.latency_us, one.interval_us)
        assert one.source == "measured" or (share is not None and share <= (one.tolerance or 0))
    if one.verdict in ("within", "over") and one.max_latency_us is not None:
        probability = one.probability_within
        assert not (codes.intersection(DOUBTS) or one.busy)
        assert (one.max_latency_us < low) == (one.verdict == "over")
        is_within = one.verdict == "within"
        assert probability is None or (probability > 0.5) == is_within
        assert (code, one.trusted) == (0, True) if is_within else code == 1
    assert code in (0, 1) or not one.trusted or one.verdict == "unsure"
    assert code == 3 if not one.trusted and one.verdict != "over" else True
    assert (one.grade is None) == (not one.supported or one.latency_us is None) or (
        one.source == "measured" and not one.left_out
    )


@settings(max_examples=40)
@given(
    st.sampled_from(NAMES),
    st.sampled_from(TARGETS),
    st.sampled_from([None, 200.0, 1e7]),
    st.sampled_from([None, 0.001, 0.1, 10.0]),
    st.sampled_from([None, 0.1, 0.97, 1.0, 1.2, 50.0]),
    st.sets(st.sampled_from(["busy", "contradicted", *DOUBTS, "unlike-known"]), max_size=2),
)
def test_no_answer_contradicts_itself(
    name: str,
    target: str,
    known: float | None,
    tolerance: float | None,
    budget: float | None,
    doubts: set[Any],
) -> None:
    one = answer(target, name, None if target.startswith("epyc") else known)
    stated: dict[str, Any] = {name: name in doubts for name in ("busy", "contradicted")}
    share, most = half_width_share(one.latency_us, one.interval_us) or 9.9, tolerance or 0.05
    stated |= {"within_tolerance": share <= most and not any(stated.values())}
    one = replace(one, tolerance=most, tolerance_given=tolerance is not None, **stated)
    one = one.warned((*one.warnings, *[EstimateWarning(code, "A.") for code in sorted(doubts)]))
    agree(one if budget is None else one.against(budget * (one.latency_us or 1.0)))


def test_a_given_latency_far_from_belief_makes_no_answer_sure(capfd: Any) -> None:
    known, target = "resnet18=10s", "rtx-3090/tensorrt/fp16"
    words = ["--target", target, "--known", known, "--store", "sqlite://"]
    assert cli.run(["predict", "resnet18", "squeezenet", *words]) == 0
    out = capfd.readouterr().out
    assert out.count("order of magnitude: ") == 2 and "good:" not in out and "measured:" not in out
    words += ["--tolerance", "50%"]
    assert cli.run(["predict", "resnet18", "squeezenet", *words]) == 3
    assert "far from all that is believed" in " ".join(capfd.readouterr().out.split())
    words[-2:] = ["--max-latency", "20s"]
    assert cli.run(["predict", "resnet18", *words]) == 3


@pytest.mark.parametrize("target", ["v100/torch/fp32", "l4/torch-2.4/fp16"])
def test_the_host_of_eager_pytorch_is_no_wonder(target: str) -> None:
    """Its calls take ten times what small networks need of the device, and are expected to."""
    one = predict(NETS / "efficientnet_b0.onnx", target, store="sqlite://", measure="never")
    assert "beyond-physics" not in {warning.code for warning in one.warnings}
