"""Threads that predict at once, on one predictor or on their own, say what one alone says."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import hybridlat.onnx_io.walk as walk
from hybridlat import Predictor
from hybridlat.schema.estimate import Estimate
from tests.networks import NETS

FILES = [NETS / f"{name}.onnx" for name in ("squeezenet", "resnet18")]


def fields(estimate: Estimate) -> tuple[object, ...]:
    return estimate.latency_us, estimate.interval_us, estimate.cells, estimate.warnings


@pytest.mark.parametrize("target", ["l4/tensorrt-10.3/fp16"])
@pytest.mark.parametrize("is_shared", [True, False])
def test_threads_say_what_one_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, is_shared: bool
) -> None:
    batches = [1, 2] * 2
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
