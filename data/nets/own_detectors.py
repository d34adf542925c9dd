"""Object detectors.

Written for this project after the papers they name, as in own_networks.py. They end in the maps of
their last convolutions, one or two per level: boxes are decoded outside the network.
"""

from __future__ import annotations

import torch
from own_blocks import conv, inverted_stages, residual_stages
from torch import Tensor, nn
from torch.nn import functional


class SsdLite(nn.Module):
    """Separable heads on six levels of an inverted residual backbone (Sandler et al. 2018)."""

    def __init__(self, classes: int = 81, anchors: int = 6) -> None:
        super().__init__()
        self.stages = inverted_stages()
        self.extra = nn.ModuleList(
            nn.Sequential(
                conv(before, after // 2, 1, activation=nn.ReLU6),
                conv(after // 2, after // 2, stride=2, groups=after // 2, activation=nn.ReLU6),
                conv(after // 2, after, 1, activation=nn.ReLU6),
            )
            for before, after in ((160, 512), (512, 256), (256, 256), (256, 128))
        )
        self.heads = nn.ModuleList(
            nn.Sequential(
                conv(width, width, groups=width, activation=nn.ReLU6),
                nn.Conv2d(width, anchors * (classes + 4), 1),
            )
            for width in (96, 160, 512, 256, 256, 128)
        )

    def forward(self, value: Tensor) -> tuple[Tensor, ...]:
        maps = []
        for stage in (*self.stages, *self.extra):
            value = stage(value)
            maps.append(value)
        return tuple(head(map_) for head, map_ in zip(self.heads, maps[2:], strict=True))


class FeaturePyramid(nn.Module):
    """Residual backbone, feature pyramid, and two heads shared by its levels (Lin et al. 2017)."""

    def __init__(self, width: int = 128, classes: int = 80, anchors: int = 9) -> None:
        super().__init__()
        self.stages = residual_stages()
        self.lateral = nn.ModuleList(nn.Conv2d(w, width, 1) for w in (128, 256, 512))
        self.smooth = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))
        self.coarser = nn.Conv2d(width, width, 3, 2, 1)
        self.heads = nn.ModuleList(
            nn.Sequential(
                *(conv(width, width) for _ in range(2)),
                nn.Conv2d(width, anchors * values, 3, padding=1),
            )
            for values in (classes, 4)
        )

    def forward(self, value: Tensor) -> tuple[Tensor, ...]:
        maps = []
        for stage in self.stages:
            value = stage(value)
            maps.append(value)
        levels = [lateral(map_) for lateral, map_ in zip(self.lateral, maps[1:], strict=True)]
        for finer in (1, 0):
            levels[finer] = levels[finer] + functional.interpolate(
                levels[finer + 1], scale_factor=2
            )
        levels = [smooth(level) for smooth, level in zip(self.smooth, levels, strict=True)]
        levels.append(self.coarser(levels[-1]))
        return tuple(head(level) for head in self.heads for level in levels)


class CrossStage(nn.Module):
    """Half of the channels pass a chain of bottlenecks, then both halves mix (Wang et al. 2020)."""

    def __init__(self, inputs: int, outputs: int, count: int, *, residual: bool = True) -> None:
        super().__init__()
        half = outputs // 2
        self.first = conv(inputs, half, 1, activation=nn.SiLU)
        self.aside = conv(inputs, half, 1, activation=nn.SiLU)
        self.chain = nn.ModuleList(
            nn.Sequential(
                conv(half, half, 1, activation=nn.SiLU), conv(half, half, activation=nn.SiLU)
            )
            for _ in range(count)
        )
        self.last = conv(2 * half, outputs, 1, activation=nn.SiLU)
        self.residual = residual

    def forward(self, value: Tensor) -> Tensor:
        chain = self.first(value)
        for link in self.chain:
            chain = chain + link(chain) if self.residual else link(chain)
        return self.last(torch.cat((chain, self.aside(value)), dim=1))


class PyramidPooling(nn.Module):
    """Three poolings in a row, all four results side by side (after He et al. 2015)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = conv(width, width // 2, 1, activation=nn.SiLU)
        self.last = conv(2 * width, width, 1, activation=nn.SiLU)

    def forward(self, value: Tensor) -> Tensor:
        maps = [self.first(value)]
        for _ in range(3):
            maps.append(functional.max_pool2d(maps[-1], 5, 1, 2))
        return self.last(torch.cat(maps, dim=1))


class OneStage(nn.Module):
    """Cross-stage backbone, paths down and up again, one head per level (YOLO family)."""

    def __init__(self, width: int = 32, classes: int = 80, anchors: int = 3) -> None:
        super().__init__()
        w2, w4, w8 = 4 * width, 8 * width, 16 * width

        def shrink(inputs: int, outputs: int) -> nn.Module:
            return conv(inputs, outputs, stride=2, activation=nn.SiLU)

        def mix(inputs: int, outputs: int) -> nn.Module:
            return CrossStage(inputs, outputs, 1, residual=False)

        self.stem = nn.Sequential(
            conv(3, width, 5, stride=2, activation=nn.SiLU),
            shrink(width, 2 * width),
            CrossStage(2 * width, 2 * width, 1),
        )
        self.fine = nn.Sequential(shrink(2 * width, w2), CrossStage(w2, w2, 2))
        self.middle = nn.Sequential(shrink(w2, w4), CrossStage(w4, w4, 3))
        self.coarse = nn.Sequential(shrink(w4, w8), CrossStage(w8, w8, 1), PyramidPooling(w8))
        self.narrow_coarse = conv(w8, w4, 1, activation=nn.SiLU)
        self.narrow_middle = conv(w4, w2, 1, activation=nn.SiLU)
        self.down_middle, self.down_fine = mix(2 * w4, w4), mix(2 * w2, w2)
        self.shrink_fine, self.shrink_middle = shrink(w2, w2), shrink(w4, w4)
        self.up_middle, self.up_coarse = mix(2 * w2, w4), mix(2 * w4, w8)
        self.heads = nn.ModuleList(nn.Conv2d(w, anchors * (classes + 5), 1) for w in (w2, w4, w8))

    def forward(self, value: Tensor) -> tuple[Tensor, ...]:
        fine = self.fine(self.stem(value))
        middle = self.middle(fine)
        coarse = self.narrow_coarse(self.coarse(middle))
        enlarged = functional.interpolate(coarse, scale_factor=2)
        middle = self.narrow_middle(self.down_middle(torch.cat((enlarged, middle), dim=1)))
        enlarged = functional.interpolate(middle, scale_factor=2)
        fine = self.down_fine(torch.cat((enlarged, fine), dim=1))
        middle = self.up_middle(torch.cat((self.shrink_fine(fine), middle), dim=1))
        coarse = self.up_coarse(torch.cat((self.shrink_middle(middle), coarse), dim=1))
        levels = (fine, middle, coarse)
        return tuple(head(level) for head, level in zip(self.heads, levels, strict=True))
