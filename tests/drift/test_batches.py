"""Latency never falls as the batch grows, of shipped networks under laws of public timings."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest

from hybridlat import Predictor
from tests.drift.predictions import NETWORKS

SAMPLE = random.Random(44).sample(sorted(NETWORKS.glob("*.onnx")), 8)


@pytest.mark.parametrize("target", ["t4/tensorrt/fp16", "orin-nano/tensorrt-trtutils/fp16"])
def test_no_latency_falls_as_the_batch_grows(target: str) -> None:
    with Predictor(target, store="sqlite://", measure="never") as predictor:
        for path in SAMPLE:
            estimates = [predictor.predict(path, batch=size) for size in (1, 2, 4, 8, 16)]
            sizes = [each.latency_us or math.nan for each in estimates]
            assert all(small <= large for small, large in pairwise(sizes)), (path.stem, sizes)
