"""Threads that predict at once say what one alone says, and BLAS's threads the same bits."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import scipy.linalg  # noqa: F401 - its BLAS is another one than numpy's
from threadpoolctl import threadpool_info, threadpool_limits

import hybridlat.onnx_io.walk as walk
from hybridlat import Predictor, compare, recommend
from hybridlat.onnx_io import isolation, torch_export
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.workers import steady_sums
from tests.networks import NETS

FILES = [NETS / f"{name}.onnx" for name in ("squeezenet", "resnet18")]
OF_A_FAMILY = "t4/tensorrt/fp16"
"""Sums over a thousand coordinates: BLAS gives them to several threads."""


def predicted(store: str) -> object:
    with Predictor(OF_A_FAMILY, store=store, measure="never") as predictor:
        one = predictor.predict(FILES[1])
    assert one.latency_us is not None
    return replace(one, elapsed_s=0.0)


def corrected(store: str) -> object:
    with Predictor(OF_A_FAMILY, store=store, measure="never") as predictor:
        predictor.give({FILES[0]: 400.0})
        return predictor.predict(FILES[1]).interval_us


def ranked(store: str) -> object:
    rows = recommend(FILES[1], "t4", store=store)
    return [(row.target, row.latency_us, row.interval_us) for row in rows]


def compared(store: str) -> object:
    return compare(FILES, OF_A_FAMILY, store=store).ratios


def most_telling(store: str) -> object:
    with Predictor(OF_A_FAMILY, store=store, measure="never") as predictor:
        return predictor.most_telling(FILES)


@pytest.mark.parametrize("answered", [predicted, corrected, ranked, compared, most_telling])
def test_any_number_of_threads_gives_the_same_answer(
    answered: Callable[[str], object], store: str
) -> None:
    answers = []
    for threads in (1, 2, 3):
        with threadpool_limits(threads, user_api="blas"):
            answers.append(answered(store))
    assert answers[0] and answers == [answers[0]] * 3


def fields(estimate: Estimate) -> tuple[object, ...]:
    return estimate.latency_us, estimate.interval_us, estimate.cells, estimate.warnings


def blas_threads() -> list[int]:
    return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]


@pytest.mark.parametrize("is_shared", [True, False])
def test_threads_say_what_one_says_and_none_lifts_the_limit_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_shared: bool
) -> None:
    batches, target, before = [1, 2] * 3, OF_A_FAMILY, blas_threads()
    monkeypatch.setattr(walk, "MOST_REMEMBERED", 50)  # it is cleared while others read it
    monkeypatch.setattr(walk, "remembered", {})

    def predictors() -> Iterator[Predictor]:
        one = Predictor(target, store=str(tmp_path / "store.db"), measure="never")
        for _ in batches:
            yield one
            if not is_shared:
                one = Predictor(target, store=str(tmp_path / "store.db"), measure="never")

    def predict(predictor: Predictor, batch: int) -> list[tuple[object, ...]]:
        return [fields(predictor.predict(file, batch=batch)) for file in FILES]

    alone = {
        batch: predict(Predictor(target, store="sqlite://", measure="never"), batch)
        for batch in set(batches)
    }
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(predict, predictors(), batches))
    assert made == [alone[batch] for batch in batches]
    assert blas_threads() == before


def in_sums(pause: Callable[[], object]) -> None:
    with steady_sums(alone=True):
        pause()


def in_export(pause: Callable[[], object]) -> None:
    module: Any = SimpleNamespace(modules=list, eval=lambda: None)
    with torch_export.as_deployed(module):
        pause()


def in_inference(pause: Callable[[], object]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(isolation, "_processes", {})  # another test may have one
        patch.setattr(isolation, "_started", lambda _: pause())
        with pytest.raises(AttributeError):  # what started is no process
            isolation.ask("onnxruntime", b"")


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")  # from Python 3.12 on
@pytest.mark.parametrize("busy", [in_sums, in_export, in_inference])
def test_a_fork_waits_for_no_other_thread(busy: Callable[[Callable[[], object]], None]) -> None:
    is_busy, may_end = threading.Event(), threading.Event()

    def pause() -> None:
        is_busy.set()
        may_end.wait()

    thread = threading.Thread(target=busy, args=(pause,))
    thread.start()
    assert is_busy.wait(60)
    child = os.fork()
    if child == 0:
        with suppress(BaseException):  # pytest goes on in the parent alone
            busy(lambda: None)
            os._exit(0)
        os._exit(1)
    ended, end = (0, -1), time.monotonic() + 60
    while not ended[0] and time.monotonic() < end:
        time.sleep(0.01)
        ended = os.waitpid(child, os.WNOHANG)
    may_end.set()
    thread.join()
    if not ended[0]:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == (child, 0)
