"""The numbers of one kernel: from its operator, tensors and attributes to a row of geometry."""

import itertools
import json
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple, cast

from hybridlat.graph import work
from hybridlat.graph.fused import fusion
from hybridlat.graph.network import ITEM_BYTES
from hybridlat.graph.operators import KINDS, activation_class, is_quantised, kind_of, weight_place
from hybridlat.graph.work import PER_RESULT, PRODUCTS, Attributes, Product, Shape

Tensor = tuple[tuple[int, ...], int, float, bool, str]
"""Shape, elements, bytes of each, whether it is a weight, and type."""
Operands = Sequence[Tensor | None]
FLOP = 17  # its place in a row
CHANNELS_LAST, SIGNED, UNSIGNED_WEIGHTS = 4, 8, 16
"""What a ``variant`` holds beside its mode: channels innermost, and the types of 8 bits.

CPUs multiply unsigned activations by signed weights (``VPDPBUSD``), other pairs half as fast."""
_MODES = {"linear": 1, "reflect": 1, "CRD": 1, "cubic": 2, "edge": 2, "wrap": 3, "bilinear": 1}


@lru_cache(maxsize=65536)
def tensor_of(text: str, weight: bool) -> Tensor:
    """A tensor as a signature writes it (``float32:1x64x56x56``); ValueError for what is none."""
    dtype, _, dims = text.partition(":")
    shape = tuple(int(d) for d in dims.split("x")) if dims else ()
    if shape and min(shape) < 0:
        raise ValueError(f"a size of {text!r} is negative")
    return shape, math.prod(shape), ITEM_BYTES[dtype], weight, dtype


class KernelAttributes:
    """What a geometry needs of a node's attributes; ``written`` are all of them.

    Operators of other domains may call something else by the same name: what is not of the type
    that ONNX's operators give it counts as left out. ``stride`` and ``dilation`` are the largest of
    all axes, ``pad`` is the sum over all sides, ``order`` a Transpose's, ``size`` an LRN's.
    ``variant`` numbers mode and layout.
    """

    def __init__(self, written: Attributes) -> None:
        def numbers(name: str) -> list[int]:
            value = written.get(name)
            is_usual = isinstance(value, list) and all(type(item) is int for item in value)
            return cast(list[int], value) if is_usual else []

        activation, mode, axis = map(written.get, ("activation", "mode", "axis"))
        # Channels are innermost in the shapes (ONNX Runtime), or in the strides alone (PyTorch).
        self.channels_last = bool(work.number(written, "channels_last"))
        innermost = self.channels_last or written.get("memory_format") == "channels_last"
        self.written = written
        self.window = numbers("kernel_shape")
        self.stride = max(numbers("strides"), default=1)
        self.dilation = max(numbers("dilations"), default=1)
        self.group = work.number(written, "group", 1)
        self.pad = sum(numbers("pads"))
        self.activation = activation if isinstance(activation, str) else ""
        self.transposed = bool(work.number(written, "transB"))
        self.axis = axis if type(axis) is int else None
        self.order = numbers("perm")
        self.size = work.number(written, "size")
        self.variant = _MODES.get(mode, 0) if isinstance(mode, str) else 0
        self.variant += CHANNELS_LAST * innermost


@lru_cache(maxsize=65536)
def attributes_of(text: str) -> KernelAttributes:
    """Of a node's attributes as JSON; ValueError or AttributeError for what is none."""
    return KernelAttributes(json.loads(text))


def _taps(window: Sequence[int]) -> tuple[int, int]:
    """Height and width of a window, its first two sizes; one alone is a width."""
    *_, height, width = (1, 1, *window[:2])
    return height, width


def _image(shape: tuple[int, ...], channels_last: bool = False) -> tuple[int, int, int, int]:
    """Batch, channels, height, width of an activation; missing dimensions are 1."""
    if len(shape) < 4:
        return (*shape, 1, 1, 1, 1)[:4]  # type: ignore[return-value]
    batch, *image = shape
    channels, *sides = (image[-1], *image[:-1]) if channels_last else image
    return batch, channels, math.prod(sides[:-1]), sides[-1]


