"""From a parsed model to a Network: bind the inputs, and go through the operators in order."""

import contextlib
import logging
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import onnx
from onnx import ValueInfoProto

from hybridlat.errors import NetworkError
from hybridlat.graph.forms import written
from hybridlat.graph.network import Network, Node, Shapes, TensorType
from hybridlat.graph.operators import is_number
from hybridlat.onnx_io.checks import Misfit, check_network, refusal
from hybridlat.onnx_io.infer import CONTROL_FLOW, inferred
from hybridlat.onnx_io.nodes import FileNode, in_order, node_of
from hybridlat.onnx_io.parse import Parsed, parse, stepped
from hybridlat.onnx_io.rebind import Rebinding, batch_change
from hybridlat.onnx_io.shapes import Frame, opsets_of, runtime_types, types_of
from hybridlat.onnx_io.values import Known, Value, constant_of, schema_of, type_of
from hybridlat.onnx_io.walk import DATA_DEPENDENT, OutOfOrder, Walk, check_odd, walk
from hybridlat.onnx_io.write import make_hole, with_hole

MAX_WEIGHT_BYTES = 1 << 37
MOST_COPIED_BYTES = 1 << 29
_PAGE_BYTES = 1 << 16  # each weight starts on one
_log = logging.getLogger(__name__)


@contextlib.contextmanager
def naming(label: str) -> Iterator[None]:
    """Put the file's name before what is wrong with it."""
    try:
        yield
    except NetworkError as error:
        raise NetworkError(f"{label}: {error}") from error.__cause__
    except UnicodeDecodeError as error:
        why = "a name in the file is not text, so the file is damaged: export it again"
        raise NetworkError(f"{label}: {why}") from error


def engine_network(network: Network, folder: Path, threads: int) -> Network:
    """What ONNX Runtime makes of a network, with the types that the engine infers."""
    source, path, weights = (folder / name for name in ("file", "optimised", "weights.bin"))
    source.write_bytes(with_hole(network, folder / "zeros.bin"))
    weights.symlink_to(os.devnull)
    # Written down, a weight is in memory once; in a graph that holds its weights it stays mapped.
    is_mapped = any(c.type.bytes > MOST_COPIED_BYTES for c in network.constants.values())
    runtime_types(str(source), str(path), "" if is_mapped else weights.name, threads)
    weights.unlink(missing_ok=True)
    model = onnx.load(str(path), load_external_data=False)
    places = [{e.key: e.value for e in t.external_data} for t in model.graph.initializer]
    make_hole(weights, sum(int(place.get("length", 0)) + _PAGE_BYTES for place in places))
    outputs = tuple([info.name for info in model.graph.output])
    parsed = parse(model)
    made = dict.fromkeys([out for node in parsed.nodes for out in node.outputs if out])
    model.graph.output.extend([ValueInfoProto(name=out) for out in made if out not in outputs])
    source.write_bytes(model.SerializeToString())
    types = runtime_types(str(source))
    if any(node.op == "Einsum" for node in parsed.nodes):  # the engine infers no stretched sizes
        types |= {name: network.types[name] for name in types.keys() & network.types.keys()}
    frame = Frame(opsets_of(model), {}, outputs, {})
    known: dict[str, Known] = {**types, **parsed.tensors}
    if not known.keys() >= made.keys():  # what the engine wrote out of a function of ONNX
        fed: dict[str, Known] = {n: t for n, t in known.items() if n not in made}
        way = walk(parsed.nodes, fed, frame, types)
        known |= {name: type_of(v) for name, v in way.known.items() if name in made}
    way = Walk(frame, known, parsed.inputs, outputs, [*parsed.nodes])
    made_of = _assembled(network.name, way)
    nodes = list(made_of.nodes)
    for place, node in enumerate(nodes):
        if node.qualified_op == "com.microsoft::Gelu":  # one kernel runs it and ONNX's own
            nodes[place] = replace(node, domain="", version=20)
    return replace(made_of, nodes=tuple(nodes))


