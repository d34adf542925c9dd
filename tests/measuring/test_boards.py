"""Boards that CUDA gives one name, told apart by multiprocessors, memory and the user's word."""

import pytest

from hybridlat.measuring.tables import board_of, device_of
from hybridlat.store.importers.table import Refusal

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "units", "memory_gib", "word", "board"),
    [("Orin", 16, None, "", "orin-agx"), ("Orin", 14, None, "", "orin-agx-32gb"),
     ("Orin", 16, 28.2, "", "orin-agx"), ("Orin", 8, 15.3, "", "orin-nx"),
     ("Orin", 4, 3.4, "", "orin-nano-4gb"), ("Orin", 8, 61, "", "orin-agx-30w"),
     ("Orin", 8, 7.4, "orin-nano", "orin-nano"), ("Orin", 8, None, "orin-nano-7w", "orin-nano-7w"),
     ("Orin", 8, None, "my-orin", "my-orin"), ("Orin", None, None, "orin-nx", "orin-nx"),
     ("Xavier", 8, None, "", "xavier-agx"), ("Xavier", 6, None, "", "xavier-nx"),
     ("NVIDIA Thor", 20, None, "", "thor-agx"), ("NVIDIA Tegra X1", 1, 3.9, "", "jetson-nano"),
     ("NVIDIA Tegra X1", 1, 1.9, "", "jetson-nano-2gb"), ("NVIDIA Tegra X1", 2, 4, "",
      "jetson-tx1"),
     ("NVIDIA A100-SXM4-40GB", 108, None, "", "a100"),
     ("NVIDIA A100-PCIE-40GB", 14, 4.7, "", "a100-mig-1g.5gb"),
     ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", 14, 9.5, "", "a100-80gb-mig-1g.10gb"),
     ("NVIDIA H100 PCIe", 114, 79, "", "h100-pcie"), ("NVIDIA H100 80GB HBM3", 132, 79, "", "h100"),
     ("NVIDIA GeForce RTX 3060", 28, 7.9, "", "rtx-3060-8gb"),
     ("NVIDIA GeForce RTX 3060", 28, None, "", "rtx-3060"),
     ("NVIDIA GeForce RTX 4090", 76, 15.9, "", "rtx-4090-laptop"),
     ("NVIDIA GeForce RTX 3060 Laptop GPU", 30, 6, "rtx-3060-laptop", "rtx-3060-laptop"),
     ("NVIDIA GeForce RTX 2060", 30, 5.8, "", "rtx-2060"),
     ("NVIDIA GeForce RTX 2060", 34, 12, "rtx-2060-12gb", "rtx-2060-12gb"),
     ("NVIDIA V100-SXM2-32GB", 80, 31.7, "", "v100"),
     ("NVIDIA New 9", 7, 1, "", "new-9")],
)  # fmt: skip
def test_the_board(
    name: str, units: int | None, memory_gib: float | None, word: str, board: str
) -> None:
    memory_bytes = None if memory_gib is None else int(memory_gib * GIB)
    assert board_of(name, units, memory_bytes, word) == (board, "")


@pytest.mark.parametrize(
    ("units", "power_mode", "word", "board"),
    [(8, "7W", "orin-nano-7w", "orin-nano-7w"), (8, "15W", "orin-nano", "orin-nano"),
     (16, "MODE_30W", "", "orin-agx-30w"), (16, "MAXN", "", "orin-agx"),
     (16, "MODE_10W", "", "orin-agx-10w"), (8, "7W", "my-orin", "my-orin"),
     (8, "MAXN_SUPER", "orin-nano-super", "orin-nano-super"), (8, "MAXN", "orin-nx", "orin-nx")],
)  # fmt: skip
def test_the_power_mode_of_a_log(units: int, power_mode: str, word: str, board: str) -> None:
    assert board_of("Orin", units, None, word, power_mode) == (board, "")
    with pytest.raises(Refusal, match="contradicts") as refused:
        board_of("Orin", 8, None, "orin-nano", "MAXN")
    assert refused.value.value == "'Orin' in the mode MAXN is orin-nano-super, not orin-nano"


KIT = "NVIDIA Jetson Orin Nano Developer Kit"
SUPER = "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super"


@pytest.mark.parametrize(
    ("ordered", "gpu", "model", "power_mode", "device"),
    [("t4", "NVIDIA L4", "", "", "l4"), ("t4", "Tesla T4", "", "", "t4"), ("t4", "", "", "", "t4"),
     ("rtx-3060", "NVIDIA GeForce RTX 3060 Laptop GPU", "", "", "rtx-3060-laptop"),
     ("rtx-3060-8gb", "NVIDIA GeForce RTX 3060", "", "", "rtx-3060-8gb"),
     ("h100", "NVIDIA H100 PCIe", "", "", "h100-pcie"), ("t4", "NVIDIA New 9", "", "", "t4"),
     ("my-t4", "Tesla T4", "", "", "my-t4"), ("orin-nano", "Orin", "", "", "orin-nano"),
     ("orin-nano", "Orin", KIT, "7W", "orin-nano-7w"), ("orin-agx", "Orin", KIT, "", "orin-nano"),
     ("orin-nano-7w", "Orin", KIT, "", "orin-nano-7w"), ("t4", "Orin", "x", "", "orin-agx"),
     ("orin-nano", "Orin", SUPER, "15W", "orin-nano"), ("t4", "Graphics Device", "", "", "t4"),
     ("orin-nano", "Orin", KIT, "MAXN_SUPER", "orin-nano-super"),
     ("tx2", "NVIDIA Tegra X2", "", "MAXP_CORE_ARM", "tx2-max-p")],
)  # fmt: skip
def test_a_board_that_is_another_than_ordered(
    ordered: str, gpu: str, model: str, power_mode: str, device: str
) -> None:
    assert device_of(ordered, gpu, model, power_mode) == device


@pytest.mark.parametrize(
    ("units", "word", "reason"),
    [(8, "", "several boards"), (None, "", "several boards"), (7, "", "several boards"),
     (8, "orin-agx", "contradicts"), (16, "orin-nano", "contradicts"), (8, "t4", "contradicts")],
)  # fmt: skip
def test_an_orin_that_is_none_or_several(units: int | None, word: str, reason: str) -> None:
    with pytest.raises(Refusal, match=reason) as refused:
        board_of("Orin", units, None, word)
    assert "orin-nano" in refused.value.value


def test_a_name_that_says_all_is_kept_and_an_odd_count_remarked() -> None:
    board, remark = board_of("NVIDIA L4", 40, None, "")
    assert (board, remark) == ("l4", "l4 has 58 multiprocessors, this device 40")
    with pytest.raises(Refusal, match="contradicts"):
        board_of("NVIDIA L4", 58, None, "t4")
    # A card of another name's units that the driver calls so; a slice has fewer, not more.
    assert board_of("NVIDIA GeForce RTX 2060", 34, None, "") == ("rtx-2060-12gb", "")
    for memory_bytes in (None, 8 * GIB):
        with pytest.raises(Refusal, match="another device of this name") as refused:
            board_of("NVIDIA GeForce RTX 2070", 40, memory_bytes, "")
        assert refused.value.value == "rtx-2070 has 36 multiprocessors, this device 40"
