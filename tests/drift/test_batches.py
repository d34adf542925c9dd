"""Latency never falls as the batch grows, of shipped networks under every kind of target."""

import math
from itertools import pairwise

import pytest

from hybridlat import Predictor
from tests.drift.predictions import NETWORKS

BATCHES = (1, 2, 4, 8, 16, 32)
NAMES = ("bvlc_alexnet", "hgnetv2_b0", "mobilenetv4_conv_small", "repvgg_a1")


@pytest.mark.parametrize(
    "target",
    [
        "t4/tensorrt/fp16",  # a law of public timings
        "orin-nano/tensorrt/fp16",
        "v100/tensorrt/fp16",  # a model of single convolutions at batches 1 and 32 and more
        "rtx-4090/torch-2.9/amp",  # timings at batches of 128 and more
        "rtx-4090/torch-compile-2.9/amp",
        "epyc-26-2/onnxruntime-1.31/fp32/1t",  # a pack of measured cells, at batch 1
    ],
)
def test_no_latency_falls_as_the_batch_grows(target: str) -> None:
    with Predictor(target, store="sqlite://", measure="never") as predictor:
        for name in NAMES if "onnxruntime" not in target else NAMES[2:3]:
            each = [predictor.predict(NETWORKS / f"{name}.onnx", batch=size) for size in BATCHES]
            sizes = [estimate.latency_us or math.nan for estimate in each]
            assert all(small <= large for small, large in pairwise(sizes)), (name, sizes)
