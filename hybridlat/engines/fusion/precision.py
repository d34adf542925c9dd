"""The network that a file was before it was quantised, or its floats were narrowed.

The target says in which precision a network is computed, and cells are the same cells in each. So
engines whose kernels stand in tables get the network in FP32, whatever its file says.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from hybridlat import onnx_io
from hybridlat.engines.fusion.expanded import UNFUSED
from hybridlat.engines.fusion.patterns import Match, Rewritten, each, nothing, replaced
from hybridlat.errors import NetworkError
from hybridlat.graph.forms import ELEMENT_WISE, FORMS, written
from hybridlat.graph.network import Constant, Network, Node, TensorType
from hybridlat.graph.operators import KINDS, QUANTISERS, SET, WHOLE, kind_of, named

# Inputs that ONNX types as float32 whatever the precision of the data: (operator, positions).
_ALWAYS_FLOAT32: Mapping[str, tuple[int, ...]] = {"Resize": (1, 2), "Upsample": (1,)}
_LARGEST_HALF = 65504.0
_FLOATS = {"float32": 1, "float16": 10, "float64": 11, "bfloat16": 16}
"""Types, and ONNX's number of each."""
_NARROW_FLOATS, _FOUR_BITS = ("float8", "float6", "float4"), ("int4", "uint4", "int2", "uint2")
_SIXTEEN_BITS, _EIGHT_BITS = ("int16", "uint16"), ("int8", "uint8")
_LOWEST = {"uint8": 0, "int8": -128, "uint16": 0, "int16": -32768}
"""The zero points at which nothing negative is left."""
_PLAIN: dict[str, tuple[str, tuple[int, ...], int]] = {
    "QLinearConv": ("Conv", (0, 3, 8), 6),
    "QLinearMatMul": ("MatMul", (0, 3), 6),
    "QGemm": ("Gemm", (0, 3, 6), 7),
    "QLinearAdd": ("Add", (0, 3), 6),
    "QLinearMul": ("Mul", (0, 3), 6),
    "QLinearConcat": ("Concat", (), 0),
}
_PLAIN |= {f"QLinear{op}": (op, (0,), 3) for op in named("AveragePool GlobalAveragePool LeakyRelu")}
_PLAIN |= {f"QLinear{op}": (op, (0,), 3) for op in named("Sigmoid Softmax ReduceMean")}
"""The plain operator of one in whole numbers, where its operands are, and its result's scale."""
_FORMS = {**ELEMENT_WISE, **{op: FORMS[op] for op, *_ in _PLAIN.values() if op in FORMS}}
_OWN, _USUAL = ("channels_last", "opset"), (("alpha", 1.0), ("transA", 0), ("transB", 0))
_MOVE = (KINDS["pool"], KINDS["move"])
_SIGNED = named("Conv ConvTranspose Gemm MatMul Sub BatchNormalization")
_KEEP_SIGNS = QUANTISERS | named(
    "Add Sum Concat Split Slice Reshape Transpose Resize Pad MaxPool AveragePool GlobalAveragePool"
)
_SKEWED = (
    "TensorRT quantises to int8 around zero alone and refuses this file, which has {} other zero "
    "points: quantise it again, symmetrically; the latency is as after that"
)


def in_floats(network: Network) -> Rewritten:
    """The network in FP32, as it was before it was quantised or narrowed.

    Engines take the quantisers for notes of where to compute in whole numbers, and run none between
    two kernels that do. What casts one float to another is gone.
    """
    whole = Rewritten.of(network).then((each("ConvInteger MatMulInteger", _scaled),))
    if any(node.op in QUANTISERS for node in whole.network.nodes):
        whole = replaced(whole, [*_apart(whole.network)])
        ops = frozenset([node.op for node in whole.network.nodes])
        whole = whole.then(((ops, _quantisers),))
        # Some operators are plain, and some operands constants, only now.
        whole = whole._replace(network=written(whole.network, _FORMS))
    plain = whole._replace(network=in_precision(whole.network, "float32"))
    return plain.then((each("Cast", nothing), *UNFUSED))


