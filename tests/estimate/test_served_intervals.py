"""What an estimate serves is the interval that its family was calibrated to."""

import math
from pathlib import Path

import pytest

from hybridlat import Predictor, predict
from hybridlat.engines import device_sheets
from hybridlat.engines.registry import lower
from hybridlat.estimate.predict.source import copied_bytes
from hybridlat.graph.cells import cut
from hybridlat.graph.signature import sign
from hybridlat.model.family import shipped
from hybridlat.model.family.model import half_width, interval_us
from hybridlat.model.family.observations import KernelSet, Observation, kernel_set
from hybridlat.model.family.physics import table_of_texts
from hybridlat.onnx_io import read_network
from hybridlat.schema.target import Target

NETS = Path(__file__).parents[2] / "data/nets"
TARGETS = (
    "t4/tensorrt/fp16",
    "orin-nano-7w/tensorrt/fp16",
    "v100/paddle-tensorrt-8.0/fp16",  # of host to host
    "v100/torch-ngc/amp",  # whose hosts take most of the time at batch 1
    "a2/torch/fp32",  # of which nothing was measured
    "rtx-4090/torch-compile-2.4/amp",
)


def kernels_of(net: str, target: Target, copies: bool, batch: int = 1) -> KernelSet:
    network = read_network(NETS / f"{net}.onnx", batch)
    texts = [sign(cell.network).text for cell in cut(lower(network, target))]
    copied = copied_bytes(network) if copies else 0.0
    table = table_of_texts(texts, [1.0] * len(texts), copied)
    return kernel_set(table, device_sheets.of_target(target), target.precision)


@pytest.mark.parametrize("batch", [1, 8, 64])
@pytest.mark.parametrize("text", TARGETS)
def test_the_interval_served_is_the_calibrated_one(text: str, batch: int, tmp_path: Path) -> None:
    target = Target.parse(text)
    (folder,) = shipped.folders(shipped.FAMILY_OF[target.engine], tmp_path)
    model = shipped.load(folder)
    architecture = device_sheets.load(target.device).architecture
    task = shipped.task_of(target, model.tasks, architecture)
    predictor = Predictor(target, store=f"sqlite:///{tmp_path}/s.db", measure="never")
    for net in ("mobilenetv2_100", "resnet18"):
        one = model.predict(kernels_of(net, target, task.copies, batch), task)
        estimate = predictor.predict(NETS / f"{net}.onnx", batch=batch)
        assert estimate.latency_us == pytest.approx(one.median_us, rel=1e-3)
        expected = interval_us(model.calibration, one, task)
        assert estimate.interval_us == pytest.approx(expected, rel=1e-3)
        for confidence, _ in estimate.reaches:  # the budget's probability is the calibrated one too
            end_us = one.median_us * math.exp(half_width(model.calibration, one, task, confidence))
            assert estimate.probability_below(end_us * 1.001) == pytest.approx(
                0.5 + confidence / 2, abs=0.01
            )


def test_known_networks_count_each_as_one_architecture_as_they_are_judged(tmp_path: Path) -> None:
    target, known = Target.parse("a2/torch/fp32"), {"mobilenetv2_100": 2e4, "resnet34": 3e4}
    (folder,) = shipped.folders("torch", tmp_path)
    model = shipped.load(folder)
    architecture = device_sheets.load(target.device).architecture
    task = shipped.task_of(target, model.tasks, architecture)
    sets = {net: kernels_of(net, target, task.copies) for net in (*known, "resnet18")}
    rows = [Observation(sets[net], task, us, net) for net, us in known.items()]
    one = model.condition(rows).predict(sets["resnet18"], task)
    given = {NETS / f"{net}.onnx": us for net, us in known.items()}
    estimate = predict(NETS / "resnet18.onnx", target, known=given, store="sqlite://")
    assert estimate.latency_us == pytest.approx(one.median_us, rel=1e-3)
    expected = interval_us(model.calibration, one, task)
    assert estimate.interval_us == pytest.approx(expected, rel=1e-3)
