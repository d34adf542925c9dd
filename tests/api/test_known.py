"""Latencies on a GPU that the user knows: they correct all that is predicted there."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridlat import Predictor, compare, predict
from hybridlat.cli import main as cli
from hybridlat.errors import InputError
from hybridlat.schema.estimate import Estimate
from tests.api.test_many import end_workers, plain
from tests.networks import NETS

GPU, CPU = "rtx-3090/tensorrt/fp16", "epyc-26-2/onnxruntime-1.31/fp32/1t"
NET, ASKED = NETS / "resnet18.onnx", [NETS / "squeezenet.onnx", NETS / "resnet34.onnx"]
SAID = "1 network whose latency was given"


def told(estimate: Estimate) -> tuple[float, float, float]:
    """The latency and the ends of its interval, in µs."""
    return estimate.latency_us or math.nan, *(estimate.interval_us or (math.nan, math.nan))


def test_a_known_network_moves_the_others_and_hardly_widens_them(store: str) -> None:
    with Predictor(GPU, store=store) as predictor:
        before, slow_us = list(predictor.predict_many(ASKED)), 1.5 * told(predictor.predict(NET))[0]
    with Predictor(GPU, store=store, known={NET: slow_us}) as predictor:
        after = list(predictor.predict_many(ASKED))
        assert plain(list(predictor.predict_many(ASKED, jobs=2))) == plain(after)
        predictor.give({})
        assert plain(list(predictor.predict_many(ASKED, jobs=2))) == plain(before)
        assert predictor.store.targets() == []  # nothing was stored
    end_workers()
    for now, was in zip(after, before, strict=True):
        (us, low_us, high_us), (was_us, was_low_us, was_high_us) = told(now), told(was)
        assert 1.2 < us / was_us < 1.6 and high_us / low_us < 1.03 * was_high_us / was_low_us
        body = now.to_json()
        assert sum(SAID in warning for warning in body["warnings"]) == 1
        assert all(SAID in cell["reason"] for cell in body["cells"])


@settings(max_examples=10)
@given(st.floats(20.0, 20_000.0), st.sampled_from([None, 4]))
def test_the_network_itself_takes_what_was_given(given_us: float, batch: int | None) -> None:
    with Predictor(GPU, store="sqlite://") as predictor:
        predictor.give({NET: given_us}, batch=batch)
        estimate = predictor.predict(NET, batch=batch)
    us, low_us, high_us = told(estimate)
    assert us == given_us and 0.85 * us < low_us < us < high_us < 1.15 * us
    assert estimate.reason == "as given"


def test_functions_and_commands_take_it_at_their_batch(store: str, capfd: Any) -> None:
    nets, known = [str(NET), str(ASKED[0])], {NET: 9000.0}
    one, other = compare(nets, GPU, batch=8, known=known, store=store).estimates
    assert one.latency_us == 9000 and SAID in other.cells[0].reason
    words = [*nets, "--target", GPU, "--store", store, "--batch", "8", "--json", "--known"]
    for command, value in (("predict", f"{NET}=9ms"), ("compare", f"{NET}@8=9000us")):
        assert cli.run([command, *words, value]) == 0
        assert f'"latency_us": {other.latency_us!r},' in capfd.readouterr().out
    curve: Any = predict(NET, GPU, batch=[1, 8], known={f"{NET}@8": 9000.0}, store=store)
    assert curve[1].latency_us == 9000


@pytest.mark.parametrize("known", [{NET: 0}, {NET: "1ms"}, {NET: math.inf}, {7: 1.0}, [NET]])
def test_what_is_no_latency_is_refused(known: Any, store: str) -> None:
    with pytest.raises(InputError, match="give µs by path"):
        Predictor(GPU, store=store, known=known)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([GPU, "none.onnx=1ms"], "none.onnx"),
        ([GPU, f"{NETS}/README.md=1ms"], "not an ONNX model"),
        ([GPU, f"{NET}=1.21"], "write it as 8ms"),
        ([GPU, f"{NET}"], "write net.onnx=1.21ms"),
        ([GPU, f"{NET}=1ms", "--known", f"{NET}=2ms"], "is given two latencies"),
        ([GPU, f"{NET}=1ms", "--known", f"{NET}@1=2ms"], "a second latency, 2000 µs"),
        ([GPU, f"{NET}=1ms", "--batch", "1,2"], "say at which batch"),
        ([GPU, f"{NET}=1ms", "--target", CPU], "give one --target"),
        ([CPU, f"{NET}=1ms", "--measure", "never"], "(`hybridlat import`)"),
    ],
)
def test_a_mistake_is_a_sentence(words: list[str], said: str, store: str, capfd: Any) -> None:
    target, *known = words
    options = ["--store", store, "--target", target, "--known", *known]
    assert cli.run(["predict", str(ASKED[0]), *options]) == 2
    assert said in " ".join(capfd.readouterr().err.split())
