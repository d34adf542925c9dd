"""Two search spaces of blocks as ONNX models without weights: generators for searches and tests.

- ``MOBILENET``: after Once-for-All's MobileNetV3 space (Cai et al., ICLR 2020): five stages of two
  to four inverted residual blocks, each with its own kernel size and expansion.
- ``RESNET``: after its ResNet space: four stages of two to four residual blocks, plain, bottleneck
  or grouped, some of odd widths, and two stems.

An architecture is a tuple of numbers, one a position: ``space.choices[p][architecture[p]]`` says in
words what stands at position ``p`` (named ``space.positions[p]``). Any tuple within the choices is
a network::

    from experiments.block_spaces import MOBILENET
    architecture = MOBILENET.sample(random.Random(1))
    model = MOBILENET.build(architecture)

The graphs are what an exporter gives in evaluation mode: batch normalisation is folded into the
convolutions, weights are ``ConstantOfShape`` nodes as in the light models that ship with onnx.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onnx import AttributeProto, ModelProto

from experiments.onnx_writer import OnnxWriter, pool, window

Architecture = tuple[int, ...]
NONE = "none"
CLASSES = 1000
_PRODUCER = "hybridlat-block-spaces"
SLOTS = 4
"""Blocks that a stage has at most; the first two are always there."""


@dataclass(frozen=True)
class BlockSpace:
    """A search space: what can stand at each position, and the network of each architecture."""

    name: str
    positions: tuple[str, ...]
    choices: tuple[tuple[str, ...], ...]
    writer: Callable[[list[str], int], ModelProto]

    def sample(self, rng: random.Random) -> Architecture:
        """An architecture drawn at random, every choice of a position equally likely."""
        return tuple(rng.randrange(len(choices)) for choices in self.choices)

    def words(self, architecture: Sequence[int]) -> list[str]:
        """What stands at each position; ValueError for a tuple that is no architecture."""
        if len(architecture) != len(self.choices):
            raise ValueError(f"{len(architecture)} numbers for {len(self.choices)} positions")
        for number, choices, place in zip(architecture, self.choices, self.positions, strict=True):
            if not 0 <= number < len(choices):
                raise ValueError(f"{number} at {place}: choose 0 to {len(choices) - 1}")
        return [c[number] for number, c in zip(architecture, self.choices, strict=True)]

    def build(self, architecture: Sequence[int], batch: int = 1) -> ModelProto:
        """The network of an architecture, without weights."""
        return self.writer(self.words(architecture), batch)


@dataclass(frozen=True)
class _Value:
    name: str
    channels: int


class _Writer(OnnxWriter):
    """Appends operators to a graph; methods return the value that they have made."""

    def value(
        self,
        operator: str,
        inputs: list[str],
        channels: int,
        attributes: list[AttributeProto] | None = None,
        name: str = "",
    ) -> _Value:
        return _Value(self.node(operator, inputs, name, attributes), channels)

    def conv(
        self,
        value: _Value,
        channels: int,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        activation: str = "",
    ) -> _Value:
        operands = [
            value.name,
            self.weight(channels, value.channels // groups, kernel, kernel),
            self.weight(channels),
        ]
        made = self.value("Conv", operands, channels, window(kernel, stride, groups))
        return self.value(activation, [made.name], channels) if activation else made

    def pool(self, value: _Value, operator: str, kernel: int, stride: int) -> _Value:
        return self.value(operator, [value.name], value.channels, pool(kernel, stride))

    def mean(self, value: _Value) -> _Value:
        return self.value("GlobalAveragePool", [value.name], value.channels)

    def add(self, one: _Value, other: _Value, activation: str = "") -> _Value:
        made = self.value("Add", [one.name, other.name], one.channels)
        return self.value(activation, [made.name], one.channels) if activation else made

    def classifier(self, value: _Value) -> _Value:
        flat = self.value("Flatten", [value.name], value.channels)
        operands = [flat.name, self.weight(CLASSES, value.channels), self.weight(CLASSES)]
        return self.value("Gemm", operands, CLASSES, name="output")


def _of_eight(channels: float) -> int:
    """Rounded to a multiple of eight, as MobileNets are, and by no more than a tenth downwards."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


# ---- inverted residual blocks ------------------------------------------------------------------

# Channels, stride of the first block, squeeze-excite, activation.
_MOBILE_STAGES = (
    (24, 2, False, "Relu"), (40, 2, True, "Relu"), (80, 2, False, "HardSwish"),
    (112, 1, True, "HardSwish"), (160, 2, True, "HardSwish"),
)  # fmt: skip
_MOBILE_BLOCKS = tuple(f"kernel {k}, expansion {e}" for k in (3, 5, 7) for e in (3, 4, 6))


