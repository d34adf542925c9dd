"""Kernels as points: what is alike lies close, and what a law does not know of changes nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hybridlat.model.family.dataset import kernel_set
from hybridlat.model.family.kernels import LAYOUT
from hybridlat.model.family.law import Embedding, Hyper
from tests.model.family.worlds import GPU, table

KERNELS = kernel_set(table(np.random.default_rng(5)), GPU, "fp32")
LAST = KERNELS.descriptors.copy()
LAST[:, LAYOUT] = 1.0


def likeness(hyper: Hyper) -> float:
    """The prior correlation of a kernel with itself in the other layout, of all kernels the
    least."""
    embedding = Embedding(hyper, 200)
    first = embedding(KERNELS.descriptors, KERNELS.classes)
    last = embedding(LAST, KERNELS.classes)
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(last, axis=1)
    return float(np.min((first * last).sum(axis=1) / lengths))


def test_layouts_are_as_far_apart_as_the_law_says() -> None:
    said = [likeness(replace(Hyper(), layout_distance=d)) for d in (0.0, 0.5, 2.0)]
    assert said[0] > 0.99999 > said[1] > said[2]


def test_a_law_without_layouts_draws_the_waves_of_one_with_them() -> None:
    """So a law that is given layouts is the same as before for all that has channels first."""
    without = Embedding(Hyper(), 50)(KERNELS.descriptors, KERNELS.classes)
    knowing = replace(Hyper(), layout_distance=1.0)
    np.testing.assert_array_equal(
        Embedding(knowing, 50)(KERNELS.descriptors, KERNELS.classes), without
    )
