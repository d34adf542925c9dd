"""TensorRT's kernels by its table of fusion rules, for a target's version and precision.

Paddle Inference with TensorRT runs the same kernels. Published tables name the version of TensorRT
where they know it (``paddle-tensorrt-8.0``), else the year of the measurement or of the container.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from hybridlat.engines import device_sheets
from hybridlat.engines.fusion.forms import BUILT, FORMS, PARTS
from hybridlat.engines.fusion.groups import lowered_of, traced
from hybridlat.engines.fusion.patterns import Match, Rewritten, View
from hybridlat.engines.fusion.rules import apply, in_force, unknown_operators
from hybridlat.engines.tensorrt.fusion_rules import OWN, RULES, compiled
from hybridlat.errors import NetworkError, TargetError
from hybridlat.graph.network import Constant, Lowered, Network, Node, TensorType
from hybridlat.graph.operators import is_quantised
from hybridlat.schema.target import Target, version_key

_TENSORRT_OF_PADDLE = {"2020": "6.0", "2021": "8.0", "ngc": "8.0"}
"""The TensorRT that a version which is no TensorRT's stands for, by the releases of that time."""
# Inputs that ONNX types as float32 whatever the precision of the data: (operator, positions).
_ALWAYS_FLOAT32: Mapping[str, tuple[int, ...]] = {"Resize": (1, 2), "Upsample": (1,)}
_NEWEST = "10"
"""What a target means that names no version."""
_HALF = ("fp16", "bf16", "int8")
_NORMS = frozenset({"LayerNormalization", "RMSNormalization"})  # what a transformer is known by
_BEFORE_TURING = ("kepler", "maxwell", "pascal", "volta")
_LARGEST_HALF = 65504.0
_FOREIGN = (
    "TensorRT compiles a network with layer normalisations into a ForeignNode or a few: its "
    "kernels are named nowhere, and stand here as TensorRT-RTX makes them"
)
_FLOATS, _CODES = ("float32", "float16", "bfloat16"), (1, 10, 16)  # names of types, and ONNX's
_QUANTISERS = frozenset({"QuantizeLinear", "DequantizeLinear"})
_NARROW_FLOATS, _FOUR_BITS = ("float8", "float6", "float4"), ("int4", "uint4", "int2", "uint2")
_INTEGERS = ("int8", "uint8", "int16", "uint16")


def lower(network: Network, target: Target) -> Lowered:
    """The kernels that TensorRT makes of ``network`` at the target's version and precision.

    They keep the file's types, so that a cell is the same cell at every precision. A quantised file
    has those of the network that was quantised. The warnings name operators without a rule.
    NetworkError for one that is quantised to FP8 or to four bits.
    """
    warnings = narrow_weights(network)
    written, version = without_quantisation(network).then((*FORMS, *BUILT)), _version(target)
    is_foreign = _compiles(version) and any(n.op in _NORMS for n in written.network.nodes)
    if is_foreign:
        region = frozenset(range(len(written.network.nodes)))
    else:
        written = written.then(PARTS)
        region = compiled(written.network) if _compiles(version) else frozenset()
    plain = written.network
    whole = "int8" if target.precision == "int8" else "float16"
    typed = in_precision(plain, whole if _is_half(target) else "float32")
    groups = apply(typed, RULES, version, drops_dead=True, region=region)
    warnings += (*_unknown(plain), *([_FOREIGN] if is_foreign else ()))
    by = f"rules {_as_tensorrt(target).runtime}"
    return traced(lowered_of(plain, groups, by, warnings), written.origins, network)


def identity(target: Target) -> str:
    """The rules and what they ask of a target."""
    version, kernels = _version(target), "single"
    if _is_half(target):
        kernels = "int8" if target.precision == "int8" else "half"
    return f"rules/tensorrt/{in_force(RULES, version)}/{_compiles(version)}/{kernels}"


def _is_half(target: Target) -> bool:
    """Whether convolutions have the epilogues of half precision: from Turing on."""
    if target.precision not in _HALF or target.engine == "paddle-tensorrt":  # with plug-ins
        return False
    with suppress(TargetError):
        return device_sheets.of_target(target).architecture not in _BEFORE_TURING
    return True


def _version(target: Target) -> str:
    """The version whose rules hold."""
    version = _as_tensorrt(target).version
    return version if version_key(version) else _NEWEST


def _compiles(version: str) -> bool:
    """Whether the engine gives what it can to Myelin."""
    return version_key(version) >= version_key(_NEWEST)


