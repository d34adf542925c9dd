"""Operators that stand for several, in the operators that these are.

Newer operator sets have some. ONNX Runtime's optimiser writes others into a file that it saves:
kernels of one engine, where PyTorch runs a module's calls, and TensorRT what it can read.
"""

import math
from collections.abc import Callable, Sequence

from hybridlat.engines.fusion.patterns import Match, Pass, each, integers
from hybridlat.graph.network import AttributeValue, Constant, Network, Node, TensorType

_FUSED = {"FusedConv": "Conv", "FusedGemm": "Gemm"}
_PARAMETERS = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}
_OF_GEMM = ("activation_alpha", "activation_beta")
_USUAL = (("alpha", 1.0), ("beta", 1.0), ("beta", 0.5), ("transA", 0), ("transB", 0))


def _number(net: Network, match: Match, value: float) -> Constant:
    return Constant(TensorType(net.types[match.made].dtype, ()), (value,))


def _fused(net: Network, node: Node, match: Match) -> None:
    """A convolution or product, what is added to it, and its activation."""
    read, shape = list(filter(None, node.inputs[:3])), net.types[match.made].shape
    own = {n: v for n, v in node.attributes if (n, v) not in _USUAL and "activation" not in n}
    made = match.add(_FUSED[node.op], read, shape, **own)
    if added := "".join(node.inputs[3:4]):
        made = match.add("Add", (made, added), shape)
    op, stated = str(node.attribute("activation", "")), node.attribute("activation_params")
    numbers = [*stated] if isinstance(stated, tuple) else [*map(node.attribute, _OF_GEMM)]
    values = [float(str(value)) for value in numbers if value is not None]
    if op == "Clip":
        match.add(op, (made,), shape, *[_number(net, match, value) for value in values])
    elif op:
        pairs = zip(_PARAMETERS.get(op, ()), values, strict=False)
        kept: dict[str, AttributeValue] = dict([pair for pair in pairs if pair not in _USUAL])
        match.add(op, (made,), shape, **kept)


def _scaled_product(net: Network, node: Node, match: Match) -> None:
    """A product of operands whose last axes are turned, and a number."""
    read, weights = list[str](), list[Constant]()
    for name, side in zip(node.inputs, "AB", strict=True):
        shape = net.type_of(name).shape
        order = [*range(len(shape))]
        if node.attribute(f"transBatch{side}", 0):
            order = [*order[1:-1], 0, order[-1]]
        if node.attribute(f"trans{side}", 0):
            order = [*order[:-2], order[-1], order[-2]]
        turned, weight = tuple([shape[axis] for axis in order]), net.constants.get(name)
        if order == sorted(order):
            read.append(name)
        elif weight is not None and side == "B":
            weights.append(Constant(weight.type._replace(shape=turned)))
        else:
            read.append(match.add("Transpose", (name,), turned, perm=tuple(order)))
    made, factor = net.types[match.made].shape, float(str(node.attribute("alpha", 1.0)))
    number = _number(net, match, factor)
    if factor == 1:
        match.add("MatMul", read, made, *weights)
    elif weights or read[1] in net.constants:
        match.add("Mul", (match.add("MatMul", read, made, *weights),), made, number)
    else:  # of attention, whose operands are scaled
        types = {**net.types, **match.types}
        scaled = [match.add("Mul", (x,), types[x].shape, number) if x in types else x for x in read]
        match.add("MatMul", scaled, made)


def _gelu(net: Network, node: Node, match: Match) -> None:
    """GELU behind a bias, or its quick form; with a factor of 1 that is SiLU."""
    shape, (x, *bias) = net.types[match.made].shape, filter(None, node.inputs)
    if node.op == "QuickGelu":
        factor = float(str(node.attribute("alpha", 1.702)))
        number = _number(net, match, factor)
        gate = x if factor == 1 else match.add("Mul", (x,), shape, number)
        match.add("Mul", (x, match.add("Sigmoid", (gate,), shape)), shape)
        return
    x = match.add("Add", (x, *bias), shape) if bias else x
    kind: dict[str, AttributeValue] = {"approximate": "tanh"} if node.op == "FastGelu" else {}
    match.add("Gelu", (x,), shape, **kind)


