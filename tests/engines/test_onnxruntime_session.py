"""Sessions of ONNX Runtime that are measured: what they compute with, and what is left of them."""

from __future__ import annotations

import platform
import subprocess
import sys
from typing import Any

import pytest

from hybridlat.engines.ort import session
from hybridlat.engines.ort.session import OnnxRuntimeBackend, OnnxRuntimeSession
from hybridlat.errors import MeasurementError
from tests.networks import classifier

CHILD = """
import numpy as np
from hybridlat.engines.ort.session import OnnxRuntimeBackend
from tests.networks import classifier

def product():
    return float((np.full(64, 1e-30, np.float32) * np.float32(1e-10))[0])

before = product()
backend = OnnxRuntimeBackend(threads=1)
backend.build(classifier(8), seed=1, lowered=False).run_us(1)
print(before > 0, product() == 0)
"""


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="ONNX Runtime does so on x86 alone"
)
def test_sessions_that_are_measured_take_denormals_for_zero() -> None:
    """Made-up weights may produce denormals, which would slow a measurement down.

    Arithmetic of a thread that has such a session takes them for zero, on CPUs that can.
    """
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == (["True", "True"], "")


def test_replicas_built_before_a_failure_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[OnnxRuntimeSession] = []
    closed: list[OnnxRuntimeSession] = []

    class Failing(OnnxRuntimeSession):
        def __init__(self, *args: Any) -> None:
            if len(built) == 2:
                raise MeasurementError("no memory is left")
            super().__init__(*args)
            built.append(self)

        def close(self) -> None:
            closed.append(self)
            super().close()

    monkeypatch.setattr(session, "OnnxRuntimeSession", Failing)
    with pytest.raises(MeasurementError, match="no memory is left"):
        OnnxRuntimeBackend(threads=1).build_replicas(classifier(8), count=4, seed=1, lowered=False)
    assert len(built) == 2 and set(closed) == set(built)