class Part(NamedTuple):
    """One operator in a kernel that holds several, with the tensors as it sees them itself."""

    op: str
    read: tuple[Tensor | None, ...]
    made: tuple[Tensor, ...]
    attributes: KernelAttributes


def _parts(read: Operands, wires: object) -> tuple[list[Part], list[float]]:
    """The operators of a kernel that says how they hang together, and the bytes that it skips.

    Those are of activations, then of weights.
    """
    *lines, results = [json.loads(wire) for wire in wires] if isinstance(wires, list) else [[]]
    uses = [*(name for line in lines for name in line[2]), *results]
    known: dict[str, Tensor | None] = {f"i{place}": tensor for place, tensor in enumerate(read)}
    parts, skipped = list[Part](), [0.0, 0.0]
    for place, (op, _, inputs, types, attributes) in enumerate(lines):
        seen = tuple(known.get(name) for name in inputs)
        is_weight = any(seen) and all(tensor is None or tensor[3] for tensor in seen)
        made = {
            f"{place}.{index}": tensor_of(text.replace("[", ":").removesuffix("]"), is_weight)
            for index, text in enumerate(types)
            if text
        }
        known.update(made)
        parts.append(Part(op, seen, tuple(made.values()), KernelAttributes(attributes)))
        takes_part = op.startswith(("Split", "Slice", "Gather")) and inputs[0].startswith("i")
        whole = seen[0] if takes_part else None
        if whole is not None and uses.count(inputs[0]) == 1:  # a part of it is read in place
            kept = sum(tensor[1] for name, tensor in made.items() if name in uses)
            skipped[whole[3]] += max(whole[1] - kept, 0) * whole[2]
    return parts, skipped


