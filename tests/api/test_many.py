"""Many networks by several workers: the answers of one, in order, whatever happens to a worker."""

import itertools
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import joblib
import onnx
import pytest

from hybridlat import Predictor, onnx_io
from hybridlat.api import parallel as many
from hybridlat.api.arguments import Item, Query
from hybridlat.api.parallel import LARGEST_WINDOW_BYTES, windows
from hybridlat.errors import HybridlatError, InputError, MissingExtra, NetworkError
from hybridlat.estimate.partition import Partitioner
from hybridlat.onnx_io import load, to_onnx
from hybridlat.schema import workers
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.measurement import Measurement
from hybridlat.store import Store
from tests.fakes.fake_backend import FAKE, QUICK
from tests.fakes.fake_engine import LOWERING_DIES_VARIABLE, ONCE_VARIABLE
from tests.networks import classifier
from tests.slow import slow


def network(channels: int) -> bytes:
    return to_onnx(classifier(channels), seed=1)


def plain(answers: list[Any]) -> list[Any]:
    """Estimates without the time that they took; errors as their sentences."""
    return [
        replace(a, elapsed_s=0.0) if isinstance(a, Estimate) else f"{type(a).__name__}: {a}"
        for a in answers
    ]


@pytest.mark.parametrize("jobs", [1, 2])
def test_equal_networks_are_estimated_once(filled: Path, jobs: int) -> None:
    again = to_onnx(classifier(8), seed=2)  # other weights
    sources = [network(8), again, network(16), b"none", again]
    with Predictor(FAKE, store=str(filled), measure="never") as predictor:
        many = partial(predictor.predict_many, sources, jobs=jobs, errors="return")
        each, deduped = list(many()), list(many(dedupe=True))
    assert plain(deduped) == plain(each)
    first, second, other, _, last = deduped
    assert other.cells is not first.cells
    if jobs == 1:
        assert first.cells is second.cells and second.cells is last.cells
    assert [e.network for e in (first, second, last)] == ["network 0", "network 1", "network 4"]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two networks' cells are on record."""
    path = tmp_path_factory.mktemp("filled") / "store.db"
    with Predictor(FAKE, store=str(path), settings=QUICK) as predictor:
        predictor.measure(network(8), what="cells")
        predictor.measure(network(16), what="cells")
    return path


@pytest.fixture
def store(filled: Path, tmp_path: Path) -> str:
    shutil.copy(filled, tmp_path / "store.db")
    return f"sqlite:///{tmp_path / 'store.db'}"


def end_workers() -> None:
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True, kill_workers=True)


