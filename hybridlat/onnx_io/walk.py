"""One way through the operators of a file: what each makes of its inputs, in order.

What an operator makes of inputs of these types and values is worked out once for all networks:
those of a search space share most of their operators.
"""

import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from onnx import ModelProto, helper

from hybridlat.errors import NetworkError
from hybridlat.graph.network import TensorType
from hybridlat.graph.operators import SMALL_ELEMENTS, contracts, named
from hybridlat.onnx_io.checks import Misfit
from hybridlat.onnx_io.infer import results_of, rounded
from hybridlat.onnx_io.isolation import ask
from hybridlat.onnx_io.nodes import FileNode, is_cut, part, taken
from hybridlat.onnx_io.rebind import Rebinding
from hybridlat.onnx_io.shapes import Frame, Opsets, model_of, runtime_types, with_fed_weights
from hybridlat.onnx_io.values import MOST_BYTES, Known, Value, data_type, type_of

DATA_DEPENDENT = named("NonZero NonMaxSuppression Unique Compress")
"""The sizes of their results depend on the data."""
_DECIDED = named(
    "Add Sub Mul Div Relu LeakyRelu PRelu Clip Sigmoid Tanh Erf Exp Log Pow Sqrt Neg Abs Min Max "
    "HardSwish HardSigmoid Softmax LogSoftmax BatchNormalization LayerNormalization Conv Gemm "
    "MatMul Einsum AveragePool GlobalAveragePool GlobalMaxPool MaxPool Concat Slice Split Gather "
    "Pad Resize Transpose Reshape Flatten Squeeze Unsqueeze Expand Tile Cast Identity Dropout "
    "Where Equal Greater Less Not And Or Reciprocal Floor Ceil Softplus Elu ReduceMean ReduceSum "
    "ReduceMax ReduceL2 TopK QuantizeLinear DequantizeLinear Range Constant Shape"
)
"""What onnx's own inference refuses where it is broken; of all else an engine is asked."""
Key = tuple[object, ...]
"""Operator sets, operator, inputs, and of each output whether it is there and stated."""
Outcome = tuple[bool, tuple[Known, ...]]
"""Whether the operator is folded, and its results."""
remembered: dict[Key, Outcome] = {}
MOST_REMEMBERED = 100_000
_log = logging.getLogger(__name__)


class OutOfOrder(NetworkError):
    """An operator reads what has not been made, or makes what there is."""


