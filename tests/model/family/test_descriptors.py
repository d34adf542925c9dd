from __future__ import annotations

from dataclasses import replace

import numpy as np

from hybridlat.model.family.descriptors import describe
from hybridlat.model.family.kernels import CLASSES
from tests.model.family.worlds import GPU, table

DEPTHWISE = CLASSES.index("conv depthwise")


def test_a_larger_last_cache_spares_memory_time() -> None:
    kernels = table(np.random.default_rng(1))
    _, small = describe(kernels, replace(GPU, cache_bytes=(128 * 1024, 2**20)), "fp32")
    _, large = describe(kernels, replace(GPU, cache_bytes=(128 * 1024, 64 * 2**20)), "fp32")
    count = len(kernels.values)
    assert (large[:count] <= small[:count]).all()
    assert (large[:count] < small[:count]).any()
    assert (large > 0).all()


def test_tensor_cores_do_not_serve_depthwise_convolutions() -> None:
    kernels = table(np.random.default_rng(2), 40)
    with_cores = replace(GPU, peak_flops={"fp32": 10e12, "fp16": 80e12})
    without = replace(GPU, peak_flops={"fp32": 10e12, "fp16": 10e12})
    _, fast = describe(kernels, with_cores, "fp16")
    _, slow = describe(kernels, without, "fp16")
    deep = np.append(kernels.classes == DEPTHWISE, [False, False])
    dense = np.append(kernels.classes == CLASSES.index("conv kxk"), [False, False])
    np.testing.assert_allclose(fast[deep], slow[deep])
    assert (fast[dense] < slow[dense]).all()
