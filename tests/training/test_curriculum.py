"""What a portion holds: within its time, networks at their share, judges among them."""

from __future__ import annotations

import pytest

from hybridlat.graph.signature import sign
from hybridlat.model.doubt import KernelSpace
from hybridlat.schema.device import Device
from hybridlat.training.curriculum import NETWORK_SHARE, Curriculum, Ground, Outline, portion_s
from tests.networks import conv_relu, residual_block

DEVICE = Device("fake", "cpu", {"fp32": 1e11}, 1e10, 1, 0.0, (32768, 1 << 20), "made up", "fake")
TEXTS = {
    sign(n).hash: sign(n).text
    for n in (
        *(conv_relu(c, size) for c in range(8, 72, 8) for size in (8, 16)),
        *(residual_block(c) for c in (8, 16, 32)),
    )
}
HASHES = list(TEXTS)
NETWORKS = [
    Outline(f"net{i}", (HASHES[i], HASHES[(i + 1) % len(HASHES)]), 0.3)
    for i in range(len(HASHES))
]  # fmt: skip


@pytest.fixture(scope="module")
def ground() -> Ground:
    found = Ground(KernelSpace.over(list(TEXTS.values()), DEVICE))
    found.learn_of(dict(list(TEXTS.items())[:5]))
    found.learn_of(TEXTS)  # what is heard of later, and what was heard of before
    assert list(found.row.values()) == list(range(len(TEXTS)))
    return found


def curriculum(ground: Ground, cost_s: float = 0.1) -> Curriculum:
    return Curriculum(ground, NETWORKS, dict.fromkeys(HASHES, cost_s))


def test_a_portion_keeps_to_its_time_and_share(ground: Ground) -> None:
    found = curriculum(ground).portion({}, (), HASHES, (0.0, 0.0), 2.0)
    assert found.networks and found.kernels
    assert found.expected_s <= 2.0 + 1e-9
    assert found.networks_s <= 1.5 * NETWORK_SHARE * 2.0
    assert len({*found.kernels}) == len(found.kernels)


def test_networks_wait_until_kernels_had_their_share(ground: Ground) -> None:
    found = curriculum(ground).portion({}, (), HASHES, (10.0, 1.0), 2.0)
    assert not found.networks and found.kernels


def test_what_is_known_is_not_measured_again(ground: Ground) -> None:
    known = dict.fromkeys(HASHES[:10], 0.05)
    done = {n.name for n in NETWORKS[:9]}
    found = curriculum(ground).portion(known, done, HASHES, (0.0, 0.0), 5.0)
    assert not done & {*found.networks} and not known.keys() & {*found.kernels}
    everything = dict.fromkeys(HASHES, 0.05)
    names = {n.name for n in NETWORKS}
    assert curriculum(ground).portion(everything, names, HASHES, (0.0, 0.0), 5.0).is_empty


def test_networks_and_kernels_come_in_the_order_drawn(ground: Ground) -> None:
    found = curriculum(ground).portion({}, (), HASHES[::-1], (0.0, 0.0), 2.0)
    assert found.networks == tuple(n.name for n in NETWORKS[: len(found.networks)])
    measured = {h for n in NETWORKS[: len(found.networks)] for h in n.cells}
    left = [h for h in HASHES[::-1] if h not in measured]
    assert found.kernels == tuple(left[: len(found.kernels)])


def test_a_network_that_is_too_dear_is_left_out(ground: Ground) -> None:
    heavy = Curriculum(ground, [Outline("net0", (HASHES[0],), 60.0), *NETWORKS[1:]],
                       dict.fromkeys(HASHES, 0.1), 5.0)  # fmt: skip
    assert "net0" not in heavy.portion({}, (), HASHES, (0.0, 0.0), 10.0).networks


def test_more_known_is_less_expected(ground: Ground) -> None:
    plan = curriculum(ground)
    assert plan.expected_share(dict.fromkeys(HASHES[:8], 0.05)) < plan.expected_share({})
    assert plan.expected_share(dict.fromkeys(HASHES, 0.05)) == 0.0


def test_portions_of_small_and_large_budgets() -> None:
    assert portion_s(30) < portion_s(600) == portion_s(3600) or portion_s(3600) >= portion_s(600)
    assert portion_s(1) >= 5 and portion_s(36_000) <= 60