@dataclass(slots=True)
class Walk:
    """A way through the operators: what is kept, the names of what is folded, and what is known.

    ``known`` is None for a tensor of unknown type; ``objections`` are onnx's by operator, ``fresh``
    what may be remembered once it is checked, ``odd`` what an engine tries, one of those that are
    equal; with ``has_other_types`` some came from elsewhere. ``left_out`` are names and operators
    of what depends on data, see ``leave_out``.
    """

    frame: Frame
    known: dict[str, Known]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    kept: list[FileNode] = field(default_factory=list)
    folded: list[str] = field(default_factory=list)
    objections: dict[str, str] = field(default_factory=dict)
    fresh: dict[Key, Outcome] = field(default_factory=dict)
    odd: dict[Key, tuple[FileNode, Sequence[Known]]] = field(default_factory=dict)
    has_other_types: bool = False
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def open(self) -> bool:
        """Whether an operator that is kept makes a tensor of unknown type."""
        return any(self.known[o] is None for node in self.kept for o in node.outputs if o)

    @property
    def model(self) -> ModelProto:
        """What is kept, with all results as outputs."""
        return model_of([node.proto() for node in self.kept], self.known, self.frame.opsets)

    def remember(self) -> None:
        """Keep what operators make, once that is known to be right."""
        if len(remembered) > MOST_REMEMBERED:
            remembered.clear()
        remembered.update(self.fresh)

    def again(self, types: Mapping[str, TensorType], rebinding: Rebinding | None = None) -> "Walk":
        """The way through what is kept, with these types of what is unknown here."""
        made = {out for node in self.kept for out in node.outputs}
        known = {name: value for name, value in self.known.items() if name not in made}
        way = walk(self.kept, known, self.frame, types, rebinding)
        way.folded[:0] = self.folded
        way.inputs, way.outputs, way.left_out = self.inputs, self.outputs, self.left_out
        return way

    def engine_types(self) -> dict[str, TensorType]:
        """ONNX Runtime's types of all results that it can say; none where it refuses the operators.

        The engine writes a tensor of unknown rank like a scalar. A scalar counts where its
        operator, one that onnx does not know, reads nothing else.
        """
        typed = {name: type_of(value) for name, value in self.known.items()}
        scalars = {name for name, type_ in typed.items() if type_ is not None and not type_.shape}
        for node in self.kept:
            if node.domain and scalars.issuperset(node.inputs):
                scalars.update(node.outputs)
        fed = replace(self, known=with_fed_weights(self.known))
        try:
            types = runtime_types(fed.model.SerializeToString())
        except NetworkError as error:
            _log.debug("%s", error)
            return {}
        return {name: type_ for name, type_ in types.items() if type_.shape or name in scalars}

    def leave_out(self) -> None:
        """Take out the operators whose sizes depend on data, and all of unknown sizes behind them.

        Control flow and arithmetic with a few numbers behind them go as well. The rest has as
        inputs what it reads of those that went, and as outputs what those read. Nothing happens
        where nothing else would stay.
        """
        known, gone = self.known, dict[str, str]()
        unknown, lost, read_by_gone = set[str](), set[str](), list[str]()
        kept = []
        for node in self.kept:
            results = {out: known[out] for out in node.outputs if out}
            starts = not node.domain and node.op in DATA_DEPENDENT and None in results.values()
            read = {name for name in node.reads if isinstance(known.get(name), TensorType)}
            types = [type_ for type_ in results.values() if isinstance(type_, TensorType)]
            is_small = all(type_.elements <= SMALL_ELEMENTS for type_ in types)
            follows = bool(lost & read) and (node.has_graph or (lost >= read and is_small))
            if starts or follows or unknown.intersection(node.reads):
                gone[node.name] = node.op
                read_by_gone += node.reads
                lost.update(results)
                unknown.update(out for out, type_ in results.items() if type_ is None)
            else:
                kept.append(node)
        made = {out for node in kept for out in node.outputs if out}
        ends = [name for name in self.outputs if name not in lost]
        ends += [name for name in read_by_gone if name in made]
        if gone and not made.isdisjoint(ends):
            fed = dict.fromkeys([r for node in kept for r in node.reads if r in lost])
            self.kept, self.inputs = kept, self.inputs + tuple(fed)
            self.outputs, self.left_out = tuple(dict.fromkeys(ends)), tuple(gone.items())


def walk(
    nodes: Sequence[FileNode],
    known: dict[str, Known],
    frame: Frame,
    engine: Mapping[str, TensorType] | None = None,
    rebinding: Rebinding | None = None,
) -> Walk:
    """Look at each operator; ``engine`` are an engine's types of what is unknown here."""
    way = Walk(frame, known, tuple(frame.inputs), frame.outputs, has_other_types=engine is not None)
    elsewhere = {**frame.stated, **(engine or {})}
    known[""] = TensorType("", ())  # an input that is left out
    opsets, kept, folded, value_of = frame.opsets, way.kept, way.folded, known.get
    waiting, cuts = list(reversed(nodes)), dict[str, FileNode]()
    while waiting:
        node = waiting.pop()
        if node.op == "SplitToSequence" and is_cut(node, nodes, frame.outputs):
            cuts[node.outputs[0]] = node
            folded.append(node.name)
            continue
        if cuts and (cut := cuts.get("".join(node.inputs[:1]))) is not None:
            cuttings, constants = part(node, cut, known)
            known.update(constants)
            waiting += cuttings
            continue
        if node.has_graph and (inner := taken(node, known)):
            folded.append(node.name)
            known.update(inner[1])
            waiting += reversed(inner[0])
            continue
        if rebinding is not None:
            node = rebinding.adapt(node, known)
        if node.op in ("Resize", "Upsample"):
            known.update(rounded(node, known))
        is_usual = not elsewhere and "" not in node.outputs
        made = () if is_usual else tuple([elsewhere.get(o, bool(o)) for o in node.outputs])
        key = (opsets, node.structure, made, *map(value_of, node.inputs))
        outcome = remembered.get(key) or way.fresh.get(key)
        if outcome is None:
            outcome = _outcome(node, key, way, elsewhere)
        is_folded, results = outcome
        if is_folded:
            folded.append(node.name)
        else:
            kept.append(node)
        for out, result in zip(node.outputs, results, strict=True):
            if out not in known:
                known[out] = result
            elif out:
                raise OutOfOrder(f"the tensor {out!r} is made by two operators: export it again")
    if missing := sorted(set(frame.outputs).difference(known)):
        raise OutOfOrder(f"the output {missing[0]!r} is made by no operator: export it again")
    del known[""]
    return way


