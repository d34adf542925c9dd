"""What an engine makes of a device's peaks."""

from dataclasses import replace

import pytest

from hybridlat.schema.target import Device

PEAKS = {"fp32": 20e12, "tf32": 40e12, "fp16": 80e12, "fp16_in_fp16": 160e12}
REACHED = {"fp32": 16e12, "fp16": 60e12}
CARD = Device("card", "gpu", PEAKS, 1e12, 80, 1.7e9, sustained_flops=REACHED)


def test_tensorrt_multiplies_in_tf32_and_accumulates_in_fp16_and_no_framework_does() -> None:
    assert CARD.under("torch") is CARD.under("torch-compile") is CARD
    card = CARD.under("tensorrt")
    assert card.peak("fp32") == card.peak("tf32") == 40e12
    assert card.peak("fp32-strict") == 20e12
    assert card.peak("fp16") == 160e12
    assert card.sustained_share("fp16") == 1.0


def test_tensors_pass_through_the_last_cache_at_its_speed() -> None:
    quick, slow = (replace(CARD, units=units).under("tensorrt") for units in (160, 8))
    assert CARD.kept_share == 0.5
    assert quick.kept_share == pytest.approx(1 - 1e12 / (20 * 160 * 1.7e9))
    assert slow.kept_share == 0  # memory is as quick
    assert replace(CARD, clock_hz=0).under("tensorrt").kept_share == 0  # not known


def test_launches_follow_the_clock_of_boards_that_have_a_memory_of_their_own() -> None:
    at = {clock: replace(CARD, clock_hz=clock, launch_us=2.0) for clock in (1.2e9, 4 * 1.53e9)}
    assert [card.under("tensorrt").launch_us for card in at.values()] == [2.0, 2.0 / 8]
    shared = replace(at[4 * 1.53e9], shares_memory=True)
    assert shared.under("tensorrt").launch_us == shared.under("torch").launch_us == 2.0


def test_a_card_without_tensor_cores_stays_as_it_is() -> None:
    reached = {"fp32": 9e12}
    old = Device("old", "gpu", {"fp32": 11e12}, 5e11, 28, 1.5e9, sustained_flops=reached)
    card = old.under("tensorrt")
    assert [card.peak(each) for each in ("fp32", "fp32-strict", "fp16")] == [11e12] * 3
    assert card.sustained_share("fp32") == pytest.approx(9 / 11)
