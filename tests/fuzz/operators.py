"""Models of one odd operator: any of the standard and of ONNX Runtime's own, of any version."""

import functools
import math
import random
from collections.abc import Sequence

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

INTEGERS = (0, 1, -1, 2, 3, 4, 5, -2, -5, 7, 100, 1 << 16, 1 << 31, 1 << 40, -(1 << 63))
FLOATS = (0.0, 1.0, -1.0, 0.5, 1e-45, 1e30, float("nan"), float("inf"), -float("inf"))
TEXTS = (b"", b"NOTSET", b"SAME_UPPER", b"VALID", b"linear", b"ij,jk->ik", b"\xff\0", b"\x1b[2J")
DIMS = (1, 2, 3, 4, 8, 16, 0, 1, 4, 3, 100_000, 1 << 40)
TYPES = (1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 20, 21, 22, 23, 24)
MICROSOFT = (
    "Attention", "BeamSearch", "BiasGelu", "BiasSplitGelu", "CDist", "ConvTransposeWithDynamicPads",
    "CropAndResize", "DynamicQuantizeLSTM", "EmbedLayerNormalization", "ExpandDims", "FusedConv",
    "FusedMatMul", "GroupNorm", "GroupQueryAttention", "Irfft", "MatMulNBits", "MaxpoolWithMask",
    "MultiHeadAttention", "MurmurHash3", "NhwcConv", "Pad", "QAttention", "QGemm", "QLinearAdd",
    "QLinearConcat", "QLinearConv", "QuantizeLinear", "Range", "SkipLayerNormalization",
    "SparseToDenseMatMul", "Tokenizer", "Unique", "WordConvEmbedding",
)  # fmt: skip
_ATTRIBUTES = ("axis", "axes", "perm", "kernel_shape", "pads", "strides", "group", "to", "mode")
_CODES = {name.lower(): code for name, code in TensorProto.DataType.items() if code}
_CODES |= {"float": 1, "double": 11}
_VALUES: dict[int, tuple[str, Sequence[object]]] = {
    1: ("float_data", FLOATS),
    6: ("int32_data", INTEGERS[:12]),
    7: ("int64_data", INTEGERS),
    8: ("string_data", TEXTS),
}


@functools.cache
def _schemas() -> list[onnx.defs.OpSchema]:
    every = onnx.defs.get_all_schemas_with_history()
    kept = [s for s in every if s.domain in ("", "ai.onnx.ml", "ai.onnx.preview.training")]
    return sorted(kept, key=lambda s: (s.domain, s.name, s.since_version))


def odd_operator(rng: random.Random) -> tuple[str, ModelProto]:
    """A model of one operator that is not quite what its schema asks for; and its label."""
    if rng.random() < 0.15:
        name, domain, schema, version = rng.choice(MICROSOFT), "com.microsoft", None, 1
    else:
        schema = rng.choice(_schemas())
        name, domain, version = schema.name, schema.domain, schema.since_version
    node = NodeProto(op_type=name, domain=domain, name=rng.choice(("op", "", "a\nb\x1b[31m")))
    graph = GraphProto(name="g")
    least, most = (schema.min_input, schema.max_input) if schema else (1, 6)
    count = rng.randint(least, min(most, least + 3)) if rng.random() < 0.85 else rng.randint(0, 7)
    rank = rng.choice((4, 4, 4, 3, 2, 1, 0, 5))
    likely = [rng.choice(DIMS[:8]) for _ in range(rank)]
    for place in range(count):
        _input(graph, node, place, schema, likely, rng)
    least, most = (schema.min_output, schema.max_output) if schema else (1, 2)
    count = rng.randint(max(1, least), max(1, min(most, least + 3)))
    if rng.random() < 0.15:
        count = rng.randint(0, 5)
    for place in range(count):
        out = f"y{place}" if rng.random() < 0.97 else ""
        node.output.append(out)
        if out or rng.random() < 0.1:
            info = onnx.ValueInfoProto(name=out)
            if rng.random() < 0.1:
                info = helper.make_tensor_value_info(out, rng.choice(TYPES), likely)
            graph.output.append(info)
    for attribute in _attributes(schema, rank, rng):
        node.attribute.append(attribute)
    graph.node.append(node)
    if rng.random() < 0.3 and node.output and node.output[0]:
        graph.node.append(helper.make_node("Relu", [node.output[0]], ["z"], name="after"))
        graph.output.append(onnx.ValueInfoProto(name="z"))
    opset = version if not domain else rng.choice((9, 11, 13, 17, 21, 23))
    imports = [helper.make_opsetid("", max(7, opset))]
    if domain:
        imports.append(helper.make_opsetid(domain, version))
    return f"{name}-{version}", ModelProto(ir_version=8, graph=graph, opset_import=imports)


