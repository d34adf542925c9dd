"""Answers that are remembered: the same question, as long as nothing has changed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from experiments import nasbench201
from hybridlat.api import answers, predictor
from hybridlat.api.predictor import Predictor
from hybridlat.estimate import network_estimate
from hybridlat.schema.measurement import Measurement
from hybridlat.schema.target import Target

NETS = Path(__file__).resolve().parents[2] / "data" / "nets"
NET, OTHER = NETS / "lcnet_100.onnx", NETS / "resnet18.onnx"
TARGET = "epyc-26-2/onnxruntime-1.31/fp32/1t"


class Counting:
    """How often an estimate was worked out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        real = network_estimate.estimate_network

        def estimate(*given: object) -> object:
            self.count += 1
            return real(*given)  # type: ignore[arg-type]

        monkeypatch.setattr(predictor, "estimate_network", estimate)


@pytest.fixture
def worked_out(monkeypatch: pytest.MonkeyPatch) -> Counting:
    return Counting(monkeypatch)


@pytest.fixture
def searching(tmp_path: Path) -> Iterator[Predictor]:
    with Predictor(TARGET, store=str(tmp_path / "store.db"), measure="never") as made:
        for path in (NET, OTHER):  # how they fall into cells is written to the store
            made.predict(path)
        settle(tmp_path / "store.db")
        made._answers = answers.AnswerMemory()
        yield made


def settle(path: Path) -> None:
    """Let the file's last write be some time ago: right after one nobody can tell two apart."""
    long_ago = time.time_ns() - 60_000_000_000
    for name in (path, path.with_name(path.name + "-wal")):
        if name.exists():
            os.utime(name, ns=(long_ago, long_ago))


def test_the_same_question_has_the_same_answer(searching: Predictor, worked_out: Counting) -> None:
    first, again = searching.predict(NET), searching.predict(NET)
    assert worked_out.count == 1
    assert again == replace(first, elapsed_s=again.elapsed_s)
    assert 0 < again.elapsed_s < 60


def test_another_question_is_worked_out(searching: Predictor, worked_out: Counting) -> None:
    asked = [
        searching.predict(NET),
        searching.predict(NET, batch=2),
        searching.predict(NET, name="other"),
        searching.predict(NET, describe=True),
    ]
    searching.tolerance = 0.5
    asked.append(searching.predict(NET))
    assert worked_out.count == 5
    assert asked[1].batch == 2 and asked[2].network == "other" and asked[3].structure is not None
    assert asked[4].tolerance == 0.5


def test_what_is_written_to_the_store_counts_at_once(
    searching: Predictor, worked_out: Counting, tmp_path: Path
) -> None:
    network = nasbench201.build(nasbench201.sample(1, 77)[0])
    before = searching.predict(network)
    settle(tmp_path / "store.db")
    cell = next(cell for cell in before.cells if cell.source == "predicted")
    record = Measurement(
        Target.parse(TARGET), cell.signature, "cell", 1e6, measured_at="2026-11-01T00:00:00+00:00"
    )
    with Predictor(TARGET, store=str(tmp_path / "store.db"), measure="never") as elsewhere:
        elsewhere.store.add([record])
    assert searching.predict(network).sum_of_cells_us > before.sum_of_cells_us + 9e5
    assert worked_out.count == 2


def test_where_measuring_is_allowed_every_answer_is_worked_out(
    tmp_path: Path, worked_out: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Predictor, "_may_measure", property(lambda self: True))
    monkeypatch.setattr(Predictor, "_measure_now", lambda *_: None)
    with Predictor(
        TARGET, store=str(tmp_path / "store.db"), measure="never", tolerance=9.0
    ) as made:
        for _ in range(2):
            made.predict(NET)
    assert worked_out.count == 2


def test_few_answers_are_kept(
    searching: Predictor, worked_out: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    searching.predict(NET)
    monkeypatch.setattr(answers, "MOST_BYTES", searching._answers._bytes + 1)
    for path in (OTHER, NET):
        searching.predict(path)
    assert worked_out.count == 3
    searching.predict(NET)
    assert worked_out.count == 3
