"""TensorRT's kernels by its table of fusion rules, for a target's version and precision.

Paddle Inference with TensorRT runs the same kernels. Published tables name the version of TensorRT
where they know it (``paddle-tensorrt-8.0``), else the year of the measurement or of the container.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from hybridlat.engines import device_sheets
from hybridlat.engines.fusion.forms import CONTRACTING, FORMS, PADS, biases, norms
from hybridlat.engines.fusion.groups import lowered_of, traced
from hybridlat.engines.fusion.patterns import Match, Pass, View
from hybridlat.engines.fusion.precision import in_floats, in_precision, narrow_weights
from hybridlat.engines.fusion.rules import apply, in_force, unknown_operators
from hybridlat.engines.tensorrt.fusion_rules import OWN, RULES, compiled
from hybridlat.errors import TargetError
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.operators import is_quantised
from hybridlat.schema.target import Target, version_key

_TENSORRT_OF_PADDLE = {"2020": "6.0", "2021": "8.0", "ngc": "8.0"}
"""The TensorRT that a version which is no TensorRT's stands for, by the releases of that time."""
_NEWEST = "10"
"""What a target means that names no version."""
_HALF = ("fp16", "bf16", "int8")
_NORMS = frozenset({"LayerNormalization", "RMSNormalization"})  # what a transformer is known by
_BEFORE_TURING = ("kepler", "maxwell", "pascal", "volta")
_FOREIGN = (
    "TensorRT compiles a network with layer normalisations into a ForeignNode or a few: its "
    "kernels are named nowhere, and stand here as TensorRT-RTX makes them"
)


def _folded_norms(v: View, places: Sequence[int]) -> Iterator[Match]:
    """A batch normalisation behind a convolution is in its weights, with a scale and a shift of it.

    A scale alone is a layer's, which stays behind a folded norm too.
    """
    for position in places:
        below = v.reader(position, "BatchNormalization")
        members = [position]
        while below is not None and len(v.data(below)) == 1:
            members.append(below)
            below = v.reader(below, "Mul", "Add")
        while v.nodes[members[-1]].op == "Mul":
            members.pop()
        if len(members) > 1:
            made = replace(v.nodes[position], outputs=v.nodes[members[-1]].outputs)
            yield Match(tuple(members), (made,))


def _parts(v: View, places: Sequence[int]) -> Iterator[Match]:
    """Each part of a Concat is a Concat of its own; those that stay are copies of one part."""
    for position in places:
        node, types = v.nodes[position], {}
        for place, name in enumerate(node.inputs):
            types[f"{node.outputs[0]}/part{place}"] = v.network.type_of(name)
        pairs = zip(node.inputs, types, strict=True)
        copies = [replace(node, name=made, inputs=(i,), outputs=(made,)) for i, made in pairs]
        yield Match((position,), (*copies, replace(node, inputs=tuple(types))), types)


_BUILT: tuple[Pass, ...] = (
    PADS,
    (frozenset({"Mul"}), norms),
    (CONTRACTING, _folded_norms),
    (CONTRACTING, biases),
)
"""What TensorRT's builder does besides."""
_PARTS: tuple[Pass, ...] = ((frozenset({"Concat"}), _parts),)
"""What classic TensorRT may copy: parts of Concats, one operator each."""


def lower(network: Network, target: Target) -> Lowered:
    """The kernels that TensorRT makes of ``network`` at the target's version and precision.

    They are those of the network in FP32, so that a cell is the same cell at every precision, be
    the file narrowed or quantised. The warnings name operators without a rule. NetworkError for a
    file that is quantised to anything but 8 bits.
    """
    warnings = narrow_weights(network)
    written, version = in_floats(network).then((*FORMS, *_BUILT)), _version(target)
    is_foreign = _compiles(version) and any(n.op in _NORMS for n in written.network.nodes)
    if is_foreign:
        region = frozenset(range(len(written.network.nodes)))
    else:
        written = written.then(_PARTS)
        region = compiled(written.network) if _compiles(version) else frozenset()
    plain = written.network
    whole = "int8" if target.precision == "int8" else "float16"
    typed = in_precision(plain, whole if _is_half(target) else "float32")
    groups = apply(typed, RULES, version, drops_dead=True, region=region)
    warnings += (*_unknown(network, plain), *([_FOREIGN] if is_foreign else ()))
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


def _unknown(file: Network, network: Network) -> tuple[str, ...]:
    """Warnings of operators that no rule names, one for all that TensorRT does not even read."""
    refused = [node.qualified_op for node in file.nodes if is_quantised(node.op)]
    warnings = unknown_operators(network, RULES, OWN)
    if not refused:
        return warnings
    is_left = any(is_quantised(node.op) for node in network.nodes)
    as_what = "each is taken for a kernel" if is_left else "the latency is as after that"
    return (
        *(w for w in warnings if not any(f" {op} " in w for op in refused)),
        f"TensorRT reads no {refused[0]}, one of {len(refused)} such operators of this file: write "
        f"it with QuantizeLinear and DequantizeLinear (QDQ) instead; {as_what}",
    )