def _mobilenet(words: list[str], batch: int) -> ModelProto:
    net = _Writer()
    value = _mobile_stem(net, _Value("input", 3))
    blocks = words[1:]
    for stage, (channels, first_stride, squeezes, activation) in enumerate(_MOBILE_STAGES):
        for slot, block in enumerate(blocks[SLOTS * stage : SLOTS * (stage + 1)]):
            if block != NONE:
                kernel, expansion = (int(part.split()[-1]) for part in block.split(","))
                stride = 1 if slot else first_stride
                value = _inverted(
                    net, value, channels, kernel, expansion, stride, squeezes, activation
                )
    _mobile_head(net, value)
    return net.model("mobilenet_space", int(words[0]), batch, CLASSES, _PRODUCER)


def _mobile_stem(net: _Writer, value: _Value) -> _Value:
    value = net.conv(value, 16, 3, 2, activation="HardSwish")
    deep = net.conv(value, 16, 3, groups=16, activation="Relu")
    return net.add(net.conv(deep, 16), value)


def _mobile_head(net: _Writer, value: _Value) -> _Value:
    value = net.mean(net.conv(value, 960, activation="HardSwish"))
    return net.classifier(net.conv(value, 1280, activation="HardSwish"))


def _inverted(
    net: _Writer,
    value: _Value,
    channels: int,
    kernel: int,
    expansion: int,
    stride: int,
    squeezes: bool,
    activation: str,
) -> _Value:
    inner = _of_eight(value.channels * expansion)
    deep = net.conv(value, inner, activation=activation)
    deep = net.conv(deep, inner, kernel, stride, inner, activation)
    if squeezes:
        gate = net.conv(net.mean(deep), _of_eight(inner / 4), activation="Relu")
        gate = net.conv(gate, inner, activation="HardSigmoid")
        deep = net.value("Mul", [deep.name, gate.name], inner)
    deep = net.conv(deep, channels)
    return net.add(deep, value) if stride == 1 and value.channels == channels else deep


# ---- residual blocks ---------------------------------------------------------------------------

_RESNET_WIDTHS = (256, 512, 1024, 2048)
_RESNET_BLOCKS = (
    "bottleneck 0.2", "bottleneck 0.25", "bottleneck 0.35", "plain 0.25", "grouped 0.25",
)  # fmt: skip


def _resnet(words: list[str], batch: int) -> ModelProto:
    net = _Writer()
    image, stem, *rest = words
    value = _Value("input", 3)
    if stem == "7x7":
        value = net.conv(value, 64, 7, 2, activation="Relu")
    else:
        value = net.conv(value, 32, 3, 2, activation="Relu")
        value = net.conv(value, 32, 3, activation="Relu")
        value = net.conv(value, 64, 3, activation="Relu")
    value = net.pool(value, "MaxPool", 3, 2)
    for stage, full in enumerate(_RESNET_WIDTHS):
        width, *blocks = rest[(SLOTS + 1) * stage : (SLOTS + 1) * (stage + 1)]
        channels = _of_eight(full * float(width))
        for slot, block in enumerate(blocks):
            if block != NONE:
                stride = 2 if stage and not slot else 1
                value = _residual(net, value, channels, block, stride, averages=stem != "7x7")
    net.classifier(net.mean(value))
    return net.model("resnet_space", int(image), batch, CLASSES, _PRODUCER)


def _residual(
    net: _Writer, value: _Value, channels: int, block: str, stride: int, *, averages: bool
) -> _Value:
    kind, ratio = block.split()
    inner = _of_eight(channels * float(ratio))
    if kind == "plain":
        deep = net.conv(value, inner, 3, stride, activation="Relu")
        deep = net.conv(deep, channels, 3)
    else:
        deep = net.conv(value, inner, activation="Relu")
        groups = inner // 8 if kind == "grouped" else 1
        deep = net.conv(deep, inner, 3, stride, groups, "Relu")
        deep = net.conv(deep, channels)
    shortcut = value
    if stride > 1 and averages:
        shortcut = net.conv(net.pool(value, "AveragePool", 2, 2), channels)
    elif stride > 1 or value.channels != channels:
        shortcut = net.conv(value, channels, 1, stride)
    return net.add(deep, shortcut, "Relu")


def _slots(blocks: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    return tuple(blocks if slot < 2 else (NONE, *blocks) for slot in range(SLOTS))


MOBILENET = BlockSpace(
    "mobilenet",
    ("image", *(f"stage{s + 1}.block{b + 1}" for s in range(5) for b in range(SLOTS))),
    (("160", "176", "192", "208", "224"), *_slots(_MOBILE_BLOCKS) * len(_MOBILE_STAGES)),
    _mobilenet,
)

RESNET = BlockSpace(
    "resnet",
    (
        "image", "stem",
        *(
            f"stage{s + 1}.{part}"
            for s in range(len(_RESNET_WIDTHS))
            for part in ("width", *(f"block{b + 1}" for b in range(SLOTS)))
        ),
    ),
    (
        ("128", "160", "192", "224"), ("7x7", "3x3 thrice"),
        *(("0.65", "0.8", "1.0"), *_slots(_RESNET_BLOCKS)) * len(_RESNET_WIDTHS),
    ),
    _resnet,
)  # fmt: skip

SPACES = {space.name: space for space in (MOBILENET, RESNET)}