def _scaled(net: Network, node: Node, match: Match) -> None:
    """What is quantised by its own range, multiplied and scaled is a product of floats."""
    source, cast = net.maker(node.inputs[0], "DynamicQuantizeLinear"), net.reader(node, "Cast")
    scaled, weight = cast and net.reader(cast, "Mul"), net.constant(node, 1)
    if source and cast and scaled and weight:
        match.members, op = (node, cast, scaled), node.op.removesuffix("Integer")
        plain = Node(node.name, op, source.inputs, scaled.outputs, node.attributes, version=SET)
        weight = Constant(weight.type._replace(dtype="float32"))
        match.put(onnx_io.local_form(plain), weight)


def _apart(net: Network) -> Iterator[Match]:
    """What computes with whole numbers is a plain operator, and what quantises its result."""
    for node in [node for node in net.nodes if node.op in _PLAIN]:
        (op, operands, scale), match, read = _PLAIN[node.op], Match(net, node), list[str]()
        real, made = f"{match.made}/real", match.made
        for place in operands or range(2, len(node.inputs), 3):
            name = "".join(node.inputs[place : place + 1])
            if name in net.constants:
                weight, name = net.constants[name].type, f"{made}/{place}"
                match.constants[name] = Constant(weight._replace(dtype="float32"))
            read += [name] if name else []
        match.types[real] = net.types[made]._replace(dtype="float32")
        stated = tuple([a for a in node.attributes if a[0] not in _OWN and a not in _USUAL])
        plain = Node(node.name, op, tuple(read), (real,), stated, version=SET)
        match.put(onnx_io.local_form(plain))
        rounded = (real, *node.inputs[scale : scale + 2])
        match.put(Node(node.name, "QuantizeLinear", rounded, (made,), version=13))
        yield match


def in_precision(network: Network, dtype: str) -> Network:
    """The network with floats of one type, by which engines fuse; constants stay in its range."""
    keep = {
        name
        for node in network.nodes
        for index in _ALWAYS_FLOAT32.get(node.op, ())
        for name in node.inputs[index : index + 1]
    }

    def typed(type_: TensorType) -> TensorType:
        return type_._replace(dtype=dtype) if type_.dtype in _FLOATS else type_

    def in_range(constant: Constant) -> Constant:
        values = constant.values
        if constant.type.dtype in _FLOATS and dtype == "float16" and values is not None:
            values = tuple([min(max(v, -_LARGEST_HALF), _LARGEST_HALF) for v in values])
        return replace(constant, type=typed(constant.type), values=values)

    nodes = list(network.nodes)
    for place, node in enumerate(nodes):
        if node.op == "Cast" and node.attribute("to") in _FLOATS.values():
            nodes[place] = node.with_attributes(to=_FLOATS.get(dtype, 10))
    types = {name: typed(type_) for name, type_ in network.types.items()}
    stored = {n: c if n in keep else in_range(c) for n, c in network.constants.items()}
    return replace(network, nodes=tuple(nodes), types=types, constants=stored)


def narrow_weights(network: Network, is_int8: bool) -> tuple[str, ...]:
    """Warnings of weights that alone are narrow, and of zero points that TensorRT does not take.

    NetworkError for what is else quantised to anything but 8 bits.
    """
    fixed, stored, skewed, is_whole = set(network.constants), dict[str, None](), 0, False
    for node in network.nodes:
        is_quantiser = node.op in QUANTISERS
        is_fixed = fixed.issuperset(node.inputs[:1] if is_quantiser else filter(None, node.inputs))
        if is_fixed:
            fixed.update(node.outputs)
        for name in (*node.inputs[:1], *node.outputs[:1]) if is_quantiser else ():
            dtype = network.type_of(name).dtype
            is_few = dtype in _FOUR_BITS and not is_fixed
            if is_few or dtype.startswith((*_NARROW_FLOATS, *_SIXTEEN_BITS)):
                raise NetworkError(
                    f"{network.name} is quantised to {dtype}, in which no target of TensorRT is "
                    "predicted: give the network before that, or one quantised to int8"
                )
            stored |= {dtype: None} if dtype in (*_FOUR_BITS, *_EIGHT_BITS) and is_fixed else {}
            is_whole |= not is_fixed
        zero = network.constant(node, 2) if is_quantiser else None
        skewed += zero is not None and (zero.type.dtype == "uint8" or any(zero.values or ()))
    alone = [dtype for dtype in stored if dtype in _FOUR_BITS or not is_whole]
    warnings = [f"weights are stored in {dtype}: the latency is as before that" for dtype in alone]
    if alone and is_int8 and not is_whole:
        warnings[-1] += ", with all of it in int8; TensorRT computes with such weights in floats"
    return (*warnings, *((_SKEWED.format(skewed),) if skewed else ()))


