"""The types of a network's tensors: bound to its inputs, stated, and those of ONNX Runtime."""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from onnx import GraphProto, ModelProto, NodeProto, OperatorSetIdProto, ValueInfoProto, helper

from hybridlat.errors import NetworkError
from hybridlat.graph.network import Shapes, TensorType, pixels_of
from hybridlat.graph.operators import Sizes
from hybridlat.onnx_io.isolation import UNANSWERED, ask
from hybridlat.onnx_io.nodes import domain_of, reads
from hybridlat.onnx_io.values import NUMPY_NAMES, Known, Value, data_type, dtype_name, type_of

_OPEN = (None, 0, -1)
_BATCH = re.compile("bs|batch([ _-]?size)?", re.IGNORECASE)
Opsets = tuple[tuple[str, int], ...]


def opsets_of(model: ModelProto) -> Opsets:
    """The versions of a model's operator sets, by domain."""
    return tuple({domain_of(o.domain): o.version for o in model.opset_import}.items())


@dataclass(frozen=True, slots=True)
class Frame:
    """What a file says besides operators and constants; ``stated`` are types of foreign results.

    ``batch`` is known where it is not the first size of the first input.
    """

    opsets: Opsets
    inputs: Mapping[str, TensorType]
    outputs: tuple[str, ...]
    stated: Mapping[str, TensorType]
    batch: int | None = None


def bound(
    model: ModelProto,
    infos: Sequence[ValueInfoProto],
    batch: int | None,
    shapes: Shapes,
    weights: Container[str],
    stepped: Container[str] = (),
) -> Frame:
    """The frame of a model with every size of its inputs (``infos``) bound.

    The batch is an input's first size, unless another is called one, or the first are steps
    (``stepped``); where it is open, it is that of the data's shape, else 1. A size that has a name
    is the same wherever that stands. ``batch`` is that of the inputs where it is open; where it is
    in none, of those that have that of the data, the first input of the highest rank. ``weights``
    keep what the file says. NetworkError for a name that no input has, for what stays open, and for
    a batch that shapes contradict.
    """
    shapes = {name: tuple(shape) for name, shape in shapes.items()}
    if unknown := sorted(shapes.keys() - {info.name for info in infos}):
        known = ", ".join(repr(info.name) for info in infos)
        raise NetworkError(f"there is no input {unknown[0]!r}: the inputs are {known}")
    symbols = _symbols(infos, shapes)
    written = {info.name: written_sizes(info) for info in infos}
    axes = {info.name: _batch_axis(info, info.name in stepped) for info in infos}
    data = {n: sizes for n, sizes in written.items() if sizes and n not in weights}
    batches = {name: sizes[axes[name]] for name, sizes in data.items()}
    fixed = batches[max(data, key=lambda name: len(data[name]))] if data else None
    batched = _OPEN if set(_OPEN).intersection(batches.values()) else (fixed,)
    takes = [name for name, size in batches.items() if size in batched]
    main = max(takes, key=lambda name: len(data[name]), default="")
    axis, shape = axes.get(main, 0), shapes.get(main, ())
    is_bound = batched is _OPEN and main in shapes and len(shape) == len(data[main])
    shared = shape[axis] if batch is None and is_bound and shape[axis] not in _OPEN else batch
    each = {info.name: _names(info)[axes[info.name]] for info in infos if info.name in takes}
    named = dict.fromkeys(filter(None, each.values()), 1 if shared is None else shared) | symbols
    types = {}
    for info in infos:
        is_free = info.name in takes and each[info.name] not in symbols
        sizes, own = written_sizes(info, named), shared if is_free else None
        types[info.name] = _input_type(info, sizes, axes[info.name], own, shapes.get(info.name))
    if batch is not None and main and (shape := types[main].shape)[axis] != batch:
        free = (*shape[:axis], "N", *shape[axis + 1 :])
        whole, others = ("x".join(map(str, sizes)) for sizes in (shape, free))
        fix = f"leave one of them out, or write --shape {main}:{others} (-1 in Python)"
        raise NetworkError(f"the batch {batch} contradicts the shape {whole} of {main!r}: {fix}")
    outputs = tuple(dict.fromkeys(info.name for info in model.graph.output))
    symbols = _symbols(infos, {name: type_.shape for name, type_ in types.items()})
    stated = types_of(model.graph.value_info, symbols)
    is_other = axis or (main and main != infos[0].name and len(types[main].shape) > 2)
    inside = types[main].shape[axis] if is_other else None
    return Frame(opsets_of(model), types, outputs, stated, inside)


def _symbols(infos: Sequence[ValueInfoProto], shapes: Shapes) -> dict[str, int]:
    """The sizes that go by a name, by the shapes of the tensors that have them."""
    each = [(_names(info), shapes.get(info.name, ())) for info in infos]
    pairs = [zip(names, shape, strict=True) for names, shape in each if len(names) == len(shape)]
    return {name: size for sizes in pairs for name, size in sizes if name and size not in _OPEN}


def _names(info: ValueInfoProto) -> list[str]:
    return [dim.dim_param for dim in info.type.tensor_type.shape.dim]


def _batch_axis(info: ValueInfoProto, is_stepped: bool) -> int:
    """Where an input has its batch: where a size is called that, behind the steps, or first."""
    names = _names(info)
    called = [axis for axis, name in enumerate(names) if _BATCH.fullmatch(name)]
    return called[0] if called else int(is_stepped and len(names) > 1)


