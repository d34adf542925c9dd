"""Latencies on a GPU that the user knows: they correct all that is predicted there."""

import math
from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridlat import Predictor, compare, predict
from hybridlat.errors import InputError
from tests.api.test_many import end_workers, plain
from tests.cli.shell import call
from tests.engines.test_quantised import QDQ, WEIGHTS
from tests.estimate.known import ends
from tests.networks import NETS
from tests.onnx_io.test_reading_shapes import model

GPU, CPU = "rtx-3090/tensorrt/fp16", "epyc-26-2/onnxruntime-1.31/fp32/1t"
NET, ASKED = NETS / "resnet18.onnx", [NETS / "squeezenet.onnx", NETS / "resnet34.onnx"]
SAID = "1 network whose latency was given"


def test_a_known_network_moves_the_others_and_hardly_widens_them(store: str) -> None:
    with Predictor(GPU, store=store) as predictor:
        before, slow_us = list(predictor.predict_many(ASKED)), 1.7 * ends(predictor.predict(NET))[1]
    with Predictor(GPU, store=store, known={NET: slow_us}) as predictor:
        after = list(predictor.predict_many(ASKED))
        assert plain(list(predictor.predict_many(ASKED, jobs=2))) == plain(after)
        predictor.give({})
        assert plain(list(predictor.predict_many(ASKED, jobs=2))) == plain(before)
        assert predictor.store.targets() == []  # nothing was stored
    end_workers()
    widths, were = (
        math.prod(ends(one)[2] / ends(one)[0] for one in each) for each in (after, before)
    )
    assert widths < 1.03 * were
    for now, was in zip(after, before, strict=True):
        (low_us, us, high_us), (was_low_us, was_us, was_high_us) = ends(now), ends(was)
        assert 1.2 < us / was_us < 1.8 and high_us / low_us < 1.25 * was_high_us / was_low_us
        body = now.to_json()
        assert sum(SAID in warning for warning in body["warnings"]) == 1
        assert all(SAID in cell["reason"] for cell in body["cells"])


@settings(max_examples=10)
@given(st.floats(20.0, 20_000.0), st.sampled_from([None, 4]))
def test_the_network_itself_takes_what_was_given(given_us: float, batch: int | None) -> None:
    with Predictor(GPU, store="sqlite://") as predictor:
        predictor.give({NET: given_us}, batch=batch)
        estimate = predictor.predict(NET, batch=batch)
    low_us, us, high_us = ends(estimate)
    assert us == given_us and 0.85 * us < low_us < us < high_us < 1.15 * us
    assert estimate.reason == "as given"


@pytest.mark.parametrize(
    ("factor", "batch", "hint"),
    [
        (2.0, 1, None),
        (3.0, 1, ""),
        (20.0, 1, ""),
        (1e3, 1, "; wrong unit?"),
        (1e-3, 1, "; wrong unit?"),
        (1 / 64, 64, "; of one image, or of all 64?"),
    ],
)
def test_surprising_ones_are_named(store: str, factor: float, batch: int, hint: str | None) -> None:
    with Predictor(GPU, store=store) as predictor:
        us = factor * ends(predictor.predict(NET, batch=batch))[1]
        predictor.give({NET: us}, batch=batch)
        for net in (NET, ASKED[0]):
            body = predictor.predict(net).to_json()
            codes = [remark["code"] for remark in body["remarks"]]
            assert codes.count("surprising") == (hint is not None)
            if hint is not None:
                assert f"given for {NET} is far off: " in body["warnings"][0]
                assert body["warnings"][0].endswith(f"are expected{hint or '.'}")
        predictor.give({})
        assert "surprising" not in str(predictor.predict(NET).to_json())


def test_it_counts_at_another_precision_too_but_is_not_the_answer_there(store: str) -> None:
    with Predictor("orin-nano/tensorrt/fp16", store=store, known={"squeezenet": 4000.0}) as given:
        (order, *_) = given.predict("mobilenetv2_100", describe=True).warnings
        (once,) = given.predict_many(["mobilenetv2_100"], describe=True, dedupe=True)
        assert once.warnings[0] == order
        assert order.code == "order" and str(order).count(SAID) == 2
        suspects = {one.kind: one for one in given.explain("squeezenet", 8000.0).suspects}
    low_us, high_us = suspects["precision"].interval_us
    assert high_us > 1.3 * low_us


def test_functions_and_commands_take_it_at_their_batch(store: str) -> None:
    nets, known = [str(NET), str(ASKED[0])], {NET: 9000.0}
    one, other = compare(nets, GPU, batch=8, known=known, store=store).estimates
    assert one.latency_us == 9000 and SAID in other.cells[0].reason
    words = [*nets, "--target", GPU, "--store", store, "--batch", "8", "--json", "--known"]
    for command, value in (("predict", f"{NET}=9ms"), ("compare", f"{NET}@8=9000us")):
        assert f'"latency_us": {other.latency_us!r},' in call(command, *words, value).out
    curve: Any = predict(NET, GPU, batch=[1, 8], known={f"{NET}@8": 9000.0}, store=store)
    assert curve[1].latency_us == 9000