def _convolution(
    op: str, weight: Shape, read: Tensor, made: Tensor, c_out: int, a: KernelAttributes
) -> Product:
    """The product of one group: output positions x its output channels x (channels · taps)."""
    groups = max(a.group, 1)
    m, n = made[1] // max(c_out, 1), max(c_out // groups, 1)
    taps, transposed = math.prod(weight[2:]), "ConvTranspose" in op
    first, second = (*weight, 1, 1)[:2]  # a file may lie about a contrib operator's
    if transposed:  # each input reaches every tap, each output only some
        return Product(m, n, first // groups * taps, 2.0 * read[1] * second * taps)
    k = max(second, 1) * taps
    return Product(m, n, k, 2.0 * k * made[1])


def _by_formula(
    formula: Callable[..., Any], read: Operands, made: Sequence[Tensor], written: Attributes
) -> Any:
    """What a formula of the table says; None for tensors that are none of such an operator."""
    with suppress(ArithmeticError, LookupError, TypeError, ValueError):
        return formula([t[0] if t else () for t in read], [t[0] for t in made], written)
    return None


def kernel_row(
    op: str, read: Operands, made: Sequence[Tensor], a: KernelAttributes
) -> tuple[str, tuple[float, ...]]:
    """The operator of a kernel, and its row of ``COLUMNS`` from ``kind`` to ``known``."""
    present = [t for t in read if t is not None]
    blank: Tensor = ((), 1, 4, False, "float32")
    activation = activation_class(a.activation)
    added = not is_quantised(op.rpartition("::")[2]) and len(read) > 3 and read[3] is not None
    fused = fusion(op)
    products, beside = list[Part](), list[Part]()
    (parts, skipped), seen, result = _parts(read, a.written.get("wires")), read, made
    if fused is not None:
        op, activation = fused.op, fused.activation
        added = fused.adds and sum(not t[3] for t in present) > 1
        products = [part for part in parts if kind_of(part.op) <= KINDS["matmul"]]
        if products and kind_of(op) <= KINDS["matmul"]:
            # Its operands may lie behind views that cost nothing: they are what it sees.
            (_, seen, result, a), *beside = products
    kind = kind_of(op)
    name = op.rpartition("::")[2]  # a reorder has one layout before it and another behind it
    operands = [t for t in seen if t is not None]
    first = operands[0] if operands else blank
    main = result[0] if result else blank
    if kind == KINDS["pool"] and not a.window:
        # A fused kernel may give out the map beside its mean: the pool's own sizes count.
        first = max(present, key=lambda t: t[1], default=blank)
        main = min(made, key=lambda t: t[1], default=blank)
    last = name.startswith("Nhwc") or (a.channels_last and not name.startswith("Reorder"))
    place = weight_place(op)
    _, c_out, h_out, w_out = _image(main[0], last)
    batch, c_in, h_in, w_in = _image(first[0], last)
    if first[3]:  # a table or another weight has no batch
        batch = _image(main[0], last)[0]
    if place > 1 and len(seen) > place and seen[place] is not None:
        operands = [first, *(t for t in seen[place:] if t is not None), *operands[1:place]]
    taps = _taps(a.window)
    groups, has_add, has_bias = 1, 0, 0
    product = Product(main[1], 1, 1, float(main[1]))
    in_bytes = sum(t[1] * t[2] for t in present if not t[3]) - skipped[0]
    weight_bytes = sum(t[1] * t[2] for t in present if t[3]) - skipped[1]
    out_bytes = sum(t[1] * t[2] for t in made)
    known = all(one in work.FAMILY_OF or one in PER_RESULT for one in name.split("+"))
    variant = a.variant
    if is_quantised(name):
        unsigned = any(t[3] and t[4] == "uint8" and len(t[0]) > 1 for t in present)
        variant += SIGNED * (first[4] == "int8") + UNSIGNED_WEIGHTS * unsigned
    order = a.order if name == "Transpose" else []
    variant += work.moves_many(order)
    if kind == KINDS["conv"] and len(operands) > 1:
        weight = operands[1][0]
        taps = _taps(a.window or weight[2:])
        groups = max(a.group, 1)
        product = _convolution(op, weight, first, main, c_out, a)
        # Convolutions that run as one: all their channels.
        wider = sum(_image(part.made[0][0], last)[1] for part in beside)
        more = product.flop * wider / max(c_out, 1)
        product = product._replace(n=product.n + wider, flop=product.flop + more)
        c_out += wider
        # Among the inputs of a QLinearConv are scales, as long as its bias: the last.
        biases = present if place == 1 else read[8:]
        has_bias = int(any(t is not None and t[3] and len(t[0]) == 1 for t in biases))
        has_add = int(added)
        if "deform" in name.lower():
            # Each tap of each channel is interpolated between four pixels into a matrix first.
            columns = product.m * product.k * groups
            product = product._replace(flop=product.flop + 8.0 * columns)
            in_bytes, out_bytes = in_bytes + columns * main[2], out_bytes + columns * main[2]
    elif kind == KINDS["matmul"]:
        formula = PRODUCTS.get(products[0].op.rpartition("::")[2] if products else name)
        if formula is not None:
            answer = _by_formula(formula, seen, result, a.written)
            product, known = answer or product, answer is not None
            if product.again:  # a recurrent layer's steps come first, in some layouts and results
                batch = h_out = product.m
            if name.endswith("Attention"):  # no call for it all: a softmax rewrites the scores
                scores = 2 * product.m * product.n * main[2]
                in_bytes, out_bytes = in_bytes + scores, out_bytes + scores
        elif len(operands) > 1:
            operand, n = operands[1][0], main[0][-1] if main[0] else 1
            # The second as it lies; its vectors may be seen through a Flatten.
            k = operand[-1 if a.transposed else -2] if len(operand) > 1 else (1, *first[0])[-1]
            product = Product(main[1] // max(n, 1), n, k, 2.0 * k * main[1])
        # The second product of attention that is written out.
        more = math.fsum(kernel_row(*part)[1][FLOP] for part in beside)
        product = product._replace(flop=product.flop + more)
        has_bias = int(len(present) > 2)
        c_in, c_out = product.k, product.n
    elif kind == KINDS["pool"]:
        taps = taps if a.window else (h_in, w_in)
        k = math.prod(a.window or taps)
        product = Product(main[1], 1, k, float(main[1] * k))
    elif kind == KINDS["reduce"]:
        product = product._replace(flop=main[1] * (max(first[1] / max(main[1], 1), 1.0) * 4))
    elif kind == KINDS["move"]:
        product = product._replace(flop=0.0)
        if name.startswith(("Gather", "Slice")) and present:  # it reads no more than it gives out
            unread = max(first[1] * first[2] - skipped[first[3]] - out_bytes, 0.0)
            weight_bytes -= unread * first[3]
            in_bytes -= unread * (not first[3])
    elif parts and kind == KINDS["other"]:
        product = product._replace(flop=math.fsum(kernel_row(*part)[1][FLOP] for part in parts))
    elif name in PER_RESULT:
        flop = _by_formula(PER_RESULT[name], read, made, a.written)
        product, known = product._replace(flop=flop or 0.0), flop is not None
    return op, (
        kind, batch, c_in, h_in, w_in, c_out, h_out, w_out, *taps, a.stride, a.dilation, groups,
        a.pad, product.m, product.n, product.k, product.flop, in_bytes, weight_bytes, out_bytes,
        main[2], activation, has_add, has_bias, len(present), len(main[0]),
        *_stretches(name, kind, operands, main, order, a), variant, product.steps,
        product.again * main[2], known,
    )  # fmt: skip


def _stretches(
    name: str,
    kind: int,
    present: Sequence[Tensor],
    main: Tensor,
    order: Sequence[int],
    a: KernelAttributes,
) -> tuple[int, int]:
    """(run, length): elements that are read one after the other, and that one output sums over."""
    shape = present[0][0] if present else main[0]
    if kind == KINDS["pointwise"]:
        return _broadcast_run(present, main), 1
    if kind == KINDS["reduce"]:
        if name == "LRN":
            return math.prod(shape[2:]), a.size
        over_last = name in ("Softmax", "LogSoftmax", "LayerNormalization")
        axis = -1 if a.axis is None and over_last else a.axis
        if axis is None or not shape or not -len(shape) <= axis < len(shape):
            last_kept = bool(main[0]) and main[0][-1:] == shape[-1:]
            return math.prod(shape[2:]) if last_kept else 1, max(
                math.prod(shape) // (main[1] or 1), 1
            )
        axis %= len(shape)
        return math.prod(shape[axis + 1 :]), shape[axis]
    if kind == KINDS["move"]:
        if order and len(order) == len(shape):  # else it is read through a view
            moved = [axis for axis, place in enumerate(order) if axis != place]
            return math.prod(shape[max(moved, default=-1) + 1 :]), 1
        if a.axis is not None and shape and -len(shape) <= a.axis < len(shape):
            return math.prod(shape[a.axis % len(shape) :]), 1
    return shape[-1] if shape else 1, 1


def _broadcast_run(present: Sequence[Tensor], main: Tensor) -> int:
    """Elements from the end over which the inputs either all advance or some stand still."""
    sizes, rank = main[0], len(main[0])
    others = [(1,) * (rank - len(t[0])) + t[0] for t in present if len(t[0]) <= rank]
    whole = [all(shape[axis] == sizes[axis] for shape in others) for axis in range(rank)]
    run = itertools.takewhile(
        lambda axis: whole[axis] == whole[-1] or sizes[axis] <= 1, reversed(range(rank))
    )
    return math.prod(sizes[axis] for axis in run)