def _input_type(
    info: ValueInfoProto,
    written: Sequence[int | None],
    axis: int,
    batch: int | None,
    shape: Sizes | None,
) -> TensorType:
    """The type of an input, its size at ``axis`` that of the batch where nothing else binds it."""

    def refused(wrong: str, known: Sequence[int | None]) -> NetworkError:
        return NetworkError(f"{wrong}: {_request(info.name, known)}")

    tensor, name = info.type.tensor_type, f"the input {info.name!r}"
    dims, is_shaped = tensor.shape.dim, tensor.HasField("shape")
    if not info.type.HasField("tensor_type"):
        raise NetworkError(f"{name} is not a tensor: export the network with tensors alone")
    if shape is None and not is_shaped:
        raise refused(f"{name} has no shape", ())
    if shape is not None and is_shaped and len(shape) != len(dims):
        wrong = f"{name} is of rank {len(dims)}, but the shape for it of rank {len(shape)}"
        raise refused(wrong, written)
    sizes = list(written if shape is None else shape)
    if sizes and ((batch is not None and shape is None) or sizes[axis] in _OPEN):
        sizes[axis] = 1 if batch is None else batch
    if None in sizes:
        named = [dim.dim_param or "?" for dim in dims]
        example = "x".join(n if s is None else str(s) for n, s in zip(named, sizes, strict=True))
        wrong = f"the size {named[sizes.index(None)]!r} of {name} ({example}) is open"
        raise refused(wrong, sizes)
    bound = [size for size in sizes if size is not None]
    for axis, size in enumerate(bound):
        if size <= 0:
            raise refused(f"{name} has the size {size} at axis {axis}", sizes)
    return TensorType(dtype_name(tensor.elem_type), tuple(bound))


def _request(name: str, sizes: Sequence[int | None]) -> str:
    """How to give an input's shape: with the sizes it has, and likely ones for those it lacks."""
    known = [size if size and size > 0 else None for size in sizes] or [None] * 4
    pixels = pixels_of(known) if len(known) == 4 else slice(2, None)
    side = max((max(256, size) for size in known[pixels] if size), default=224)
    second = 3 if pixels.start == 2 else side
    likely = (1, second, *[side] * len(known)) if len(known) > 3 else (1, 128, 128)
    shape = [size or likely[axis] for axis, size in enumerate(known)]
    text = "x".join(map(str, shape))
    return f"give it with --shape {name}:{text} (in Python shapes={{{name!r}: {tuple(shape)}}})"


def info_of(name: str, type_: TensorType) -> ValueInfoProto:
    """A tensor of this type, as a graph states it."""
    return helper.make_tensor_value_info(name, data_type(type_.dtype), type_.shape)


def types_of(
    infos: Iterable[ValueInfoProto], symbols: Mapping[str, int] = MappingProxyType({})
) -> dict[str, TensorType]:
    """The types of those tensors whose sizes are all numbers, or stand in ``symbols``."""
    types: dict[str, TensorType] = {}
    for info in infos:
        tensor = info.type.tensor_type
        bound = [size for size in written_sizes(info, symbols) if size is not None]
        is_whole = tensor.HasField("shape") and len(bound) == len(tensor.shape.dim)
        if is_whole and tensor.elem_type:
            types[info.name] = TensorType(dtype_name(tensor.elem_type), tuple(bound))
    return types


def written_sizes(
    info: ValueInfoProto, symbols: Mapping[str, int] = MappingProxyType({})
) -> list[int | None]:
    """The sizes of a tensor as a graph states them, None for those that are not numbers."""
    dims = info.type.tensor_type.shape.dim
    return [d.dim_value if d.HasField("dim_value") else symbols.get(d.dim_param) for d in dims]


def with_fed_weights(known: Mapping[str, Known]) -> dict[str, Known]:
    """The same with types in place of weights: an engine takes no weight without values."""
    pairs = known.items()
    return {n: type_of(v) if isinstance(v, Value) and v.array is None else v for n, v in pairs}


def model_of(nodes: Sequence[NodeProto], known: Mapping[str, Known], opsets: Opsets) -> ModelProto:
    """The operators as a model that gives out all results."""
    graph = GraphProto(name="types", node=nodes)
    made = dict.fromkeys([out for node in nodes for out in node.output if out])
    graph.output.extend([ValueInfoProto(name=out) for out in made])
    for name in dict.fromkeys([s for node in nodes for s in reads(node) if s not in made]):
        source = known.get(name)
        if isinstance(source, Value):
            graph.initializer.append(source.tensor(name))
        elif source is not None:
            graph.input.append(info_of(name, source))
    imports = [OperatorSetIdProto(domain=name, version=version) for name, version in opsets]
    return ModelProto(ir_version=8, graph=graph, opset_import=imports)


def runtime_types(
    model: bytes | str, optimised: str = "", weights: str = "", threads: int = 1
) -> dict[str, TensorType]:
    """ONNX Runtime's types of the inputs and outputs of a model or file, as far as it says."""
    answer = ask("onnxruntime", model, optimised, weights, threads, {})
    if answer is None:
        raise NetworkError(f"{UNANSWERED.format('ONNX Runtime')}: export the network again")
    if "error" in answer:
        raise NetworkError(f"ONNX Runtime refuses it: {' '.join(answer['error'].split())}")
    types: dict[str, TensorType] = {}
    for name, type_, shape in answer["types"]:
        match = re.fullmatch(r"tensor\((\w+)\)", type_)
        if match is not None and all(isinstance(size, int) for size in shape):
            types[name] = TensorType(NUMPY_NAMES.get(match[1], match[1]), tuple(shape))
    return types
