"""An answer is the same bits whatever number of threads BLAS may use."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import scipy.linalg  # noqa: F401 - its BLAS is another one than numpy's
from threadpoolctl import threadpool_info, threadpool_limits

from hybridlat import Predictor
from hybridlat.schema.estimate import Estimate

RESNET = Path("data/nets/resnet18.onnx")
OF_A_FAMILY = "t4/tensorrt/fp16"
"""Sums over a thousand coordinates: BLAS gives them to several threads."""


def blas_threads() -> list[int]:
    return [found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"]


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


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


def test_threads_answer_as_one_does(store: str) -> None:
    """None lifts the limit while another still computes."""
    before = blas_threads()
    one = answered(store, 1)
    with (
        Predictor(OF_A_FAMILY, store=store, measure="never") as predictor,
        ThreadPoolExecutor(4) as pool,
    ):
        found = list(pool.map(lambda batch: predictor.predict(RESNET, batch=batch), [1, 2] * 6))
    assert {estimate.latency_us for estimate in found[::2]} == {one.latency_us}
    assert len({estimate.latency_us for estimate in found[1::2]}) == 1
    assert blas_threads() == before