def _norm(net: Network, node: Node, match: Match) -> None:
    """A norm of rows, behind a sum and its bias where it skips."""
    shape, (x, *others) = net.types[match.made].shape, node.inputs
    is_simple, total = "Simplified" in node.op, (*node.outputs, "", "", "")[3]
    if node.op.startswith("Skip"):
        skip, others = "".join(others[:1]), others[1:]
        bias = "".join(others[1 if is_simple else 2 :][:1])
        terms = [name for name in (bias, skip) if name]
        while terms:
            x = match.add("Add", (x, terms.pop(0)), shape)
        if total:
            match.stands_for[total] = x
    parameters = tuple(filter(None, others[: 1 if is_simple else 2]))
    match.add("RMSNormalization" if is_simple else "LayerNormalization", (x, *parameters), shape)


def _in_steps(net: Network, node: Node, match: Match) -> None:
    """Swish and Mish as older sets write them: their rules name the parts."""
    (x,), shape = node.inputs, net.types[match.made].shape
    if node.attribute("alpha") is None:
        gate = x
        for op in ("Sigmoid",) if node.op == "Swish" else ("Softplus", "Tanh"):
            gate = match.add(op, (gate,), shape)
        match.add("Mul", (x, gate), shape)


def attentions(net: Network, node: Node, match: Match) -> None:
    """Attention as older sets write it: a product of scaled operands, a mask, a softmax, a product.

    One that has a cap, or gives out more than its result, stays.
    """
    (q, k, values, *masks), (y, *others) = node.inputs, node.outputs
    is_plain = {name for name, _ in node.attributes} <= {"scale", "is_causal"} and not any(others)
    if not is_plain or not net.types.keys() >= {k, values} or masks.count("") or masks[1:]:
        return
    heads, shared = net.type_of(q).shape, net.types[k].shape
    if len(shared) != 4 or heads[1] % shared[1]:
        return
    if heads[1] != shared[1]:  # each head of keys and values serves several of queries
        k, values = (_repeated(net, match, name, heads[1]) for name in (k, values))
    dtype = net.types[y].dtype
    if node.attribute("is_causal"):
        limits = f"{match.made}/limits"
        match.constants[limits] = Constant(TensorType(dtype, (heads[2], shared[2])))
        masks.append(limits)
    scale = None if node.attribute("scale") == 1 else Constant(TensorType(dtype, (1,)))
    _attended(net, match, (q, k, values), masks, scale)


def _attended(
    net: Network, match: Match, read: Sequence[str], masks: Sequence[str], scale: Constant | None
) -> str:
    """The result of attention, of B x heads x L x D, under ``masks``."""
    q, k, values = read
    types = {**net.types, **match.types}
    shape, depth = (types.get(q) or net.type_of(q)).shape, types[values].shape[-1]
    (*rows, size), length, dtype = shape, types[k].shape[2], types[values].dtype
    turned = (*rows[:2], size, length)
    k = match.add("Transpose", (k,), turned, perm=(0, 1, 3, 2))
    if scale is not None:
        q = match.add("Mul", (q,), shape, scale) if q in types else q
        k = match.add("Mul", (k,), turned, scale)
    scores = match.add("MatMul", (q, k), (*rows, length))
    ways = [Constant(TensorType(dtype, ()), (end,)) for end in (0.0, -math.inf)]
    for mask in masks:
        constant = match.constants.get(mask) or net.constants.get(mask)
        type_ = constant.type if constant else types.get(mask) or match.types[mask]
        if constant is None and type_.dtype == "bool":
            mask = match.add("Where", (mask,), type_.shape, *ways)
        added = [Constant(type_._replace(dtype=dtype))] if constant else []
        tensors = (scores,) if constant else (scores, mask)
        scores = match.add("Add", tensors, (*rows, length), *added)
    scores = match.add("Softmax", (scores,), (*rows, length))
    return match.add("MatMul", (scores, values), (*rows, depth))


