"""Random graphs of the operators that the rules for ONNX Runtime cover, under any opset.

What trained networks hold is a small part of what files can hold. These graphs combine operators,
attributes, numbers of channels and opsets without regard to sense, so that a rule that is too wide
meets the case that it is wrong for. Weights have no values.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper

OPSETS = range(7, 24)
SIZES = (8, 12)
WIDTHS = ((3, 8, 12, 16, 18, 20, 32), (16, 32, 64), (16, 24, 40, 96))
MOST_TRIES = 100
_FREQUENT = ("Conv",) * 8 + ("Relu", "BatchNormalization") * 3 + ("Add",) * 4
_OPERATORS = (
    *_FREQUENT,
    "Concat", "Mul", "MaxPool", "AveragePool", "GlobalAveragePool", "Flatten", "Gemm", "Clip",
    "Sigmoid", "Concat", "Mul", "MaxPool", "AveragePool", "GlobalAveragePool", "Flatten", "Gemm",
    "Clip", "Sigmoid", "Reshape", "ReduceMean", "Softmax", "LRN", "HardSwish", "HardSigmoid",
    "LeakyRelu", "Tanh", "GlobalMaxPool",
)  # fmt: skip
_ACTIVATIONS: dict[str, tuple[dict[str, float], ...]] = {
    "Relu": ({},), "Sigmoid": ({},), "Tanh": ({},), "HardSwish": ({},),
    "LeakyRelu": ({}, {"alpha": 0.1}, {"alpha": 0.0}),
    "HardSigmoid": ({}, {"alpha": 1 / 6}, {"alpha": 1 / 6, "beta": 0.5}),
    "Softmax": ({}, {"axis": 1}, {"axis": -1}),
}  # fmt: skip
_BOUNDS = ((), (0.0,), (0.0, 6.0), (None, 6.0), (-1.0, 1.0))


def random_graph(seed: int, opsets: Sequence[int] = OPSETS) -> ModelProto:
    """A small graph: 2 to 14 operators, one input, one or more outputs."""
    rng = random.Random(seed)
    graph = _Graph(rng, rng.choice(opsets), rng.choice(WIDTHS))
    size = rng.choice(SIZES)
    live = [graph.input((rng.choice((1, 1, 2)), rng.choice(graph.widths), size, size))]
    few = (*rng.sample(sorted(set(_OPERATORS)), 6), "Conv", "Conv", "Conv")
    operators = _OPERATORS if rng.random() < 0.6 else few
    wanted = rng.randint(2, 14)
    for _ in range(MOST_TRIES):
        made = graph.add(rng.choice(operators), live)
        if made is not None:
            live.append(made)
        if len(graph.proto.node) == wanted:
            break
    return graph.model(seed)


@dataclass
class _Graph:
    """A graph in the making; ``shapes`` are those of its tensors."""

    rng: random.Random
    opset: int
    widths: tuple[int, ...]
    proto: GraphProto = field(default_factory=GraphProto)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def input(self, shape: tuple[int, ...]) -> str:
        self.proto.input.append(helper.make_tensor_value_info("in", TensorProto.FLOAT, shape))
        self.shapes["in"] = shape
        return "in"

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.proto.initializer)}"
        self.proto.initializer.add(name=name, dims=shape, data_type=TensorProto.FLOAT)
        return name

    def constant(self, values: Any, dtype: type) -> str:
        name = f"c{len(self.proto.initializer)}"
        self.proto.initializer.append(numpy_helper.from_array(np.array(values, dtype), name))
        return name

    def op(self, op: str, inputs: Sequence[str], shape: tuple[int, ...], **attributes: Any) -> str:
        name = f"t{len(self.proto.node)}"
        self.proto.node.append(helper.make_node(op, inputs, [name], **attributes))
        self.shapes[name] = shape
        return name

    def model(self, seed: int) -> ModelProto:
        """What nothing reads is given out, sometimes another tensor too."""
        self.proto.name = f"random {seed}"
        read = {name for node in self.proto.node for name in node.input}
        ends = [node.output[0] for node in self.proto.node if node.output[0] not in read]
        extra = self.rng.choice(self.proto.node).output[0]
        if self.rng.random() < 0.1 and extra not in ends:
            ends.append(extra)
        for name in ends:
            self.proto.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
        opset = helper.make_opsetid("", self.opset)
        return helper.make_model(self.proto, opset_imports=[opset], ir_version=8)

    def add(self, op: str, live: Sequence[str]) -> str | None:
        """One more operator that reads a late tensor; None where it does not fit that."""
        source = self.rng.choice(live[-4:])
        shape = self.shapes[source]
        if op == "HardSwish" and self.opset < 14:
            return None
        if op in _ACTIVATIONS:
            return self.op(op, [source], shape, **self.rng.choice(_ACTIVATIONS[op]))
        if op == "Clip":
            return self._clip(source)
        if op in ("Add", "Mul"):
            return self._binary(op, source, live)
        ranks = {"Flatten": (2, 3, 4), "Gemm": (2,)}
        if len(shape) not in ranks.get(op, (4,)):
            return None
        make: dict[str, Callable[[], str | None]] = {
            "LRN": lambda: self.op(op, [source], shape, size=5),
            "Flatten": lambda: self.op(op, [source], (shape[0], prod(shape[1:]))),
            "Reshape": lambda: self.op(
                op, [source, self.constant([shape[0], -1], np.int64)], (shape[0], prod(shape[1:]))
            ),
            "ReduceMean": lambda: self._mean(source),
            "Gemm": lambda: self._gemm(source),
            "Concat": lambda: self._concat(source, live),
            "Conv": lambda: self._conv(source),
            "MaxPool": lambda: self._pool(op, source),
            "AveragePool": lambda: self._pool(op, source),
            "GlobalAveragePool": lambda: self.op(op, [source], (*shape[:2], 1, 1)),
            "GlobalMaxPool": lambda: self.op(op, [source], (*shape[:2], 1, 1)),
            "BatchNormalization": lambda: self._normalise(source),
        }
        return make[op]()

    def _clip(self, source: str) -> str:
        bounds, shape = self.rng.choice(_BOUNDS), self.shapes[source]
        if self.opset < 11:
            names = dict(zip(("min", "max"), bounds, strict=False))
            given = {name: value for name, value in names.items() if value is not None}
            return self.op("Clip", [source], shape, **given)
        inputs = ["" if b is None else self.constant(b, np.float32) for b in bounds]
        return self.op("Clip", [source, *inputs], shape)

    def _mean(self, source: str) -> str:
        shape, keeps = self.shapes[source], self.rng.choice((0, 1))
        axes = self.rng.choice(([2, 3], [-1, -2]))
        result = (*shape[:2], 1, 1) if keeps else shape[:2]
        if self.opset < 18:
            return self.op("ReduceMean", [source], result, axes=axes, keepdims=keeps)
        inputs = [source, self.constant(axes, np.int64)]
        return self.op("ReduceMean", inputs, result, keepdims=keeps)

    def _gemm(self, source: str) -> str:
        rng, (batch, width) = self.rng, self.shapes[source]
        features, is_turned = rng.choice((4, 10, 16)), rng.choice((0, 1))
        inputs = [source, self.weight(*((features, width) if is_turned else (width, features)))]
        if rng.random() < 0.7 or self.opset < 11:
            inputs.append(self.weight(features))
        attributes: dict[str, float] = {"transB": 1} if is_turned else {}
        attributes |= {name: 0.5 for name in ("alpha", "beta") if rng.random() < 0.2}
        return self.op("Gemm", inputs, (batch, features), **attributes)

    def _binary(self, op: str, source: str, live: Sequence[str]) -> str:
        """With a tensor of the same shape, sometimes with one value a channel."""
        shape = self.shapes[source]
        others = [name for name in live if self.shapes[name] == shape]
        gates = [
            name for name in live if len(shape) == 4 and self.shapes[name] == (*shape[:2], 1, 1)
        ]
        if gates and self.rng.random() < 0.25:
            others = gates
        pair = [source, self.rng.choice(others)]
        self.rng.shuffle(pair)
        return self.op(op, pair, shape)

    def _concat(self, source: str, live: Sequence[str]) -> str:
        rng, (batch, _, *size) = self.rng, self.shapes[source]
        fitting = [
            name for name in live
            if len(self.shapes[name]) == 4
            and (self.shapes[name][0], *self.shapes[name][2:]) == (batch, *size)
        ]  # fmt: skip
        inputs = [source, *(rng.choice(fitting) for _ in range(rng.choice((0, 1, 1, 1, 2))))]
        channels = sum(self.shapes[name][1] for name in inputs)
        axis = 1 if rng.random() < 0.9 else -3
        return self.op("Concat", inputs, (batch, channels, *size), axis=axis)

    def _normalise(self, source: str) -> str:
        shape = self.shapes[source]
        inputs = [source, *(self.weight(shape[1]) for _ in range(4))]
        attributes: tuple[dict[str, float], ...] = (
            {}, {"epsilon": 1e-3}, {"epsilon": 1e-5, "momentum": 0.9},
        )  # fmt: skip
        return self.op("BatchNormalization", inputs, shape, **self.rng.choice(attributes))

    def _conv(self, source: str) -> str | None:
        rng, (batch, channels, *size) = self.rng, self.shapes[source]
        kernel, stride = rng.choice((1, 1, 3, 3, 5)), rng.choice((1, 1, 1, 2))
        dilation = rng.choice((1, 1, 1, 2)) if kernel > 1 else 1
        fitting = [n for n in (2, 4, 8) if channels % n == 0] or [1]
        kind = rng.choice(("dense", "dense", "dense", "depthwise", "grouped"))
        groups = {"dense": 1, "depthwise": channels, "grouped": rng.choice(fitting)}[kind]
        features = channels * rng.choice((1, 1, 1, 2))
        if kind != "depthwise":
            features = rng.choice([n for n in self.widths if n % groups == 0] or [groups])
        reach = dilation * (kernel - 1)
        pads = reach // 2
        attributes: dict[str, Any] = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2}
        padding = rng.random()
        if padding < 0.08 and dilation == 1:
            attributes["auto_pad"] = rng.choice(("SAME_UPPER", "SAME_LOWER"))
            result = tuple(-(-n // stride) for n in size)
        else:
            if padding < 0.12:
                attributes["auto_pad"], pads = "VALID", 0
            elif pads or padding < 0.6:
                attributes["pads"] = [pads] * 4
            result = tuple((n + 2 * pads - reach - 1) // stride + 1 for n in size)
        if min(result) < 1:
            return None
        if dilation > 1:
            attributes["dilations"] = [dilation] * 2
        if groups > 1:
            attributes["group"] = groups
        if stride == 1 and rng.random() < 0.3:
            del attributes["strides"]
        if rng.random() < 0.1:
            del attributes["kernel_shape"]
        inputs = [source, self.weight(features, channels // groups, kernel, kernel)]
        if rng.random() < 0.5:
            inputs.append(self.weight(features))
        return self.op("Conv", inputs, (batch, features, *result), **attributes)

    def _pool(self, op: str, source: str) -> str | None:
        rng, (batch, channels, *size) = self.rng, self.shapes[source]
        kernel, stride = rng.choice((2, 3)), rng.choice((1, 2))
        pads = rng.choice((0, 1)) if kernel == 3 else 0
        if min(size) + 2 * pads < kernel:
            return None
        attributes: dict[str, Any] = {
            "kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pads] * 4,
        }  # fmt: skip
        steps = [(n + 2 * pads - kernel) / stride for n in size]
        if rng.random() < 0.15 and self.opset >= 10:
            attributes["ceil_mode"] = 1
            steps = [-(-step // 1) for step in steps]
        if op == "AveragePool" and rng.random() < 0.3:
            attributes["count_include_pad"] = 1
        if stride == 1 and rng.random() < 0.3:
            del attributes["strides"]
        if not pads and rng.random() < 0.3:
            del attributes["pads"]
        shape = (batch, channels, *(int(step) + 1 for step in steps))
        return self.op(op, [source], shape, **attributes)
