"""``confidence`` from outside: surer means a wider interval, and more to measure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from hybridlat.api import Predictor
from hybridlat.schema.estimate import Estimate
from hybridlat.store.packs import shipped_packs

NETS = Path(__file__).resolve().parents[2] / "data" / "nets"
LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)


@pytest.fixture(scope="module")
def estimates(tmp_path_factory: pytest.TempPathFactory) -> list[Estimate]:
    """A network whose cells the shipped model predicts (nobody measured them at this batch)."""
    store = str(tmp_path_factory.mktemp("sure") / "store.db")
    [pack] = shipped_packs()

    def at_each() -> Iterator[Estimate]:
        for confidence in LEVELS:
            with Predictor(
                pack.target, store=store, measure="never", confidence=confidence, tolerance=0.03
            ) as predictor:
                yield predictor.predict(NETS / "squeezenet.onnx", batch=1,
                                        shapes={"data_0": (1, 3, 192, 192)})  # fmt: skip

    return list(at_each())


def test_the_surer_the_wider(estimates: list[Estimate]) -> None:
    assert any(cell.source == "predicted" for cell in estimates[0].cells)
    assert [e.confidence for e in estimates] == list(LEVELS)
    assert len({e.latency_us for e in estimates}) == 1
    for before, after in itertools.pairwise(estimates):
        assert before.interval_us is not None and after.interval_us is not None
        assert after.interval_us[0] < before.interval_us[0]
        assert before.interval_us[1] < after.interval_us[1]
        for less, more in zip(before.cells, after.cells, strict=True):
            assert less.interval_us is not None and more.interval_us is not None
            assert more.interval_us[0] < less.interval_us[0]
            assert less.interval_us[1] < more.interval_us[1]


def test_the_surer_the_more_would_be_measured(estimates: list[Estimate]) -> None:
    asked = [len(e.to_measure) for e in estimates]
    assert asked == sorted(asked)
    assert asked[0] < asked[-1]
