"""Which block an operator belongs to, told by the module that it comes from."""

from __future__ import annotations

import pytest

from hybridlat.estimate.block_space import UNPLACED, cells_by_position, positions_of
from hybridlat.estimate.partition import CellPlace, CellUse, Partition


@pytest.mark.parametrize(
    ("paths", "blocks"),
    [
        (  # torchvision's ResNet
            ["conv1", "layer1.0.conv1", "layer2.0.downsample.0", "layer2.0.conv2", "fc"],
            ["conv1", "layer1.0", "layer2.0", "layer2.0", "fc"],
        ),
        (  # torchvision's MobileNets: numbers within blocks, squeeze-excite deeper than the rest
            ["features.0.0", "features.3.conv.0.1", "features.4.se.2.fc", "features.4.se.0.0"],
            ["features.0", "features.3", "features.4", "features.4"],
        ),
        (  # timm
            ["conv_stem", "blocks.1.0.conv_pw", "blocks.1.1.se.conv_reduce", "conv_head"],
            ["conv_stem", "blocks.1.0", "blocks.1.1", "conv_head"],
        ),
        (  # no numbers: the module whose children are operators
            ["fire2.squeeze", "fire2.expand", "features.conv0", "features.dense1.layer1.conv1"],
            ["fire2", "fire2", "features.conv0", "features.dense1.layer1"],
        ),
        (["", "layer1.0.conv1"], ["", "layer1.0"]),
    ],
)  # fmt: skip
def test_blocks_are_found_in_module_paths(paths: list[str], blocks: list[str]) -> None:
    assert positions_of(paths) == blocks


def test_a_pattern_names_the_blocks() -> None:
    paths = ["stem.0", "stages.1.downsample.1", "stages.1.blocks.0.mlp.fc1", "s1.b1.conv1.conv", ""]
    assert positions_of(paths, "stages.*.blocks.*") == [
        "stem", "stages", "stages.1.blocks.0", "s1", "",
    ]  # fmt: skip
    assert positions_of(paths, "s?.b*")[3] == "s1.b1"


def _partition(*cells: tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]) -> Partition:
    """Cells as (orders they read, file positions of each kernel), all distinct."""
    uses = tuple(
        CellUse(f"h{order}", ("Op",), (CellPlace(order, reads, kernels),))
        for order, (reads, kernels) in enumerate(cells)
    )
    return Partition(uses, (), 1, "test")


def test_what_the_engine_adds_belongs_to_what_reads_it() -> None:
    partition = _partition(
        ((-1,), ()),  # a change of layout before the first block
        ((0,), ((0,),)),
        ((1,), ((1,), (2,))),
        ((2,), ()),  # and one behind the last
    )
    found = cells_by_position(partition, ["a", "a", "b"])
    assert {position: sorted(cells) for position, cells in found.items()} == {
        "a": ["h0", "h1"], "a…b": ["h2", "h3"],
    }  # fmt: skip
    assert set(cells_by_position(partition, ["", "", ""])) == {UNPLACED}
