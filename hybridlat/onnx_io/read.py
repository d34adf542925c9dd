"""From a parsed model to a Network: bind the inputs, and go through the operators once, in order.

What an operator makes of inputs of these types and values is worked out once for all networks:
those of a search space share most of their operators.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx
from onnx import ModelProto, ValueInfoProto

from hybridlat.errors import NetworkError
from hybridlat.graph.network import Constant, Network, Node, Shapes, TensorType
from hybridlat.onnx_io.infer import Opsets, results_of
from hybridlat.onnx_io.nodes import FileNode, domain_of, in_order, node_of
from hybridlat.onnx_io.parse import DATA_DEPENDENT, Parsed, parse
from hybridlat.onnx_io.rebind import Rebinding, batch_change
from hybridlat.onnx_io.shapes import (
    Misfit,
    check_network,
    check_weights,
    engine_types,
    input_type,
    refusal,
    runtime_types,
    types_of,
)
from hybridlat.onnx_io.trial import types_tried
from hybridlat.onnx_io.values import (
    MOST_BYTES,
    Known,
    Value,
    constant_of,
    keeps_float_values,
)

MOST_REMEMBERED = 100_000
_log = logging.getLogger(__name__)
# By operator sets, operator and inputs: whether the operator is folded, and its results.
_remembered: dict[tuple[object, ...], tuple[bool, tuple[Known, ...]]] = {}


@contextlib.contextmanager
def naming(label: str) -> Iterator[None]:
    """Put the file's name before what is wrong with it."""
    try:
        yield
    except NetworkError as error:
        raise NetworkError(f"{label}: {error}") from error.__cause__
    except UnicodeDecodeError as error:
        raise NetworkError(
            f"{label}: a name in the file is not text, so the file is damaged: export it again"
        ) from error


def engine_network(path: Path, name: str) -> Network:
    """The network of a graph that ONNX Runtime saved, with the types that the engine infers."""
    with naming(name):
        model = onnx.load(str(path), load_external_data=False)
        inputs = [info.name for info in model.graph.input]
        outputs = [info.name for info in model.graph.output]
        opsets = {domain_of(o.domain): o.version for o in model.opset_import}
        parsed = parse(model)
        made = dict.fromkeys([out for node in parsed.nodes for out in node.outputs if out])
        model.graph.output.extend([ValueInfoProto(name=out) for out in made if out not in outputs])
        exposed = path.with_name("exposed.onnx")
        exposed.write_bytes(model.SerializeToString())
        known: dict[str, Known] = {**runtime_types(str(exposed)), **parsed.tensors}
        return _assembled(name, parsed.nodes, inputs, outputs, known, opsets)


def network_of(parsed: Parsed, name: str, batch: int | None, shapes: Shapes) -> Network:
    """The network with every size bound; NetworkError says what is wrong or missing.

    Where a file was made for one batch and another is wanted, its constants are made for that one;
    ``Network.rebound`` names the operators.
    """
    frame = _bound(parsed, batch, shapes)
    rebinding = _rebinding(parsed, frame)
    if rebinding is not None:
        try:
            network = _network(parsed, name, frame, batch, rebinding)
            return replace(network, rebound=tuple(rebinding.changed))
        except NetworkError as error:
            _log.debug("%s is not made for another batch: %s", name, error)
    try:
        return _network(parsed, name, frame, batch)
    except Misfit as error:
        if rebinding is None:
            raise
        where = re.search(r"\w+ '[^']*'", str(error))
        raise NetworkError(
            f"the file is fixed to batch {rebinding.old} ({where and where[0]}): "
            "export it again with a free batch dimension"
        ) from error


def _rebinding(parsed: Parsed, frame: _Frame) -> Rebinding | None:
    """What changes with the batch; None where it is the file's own, or that one is not known."""
    try:
        own = _bound(parsed, None, {})
        change = batch_change(own.inputs, frame.inputs)
        return None if change is None else Rebinding(_way(parsed, own).known, *change)
    except NetworkError:
        return None


def _way(parsed: Parsed, frame: _Frame, rebinding: Rebinding | None = None) -> _Walk:
    start: dict[str, Known] = {**frame.inputs, **parsed.tensors}
    try:
        return _walk(parsed.nodes, dict(start), frame, rebinding=rebinding)
    except _OutOfOrder:
        nodes = in_order(parsed.nodes, start, frame.outputs)
        return _walk(nodes, dict(start), frame, rebinding=rebinding)


