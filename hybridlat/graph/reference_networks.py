"""Small networks that protocols run beside what they measure: a pulse, and next to nothing."""

from __future__ import annotations

from hybridlat.graph.network import Constant, Network, Node, TensorType


def reference_network() -> Network:
    """A 3x3 and a 1x1 convolution side by side, small enough for the second-level cache."""
    wide, deep = TensorType("float32", (1, 64, 14, 14)), TensorType("float32", (1, 128, 14, 14))
    return Network(
        "reference",
        (
            Node("wide", "Conv", ("a", "v"), ("b",), (("pads", (1, 1, 1, 1)),), version=11),
            Node("deep", "Conv", ("x", "w"), ("y",), version=11),
        ),
        ("a", "x"),
        ("b", "y"),
        {"a": wide, "b": wide, "x": deep, "y": deep},
        {
            "v": Constant(TensorType("float32", (64, 64, 3, 3))),
            "w": Constant(TensorType("float32", (128, 128, 1, 1))),
        },
    )


def null_network(length: int) -> Network:
    """A chain of ``length`` operators that do next to nothing."""
    names = [f"t{i}" for i in range(length + 1)]
    nodes = tuple(
        Node(f"n{i}", "Relu", (names[i],), (names[i + 1],), version=14) for i in range(length)
    )
    types = {name: TensorType("float32", (1, 16)) for name in names}
    return Network("null", nodes, (names[0],), (names[-1],), types)


def gpu_reference_network() -> Network:
    """A 3x3 convolution of 64 channels at 56x56: some microseconds on a GPU, far from trivial."""
    data = TensorType("float32", (1, 64, 56, 56))
    weight = Constant(TensorType("float32", (64, 64, 3, 3)))
    attributes = (("kernel_shape", (3, 3)), ("pads", (1, 1, 1, 1)))
    node = Node("reference", "Conv", ("x", "w"), ("y",), attributes, version=11)
    return Network("reference", (node,), ("x",), ("y",), {"x": data, "y": data}, {"w": weight})
