"""The layers that this project's own networks are put together from."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

Activation = Callable[[], nn.Module]


def conv(
    inputs: int,
    outputs: int,
    kernel: int = 3,
    *,
    stride: int = 1,
    groups: int = 1,
    dilation: int = 1,
    activation: Activation | None = nn.ReLU,
) -> nn.Sequential:
    """Convolution that keeps the size at stride 1, batch normalisation, activation."""
    padding = dilation * (kernel // 2)
    layers: list[nn.Module] = [
        nn.Conv2d(
            inputs, outputs, kernel, stride, padding, dilation=dilation, groups=groups, bias=False
        ),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, *([activation()] if activation else []))


def resize(value: Tensor, factor: int) -> Tensor:
    """Bilinear enlargement."""
    return functional.interpolate(value, scale_factor=factor, mode="bilinear", align_corners=False)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut (He et al. 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1, dilation: int = 1) -> None:
        super().__init__()
        self.main = nn.Sequential(
            conv(inputs, outputs, stride=stride, dilation=dilation),
            conv(outputs, outputs, dilation=dilation, activation=None),
        )
        same = stride == 1 and inputs == outputs
        self.shortcut = (
            nn.Identity() if same else conv(inputs, outputs, 1, stride=stride, activation=None)
        )

    def forward(self, value: Tensor) -> Tensor:
        return torch.relu(self.main(value) + self.shortcut(value))


class InvertedResidual(nn.Module):
    """Expand, filter each channel alone, project (Sandler et al. 2018)."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int = 6) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.main = nn.Sequential(
            conv(inputs, hidden, 1, activation=nn.ReLU6),
            conv(hidden, hidden, stride=stride, groups=hidden, activation=nn.ReLU6),
            conv(hidden, outputs, 1, activation=None),
        )
        self.residual = stride == 1 and inputs == outputs

    def forward(self, value: Tensor) -> Tensor:
        return value + self.main(value) if self.residual else self.main(value)


def residual_stages() -> nn.ModuleList:
    """Four stages of two basic blocks; they halve the size 2, 3, 4 and 5 times."""
    widths = (64, 64, 128, 256, 512)
    stem = nn.Sequential(conv(3, 64, 7, stride=2), nn.MaxPool2d(3, 2, 1))
    stages = [
        nn.Sequential(
            BasicBlock(before, after, 1 if before == after else 2), BasicBlock(after, after)
        )
        for before, after in pairwise(widths)
    ]
    stages[0] = nn.Sequential(stem, stages[0])
    return nn.ModuleList(stages)


def inverted_stages() -> nn.ModuleList:
    """Four stages of inverted residuals; they halve the size 2, 3, 4 and 5 times."""
    stages: list[nn.Module] = []
    before = 16
    for after, count in ((24, 2), (32, 3), (96, 5), (160, 3)):
        blocks = [InvertedResidual(before, after, 2)]
        blocks += [InvertedResidual(after, after, 1) for _ in range(count - 1)]
        stages.append(nn.Sequential(*blocks))
        before = after
    stem = nn.Sequential(
        conv(3, 32, stride=2, activation=nn.ReLU6), InvertedResidual(32, 16, 1, expansion=1)
    )
    stages[0] = nn.Sequential(stem, stages[0])
    return nn.ModuleList(stages)
