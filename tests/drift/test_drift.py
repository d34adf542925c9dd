"""The gate: no prediction of a shipped network moves unseen; none falls as its batch grows."""

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from hybridlat import Predictor
from tests.drift import __main__ as command
from tests.drift import predictions
from tests.drift.predictions import NETWORKS, TARGETS, Prediction, engine_version, moves, predicted

BATCHES = (1, 2, 4, 8, 16, 32)
NAMES = ("bvlc_alexnet", "hgnetv2_b0", "mobilenetv4_conv_small", "repvgg_a1")


@pytest.mark.parametrize(
    "target",
    [
        "t4/tensorrt/fp16",  # a law of public timings
        "orin-nano/tensorrt/fp16",
        "v100/tensorrt/fp16",  # a model of single convolutions at batches 1 and 32 and more
        "rtx-4090/torch-2.9/amp",  # timings at batches of 128 and more
        "rtx-4090/torch-compile-2.9/amp",
        "epyc-26-2/onnxruntime-1.31/fp32/1t",  # a pack of measured cells, at batch 1
    ],
)
def test_no_latency_falls_as_the_batch_grows(target: str) -> None:
    with Predictor(target, store="sqlite://", measure="never") as predictor:
        for name in NAMES if "onnxruntime" not in target else NAMES[2:3]:
            each = [predictor.predict(NETWORKS / f"{name}.onnx", batch=size) for size in BATCHES]
            sizes = [estimate.latency_us or math.nan for estimate in each]
            assert all(small <= large for small, large in pairwise(sizes)), (name, sizes)


ENGINE, TABLE = predictions.read_table()
ROW = Prediction(1000.0, 900.0, 1100.0, 0.5)
KEY = ("resnet18", "t4/tensorrt/fp16")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """GPUs of the same rules lower each network once."""
    return str(tmp_path_factory.mktemp("drift") / "store.db")


@pytest.mark.parametrize("target", TARGETS)
def test_no_prediction_moves_unseen(target: str, store: str) -> None:
    if "/onnxruntime-" in target and engine_version() != ENGINE:
        pytest.skip(f"the table holds what {ENGINE} makes of the graphs, not {engine_version()}")
    old = {key: answer for key, answer in TABLE.items() if key[1] == target}
    moved = moves(old, predicted([target], store))
    rows = "\n".join(map(str, moved))
    assert not moved, f"{len(moved)} values moved; accept by make drift WHY=…\n{rows}"


def test_the_table_holds_every_network_and_target() -> None:
    networks = [path.stem for path in predictions.NETWORKS.glob("*.onnx")]
    assert TABLE.keys() == {(network, target) for network in networks for target in TARGETS}
    assert not any(math.isnan(answer.latency_us) for answer in TABLE.values())


@pytest.mark.parametrize(
    ("new", "what"),
    [
        (replace(ROW, latency_us=1009.0), []),
        (replace(ROW, latency_us=1011.0, high_us=800.0), ["high_us", "latency_us"]),
        (replace(ROW, measured_share=0.48), ["measured_share"]),
        (replace(ROW, high_us=math.inf), ["high_us"]),
        (replace(ROW, latency_us=math.nan, low_us=1e9), ["latency_us", "low_us"]),
        (None, ["row"]),
    ],
)
def test_moves_are_named_the_largest_first(new: Prediction | None, what: list[str]) -> None:
    moved = moves({KEY: ROW}, {} if new is None else {KEY: new})
    assert [move.what for move in moved] == what
    is_lost = new is not None and math.isnan(new.latency_us)
    assert [move.is_lost for move in moved] == [is_lost, *[False] * len(what)][: len(what)]
    assert all(move.network in str(move) and move.target in str(move) for move in moved)


def test_a_move_is_accepted_with_a_reason_and_a_lost_latency_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table, log = tmp_path / "predictions.csv", tmp_path / "accepted.md"
    monkeypatch.setattr(predictions, "TABLE", table)
    monkeypatch.setattr(command, "LOG", log)
    predictions.write_table({KEY: ROW})
    before = table.read_bytes()
    monkeypatch.setattr(command, "predicted", lambda: {KEY: replace(ROW, latency_us=1200.0)})
    assert command.main([]) == 0
    assert "+20.0 %" in capsys.readouterr().out
    assert table.read_bytes() == before and not log.exists()
    assert command.main(["--why", "pooling reads its padding"]) == 0
    assert predictions.read_table()[1] == {KEY: replace(ROW, latency_us=1200.0)}
    assert log.read_text(encoding="utf-8").startswith("- pooling reads its padding (1 predictions")
    monkeypatch.setattr(command, "predicted", lambda: {KEY: replace(ROW, latency_us=math.nan)})
    assert command.main(["--why", "anything"]) == 1
    assert predictions.read_table()[1] == {KEY: replace(ROW, latency_us=1200.0)}