def _network(
    parsed: Parsed,
    name: str,
    frame: _Frame,
    batch: int | None,
    rebinding: Rebinding | None = None,
) -> Network:
    way = _way(parsed, frame, rebinding)
    is_open = None in way.known.values()
    outputs, left_out = _leave_out(way, frame.outputs) if is_open else (frame.outputs, ())
    objections = [way.objections[n.name] for n in way.kept if n.name in way.objections]
    if objections or (is_open and way.open):
        types = engine_types(frame.model, way.kept, way.known)
        made = {out for node in way.kept for out in node.outputs}
        known = {name: value for name, value in way.known.items() if name not in made}
        again = _walk(way.kept, known, frame, types)
        again.folded[:0] = way.folded
        way = again
        if objections and (not types or way.open):
            raise refusal(objections[0])
        if objections:
            _log.info("onnx objects, ONNX Runtime does not: %s", objections[0])
    network = _assembled(
        name, way.kept, tuple(frame.inputs), outputs, way.known, dict(frame.opsets),
        tuple(way.folded), left_out,
    )  # fmt: skip
    if way.fresh or way.given:
        check_network(network, batch)
    check_weights(network)
    if len(_remembered) > MOST_REMEMBERED:
        _remembered.clear()
    _remembered.update(way.fresh)
    return network


# ---- inputs ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Frame:
    """What a file says besides operators and constants; ``stated`` are types of foreign results."""

    model: ModelProto
    opsets: Opsets
    inputs: Mapping[str, TensorType]
    outputs: tuple[str, ...]
    stated: Mapping[str, TensorType]


def _bound(parsed: Parsed, batch: int | None, shapes: Shapes) -> _Frame:
    """The frame with static shapes for its inputs."""
    model = parsed.frame
    infos = [info for info in model.graph.input if info.name not in parsed.tensors]
    sizes = {name: tuple(shape) for name, shape in shapes.items()}
    unknown = sorted(set(sizes) - {info.name for info in infos})
    if unknown:
        raise NetworkError(
            f"there is no input {unknown[0]!r}: the inputs are "
            + ", ".join(repr(info.name) for info in infos)
        )
    return _Frame(
        model,
        tuple({domain_of(o.domain): o.version for o in model.opset_import}.items()),
        {info.name: input_type(info, batch, sizes.get(info.name)) for info in infos},
        tuple(dict.fromkeys(info.name for info in model.graph.output)),
        types_of(model.graph.value_info),
    )


# ---- operators ---------------------------------------------------------------------------------


class _OutOfOrder(Exception):
    """An operator reads what has not been made, or makes what there is."""


@dataclass(slots=True)
class _Walk:
    """A way through the operators: what is kept, the names of what is folded, and what is known.

    ``known`` is None for a tensor of unknown type; ``objections`` are onnx's by operator, ``fresh``
    what may be remembered once it is checked, ``given`` says that types came from elsewhere.
    """

    known: dict[str, Known]
    kept: list[FileNode] = field(default_factory=list)
    folded: list[str] = field(default_factory=list)
    objections: dict[str, str] = field(default_factory=dict)
    fresh: dict[tuple[object, ...], tuple[bool, tuple[Known, ...]]] = field(default_factory=dict)
    given: bool = False

    @property
    def open(self) -> bool:
        """Whether an operator that is kept makes a tensor of unknown type."""
        return any(self.known[o] is None for node in self.kept for o in node.outputs if o)


def _walk(
    nodes: Sequence[FileNode],
    known: dict[str, Known],
    frame: _Frame,
    engine: Mapping[str, TensorType] | None = None,
    rebinding: Rebinding | None = None,
) -> _Walk:
    """Look at each operator; ``engine`` are an engine's types of what is unknown here."""
    way = _Walk(known, given=engine is not None)
    given = {**frame.stated, **(engine or {})}
    known[""] = _LEFT_OUT
    for node in nodes:
        if rebinding is not None:
            node = rebinding.adapt(node, known)
        key = (frame.opsets, node.structure, *map(known.get, node.inputs))
        outcome = _remembered.get(key)
        if outcome is None:
            outcome = _outcome(node, key, way, frame.opsets, given)
        is_folded, results = outcome
        if is_folded:
            way.folded.append(node.name)
        else:
            way.kept.append(node)
        for out, result in zip(node.outputs, results, strict=True):
            if out not in known:
                known[out] = result
            elif out:
                raise _OutOfOrder
    if not known.keys() >= set(frame.outputs):
        raise _OutOfOrder
    del known[""]
    return way


_LEFT_OUT = TensorType("", ())