def test_a_file_of_another_exporter_is_the_same_network(tmp_path: Path) -> None:
    made = onnx.load(NET)
    for node in made.graph.node:
        node.name = f"other/{node.name}"
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save(made, tmp_path / "other.onnx")
    known: dict[Any, float] = {tmp_path / "other.onnx@8": 9000.0}
    assert predict(NET, GPU, batch=8, known=known, store="sqlite://").latency_us == 9000
    # Candidates that are one network are measured one by one: their mean counts.
    known[f"{NET}@8"] = 8000.0
    assert predict(NET, GPU, batch=8, known=known, store="sqlite://").latency_us == 8500
    known[f"{NET}@8"] = 7000.0
    with pytest.raises(
        InputError, match="second latency, 7000 µs where its network has 9000: give"
    ):
        predict(NET, GPU, batch=8, known=known, store="sqlite://")


def test_what_is_given_counts_once_beside_what_was_imported(tmp_path: Path) -> None:
    table, store, target = tmp_path / "mine.csv", str(tmp_path / "s.db"), "l4/tensorrt-8.6/fp16"
    table.write_text(f"network,target,batch,latency_ms\nresnet18,{target},1,9.9\n")
    given, asked = {NET: 700.0}, ASKED[1]
    alone = predict(asked, target, known=given, store="sqlite://")
    call("import", str(table), "--nets", str(NETS), "--store", store)
    assert ends(predict(asked, target, store=store))[1] > 1.5 * ends(alone)[1]
    both = predict(asked, target, known=given, store=store)
    assert ends(both) == ends(alone) and SAID in both.cells[0].reason


def test_of_several_networks_the_one_that_tells_most_is_named(store: str) -> None:
    unsure = "l40/tensorrt-8.6/fp16"  # of which nothing was measured
    nets = [str(NETS / f"{name}.onnx") for name in ("style_transfer", "resnet34", "resnet18")]
    with Predictor(unsure, store=store) as predictor:
        best, share = predictor.most_telling(nets, batch=4) or (0, 0.0)
        assert best in (1, 2) and 0.2 < share < 1
        assert predictor.most_telling(nets[:1]) == (0, 0.0) and not predictor.most_telling([])
        of_two, _ = predictor.most_telling(nets[1:], batch=4) or (0, 0.0)
        known, other = nets[best], nets[3 - best]
        predictor.give({known: 9000.0}, batch=4)
        again = predictor.most_telling([known, other], batch=4)
        assert again is not None and again[1] < share  # what is known tells less
    with Predictor(CPU, store=store, measure="never") as predictor:
        assert predictor.most_telling(nets) is None
    words = ("--target", unsure, "--store", store, "--batch", "4")
    named = nets[1:][of_two]
    remark = f"(--known {named}=1.21ms) tells"
    assert remark in " ".join(call("predict", *nets[1:], *words).out.split())
    rows = [row["remarks"] for row in call("predict", *nets[1:], *words, "--json").body]
    assert [remark in str(row) for row in rows] == [named == nets[1], named == nets[2]]
    assert "known there narrows this: --known NET=1.2ms" in call("predict", nets[1], *words).out


@pytest.mark.parametrize("known", [{NET: 0}, {NET: "1ms"}, {NET: math.inf}, {7: 1.0}, [NET]])
def test_what_is_no_latency_is_refused(known: Any, store: str) -> None:
    with pytest.raises(InputError, match="give µs by path"):
        Predictor(GPU, store=store, known=known)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([GPU, "none.onnx=1ms"], "none.onnx"),
        ([GPU, f"{NETS}/README.md=1ms"], "not an ONNX model"),
        ([GPU, f"{NET}=3min"], "write it as 8ms, 800us or 0.01s"),
        ([GPU, f"{NET}@0=1ms"], "0 is no batch size"),
        ([GPU, "QDQ=1ms"], "for int8 the target is rtx-3090/"),
        ([GPU, f"{NET}=1.21"], "write it as 8ms"),
        ([GPU, f"{NET}"], "write net.onnx=1.21ms"),
        ([GPU, f"{NET}=1ms", "--known", f"{NET}=2ms"], "is given two latencies"),
        ([GPU, f"{NET}=1ms", "--known", f"{NET}@1=2ms"], "a second latency, 2000 µs"),
        ([GPU, f"{NET}=1ms", "--batch", "1,2"], "say at which batch"),
        ([GPU, f"{NET}=1ms", "--target", CPU], "give one --target"),
        ([CPU, f"{NET}=1ms", "--measure", "never"], "(`hybridlat import`)"),
    ],
)
def test_a_mistake_is_a_sentence(words: list[str], said: str, store: str, tmp_path: Path) -> None:
    onnx.save(model(QDQ, WEIGHTS), tmp_path / "q.onnx")
    target, *known = [word.replace("QDQ", str(tmp_path / "q.onnx")) for word in words]
    options = ("--store", store, "--target", target, "--known", *known)
    assert said in " ".join(call("predict", str(ASKED[0]), *options, code=2).err.split())