def network_of(parsed: Parsed, name: str, batch: int | None, shapes: Shapes) -> Network:
    """The network with every size bound; NetworkError says what is wrong or missing."""
    frame = parsed.bound(batch, shapes)
    rebinding = _rebinding(parsed, frame)
    if rebinding is not None:
        frame = replace(frame, stated={})
    try:
        network = _network(parsed, name, frame, batch, rebinding)
        if rebinding is None:
            return network
        rebinding.check(network)
    except Misfit as error:
        raise NetworkError(_why(parsed, frame, rebinding, error)) from error
    return replace(network, rebound=tuple(dict.fromkeys(rebinding.changed)))


def _why(parsed: Parsed, frame: Frame, rebinding: Rebinding | None, error: Misfit) -> str:
    """Why sizes do not fit: they are not at hand, or not the file's, or as the error says."""
    if elsewhere := parsed.sizes_elsewhere:
        tensor = next((name for name in elsewhere if name in str(error)), next(iter(elsewhere)))
        fix = "save the model with small tensors inside (onnx.save_model(..., size_threshold=1024))"
        why = f"the sizes {tensor!r} lie in {elsewhere[tensor]!r}, and external data are not read"
        return f"{why}: {fix}"
    own = _own(parsed, frame)
    if is_free := own == frame:
        own = _own(parsed, frame, traced=1)
    changed = [name for name, type_ in own.inputs.items() if type_ != frame.inputs[name]]
    batches = sorted({frame.inputs[name].shape[0] for name in changed})
    if is_free and len(batches) > 1:
        shown = " and ".join(map(str, batches))
        return f"the inputs have the batches {shown}, which do not fit together: give them one"
    with contextlib.suppress(NetworkError):
        if changed and _network(parsed, "", own, None):
            where = re.search(r"\w+ '[^']*'", str(error))
            name, again = changed[0], "these sizes or dynamic axes"
            fixed = f"made for {name} of {own.inputs[name]}, not {frame.inputs[name]}"
            if rebinding is not None or is_free:
                batch = "1 behind its input" if rebinding is None else rebinding.old
                fixed, again = f"fixed to batch {batch}", "a free batch dimension"
            return f"the file is {fixed} ({where and where[0]}): export it again with {again}"
    return str(error)


def _own(parsed: Parsed, frame: Frame, traced: int = 0) -> Frame:
    """The frame with the sizes that the file fixes, and the batch ``traced`` where it is free."""
    types = dict(frame.inputs)
    for name, type_ in types.items():
        sizes = zip(parsed.input_sizes[name] or type_.shape, type_.shape, strict=True)
        shape = [own if own and own > 0 else bound for own, bound in sizes]
        if traced and shape and not (parsed.input_sizes[name] or (1,))[0]:
            shape[0] = traced
        types[name] = type_._replace(shape=tuple(shape))
    return replace(frame, inputs=types)


def _rebinding(parsed: Parsed, frame: Frame) -> Rebinding | None:
    """What changes with the batch; None where it is the file's own, or is free."""
    own = _own(parsed, frame)
    change = batch_change(own.inputs, frame.inputs)
    if change is None:
        return None
    try:
        way = _way(parsed, own)
        way = way.again(way.engine_types()) if way.open else way
        return Rebinding(way.known, *change, frame.stated, frozenset(stepped(way.kept)))
    except NetworkError:
        return None


def _way(parsed: Parsed, frame: Frame, rebinding: Rebinding | None = None) -> Walk:
    start: dict[str, Known] = {**frame.inputs, **parsed.tensors}
    try:
        return walk(parsed.nodes, dict(start), frame, rebinding=rebinding)
    except OutOfOrder:
        return walk(in_order(parsed.nodes, start), dict(start), frame, rebinding=rebinding)


