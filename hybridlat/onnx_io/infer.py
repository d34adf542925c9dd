"""What an operator makes of what it reads: types by onnx's inference, constants, or unknown."""

import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, helper
from onnx.reference import ReferenceEvaluator

from hybridlat.errors import NetworkError
from hybridlat.graph.network import TensorType
from hybridlat.graph.operators import KINDS, SMALL_ELEMENTS, WHOLE, kind_of, named
from hybridlat.graph.work import einsum_shape
from hybridlat.onnx_io.checks import MAX_TENSOR_ELEMENTS, POOLS
from hybridlat.onnx_io.isolation import UNANSWERED, ask
from hybridlat.onnx_io.nodes import FileNode
from hybridlat.onnx_io.shapes import Opsets, model_of, types_of
from hybridlat.onnx_io.values import Known, Value, data_type, dense, schema_of, type_of

_WORDS = re.compile(r"^.*node name: .*?\): |\[\w+Error\] ")
CONTROL_FLOW = ("If", "Loop", "Scan")
MAX_FOLDED_ELEMENTS = 65_536
# Only operators of shape arithmetic are computed: all others may take any memory or time on the
# way (the padding of a convolution, the indices of an Einsum), however small their results are.
_COMPUTED_KINDS = frozenset({KINDS["pointwise"], KINDS["reduce"], KINDS["move"]})
_COMPUTED = named(
    "MatMul Gemm Mod Sign Sin Cos Xor OneHot EyeLike CastLike Trilu IsNaN IsInf BitShift "
    "ScatterElements GreaterOrEqual LessOrEqual ReduceL1 ReduceLogSum ReduceLogSumExp"
)
# onnx's own GatherElements looks through all of a tensor for each element.
_NOT_COMPUTED = frozenset({"Resize", "Upsample", "Dropout", "GatherElements"})
_TYPE_ALONE = {"CastLike": 1, "EyeLike": 0}
# The sizes of their results are not known beforehand, but never larger than those of the inputs.
_SHRINK = frozenset({"NonZero", "Compress", "Unique"})
_TAKE_VECTORS = named("Reshape Tile Pad TopK Split Squeeze Slice Resize Upsample")
_TAKE_INDICES = named("Gather GatherElements ScatterElements")
# Like which input the results behind the first are: before set 14 or 10 onnx infers that alone.
_FURTHER = {"BatchNormalization": 1, "Dropout": 0}
_LIKE_READ = named("GroupNormalization GroupNorm SkipGroupNorm BiasAdd BiasSplitGelu NhwcConv")
"""Their types onnx does not infer, and most of them no CPU runs: optimisers write them for GPUs."""
_log = logging.getLogger(__name__)


def results_of(
    node: FileNode, inputs: Sequence[Known], opsets: Opsets, stated: Sequence[TensorType | None]
) -> tuple[tuple[Known, ...], str]:
    """What is known of each output of an operator, and what onnx objects to in it."""
    schema = schema_of(node.op, node.domain, dict(opsets).get(node.domain, 1))
    has_branches = node.has_graph or (node.op in CONTROL_FLOW and not node.domain)
    if schema is None and "Quant" in node.op and node.domain != "com.microsoft":
        why = "quantises in a way of one tool, in which no target is predicted: export the network"
        raise NetworkError(f"{node.op} {node.name!r} {why} before that, or in int8 as QDQ")
    if node.op in _LIKE_READ:
        like = _like_read(node, [t for each in inputs if (t := type_of(each))], opsets)
        stated = [type_ or like for type_ in stated]
    if has_branches or schema is None:
        return tuple(stated), ""
    proto = node.proto()
    for fault in _faults(proto, inputs, schema):
        raise NetworkError(f"{node.op} {node.name!r} {fault}")
    folded = fold_node(proto, inputs, (None,) * len(node.outputs), opsets)
    if folded is not None:
        return folded, ""
    # onnx's inference takes an STFT without its default for one of both sides, and refuses some.
    usual = {name: a.default_value for name, a in schema.attributes.items() if a.default_value.type}
    left_out = sorted(usual.keys() - {attribute.name for attribute in proto.attribute})
    proto.attribute.extend([usual[name] for name in left_out])
    if node.op in POOLS:  # since set 22 no window starts behind the data, as in ONNX Runtime
        opsets = (("", min(22, onnx.defs.onnx_opset_version())),)
    known = dict(zip(node.inputs, inputs, strict=True))
    model, objection = inferred(model_of([proto], known, opsets), proto)
    if objection:
        objection = f"{node.op} {node.name!r}: {objection}"
        _log.debug("strict inference objects: %s", objection)
    results = types_of((*model.graph.output, *model.graph.value_info))
    types = [results.get(out, type_) for out, type_ in zip(node.outputs, stated, strict=True)]
    operands = [type_.shape for each in inputs if (type_ := type_of(each))]
    if node.op == "Einsum" and types[0] and len(operands) == len(inputs) and not objection:
        (equation,) = [attribute.s.decode() for attribute in proto.attribute]
        types = [TensorType(types[0].dtype, einsum_shape(equation, operands))]
    if node.op in _FURTHER:
        types[1:] = [type_ or type_of(inputs[_FURTHER[node.op]]) for type_ in types[1:]]
    made = [type_ for out, type_ in zip(node.outputs, types, strict=True) if out]
    if all(type_ and min(type_.shape, default=1) == 0 for type_ in made):
        return tuple([t and Value.of_type(t) for t in types]), objection  # nothing is all of it
    return fold_node(proto, inputs, types, opsets) or tuple(types), objection


