"""The networks of NAS-Bench-201 (Dong and Yang, ICLR 2020) as ONNX files without trained weights.

An architecture is a string such as

    |nor_conv_3x3~0|+|none~0|skip_connect~1|+|avg_pool_3x3~0|nor_conv_1x1~1|skip_connect~2|

One cell has four nodes. Node 0 is the cell's input, node 3 its output, and every node is the sum
of what its incoming edges deliver. The string lists, for nodes 1, 2 and 3, the operator on the edge
from each earlier node. With five operators on six edges there are 15,625 architectures.

    stem     3x3 convolution + BN
    stage 1  N cells with C channels
    reduce   residual block with stride 2; its shortcut: 2x2 average pooling, 1x1 convolution
    stage 2  N cells with 2C channels
    reduce   as above
    stage 3  N cells with 4C channels
    tail     BN + ReLU, global average pooling, classifier

The files are what an inference engine is given after export in evaluation mode:

- A BN that follows a convolution is folded into its weight and bias. The BN of the tail follows no
  convolution and stays.
- `skip_connect` leaves no node, `none` leaves no edge.
- Convolutions that read the same value share one ReLU: exporters merge equal operators.
- An edge that lies on no path from the cell's input to its output is dropped. So is a convolution
  on a node that receives nothing: its bias folds into its surroundings.
- Where no path is left (341 architectures), only the tail survives, applied to an `Expand` of zero.

Weights are `ConstantOfShape` nodes: give them random values before measuring (a variance must stay
positive). Weights of one shape share one shape tensor, which keeps the files small.
"""

import random
from collections.abc import Iterator
from functools import cache

from onnx import AttributeProto, ModelProto, TensorProto
from onnx.helper import make_attribute, make_tensor

from experiments.onnx_writer import OnnxWriter, pool, window

OPERATORS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
"""The five operators, in the order in which an index counts them."""

EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
"""(from node, to node) of the six edges, in the order of the string."""

ARCHITECTURES: int = len(OPERATORS) ** len(EDGES)

_KERNEL = {"nor_conv_1x1": 1, "nor_conv_3x3": 3}


def parse(arch: str) -> tuple[str, ...]:
    """Return the operators on `EDGES`; raise ValueError if `arch` is not such a string."""
    operators = []
    nodes = arch.split("+")
    if len(nodes) != 3:
        raise ValueError(f"expected three nodes joined by '+', found {len(nodes)}: {arch!r}")
    for target, node in enumerate(nodes, start=1):
        edges = node.strip("|").split("|")
        if len(edges) != target or node != "|" + "|".join(edges) + "|":
            raise ValueError(f"node {target} needs {target} edges as '|op~0|...|': {node!r}")
        for source, edge in enumerate(edges):
            name, _, origin = edge.partition("~")
            if name not in OPERATORS or origin != str(source):
                raise ValueError(f"expected one of {OPERATORS} followed by '~{source}': {edge!r}")
            operators.append(name)
    return tuple(operators)


def arch_from_index(index: int) -> str:
    """Return architecture number `index`: six digits to the base 5, the first edge leading.

    The numbering is this module's own. The published table orders the same strings at random.
    """
    if not 0 <= index < ARCHITECTURES:
        raise ValueError(f"an index is 0..{ARCHITECTURES - 1}, not {index}")
    digits = []
    for _ in EDGES:
        index, digit = divmod(index, len(OPERATORS))
        digits.append(OPERATORS[digit])
    text = {1: "|", 2: "|", 3: "|"}
    for (source, target), operator in zip(EDGES, reversed(digits), strict=True):
        text[target] += f"{operator}~{source}|"
    return "+".join(text.values())


def index_from_arch(arch: str) -> int:
    """Return the number which `arch_from_index` turns into `arch`."""
    index = 0
    for operator in parse(arch):
        index = index * len(OPERATORS) + OPERATORS.index(operator)
    return index


def all_archs() -> Iterator[str]:
    """Yield all 15,625 architectures in the order of their index."""
    return (arch_from_index(index) for index in range(ARCHITECTURES))


def sample(count: int, seed: int) -> list[str]:
    """Draw `count` different architectures, all equally likely, the same for the same seed."""
    return [arch_from_index(i) for i in random.Random(seed).sample(range(ARCHITECTURES), count)]


