"""An answer is the same bits whatever number of threads BLAS may use."""

from dataclasses import replace
from pathlib import Path

import scipy.linalg  # noqa: F401 - its BLAS is another one than numpy's
from threadpoolctl import threadpool_limits

from hybridlat import Predictor
from hybridlat.schema.estimate import Estimate

RESNET = Path("data/nets/resnet18.onnx")
OF_A_FAMILY = "t4/tensorrt/fp16"
"""Sums over a thousand coordinates: BLAS gives them to several threads."""


def answered(store: str, threads: int) -> Estimate:
    with (
        threadpool_limits(threads, user_api="blas"),
        Predictor(OF_A_FAMILY, store=store, measure="never") as predictor,
    ):
        return replace(predictor.predict(RESNET), elapsed_s=0.0)


def test_any_number_of_threads_gives_the_same_answer(store: str) -> None:
    one = answered(store, 1)
    assert one.latency_us is not None
    for threads in (2, 3):
        assert answered(store, threads) == one