def _like_read(node: FileNode, types: Sequence[TensorType], opsets: Opsets) -> TensorType | None:
    """What one of ``_LIKE_READ`` makes of tensors of these types."""
    is_sized = bool(types) and all(type_.shape for type_ in types)
    if not is_sized or node.op not in ("BiasSplitGelu", "NhwcConv"):
        return next(iter(types), None)
    if node.op == "BiasSplitGelu":
        return types[0]._replace(shape=(*types[0].shape[:-1], types[0].shape[-1] // 2))
    known = dict[str, Known]()
    for name, (dtype, (items, *others)) in zip(filter(None, node.inputs), types, strict=True):
        known[name] = TensorType(dtype, (items, *others[-1:], *others[:-1]))
    proto = node.proto()
    proto.op_type, proto.domain = "Conv", ""
    made = types_of(inferred(model_of([proto], known, opsets), proto)[0].graph.output)
    for dtype, (items, channels, *sides) in made.values():
        return TensorType(dtype, (items, *sides, channels))
    return None


def inferred(model: ModelProto, node: NodeProto | None = None) -> tuple[ModelProto, str]:
    """The model with the types that onnx infers, and what it objects to in its only operator."""
    opsets = {opset.domain: opset.version for opset in model.opset_import}
    data = b"" if node is None else node.SerializeToString()
    answer = ask("onnx", model.SerializeToString(), data, opsets)
    where = f"{node.op_type} {node.name!r}" if node is not None else "the network"
    if answer is None:
        raise NetworkError(f"{UNANSWERED.format('onnx')}, with {where}: export the network again")
    made, fault, objection = answer
    if fault:
        why = f"{where} is not as ONNX defines it ({last_line(fault)})"
        raise NetworkError(f"{why}: export the network again")
    return ModelProto.FromString(made), objection and _WORDS.sub("", last_line(objection))


def rounded(node: FileNode, known: Mapping[str, Known]) -> dict[str, Known]:
    """Scales of a Resize that give the sizes of ONNX Runtime, whose products are float32.

    1.3 of 10 is 13 there, and 12 in the float64 of onnx: the next scale gives 13 in both.
    """
    read = [known.get(name) for name in node.inputs] or [None]
    type_, scales = type_of(read[0]), read[-1].array if isinstance(read[-1], Value) else None
    if type_ is None or scales is None or scales.dtype != np.float32 or scales.ndim != 1:
        return {}  # the sizes themselves, or none
    sizes = np.array(type_.shape if scales.size == len(type_.shape) else 1, np.float32)
    is_less = np.floor(scales * sizes.astype(np.float64)) < np.floor(scales * sizes)
    up = np.where(is_less, np.nextafter(scales, np.float32(np.inf)), scales)
    return {node.inputs[-1]: Value.of_array(up)} if is_less.any() else {}


def _faults(node: NodeProto, inputs: Sequence[Known], schema: onnx.defs.OpSchema) -> Iterator[str]:
    """What is wrong that onnx's inference does not see, or sees only after folding.

    Each begins with its verb, as in ``has 3 outputs``.
    """
    if len(node.output) > schema.max_output:
        yield (
            f"has {len(node.output)} outputs, where ONNX defines at most {schema.max_output}: "
            "export the network again"
        )
    source, *operands = map(type_of, inputs or (None,))
    if node.op_type == "GroupNormalization" and schema.since_version > 18 and source:
        for type_ in operands:  # onnx's inference ends without a word
            if type_ and type_.shape != source.shape[1:2]:
                yield f"has an input {source}, but a parameter {type_}"
    for place, type_ in enumerate(operands, 1):
        is_vector = node.op_type in _TAKE_VECTORS or node.op_type.startswith("Reduce")
        if is_vector and type_ and len(type_.shape) != 1 and (node.op_type, place) != ("Pad", 2):
            yield f"reads {type_} where a vector is due: export it again"
    if node.op_type in _TAKE_INDICES and source and operands and isinstance(inputs[1], Value):
        axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
        size, array = math.prod(source.shape[axis:][:1]), inputs[1].array
        if array is not None and array.size and not -size <= array.min() <= array.max() < size:
            yield f"takes the indices {array.min()} to {array.max()} of {size}: export it again"
    modes = inputs[2:] if node.op_type == "Dropout" else ()
    if any(isinstance(mode, Value) and np.any(mode.array) for mode in modes):
        yield "is in training mode: export the network for inference"
    weight = operands[0] if node.op_type in ("Conv", "ConvTranspose") and operands else None
    for attribute in node.attribute:  # an engine believes the weight, onnx kernel_shape
        if attribute.name == "kernel_shape" and weight and (*attribute.ints,) != weight.shape[2:]:
            yield (
                f"has the kernel_shape {tuple(attribute.ints)} and a weight of the shape "
                f"{weight.shape}: its kernel_shape must be that of the weight"
            )


def fold_node(
    node: NodeProto, inputs: Sequence[Known], types: Sequence[TensorType | None], opsets: Opsets
) -> tuple[Value | None, ...] | None:
    """The results of a constant operator (values, or weights of known type), else None."""
    if node.domain or node.op_type == "DequantizeLinear":
        return None  # engines keep weights in whole numbers, and fuse what makes floats of them
    if node.op_type == "Constant":
        return (_constant_node(node),)
    if node.op_type in ("Shape", "Size") and inputs and (type_ := type_of(inputs[0])):
        return (_shape_of(node, type_),)
    inputs = _with_stand_in(node.op_type, inputs)
    sources = [source for source in inputs if isinstance(source, Value)]
    if not sources or len(sources) < sum(bool(name) for name in node.input):
        return None
    if node.op_type == "Identity":
        return (sources[0],)
    arrays = [source.array if isinstance(source, Value) else None for source in inputs]
    known = all(a is not None for name, a in zip(node.input, arrays, strict=True) if name)
    if node.op_type == "ConstantOfShape" and arrays[0] is not None:
        return (_constant_of_shape(node, arrays[0]),)
    made = [type_ for out, type_ in zip(node.output, types, strict=True) if out]
    if known and _is_cheap(node.op_type, sources, made):
        result = _evaluate(node, inputs, opsets)
        # Sizes and indices are nothing without their values: the engine folds it.
        if result is not None or any(type_ and type_.dtype in WHOLE for type_ in made):
            return result
    if None in made or any(type_ and min(type_.shape, default=0) < 0 for type_ in made):
        return None
    return tuple([type_ and Value.of_type(type_) for type_ in types])


def _with_stand_in(op: str, inputs: Sequence[Known]) -> Sequence[Known]:
    """The inputs with zeros for the one of which an operator reads the type alone."""
    place = _TYPE_ALONE.get(op, len(inputs))
    type_ = type_of(inputs[place]) if place < len(inputs) else None
    is_large = type_ is not None and op == "EyeLike" and type_.elements > MAX_FOLDED_ELEMENTS
    if type_ is None or is_large or type_.dtype == "string":
        return inputs
    dtype = helper.tensor_dtype_to_np_dtype(data_type(type_.dtype))
    zeros = Value.of_array(np.zeros(type_.shape if op == "EyeLike" else (), dtype))
    return (*inputs[:place], zeros, *inputs[place + 1 :])


def _is_cheap(op: str, sources: Sequence[Value], results: Sequence[TensorType | None]) -> bool:
    """Whether an operator is computed in little memory and time, as far as its types tell."""
    if op in _SHRINK:
        return all(source.type.elements <= MAX_FOLDED_ELEMENTS for source in sources)
    if op not in _COMPUTED and (op in _NOT_COMPUTED or kind_of(op) not in _COMPUTED_KINDS):
        return False
    return all(type_ and 0 <= type_.elements <= MAX_FOLDED_ELEMENTS for type_ in results)


def _constant_of_shape(node: NodeProto, shape: NDArray[Any]) -> Value:
    """A weight, as exporters write it that leave weights out, or a few numbers."""
    stated = (Value.of_tensor(a.t) for a in node.attribute if a.name == "value")
    fill = next(stated, Value.of_array(np.zeros(1, np.float32)))
    is_whole = shape.dtype.kind == "i" and bool((shape >= 0).all())
    type_ = TensorType(fill.type.dtype, tuple(map(int, shape.reshape(-1) if is_whole else ())))
    if not is_whole or math.prod(max(1, size) for size in type_.shape) > MAX_TENSOR_ELEMENTS:
        raise NetworkError(
            f"ConstantOfShape {node.name!r} makes the sizes {shape.reshape(-1)[:8].tolist()}: "
            f"they must be whole numbers from 0 on, of at most {MAX_TENSOR_ELEMENTS} elements"
        )
    number = fill.array
    most = MAX_FOLDED_ELEMENTS if type_.dtype in WHOLE else SMALL_ELEMENTS
    if number is None or number.size != 1 or type_.elements > most:
        return Value.of_type(type_)
    return Value.of_array(np.full(type_.shape, number.reshape(-1)[0]))


def _constant_node(node: NodeProto) -> Value:
    for attribute in node.attribute:
        if attribute.HasField("t"):
            return Value.of_tensor(attribute.t)
        if attribute.HasField("sparse_tensor"):
            return Value.of_tensor(dense(attribute.sparse_tensor))
        if attribute.name in ("value_string", "value_strings"):  # no size hangs on text
            dims = (len(attribute.strings),) if attribute.name == "value_strings" else ()
            return Value.of_type(TensorType("string", dims))
    made = _evaluate(node, (), (("", 13),))
    if made and made[0]:
        return made[0]
    raise NetworkError(f"the Constant {node.name!r} has no value: export the network again")


def _shape_of(node: NodeProto, type_: TensorType) -> Value:
    if node.op_type == "Size":
        if type_.elements >= 1 << 63:
            raise NetworkError(
                f"Size {node.name!r} counts {type_.elements:.3g} elements: they must be fewer "
                "than 2**63"
            )
        return Value.of_array(np.array(type_.elements, dtype=np.int64))
    limits = {a.name: a.i for a in node.attribute}
    sizes = type_.shape[limits.get("start", 0) : limits.get("end", len(type_.shape))]
    return Value.of_array(np.array(sizes, dtype=np.int64))


def _evaluate(
    node: NodeProto, inputs: Sequence[Known], opsets: Opsets
) -> tuple[Value | None, ...] | None:
    """Run one operator with onnx's reference implementation; None where it cannot."""
    try:
        with np.errstate(all="ignore"):
            model = model_of([node], dict(zip(node.input, inputs, strict=True)), opsets)
            results = ReferenceEvaluator(model).run(None, {})
    except Exception as error:  # noqa: BLE001  the bodies of its operators raise many kinds
        kind = type(error).__name__
        _log.debug("%s %r is not folded: %s: %s", node.op_type, node.name, kind, error)
        return None
    arrays = [np.asarray(array) for array in results if not isinstance(array, list)]
    if len(arrays) < len(results) or any(array.dtype.kind in "OUS" for array in arrays):
        return None  # a sequence, or text
    made = map(Value.of_array, arrays)
    return tuple(next(made) if name else None for name in node.output)


def last_line(error: object) -> str:
    """The line of onnx's words that says what is wrong."""
    return ([type(error).__name__, *str(error).strip().splitlines()][-1]).strip()[:300]