def live_edges(arch: str) -> list[tuple[int, int, str]]:
    """Return (from, to, operator) of the edges on a path from the cell's input to its output."""
    edges = [
        (source, target, operator)
        for (source, target), operator in zip(EDGES, parse(arch), strict=True)
        if operator != "none"
    ]
    # An edge always leads to a higher node, so one pass in each direction is enough.
    reached, needed = {0}, {3}
    for source, target, _ in sorted(edges):
        if source in reached:
            reached.add(target)
    for source, target, _ in sorted(edges, key=lambda edge: -edge[1]):
        if target in needed:
            needed.add(source)
    return [edge for edge in edges if edge[0] in reached and edge[1] in needed]


def build(
    arch: str,
    *,
    channels: int = 16,
    cells_per_stage: int = 5,
    image: int = 32,
    classes: int = 10,
    batch: int = 1,
) -> ModelProto:
    """Return the network of `arch` with `channels` in its first stage, on square images."""
    if min(channels, cells_per_stage, image, classes, batch) < 1 or image % 4:
        raise ValueError("all sizes must be positive, and the image a multiple of 4")
    edges = live_edges(arch)
    writer = _Writer()
    if edges:
        value = writer.conv("input", "stem", 3, channels, 3)
        for stage in range(3):
            width = channels << stage
            if stage:
                value = writer.reduction(value, f"reduce{stage}", width // 2, width)
            for number in range(cells_per_stage):
                value = writer.cell(value, f"stage{stage + 1}.cell{number + 1}", width, edges)
    else:
        value = writer.zeros("zeros", (batch, channels * 4, image // 4, image // 4))
    writer.tail(value, channels * 4, classes)

    return writer.model("nasbench201", image, batch, classes, "hybridlat-nasbench201")


@cache
def _average(kernel: int, stride: int) -> list[AttributeProto]:
    return [make_attribute("count_include_pad", 0), *pool(kernel, stride)]


class _Writer(OnnxWriter):
    """The parts of the networks; every method returns the name of the value it has made."""

    def __init__(self) -> None:
        super().__init__()
        self._relus: dict[str, str] = {}

    def zeros(self, name: str, shape: tuple[int, ...]) -> str:
        self.graph.initializer.append(make_tensor("zero", TensorProto.FLOAT, [1], [0.0]))
        return self.node("Expand", ["zero", self.shape(*shape)], name)

    def conv(
        self,
        value: str,
        name: str,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        stride: int = 1,
        bias: bool = True,
    ) -> str:
        operands = [value, self.weight(outputs, inputs, kernel, kernel, name=f"{name}.weight")]
        if bias:
            operands.append(self.weight(outputs, name=f"{name}.bias"))
        return self.node("Conv", operands, f"{name}.conv", window(kernel, stride))

    def relu(self, value: str) -> str:
        if value not in self._relus:
            self._relus[value] = self.node("Relu", [value], f"{value}.relu")
        return self._relus[value]

    def cell(self, value: str, name: str, width: int, edges: list[tuple[int, int, str]]) -> str:
        nodes = {0: value}
        for source, target, operator in edges:
            edge = f"{name}.edge{source}{target}"
            result = nodes[source]
            if operator in _KERNEL:
                result = self.relu(result)
                result = self.conv(result, edge, width, width, _KERNEL[operator])
            elif operator == "avg_pool_3x3":
                result = self.node("AveragePool", [result], f"{edge}.pool", _average(3, 1))
            if target in nodes:
                result = self.node("Add", [nodes[target], result], f"{edge}.add")
            nodes[target] = result
        return nodes[3]

    def reduction(self, value: str, name: str, inputs: int, outputs: int) -> str:
        main = self.relu(value)
        main = self.conv(main, f"{name}.a", inputs, outputs, 3, stride=2)
        main = self.relu(main)
        main = self.conv(main, f"{name}.b", outputs, outputs, 3)
        shortcut = self.node("AveragePool", [value], f"{name}.pool", _average(2, 2))
        # No BN follows this convolution, so there is no bias to fold one into.
        shortcut = self.conv(shortcut, f"{name}.shortcut", inputs, outputs, 1, bias=False)
        return self.node("Add", [shortcut, main], f"{name}.add")

    def tail(self, value: str, width: int, classes: int) -> str:
        parts = ("weight", "bias", "running_mean", "running_var")
        statistics = [self.weight(width, name=f"tail.bn.{part}") for part in parts]
        value = self.node("BatchNormalization", [value, *statistics], "tail.bn")
        value = self.node("GlobalAveragePool", [self.relu(value)], "tail.pool")
        value = self.node("Flatten", [value], "tail.flatten")
        shapes = {"weight": (classes, width), "bias": (classes,)}
        learned = [self.weight(*shape, name=f"tail.classifier.{n}") for n, shape in shapes.items()]
        return self.node("Gemm", [value, *learned], "output")
