"""A machine that nobody measured is answered by the model of another one with the same engine."""

from __future__ import annotations

import pytest

from hybridlat.estimate.predict.other_targets import other_cpu
from hybridlat.schema import plugins
from hybridlat.schema.target import Target

SHIPPED = "epyc-26-2"


def test_the_other_machine_runs_the_same_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hybridlat.estimate.lookup.models.shipped", plugins.shipped)
    same = other_cpu(Target.parse("some-cpu/onnxruntime-1.31/fp32/1t"))
    assert same is not None and same.target.device == SHIPPED
    newer = other_cpu(Target.parse("some-cpu/onnxruntime-9.9/fp32/2t"))
    assert newer is not None and newer.target.device == SHIPPED
    assert other_cpu(Target.parse("some-cpu/openvino-2025.4/fp32/1t")) is None
    assert other_cpu(Target.parse("some-cpu/onnxruntime-1.31/int8/1t")) is None
    own = other_cpu(Target.parse(f"{SHIPPED}/onnxruntime-1.31/fp32/1t"))
    assert own is None or own.target.device != SHIPPED
