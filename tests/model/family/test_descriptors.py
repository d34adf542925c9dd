from __future__ import annotations

from dataclasses import replace

import numpy as np

from hybridlat.model.family.kernels import CLASSES, describe, groups_of
from hybridlat.model.geometry import COLUMN
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


def test_a_slow_host_launches_slowly() -> None:
    kernels = table(np.random.default_rng(3))
    _, quick = describe(kernels, replace(GPU, launch_us=2.5), "fp32")
    _, slow = describe(kernels, replace(GPU, launch_us=8.0), "fp32")
    count = len(kernels.values)
    np.testing.assert_allclose(slow[:count] - quick[:count], 2.8 * 5.5)


def test_more_units_are_no_help_to_a_kernel_of_few_tiles() -> None:
    """Twice the units at the peak of before: a kernel that leaves them idle becomes slower."""
    kernels = table(np.random.default_rng(4), 60)
    _, few = describe(kernels, replace(GPU, units=10), "fp32")
    _, many = describe(kernels, replace(GPU, units=640), "fp32")
    assert (many >= few * 0.999).all()
    assert (many > 1.2 * few).any()


def test_groups_are_read_back_from_descriptors() -> None:
    kernels = table(np.random.default_rng(5), 30)
    rows, _ = describe(kernels, GPU, "fp32")
    groups = groups_of(rows.astype(np.float32))[: len(kernels.values)]
    np.testing.assert_allclose(groups, kernels.values[:, COLUMN["groups"]], rtol=1e-5)