@pytest.fixture(autouse=True, scope="module")
def _no_worker_is_left() -> Iterator[None]:
    yield
    end_workers()


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Workers die over "network 2"."""
    monkeypatch.setenv(LOWERING_DIES_VARIABLE, "network 2")
    end_workers()  # those there do not know of it
    yield
    end_workers()


SOURCES: list[Any] = [network(8), b"no model", onnx.load_from_string(network(16)), network(12)]
SOURCES += [network(8), 3, None, [network(8)], (network(8),), network(16)]


@pytest.mark.parametrize("everything_known", [True, False])
def test_two_workers_answer_as_one_does(store: str, everything_known: bool) -> None:
    if everything_known:  # the networks themselves too: the machine is new, and wants them whole
        with Predictor(FAKE, store=store, settings=QUICK) as predictor:
            list(predictor.predict_many(SOURCES, errors="return"))
    with Predictor(FAKE, store=store, measure="never") as predictor:
        two = list(predictor.predict_many(SOURCES, jobs=2, errors="return"))
        assert plain(two) == plain(list(predictor.predict_many(SOURCES, errors="return")))
    assert [getattr(a, "network", "") for a in two][:5:4] == ["network 0", "network 4"]
    errors = [Estimate, NetworkError, *[Estimate] * 3, *[NetworkError] * 4, Estimate]
    assert [type(answer) for answer in two] == errors
    assert "network 1: this is not an ONNX model" in str(two[1])
    assert "an object of type int is no network" in str(two[5])


@pytest.mark.parametrize("dedupe", [True, False])
def test_workers_know_what_was_measured_since_they_started(
    store: str, tmp_path: Path, dedupe: bool
) -> None:
    source = tmp_path / "net.onnx"  # of one name: its equal's answer names it in commands
    source.write_bytes(network(8))
    with Predictor(FAKE, store=store, measure="never") as predictor:
        many = partial(predictor.predict_many, [source, source], jobs=2, dedupe=dedupe)
        before = list(many())
        whole = Partitioner(predictor.target, predictor.store).partition(load(source)).whole
        with Store(store) as other:
            other.add([Measurement(predictor.target, whole, "network", 777.0, 0.01)])
        after = list(many())
        assert plain(after) == plain(list(predictor.predict_many([source, source])))
    assert before[0].latency_us != after[0].latency_us == after[1].latency_us


@pytest.mark.parametrize("in_memory", [True, False])
def test_who_measures_answers_alone(
    store: str, in_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(many, "answers_by_workers")
    with Predictor(FAKE, store="sqlite://" if in_memory else store, settings=QUICK) as predictor:
        found = list(predictor.predict_many([network(20), network(20), network(24)], jobs=2))
    assert [answer.measured_now > 0 for answer in found] == [True, False, True]


def test_an_error_ends_it_where_it_stands_unless_it_is_asked_for(store: str) -> None:
    with Predictor(FAKE, store=store, measure="never") as predictor:
        for jobs in (1, 2):
            answers = predictor.predict_many(SOURCES, jobs=jobs)
            assert next(answers).network == "network 0"
            with pytest.raises(NetworkError, match="network 1: this is not an ONNX model"):
                next(answers)
        with pytest.raises(InputError, match="choose raise or return"):
            predictor.predict_many([], errors="ignore")  # type: ignore[call-overload]
        with pytest.raises(InputError, match="jobs=0"):
            predictor.predict_many([], jobs=0)


def test_sources_are_taken_more_and_more_at_a_time_and_large_ones_a_few() -> None:
    taken = windows((Item(b"", str(i)) for i in itertools.count()), 2)
    assert [len(next(taken)) for _ in range(9)] == [2 * min(16 * 2**i, 1024) for i in range(9)]
    large = bytes(LARGEST_WINDOW_BYTES // 2 - 1)
    taken = windows((Item(large, str(i)) for i in range(5)), 8)
    assert [len(window) for window in taken] == [3, 2]


def test_what_the_source_raises_comes_behind_the_answers_before_it(store: str) -> None:
    def broken() -> Iterator[bytes]:
        yield from [network(8), network(16)] * 20
        raise OSError("the disk is gone")

    with Predictor(FAKE, store=store, measure="never") as predictor:
        answers = predictor.predict_many(broken(), jobs=2)
        assert len([next(answers) for _ in range(40)]) == 40
        with pytest.raises(OSError, match="the disk is gone"):
            next(answers)


def test_a_network_in_memory_that_is_too_large_to_be_sent_is_answered_here(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [onnx.load_from_string(network(channels)) for channels in (8, 16)]
    with Predictor(FAKE, store=store, measure="never") as predictor:
        expected = plain(list(predictor.predict_many(models)))
    sent: list[Item] = []
    from_workers = many.from_workers

    def answers(*arguments: Any) -> Iterator[Any]:
        sent.extend(arguments[-1])
        yield from from_workers(*arguments)

    monkeypatch.setattr(many, "from_workers", answers)
    monkeypatch.setattr("hybridlat.onnx_io.as_bytes", lambda _: None)
    with Predictor(FAKE, store=store, measure="never") as predictor:
        found = plain(list(predictor.predict_many([*models, network(24)], jobs=2)))
    assert found[:2] == expected
    assert [item.name for item in sent] == ["network 2"]


@slow
def test_a_network_in_memory_of_more_than_2_gb_has_no_bytes() -> None:
    model = onnx.ModelProto()
    model.graph.initializer.add().raw_data = bytes(2**31)
    assert onnx_io.as_bytes(model) is None


@pytest.mark.usefixtures("dying")
def test_a_worker_may_die_once(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "once").touch()
    monkeypatch.setenv(ONCE_VARIABLE, str(tmp_path / "once"))
    sources = [network(c) for c in (8, 16, 9, 10, 11)]
    with Predictor(FAKE, store=store, measure="never") as predictor:
        found = list(predictor.predict_many(sources, jobs=2))
        assert not (tmp_path / "once").exists()
        assert plain(found) == plain(list(predictor.predict_many(sources)))


class Deadly(Item):
    """A network over which a worker dies."""

    def opened(self, *_: object) -> Any:
        raise BrokenExecutor("it is gone")


@pytest.mark.parametrize("at", [0, 3, 5, 8])
def test_no_answer_is_that_of_another_network_after_a_death(at: int) -> None:
    items = [Item(b"", f"network {number}") for number in range(20)]
    items[at] = Deadly(b"", f"network {at}")
    opened: Any = SimpleNamespace(close=int, twins={}, recall=None)
    answer_to = partial(many.work, lambda: opened, b"token", b"call", Query())
    parallel = partial(joblib.Parallel, 2, backend="threading", return_as="generator")
    answers = list(many.from_workers(parallel, answer_to, items))
    assert len(answers) == 20
    for number, answer in enumerate(answers):
        assert f"network {number} " in f"{answer} ".replace(":", " ")
    assert "brings down the process" in str(answers[at])


def test_nothing_more_is_sent_once_no_more_is_asked_for() -> None:
    calls = list[Iterator[Any]]()

    def answer_one(sent: Iterator[Any]) -> Iterator[object]:
        calls.append(sent)
        yield next(sent)

    items = [Item(b"", str(number)) for number in range(5)]
    answers = many.from_workers(lambda: answer_one, HybridlatError, items)
    next(answers)
    answers.close()
    assert list(calls[0]) == []


@pytest.mark.usefixtures("dying")
def test_a_network_that_kills_its_workers_costs_itself(store: str) -> None:
    sources = [network(c) for c in (8, 16, 9, 10, 11)]
    with Predictor(FAKE, store=store, measure="never") as predictor:
        found = list(predictor.predict_many(sources, jobs=2, errors="return"))
    assert [number for number, one in enumerate(found) if isinstance(one, HybridlatError)] == [2]
    assert "network 2 brings down the process that reads it" in str(found[2])


def test_errors_cross_processes_as_they_are() -> None:
    for error in (MissingExtra("torch", "torch", "a module"), NetworkError("no")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (type(error), str(error))
        assert again.exit_code == error.exit_code


@pytest.mark.parametrize("source", ["net.onnx", Path("net.onnx"), b"", 3, None])
def test_a_single_network_is_no_list_of_networks(source: Any) -> None:
    with Predictor(FAKE) as predictor, pytest.raises(InputError, match="takes a list of networks"):
        predictor.predict_many(source)


def test_many_networks_have_one_batch() -> None:
    with Predictor(FAKE) as predictor, pytest.raises(InputError, match=r"number from 1 \(predict"):
        predictor.predict_many(["net.onnx"], batch=cast(Any, [1, 8]))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_the_process_that_has_them(store: str, number: int) -> None:
    script = (
        "import itertools, sys; from hybridlat import Predictor; from tests.api import test_many\n"
        f"with Predictor({FAKE!r}, store={store!r}, measure='never') as predictor:\n"
        "    many = itertools.repeat(test_many.network(8))\n"
        "    for answer in predictor.predict_many(many, jobs=2): print('answer', flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"answer\n"
        process.send_signal(number)
        process.communicate(timeout=60)  # its workers hold the pipe while they live
    assert process.returncode == -number


def test_no_more_workers_than_can_be_of_use_and_one_is_no_reason_for_a_warning(store: str) -> None:
    most = max(2, joblib.cpu_count())
    assert [workers.count_of(jobs) for jobs in (1, 2, 100_000)] == [1, 2, most]
    with Predictor(FAKE, store=store, measure="never") as predictor:
        (answer,) = predictor.predict_many([network(8)], jobs=-1000)  # one, on any machine
    assert isinstance(answer, Estimate)
