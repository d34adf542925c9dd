"""Networks that timm does not have: channel shuffle, segmentation, restoration, style.

They are written for this project after the papers they name, with the papers' proportions but not
their every detail: what counts is that an engine sees the same kinds of layers in the same order.
"""

from __future__ import annotations

import torch
from own_blocks import BasicBlock, conv, inverted_stages, residual_stages, resize
from torch import Tensor, nn
from torch.nn import functional


class ShuffleUnit(nn.Module):
    """Half of the channels passes by, then the halves are interleaved (Ma et al. 2018)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        half = outputs // 2
        before = inputs if stride == 2 else half
        self.main = nn.Sequential(
            conv(before, half, 1),
            conv(half, half, stride=stride, groups=half, activation=None),
            conv(half, half, 1),
        )
        self.side = nn.Sequential(
            conv(inputs, inputs, stride=2, groups=inputs, activation=None), conv(inputs, half, 1)
        )
        if stride == 1:
            self.side = nn.Sequential()

    def forward(self, value: Tensor) -> Tensor:
        aside, through = (value, value) if self.stride == 2 else value.chunk(2, dim=1)
        joined = torch.cat((self.side(aside), self.main(through)), dim=1)
        return joined.unflatten(1, (2, joined.shape[1] // 2)).transpose(1, 2).flatten(1, 2)


def shufflenet_v2() -> nn.Module:
    """ShuffleNet v2 at full width (Ma et al. 2018)."""
    layers: list[nn.Module] = [conv(3, 24, stride=2), nn.MaxPool2d(3, 2, 1)]
    before = 24
    for after, count in ((116, 4), (232, 8), (464, 4)):
        layers.append(ShuffleUnit(before, after, 2))
        layers += [ShuffleUnit(after, after, 1) for _ in range(count - 1)]
        before = after
    layers += [conv(before, 1024, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 1000)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Contracting and expanding path with copies in between (Ronneberger et al. 2015)."""

    def __init__(self, width: int = 32, depth: int = 4, classes: int = 2) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.down = nn.ModuleList(
            nn.Sequential(conv(before, after), conv(after, after))
            for before, after in zip([3, *widths], widths, strict=False)
        )
        self.enlarge = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in widths[-2::-1])
        self.up = nn.ModuleList(nn.Sequential(conv(2 * w, w), conv(w, w)) for w in widths[-2::-1])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, value: Tensor) -> Tensor:
        copies: list[Tensor] = []
        for level, block in enumerate(self.down):
            value = block(functional.max_pool2d(value, 2) if level else value)
            copies.append(value)
        copies.pop()
        for enlarge, block in zip(self.enlarge, self.up, strict=True):
            value = block(torch.cat((copies.pop(), enlarge(value)), dim=1))
        return self.head(value)


class DeepLab(nn.Module):
    """Dilated residual backbone, pyramid of dilations, small decoder (Chen et al. 2018)."""

    def __init__(self, classes: int = 21) -> None:
        super().__init__()
        self.stages = residual_stages()
        # The last stage keeps its size and dilates instead.
        self.stages[3] = nn.Sequential(
            BasicBlock(256, 512, dilation=2), BasicBlock(512, 512, dilation=2)
        )
        self.pyramid = nn.ModuleList(
            [conv(512, 128, 1), *(conv(512, 128, dilation=rate) for rate in (6, 12, 18))]
        )
        self.whole = nn.Sequential(nn.AdaptiveAvgPool2d(1), conv(512, 128, 1))
        self.project = conv(5 * 128, 128, 1)
        self.detail = conv(64, 48, 1)
        self.head = nn.Sequential(conv(128 + 48, 128), nn.Conv2d(128, classes, 1))

    def forward(self, value: Tensor) -> Tensor:
        fine = value = self.stages[0](value)
        for stage in list(self.stages)[1:]:
            value = stage(value)
        size = value.shape[-2:]
        whole = functional.interpolate(self.whole(value), size, mode="bilinear")
        value = self.project(torch.cat([*(branch(value) for branch in self.pyramid), whole], dim=1))
        value = self.head(torch.cat((resize(value, 4), self.detail(fine)), dim=1))
        return resize(value, 4)


class FullyConvolutional(nn.Module):
    """Scores of three scales, enlarged by transposed convolutions (Long et al. 2015)."""

    def __init__(self, classes: int = 21) -> None:
        super().__init__()
        self.stages = inverted_stages()
        self.scores = nn.ModuleList(nn.Conv2d(width, classes, 1) for width in (160, 96, 32))
        self.enlarge = nn.ModuleList(
            nn.ConvTranspose2d(classes, classes, 2 * factor, factor, factor // 2)
            for factor in (2, 2, 8)
        )

    def forward(self, value: Tensor) -> Tensor:
        maps = []
        for stage in self.stages:
            value = stage(value)
            maps.append(value)
        total = self.enlarge[0](self.scores[0](maps[3]))
        total = self.enlarge[1](total + self.scores[1](maps[2]))
        return self.enlarge[2](total + self.scores[2](maps[1]))


class SuperResolution(nn.Module):
    """Residual blocks without normalisation, then pixels out of channels (Lim et al. 2017)."""

    def __init__(self, width: int = 48, blocks: int = 8, factor: int = 2) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1),
                nn.PReLU(width),
                nn.Conv2d(width, width, 3, padding=1),
            )
            for _ in range(blocks)
        )
        self.last = nn.Conv2d(width, 3 * factor**2, 3, padding=1)
        self.shuffle = nn.PixelShuffle(factor)

    def forward(self, value: Tensor) -> Tensor:
        first = value = self.first(value)
        for block in self.blocks:
            value = value + 0.1 * block(value)
        return self.shuffle(self.last(value + first))


class StyleTransfer(nn.Module):
    """Mirrored borders, instance normalisation, enlargement by resizing (Johnson et al. 2016)."""

    def __init__(self, width: int = 32, blocks: int = 5) -> None:
        super().__init__()
        wide = 4 * width
        self.down = nn.Sequential(
            self.layer(3, width, 9),
            self.layer(width, 2 * width, 3, 2),
            self.layer(2 * width, wide, 3, 2),
        )
        self.blocks = nn.ModuleList(
            nn.Sequential(self.layer(wide, wide, 3), *list(self.layer(wide, wide, 3))[:-1])
            for _ in range(blocks)
        )
        self.up = nn.ModuleList((self.layer(wide, 2 * width, 3), self.layer(2 * width, width, 3)))
        self.last = nn.Sequential(nn.ReflectionPad2d(4), nn.Conv2d(width, 3, 9), nn.Tanh())

    @staticmethod
    def layer(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
        """Mirror the border, convolve, normalise each image and channel alone."""
        return nn.Sequential(
            nn.ReflectionPad2d(kernel // 2),
            nn.Conv2d(inputs, outputs, kernel, stride),
            nn.InstanceNorm2d(outputs, affine=True),
            nn.ReLU(),
        )

    def forward(self, value: Tensor) -> Tensor:
        value = self.down(value)
        for block in self.blocks:
            value = value + block(value)
        for layer in self.up:
            value = layer(functional.interpolate(value, scale_factor=2))
        return self.last(value)