def _outcome(
    node: FileNode,
    key: tuple[object, ...],
    way: _Walk,
    opsets: Opsets,
    given: Mapping[str, TensorType],
) -> tuple[bool, tuple[Known, ...]]:
    """Whether an operator that was not met before is folded, and its results."""
    known = way.known
    if not known.keys() >= set(node.inputs):
        raise _OutOfOrder
    inputs = [known[source] if source else None for source in node.inputs]
    stated = tuple([given.get(out) for out in node.outputs])
    if any(value is None for source, value in zip(node.inputs, inputs, strict=True) if source):
        return False, stated
    results, objection = results_of(node, inputs, opsets, stated)
    lacks = any(out and result is None for out, result in zip(node.outputs, results, strict=True))
    if lacks and way.given and node.domain and not node.has_graph:
        results = types_tried(node, inputs, opsets)
    if objection:
        way.objections[node.name] = objection
    outcome = any(isinstance(result, Value) for result in results), results
    values = [value for value in (*inputs, *results) if isinstance(value, Value)]
    is_known = all(results[i] is not None for i, out in enumerate(node.outputs) if out)
    is_light = all(len(value.data) <= MOST_BYTES for value in values)
    if is_known and is_light and not objection and not any(stated):
        way.fresh[key] = outcome
    return outcome


def _leave_out(
    way: _Walk, outputs: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Take out the operators whose sizes depend on data, and all that are behind them.

    Returns the outputs of the rest, to which what they read is added, and the name and operator of
    those that went. Nothing happens where nothing else would stay.
    """
    known, gone = way.known, {}
    unknown: set[str] = set()
    for node in way.kept:
        starts = not node.domain and node.op in DATA_DEPENDENT
        starts = starts and any(out and known[out] is None for out in node.outputs)
        if starts or unknown.intersection(node.reads):
            gone[node.name] = node
            unknown.update(out for out in node.outputs if out)
    read = Counter(name for node in way.kept if node.name not in gone for name in node.reads)
    read.update(outputs)
    for node in reversed(way.kept):  # what is empty, and read by those alone, is no work
        types = [known[out] for out in node.outputs if out]
        empty = all(isinstance(t, TensorType) and not t.elements for t in types)
        if empty and node.name not in gone and not any(read[out] for out in node.outputs):
            gone[node.name] = node
            unknown.update(node.outputs)
            read.subtract(node.inputs)
    kept = [node for node in way.kept if node.name not in gone]
    made = {out for node in kept for out in node.outputs if out}
    ends = dict.fromkeys([name for name in outputs if name not in unknown])
    ends |= dict.fromkeys([r for node in gone.values() for r in node.reads if r in made])
    if not gone or made.isdisjoint(ends):
        return outputs, ()
    way.kept = kept
    return tuple(ends), tuple([(name, node.op) for name, node in gone.items()])


def _assembled(
    label: str,
    nodes: Sequence[FileNode],
    inputs: Sequence[str],
    outputs: Sequence[str],
    known: Mapping[str, Known],
    opsets: Mapping[str, int],
    folded: tuple[str, ...] = (),
    left_out: tuple[tuple[str, str], ...] = (),
) -> Network:
    """The network of operators whose tensors all have a known type."""
    types: dict[str, TensorType] = {}
    keeps: dict[str, bool] = {}
    for name in inputs:
        type_ = known.get(name)
        if not isinstance(type_, TensorType):
            raise NetworkError(f"the shape of the input {name!r} is unknown: give it with --shape")
        types[name] = type_
    made: list[Node] = []
    for node in nodes:
        for source in node.inputs:
            value = known.get(source)
            if type(value) is Value and keeps.get(source) is not False:
                keeps[source] = keeps_float_values(node.op, value.type.shape)
        for out in node.outputs:
            if out:
                type_ = known.get(out)
                if type(type_) is not TensorType:
                    raise NetworkError(_no_shape(node, out))
                types[out] = type_
        made.append(node_of(node, opsets.get(node.domain, 1)))
    ends = tuple([name for name in dict.fromkeys(outputs) if name in types])
    if not ends or not made:
        raise NetworkError("it computes nothing but constants")
    constants: dict[str, Constant] = {}
    for name, keep in keeps.items():
        value = known[name]
        assert isinstance(value, Value)
        constants[name] = constant_of(value, keep)
    return Network(
        label, tuple(made), tuple(inputs), ends, types, constants, folded, left_out=left_out
    )


def _no_shape(node: FileNode, tensor: str) -> str:
    """Why a result has no static shape, and what would help."""
    if not node.domain and node.op in DATA_DEPENDENT:
        return (
            f"the shape of {tensor!r} depends on data ({node.op} {node.name!r}): "
            "export the network without what comes after it, its post-processing"
        )
    where = f" of the domain {node.domain!r}" if node.domain else ""
    return (
        f"the shape of {tensor!r}, made by {node.op} {node.name!r}{where}, cannot be worked "
        "out, neither by onnx nor by ONNX Runtime: state it in the file's value_info, or export "
        "with fixed sizes"
    )
