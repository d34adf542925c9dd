"""Made-up weights may bring forth denormals; what is measured must not be slowed down by them."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

CHILD = """
import numpy as np
from hybridlat.engines.onnxruntime.session import OnnxRuntimeBackend
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
    """Arithmetic of a thread that has such a session does, on CPUs that can."""
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == (["True", "True"], "")