def _network(
    parsed: Parsed, name: str, frame: Frame, batch: int | None, rebinding: Rebinding | None = None
) -> Network:
    way = _way(parsed, frame, rebinding)
    if rebinding is not None and way.open:  # constants behind what onnx does not know change too
        way = way.again({}, rebinding)
        way = way.again(rebinding.grown(), rebinding) if way.open else way
    is_open = None in way.known.values()
    if is_open:
        # Sizes may depend on no data though something before them does.
        model = way.model
        with contextlib.suppress(NetworkError):
            model, _ = inferred(model)
        way = way.again(types_of((*model.graph.output, *model.graph.value_info)))
        way.leave_out()
    flow = [n for n in way.kept if n.op in CONTROL_FLOW and not n.domain]
    if flow:
        why = "is not read step by step: export it unrolled, or as LSTM, GRU or RNN"
        if flow[0].op == "If":
            why = "depends on data, and so does its latency: export it with the branch fixed"
        raise NetworkError(f"its control flow ({flow[0].op} {flow[0].name!r}) {why}")
    objections = [way.objections[n.name] for n in way.kept if n.name in way.objections]
    if objections or (is_open and way.open):
        types = way.engine_types()
        way = way.again(types)
        if objections and (not types or way.open):
            raise refusal(objections[0])
        if objections:
            _log.info("onnx objects, ONNX Runtime does not: %s", objections[0])
    network = _assembled(name, way)
    if way.fresh or way.has_other_types:
        check_network(network, batch)
        check_odd(way)
    if network.weight_bytes > MAX_WEIGHT_BYTES:
        raise NetworkError(f"{network.weight_bytes / 1e9:.3g} GB of weights is absurdly large")
    way.remember()
    return network


def _assembled(label: str, way: Walk) -> Network:
    known, opsets = way.known, dict(way.frame.opsets)
    types = {name: t for name in way.inputs if isinstance(t := known.get(name), TensorType)}
    keeps, made = dict[str, bool](), list[Node]()
    for node in way.kept:
        for source in node.inputs:
            value = known.get(source)
            if type(value) is Value and keeps.get(source) is not False:
                keeps[source] = is_number(node.op, value.type)
        for out in filter(None, node.outputs):
            type_ = known.get(out)
            if type(type_) is not TensorType:
                raise Misfit(_no_shape(node, out, opsets.get("", 1)))
            types[out] = type_
        made.append(node_of(node, opsets.get(node.domain, 1)))
    ends = tuple([name for name in dict.fromkeys(way.outputs) if name in types])
    if not ends or not made:
        raise NetworkError("it computes nothing but constants: export it with an input")
    pairs = [(name, known[name], keep) for name, keep in keeps.items()]
    constants = {n: constant_of(v, keep) for n, v, keep in pairs if isinstance(v, Value)}
    parts = tuple(made), way.inputs, ends, types, constants, tuple(way.folded)
    stated = [node for node in way.kept if node.drops_bias is not None]
    zeros = tuple([node.name for node in stated if node.drops_bias]) if stated else None
    return written(Network(label, *parts, left_out=way.left_out, zero_biases=zeros))


def _no_shape(node: FileNode, tensor: str, opset: int) -> str:
    if not node.domain and node.op in DATA_DEPENDENT:
        why = f"the shape of {tensor!r} depends on data ({node.op} {node.name!r})"
        return f"{why}: export the network without what comes after it, its post-processing"
    schema = schema_of(node.op, node.domain, newest := onnx.defs.onnx_opset_version())
    if not node.domain and schema and schema_of(node.op, "", opset) is None:
        first = next(s for s in range(opset, newest + 1) if schema_of(node.op, "", s))
        why = f"ONNX has {node.op} ({node.name!r}) from operator set {first} on"
        return f"{why}, and the file is of set {opset}: export it again with set {first} or later"
    if not node.domain and schema is None:
        return (
            f"ONNX has no operator {node.op} ({node.name!r}), as exporters write what they cannot "
            "convert: use another exporter or other layers, or, if your engine has a plug-in of "
            f"this name, state the shape of {tensor!r} in the file's value_info"
        )
    if schema and not any(type_.startswith("tensor") for type_ in schema.outputs[0].types):
        return f"{node.op} {node.name!r} makes no tensor: export the network with tensors alone"
    where = stated = ""
    if node.domain:  # of ONNX's own operators nothing stated counts
        where, stated = f" of the domain {node.domain!r}", "state it in the file's value_info, or "
    return (
        f"the shape of {tensor!r}, made by {node.op} {node.name!r}{where}, cannot be worked "
        f"out, neither by onnx nor by ONNX Runtime: {stated}export with fixed sizes"
    )