def _input(
    graph: GraphProto,
    node: NodeProto,
    place: int,
    schema: onnx.defs.OpSchema | None,
    likely: list[int],
    rng: random.Random,
) -> None:
    if rng.random() < 0.05:
        node.input.append("")
        return
    name = f"x{place}" if rng.random() < 0.95 else "x0"
    node.input.append(name)
    if any(name == each.name for each in (*graph.input, *graph.initializer)):
        return
    kinds: list[int] = []
    if schema is not None and schema.inputs and rng.random() < 0.9:
        formal = schema.inputs[min(place, len(schema.inputs) - 1)]
        kinds = [_CODES[t[7:-1]] for t in sorted(formal.types) if t[7:-1] in _CODES]
        usual = [kind for kind in kinds if kind in (1, 7)]
        kinds = usual if usual and rng.random() < 0.8 else kinds
    kind = rng.choice(kinds or TYPES)
    shape = [s if rng.random() < 0.9 else rng.choice(DIMS) for s in likely]
    if rng.random() < 0.25:
        shape = [rng.choice(DIMS) for _ in range(rng.choice((0, 1, 1, 2, 3, 4, 5)))]
    if kind in (6, 7) and rng.random() < 0.8:
        shape = [rng.choice((0, 1, 2, 4, 4, 8))] if rng.random() < 0.9 else []
    if rng.random() < (0.7 if kind in (6, 7, 9) or place else 0.2):
        graph.initializer.append(_tensor(name, kind, shape, rng))
    else:
        graph.input.append(helper.make_tensor_value_info(name, kind, shape))


def _tensor(name: str, kind: int, shape: list[int], rng: random.Random) -> TensorProto:
    tensor = TensorProto(name=name, dims=shape, data_type=kind)
    if math.prod(shape) <= 64 and kind in _VALUES:
        field, values = _VALUES[kind]
        getattr(tensor, field).extend(rng.choices(values, k=math.prod(shape)))
    elif math.prod(shape) <= 64:
        tensor.raw_data = rng.randbytes(math.prod(shape) * rng.choice((1, 2, 4, 8)))
    return tensor


def _attributes(
    schema: onnx.defs.OpSchema | None, rank: int, rng: random.Random
) -> list[AttributeProto]:
    made = []
    known = list(schema.attributes.values()) if schema else []
    for each in known:
        if each.required or rng.random() < 0.4:
            usual = each.type.value  # type: ignore[attr-defined]
            kind = usual if rng.random() < 0.93 else rng.choice((1, 2, 3, 4, 6, 7, 8))
            made.append(odd_attribute(each.name, kind, rank, rng))
    if rng.random() < (0.1 if schema else 0.8):
        for name in rng.sample(_ATTRIBUTES, rng.randint(1, 4)):
            made.append(odd_attribute(name, rng.choice((1, 2, 3, 4, 7)), rank, rng))
    if made and rng.random() < 0.05:
        made.pop(rng.randrange(len(made)))
    if made and rng.random() < 0.03:
        made.append(made[0])
    return made


def odd_attribute(name: str, kind: int, rank: int, rng: random.Random) -> AttributeProto:
    """An attribute of this name, of this type or one near it, with values as odd as can be."""
    attribute = AttributeProto(name=name, type=kind)  # type: ignore[arg-type]
    if rng.random() < 0.02:
        attribute.type = rng.choice((0, 2, 7))  # type: ignore[assignment]

    integers = INTEGERS if rng.random() < 0.4 else INTEGERS[:9]
    if kind in (AttributeProto.INT, AttributeProto.FLOAT, AttributeProto.STRING):
        field, values = {1: ("f", FLOATS), 2: ("i", integers), 3: ("s", TEXTS)}[int(kind)]
        setattr(attribute, field, rng.choice(values))
    elif kind == AttributeProto.INTS:
        count = rng.choice((rank, max(0, rank - 2), 2 * max(0, rank - 2), 0, 1, 2, 7))
        attribute.ints.extend(rng.choices(integers, k=count))
    elif kind == AttributeProto.FLOATS:
        attribute.floats.extend(rng.choices(FLOATS, k=rng.randint(0, 5)))
    elif kind == AttributeProto.STRINGS:
        attribute.strings.extend(rng.choices(TEXTS, k=rng.randint(0, 5)))
    elif kind == AttributeProto.TENSOR:
        kind = rng.choice((1, 7, 7, *TYPES))
        attribute.t.CopyFrom(_tensor("", kind, [rng.choice((0, 1, 2, 4))], rng))
    elif kind == AttributeProto.GRAPH:
        inner = helper.make_node("Identity", ["x0"], ["inner"])
        attribute.g.node.append(inner)
        attribute.g.output.append(onnx.ValueInfoProto(name="inner"))
        attribute.g.name = "branch"
    return attribute