def _as_tensorrt(target: Target) -> Target:
    if target.engine != "paddle-tensorrt":
        return target
    version = _TENSORRT_OF_PADDLE.get(target.version, target.version)
    return replace(target, runtime=f"tensorrt-{version}" if version else "tensorrt")


def _unknown(network: Network) -> tuple[str, ...]:
    """Warnings of operators that no rule names, one for all that TensorRT does not even read."""
    refused = [node.qualified_op for node in network.nodes if is_quantised(node.op)]
    warnings = unknown_operators(network, RULES, OWN)
    if not refused:
        return warnings
    return (
        *(w for w in warnings if not any(f" {op} " in w for op in refused)),
        f"TensorRT reads no {refused[0]}, one of {len(refused)} such operators of this file: write "
        "it with QuantizeLinear and DequantizeLinear (QDQ) instead; each is taken for a kernel",
    )


def in_precision(network: Network, dtype: str) -> Network:
    """The network with floats of one type, by which engines fuse; constants stay in its range."""
    code = 1 if dtype == "float32" else 10
    keep = {
        name
        for node in network.nodes
        for index in _ALWAYS_FLOAT32.get(node.op, ())
        for name in node.inputs[index : index + 1]
    }

    def typed(type_: TensorType) -> TensorType:
        return type_._replace(dtype=dtype) if type_.dtype in _FLOATS else type_

    def typed_constant(constant: Constant) -> Constant:
        values = constant.values
        if constant.type.dtype in _FLOATS and dtype == "float16" and values is not None:
            values = tuple([min(max(v, -_LARGEST_HALF), _LARGEST_HALF) for v in values])
        return Constant(typed(constant.type), values)

    def typed_cast(node: Node) -> Node:
        attributes = tuple(
            (k, code if k == "to" and v in _CODES else v) for k, v in node.attributes
        )
        return replace(node, attributes=attributes)

    return replace(
        network,
        nodes=tuple(typed_cast(node) if node.op == "Cast" else node for node in network.nodes),
        types={name: typed(type_) for name, type_ in network.types.items()},
        constants={
            name: constant if name in keep else typed_constant(constant)
            for name, constant in network.constants.items()
        },
    )


def narrow_weights(network: Network) -> tuple[str, ...]:
    """A warning of weights in four bits; NetworkError for what is else quantised below INT8."""
    fixed, stored = set(network.constants), ""
    for node in network.nodes:
        is_quantiser = node.op in _QUANTISERS
        is_fixed = fixed.issuperset(node.inputs[:1] if is_quantiser else filter(None, node.inputs))
        if is_fixed:
            fixed.update(node.outputs)
        for name in (*node.inputs[:1], *node.outputs[:1]) if is_quantiser else ():
            dtype = network.type_of(name).dtype
            if dtype.startswith(_NARROW_FLOATS) or (dtype in _FOUR_BITS and not is_fixed):
                raise NetworkError(
                    f"{network.name} is quantised to {dtype}, in which no target of TensorRT is "
                    "predicted: give the network before that, or one quantised to int8"
                )
            stored = dtype if dtype in _FOUR_BITS else stored
    return (f"weights are stored in {stored}: the latency is as before that",) * bool(stored)


def without_quantisation(network: Network) -> Rewritten:
    """The network as it was before it was quantised.

    Engines take the quantisers for notes of where to compute in whole numbers, and run none between
    two kernels that do.
    """
    whole = Rewritten.of(network)
    ops = frozenset([node.op for node in network.nodes])
    return whole if _QUANTISERS.isdisjoint(ops) else whole.then(((ops, _quantisers),))


def _quantisers(v: View, places: Sequence[int]) -> Iterator[Match]:
    """What quantises, dequantises, or arranges a weight that was stored in whole numbers."""
    stands_for: dict[str, str] = {}
    real_weights: set[str] = set()
    for position in places:
        node = v.nodes[position]
        source, made = node.inputs[0] if node.inputs else "", [out for out in node.outputs if out]
        is_quantiser = node.op in _QUANTISERS
        is_arranged = bool(real_weights.intersection(node.inputs)) and not any(
            name in v.types and name not in real_weights for name in node.inputs
        )
        if is_arranged or (is_quantiser and source in v.network.constants):
            real_weights.update(made)
            weights = {out: Constant(v.types[out]) for out in made}
            yield Match((position,), constants=weights, stands_for={out: out for out in made})
        elif is_quantiser:
            real = stands_for.get(source, source)
            if v.network.type_of(real).dtype not in _INTEGERS:  # else it is whole from outside
                stands_for[made[0]] = real
                yield Match((position,), stands_for={made[0]: real})