def _projected(net: Network, node: Node, match: Match) -> None:
    """Attention with its three products of rows in front, and the turns around it."""
    (x, weight, bias, mask, *others), made = (*node.inputs, "", ""), net.types[match.made]
    known, shape = net.constants.get(weight), net.type_of(x).shape
    masks = [net.types[mask].shape] if mask in net.types else []
    heads, parts = node.attribute("num_heads"), list[str]()
    if known is None or any((*others, *node.outputs[1:])) or masks not in ([], [shape[:2]]):
        return
    if not isinstance(heads, int) or x not in net.types:
        return
    (*rows, width), (_, total) = shape, known.type.shape
    for size in node.sizes("qkv_hidden_sizes") or (total // 3,) * 3:
        own = known.type._replace(shape=(width, size))
        part = match.add("MatMul", (x,), (*rows, size), Constant(own))
        if bias:
            part = match.add("Add", (part,), (*rows, size), Constant(own._replace(shape=(size,))))
        part = match.view(part, (*rows, heads, size // heads))
        by_head = (rows[0], heads, rows[1], size // heads)
        parts.append(match.add("Transpose", (part,), by_head, perm=(0, 2, 1, 3)))
    if masks:
        spread = (rows[0], 1, 1, rows[1])
        mask = match.add("Cast", (match.view(mask, spread),), spread, to=1)
    scale = Constant(TensorType(made.dtype, (1,)))
    y = _attended(net, match, parts, [mask] if masks else [], scale)
    match.view(
        match.add("Transpose", (y,), (*rows, heads, size // heads), perm=(0, 2, 1, 3)), made.shape
    )


def _repeated(net: Network, match: Match, name: str, heads: int) -> str:
    """Each head of a tensor as often as there are more ``heads``."""
    batch, own, *rest = net.types[name].shape
    wide = (batch, own, heads // own, *rest)
    made = match.add("Expand", (match.view(name, (batch, own, 1, *rest)),), wide, integers(*wide))
    return match.view(made, (batch, heads, *rest))


def _group_norms(net: Network, node: Node, match: Match) -> None:
    """GroupNormalization as older sets write it: its groups normalised, then a scale and a shift.

    One with a scale for each group, of set 18, stays.
    """
    x, *scaled = node.inputs
    groups, dtype = node.attribute("num_groups"), net.types[match.made].dtype
    batch, channels, *pixels = shape = net.types[x].shape if x in net.types else (0, 0)
    is_fed = not net.types.keys().isdisjoint(scaled)
    if not isinstance(groups, int) or node.version < 21 or not pixels or is_fed:
        return
    rows = (batch, groups, math.prod(shape[1:]) // groups)
    of_channels = Constant(TensorType(dtype, (channels, *[1] * len(pixels))))
    of_groups = Constant(TensorType(dtype, (groups,)))
    made = match.add("InstanceNormalization", (match.view(x, rows),), rows, *[of_groups] * 2)
    made = match.add("Mul", (match.view(made, shape),), shape, of_channels)
    match.add("Add", (made,), shape, of_channels)


_READ = {"FusedConv": (2, 4), "FusedGemm": (2, 3), "FusedMatMul": (2, 2), "Attention": (2, 7)}
_READ |= {"SkipLayerNormalization": (3, 5), "SkipSimplifiedLayerNormalization": (3, 4)}
_READ |= {"SimplifiedLayerNormalization": (2, 2), "BiasGelu": (2, 2), "FastGelu": (1, 2)}
"""How many inputs an operator needs, and has at most; all others have one."""


def _is_sound(net: Network, node: Node) -> bool:
    """Whether an operator of ONNX Runtime's reads what it needs: a file may state any sizes."""
    least, most = _READ.get(node.op, (1, 1))
    if not least <= len(node.inputs) <= most or "" in node.inputs[:least]:
        return False
    shapes = [net.type_of(name).shape for name in node.inputs[:2] if name]
    made, ranks = net.types[node.outputs[0]].shape, [len(shape) for shape in shapes]
    match node.op:
        case "FusedConv":
            return ranks == [len(made)] * 2 and len(made) > 2
        case "FusedGemm":
            return ranks == [len(made)] * 2 == [2, 2]
        case "FusedMatMul":
            return min(*ranks, len(made)) > 1
        case "Attention":
            return ranks == [3, 2] and made[:-1] == shapes[0][:-1]
    return shapes[:1] == [made] and len(made) > 0


def _sound(ops: str, fill: Callable[[Network, Node, Match], None]) -> Pass:
    """The pass that writes these operators out where they are as they should be."""

    def checked(net: Network, node: Node, match: Match) -> None:
        if _is_sound(net, node):
            fill(net, node, match)

    return each(ops, checked)


_SKIPS = "SkipLayerNormalization SkipSimplifiedLayerNormalization"
_NAMES = {_fused: "FusedConv FusedGemm", _scaled_product: "FusedMatMul", _norm: _SKIPS}
_NAMES |= {_gelu: "Gelu BiasGelu FastGelu QuickGelu", _projected: "Attention"}
UNFUSED: tuple[Pass, ...] = (
    *[
        _sound(" ".join(f"com.microsoft::{op}" for op in ops.split()), fill)
        for fill, ops in _NAMES.items()
    ],
    _sound("SimplifiedLayerNormalization", _norm),
)
"""What ONNX Runtime's optimiser joins."""
IN_PARTS: tuple[Pass, ...] = (
    each("GroupNormalization", _group_norms),
    each("Swish Mish", _in_steps),
)
"""What newer operator sets have for several of older ones."""
