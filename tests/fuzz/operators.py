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
_KINDS = (1, 2, 3, 4, 6, 7, 8)
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
    schema = rng.choice(_schemas()) if rng.random() < 0.85 else None
    name, domain, version = rng.choice(MICROSOFT), "com.microsoft", 1
    inputs, outputs = (1, 6), (1, 2)
    if schema is not None:
        name, domain, version = schema.name, schema.domain, schema.since_version
        inputs, outputs = (schema.min_input, schema.max_input), (1, max(1, schema.max_output))
    node = NodeProto(op_type=name, domain=domain, name=rng.choice(("op", "", "a\nb\x1b[31m")))
    graph = GraphProto(name="g")
    likely = rng.choices(DIMS[:8], k=rng.choice((4, 4, 4, 3, 2, 1, 0, 5)))
    for place in range(_count(*inputs, rng)):
        _input(graph, node, place, schema, likely, rng)
    for place in range(_count(*outputs, rng)):
        node.output.append(f"y{place}" if rng.random() < 0.97 else "")
        info = onnx.ValueInfoProto(name=node.output[place])
        if rng.random() < 0.1:
            info = helper.make_tensor_value_info(info.name, rng.choice(TYPES), likely)
        graph.output.append(info)
    node.attribute.extend(_attributes(schema, len(likely), rng))
    graph.node.append(node)
    if rng.random() < 0.3 and node.output and node.output[0]:
        graph.node.append(helper.make_node("Relu", [node.output[0]], ["z"], name="after"))
        graph.output.append(onnx.ValueInfoProto(name="z"))
    opset = version if not domain else rng.choice((9, 11, 13, 17, 21, 23))
    imports = [helper.make_opsetid("", max(7, opset))]
    if domain:
        imports.append(helper.make_opsetid(domain, version))
    return f"{name}-{version}", ModelProto(ir_version=8, graph=graph, opset_import=imports)


def _count(least: int, most: int, rng: random.Random) -> int:
    """How many tensors: mostly as many as the schema takes."""
    usual = rng.randint(least, min(most, least + 3))
    return usual if rng.random() < 0.85 else rng.randint(0, 7)


def _input(
    graph: GraphProto,
    node: NodeProto,
    place: int,
    schema: onnx.defs.OpSchema | None,
    likely: list[int],
    rng: random.Random,
) -> None:
    (name,) = rng.choices((f"x{place}", "x0", ""), (0.9, 0.05, 0.05))
    node.input.append(name)
    if not name or any(name == each.name for each in (*graph.input, *graph.initializer)):
        return
    kinds: list[int] = []
    if schema is not None and schema.inputs and rng.random() < 0.9:
        formal = schema.inputs[min(place, len(schema.inputs) - 1)]
        kinds = [_CODES[t[7:-1]] for t in sorted(formal.types) if t[7:-1] in _CODES]
        usual = [kind for kind in kinds if kind in (1, 7)]
        kinds = usual if usual and rng.random() < 0.8 else kinds
    kind = rng.choice(kinds or TYPES)
    is_structure = kind in (6, 7)
    shape = [size if rng.random() < 0.9 else rng.choice(DIMS) for size in likely]
    if rng.random() < (0.8 if is_structure else 0.25):
        shape = rng.choices(DIMS, k=rng.choice((0, 1, 1, 1, 1, 4) if is_structure else range(6)))
    if rng.random() < (0.7 if is_structure or place else 0.2):
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
    """Those of the schema, some of them left out, double, foreign or of another type."""
    listed = [] if schema is None else list(schema.attributes.values())
    chosen = [(a.name, int(a.type.value)) for a in listed if a.required or rng.random() < 0.4]  # type: ignore[attr-defined]
    if rng.random() < (0.1 if schema else 0.8):
        foreign = rng.sample(_ATTRIBUTES, rng.randint(1, 4))
        chosen += [(name, rng.choice(_KINDS)) for name in foreign]
    if chosen and rng.random() < 0.08:
        chosen[rng.randrange(len(chosen))] = chosen[0]
    return [
        odd_attribute(name, kind if rng.random() < 0.93 else rng.choice(_KINDS), rank, rng)
        for name, kind in chosen
    ]


def odd_attribute(name: str, kind: int, rank: int, rng: random.Random) -> AttributeProto:
    """An attribute of this name, of this type or one near it, with values as odd as can be."""
    attribute = AttributeProto(name=name, type=kind)  # type: ignore[arg-type]
    if rng.random() < 0.02:
        attribute.type = rng.choice((0, 2, 7))  # type: ignore[assignment]
    integers = INTEGERS if rng.random() < 0.4 else INTEGERS[:9]
    count = rng.choice((rank, max(0, rank - 2), 2 * max(0, rank - 2), 0, 1, 2, 7))
    single = {1: ("f", FLOATS), 2: ("i", integers), 3: ("s", TEXTS)}
    several = {6: ("floats", FLOATS), 7: ("ints", integers), 8: ("strings", TEXTS)}
    if kind in single:
        field, values = single[kind]
        setattr(attribute, field, rng.choice(values))
    elif kind in several:
        field, values = several[kind]
        getattr(attribute, field).extend(rng.choices(values, k=count))
    elif kind == AttributeProto.TENSOR:
        attribute.t.CopyFrom(_tensor("", rng.choice((1, 7, 7, *TYPES)), [count], rng))
    elif kind == AttributeProto.GRAPH:
        inner = helper.make_node("Identity", ["x0"], ["inner"])
        ends = [onnx.ValueInfoProto(name="inner")]
        attribute.g.CopyFrom(helper.make_graph([inner], "branch", [], ends))
    return attribute
