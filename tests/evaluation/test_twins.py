"""Networks that are much the same are held out together, in folds that others hardly move."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from hybridlat.evaluation.twins import SharedKernels, dealt, plain_name, united
from hybridlat.model.family.observations import Observation, kernel_set
from hybridlat.model.family.physics import KernelTable
from tests.model.family.worlds import DEVICES, HERE, THERE, table

NAMES = [f"net{i}" for i in range(200)]
GROUPS = dict(zip(NAMES, [f"g{i // 3}" if i < 60 else f"net{i}" for i in range(200)], strict=True))


def test_twins_are_networks_of_the_same_kernels_on_whatever_device() -> None:
    draw = np.random.default_rng(1)
    one, other = table(draw), table(draw)
    deeper = replace(one, counts=one.counts * 3)
    both = KernelTable(
        np.vstack([one.values, other.values]), np.append(one.classes, other.classes),
        np.append(one.counts, other.counts), 0.0,
    )  # fmt: skip
    rows = [
        Observation(kernel_set(made, DEVICES[task.device], "fp32"), task, 1.0, name)
        for name, made, task in (
            ("a", one, HERE), ("b", other, HERE), ("a_deeper", deeper, THERE), ("ab", both, THERE)
        )
    ]  # fmt: skip
    shared = SharedKernels(rows)
    assert shared.twins()[0] == ("a", "a_deeper")  # each lies in the other
    assert set(shared.twins()[1:]) == {("a", "ab"), ("a_deeper", "ab"), ("ab", "b")}
    held = shared.held(np.array([True, False, False, False]))
    assert held[[0, 2]] == pytest.approx(1) and held[1] == 0 and 0 < held[3] < 1


def test_chains_of_twins_end_where_a_group_is_large() -> None:
    start = {name: name for name in "abcdef"}
    chain = [("a", "b"), ("e", "f"), ("b", "c"), ("c", "d")]
    assert united(start, chain, 3) == {"a": "a", "b": "a", "c": "a", "d": "d", "e": "e", "f": "e"}
    assert set(united(start, chain, 6).values()) == {"a", "e"}
    # What belongs together by its name does so however large it is.
    assert set(united(dict.fromkeys("abcd", "z"), [], 2).values()) == {"a"}


def test_ports_of_one_architecture_have_one_name() -> None:
    for name in ("senet154", "efficientnet_b0"):
        assert {plain_name(f"{of}{name}") for of in ("", "legacy_", "tf_")} == {name}


def test_folds_are_even_and_one_network_more_moves_few() -> None:
    folds = dealt(GROUPS)
    assert set(Counter(folds.values()).values()) == {40}
    assert all(folds[f"net{3 * i}"] == folds[f"net{3 * i + 2}"] for i in range(20))
    assert folds == dealt(dict(reversed(GROUPS.items()))) != dealt(GROUPS, 1)
    for i in range(20):
        more = dealt(GROUPS | {f"new{i}": f"new{i}"})
        assert sum(more[name] != fold for name, fold in folds.items()) <= 10
