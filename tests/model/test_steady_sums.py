"""An answer is the same bits whatever number of threads BLAS may use."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import scipy.linalg  # noqa: F401 - its BLAS is another one than numpy's
from threadpoolctl import threadpool_info, threadpool_limits

from hybridlat import Predictor
from hybridlat.model.steady_sums import steady_sums
from hybridlat.schema.estimate import Estimate

RESNET = Path("data/nets/resnet18.onnx")
OF_A_FAMILY = "t4/tensorrt/fp16"
"""Sums over a thousand coordinates: BLAS gives them to several threads."""


def blas_threads() -> list[int]:
    return [found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"]


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def two_threads() -> Iterator[None]:
    if not blas_threads():
        pytest.skip("the linear algebra of this numpy has no number of threads that can be set")
    with threadpool_limits(2, user_api="blas"):
        yield


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


@pytest.mark.usefixtures("two_threads")
def test_the_callers_threads_are_put_back(store: str) -> None:
    with Predictor(OF_A_FAMILY, store=store, measure="never") as predictor:
        predictor.predict(RESNET)
    assert set(blas_threads()) == {2}
    with pytest.raises(ValueError, match="in between"), steady_sums(alone=True):
        raise ValueError("in between")
    assert set(blas_threads()) == {2}


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
