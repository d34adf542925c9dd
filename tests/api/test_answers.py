"""Answers that are remembered: the same question, as long as nothing has changed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from experiments import nasbench201
from hybridlat.api import answers, predictor, workers
from hybridlat.api.predictor import Predictor
from hybridlat.errors import InputError
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
        searching.predict(NET, describe=True),
    ]
    searching.tolerance = 0.5
    asked.append(searching.predict(NET))
    assert worked_out.count == 4
    assert asked[1].batch == 2 and asked[2].structure is not None
    assert asked[3].tolerance == 0.5


def test_what_a_network_is_called_is_no_other_question(
    searching: Predictor, worked_out: Counting
) -> None:
    model = onnx.load(NET)
    data = model.SerializeToString()
    for source, own_name in ((NET, str(NET)), (data, "network"), (model, model.graph.name)):
        first, named = searching.predict(source), searching.predict(source, name="other")
        assert (first.network, named.network) == (own_name, "other")
        assert named == replace(first, network="other", elapsed_s=named.elapsed_s)
        assert searching.predict(source).network == own_name
    assert worked_out.count == 2
    twice = list(searching.predict_many([data, data]))
    assert [answer.network for answer in twice] == ["network 0", "network 1"]
    assert worked_out.count == 2


def test_an_input_that_has_no_business_here_is_refused_each_time(searching: Predictor) -> None:
    data = NET.read_bytes()
    searching.predict(data)
    with pytest.raises(InputError, match="example input"):
        searching.predict(data, (1, 3, 224, 224))


def test_workers_are_not_asked_for_what_was_answered_before(
    searching: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nets = [nasbench201.build(arch).SerializeToString() for arch in nasbench201.sample(3, 5)]
    before = None
    while before != searching.store.stamp:  # workers write what they learn, and SQLite tidies up
        settle(tmp_path / "store.db")
        before = searching.store.stamp
        first = list(searching.predict_many(nets, jobs=2))
    monkeypatch.setattr(workers.Crew, "answers", _nobody)
    again = list(searching.predict_many([nets[2], *nets], jobs=2))
    assert [answer.network for answer in again] == [f"network {i}" for i in range(4)]
    for answer, worked in zip(again, [first[2], *first], strict=True):
        same = {"network": worked.network, "elapsed_s": worked.elapsed_s}
        assert replace(answer, **same) == worked  # type: ignore[arg-type]
    assert next(searching.predict_many([nets[0]])).cells == first[0].cells


def _nobody(*_: object) -> Iterator[object]:
    raise AssertionError("a worker was asked")


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


class Idle:
    """A workbench at which nothing is measured."""

    def for_gate(self, _: object) -> Callable[..., None]:
        return lambda *_: None


def test_where_measuring_is_allowed_every_answer_is_worked_out(
    tmp_path: Path, worked_out: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Predictor, "_may_measure", property(lambda self: True))
    monkeypatch.setattr(Predictor, "_workbench", property(lambda self: Idle()))
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