def _quantisers(net: Network, nodes: Sequence[Node]) -> Iterator[Match]:
    """What quantises, dequantises, only moves what is quantised, or arranges a stored weight.

    Tools leave a Relu out before a zero point at the lowest number, which cuts off the same.
    """
    stands_for = {name: name for name in _fed_quantised(net, nodes)}
    fixed, signed = {"", *net.constants}, set[str]()
    cuts, is_relu6 = _cuts(net, nodes)
    op, version, ends = ("Clip", 13, (0.0, 6.0)) if is_relu6 else ("Relu", 14, ())
    for node in nodes:
        source, made = "".join(node.inputs[:1]), [*filter(None, node.outputs)]
        undone = node.op == "DynamicQuantizeLinear" and net.reader(node, "DequantizeLinear")
        match, is_quantiser = Match(net, node), bool(undone) or node.op in QUANTISERS
        is_whole = source in net.types and net.types[source].dtype in WHOLE
        if node.op in _SIGNED or (node.op in _KEEP_SIGNS and not signed.isdisjoint(node.inputs)):
            signed.update(made)
        if node.inputs and fixed.issuperset(node.inputs[:1] if is_quantiser else node.inputs):
            fixed.update(made)
            match.constants = {out: Constant(net.types[out]) for out in made}
            match.stands_for = {out: out for out in made}
        elif match.made in cuts and source in signed and not is_whole:
            signed.discard(made[0])
            stands_for[made[0]] = made[0]
            match.types[match.made] = net.types[source]
            real, number = stands_for.get(source, source), TensorType("float32", ())
            relu = Node(node.name, op, (real,), (match.made,), version=version)
            match.put(relu, *[Constant(number, (end,)) for end in ends])
        elif (is_quantiser and (not is_whole or source in stands_for)) or (
            is_whole and source in stands_for and node.op == "Clip"
        ):
            real = stands_for[made[0]] = stands_for.get(source, source)
            match.skip(real)
            match.constants = {out: Constant(net.types[out]) for out in made[1:]}
            match.stands_for |= {out: out for out in made[1:]}
        elif source in stands_for and is_whole and kind_of(node.op) in _MOVE:
            stands_for.update({out: out for out in made})
            match.types = {out: net.types[out]._replace(dtype="float32") for out in made}
            match.put(node)
        else:
            continue
        if source in net.inputs and source in stands_for:
            match.types[source] = net.types[source]._replace(dtype="float32")
        yield match


def _fed_quantised(net: Network, nodes: Sequence[Node]) -> set[str]:
    """The inputs in whole numbers, as in TensorFlow Lite, that are dequantised at once or moved."""
    fed, root_of = set[str](), {n: n for n in net.inputs if net.types[n].dtype in WHOLE}
    for node in nodes:
        root = root_of.get("".join(node.inputs[:1]), "")
        if root and node.op == "DequantizeLinear":
            fed.add(root)
        elif root and kind_of(node.op) in _MOVE:
            root_of |= dict.fromkeys(node.outputs, root)
    return fed


def _cuts(net: Network, nodes: Sequence[Node]) -> tuple[set[str], bool]:
    """What quantisers make that leave nothing negative, and whether one ends at 6, as Relu6.

    Where fewer than a tenth do, or no more than behind a Relu that is there, no tool left one out:
    some results are positive, as distances.
    """
    cuts, every, kept, ends_at_six = set[str](), 0, 0, False
    for node in nodes:
        relu = net.maker(node.inputs[0], "Relu", "Clip")
        if node.op == "QuantizeLinear" and net.maker((relu or node).inputs[0], "Add", *_SIGNED):
            every += relu is None
            scale, zero = net.constant(node, 1), net.constant(node, 2)
            back = net.reader(node, "DequantizeLinear")
            if back is not None and net.reader(back, "Relu", "Clip") is not None:
                continue
            if zero is not None and zero.values == (_LOWEST.get(zero.type.dtype),):
                kept += relu is not None
                cuts.update(node.outputs[: relu is None])
                top = 255.0 * scale.values[0] if scale is not None and scale.values else 0.0
                ends_at_six |= math.isclose(top, 6.0, rel_tol=1e-3)
    return (cuts if 10 * len(cuts) >= every and len(cuts) > kept else set()), ends_at_six