MOST_TRIED = 1 << 31
"""Multiplications of an operator that is run."""
_REFUSES = re.compile(r"InferenceError\]|during initialization|while running \w+ node")
# An Attention's mask may be shorter than padded keys, which ONNX Runtime 1.32 does not know yet.
_LACKS = re.compile(r"implement|support|alloc|memory|total_sequence_length", re.IGNORECASE)
_PLACES = re.compile(
    r"Message: |initialization: |false\. (?=\S)|(?:Error|= \w+)\] |:\d+ |\) const "
)


def _outcome(node: FileNode, key: Key, way: Walk, elsewhere: Mapping[str, TensorType]) -> Outcome:
    known, opsets = way.known, way.frame.opsets
    if missing := sorted(set(node.inputs).difference(known)):
        where = f"{node.op} {node.name!r}"
        raise OutOfOrder(f"{where} reads the tensor {missing[0]!r}, which nothing makes")
    inputs = [known[source] if source else None for source in node.inputs]
    stated = tuple([elsewhere.get(out) for out in node.outputs])
    if any(value is None for source, value in zip(node.inputs, inputs, strict=True) if source):
        return False, stated
    results, objection = results_of(node, inputs, opsets, stated)
    lacks = any(out and result is None for out, result in zip(node.outputs, results, strict=True))
    if lacks and way.has_other_types and node.domain and not node.has_graph:
        types, _ = _tried(node, inputs, opsets)
        left = iter(types)
        results = tuple([next(left, None) if out else None for out in node.outputs])
    outcome = any(isinstance(result, Value) for result in results), results
    if not (outcome[0] or node.domain or node.has_graph or node.op in _DECIDED):
        way.odd[key] = node, inputs
    if objection:
        way.objections[node.name] = objection
    values = [value for value in (*inputs, *results) if isinstance(value, Value)]
    is_known = all(results[i] is not None for i, out in enumerate(node.outputs) if out)
    is_light = all(len(value.data) <= MOST_BYTES for value in values)
    if is_known and is_light and not objection and not any(stated):
        way.fresh[key] = outcome
    return outcome


def check_odd(way: Walk) -> None:
    """Misfit for what ONNX Runtime refuses to load or run, of what onnx does not look at."""
    for node, inputs in way.odd.values():
        if words := _tried(node, inputs, way.frame.opsets)[1]:
            why = f"ONNX Runtime refuses {node.op} {node.name!r} ({words})"
            raise Misfit(f"{why}: export the network again, or give other sizes with --shape")


def _tried(
    node: FileNode, inputs: Sequence[Known], opsets: Opsets
) -> tuple[Sequence[TensorType], str]:
    """The types of its results on zeros and on numbers that differ, where those are the same.

    Or why the engine refuses it. What takes more than about a second is loaded alone.
    """
    fed, feeds = with_fed_weights(dict(zip(node.inputs, inputs, strict=True))), {}
    for name, type_ in fed.items():
        if name and isinstance(type_, TensorType):
            dtype = helper.tensor_dtype_to_np_dtype(data_type(type_.dtype))
            feeds[name] = (np.dtype(dtype).name, type_.shape)
    shapes = [shape for _, shape in feeds.values()]
    most = max(map(math.prod, shapes), default=0)
    work = most * (math.prod(shapes[0][:-1]) if contracts(node.op) and shapes else 100)
    model = model_of([node.proto()], fed, opsets).SerializeToString()
    is_run = work < MOST_TRIED or node.domain
    answer = ask("onnxruntime", model, "", "", 1, feeds if is_run else {}) or {}
    words = " ".join(answer.get("error", "").split())
    if _REFUSES.search(words) and not _LACKS.search(words):
        return (), _PLACES.split(words)[-1]
    first, second = (*answer.get("made", ()), (), ())[:2]
    types = [TensorType(dtype.replace("object", "string"), tuple(shape)) for dtype, shape in first]
    return types if first == second else (), ""
