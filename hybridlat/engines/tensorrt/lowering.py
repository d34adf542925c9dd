"""TensorRT's kernels by its table of fusion rules, for a target's version and precision.

Paddle Inference with TensorRT runs the same kernels. Published tables name the version of TensorRT
where they know it (``paddle-tensorrt-8.0``), else the year of the measurement or of the container.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache
from pathlib import Path

from hybridlat.engines.fusion import precision
from hybridlat.engines.fusion.groups import lowered_of
from hybridlat.engines.fusion.precision import in_half_precision, without_quantisation
from hybridlat.engines.fusion.rewriter import apply, in_force, unknown_operators
from hybridlat.engines.tensorrt import convolution_predicates, fusion_rules, predicates
from hybridlat.engines.tensorrt.fusion_rules import RULES
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.operators import is_quantised
from hybridlat.schema.target import Target

TENSORRT_OF_PADDLE = {"2020": "6.0", "2021": "8.0", "ngc": "8.0"}
"""The TensorRT that a version which is no TensorRT's stands for, by the releases of that time."""


def lower(network: Network, target: Target) -> Lowered:
    """The kernels TensorRT makes of ``network`` at the target's version and precision.

    The kernels keep the file's types, so that a cell is the same cell at every precision; those of
    a quantised file are the kernels of the network that was quantised.
    Operators that no rule names stay kernels of their own, and the warnings name them.
    """
    target = _as_tensorrt(target)
    plain, kept = without_quantisation(network)
    typed = in_half_precision(plain) if target.precision == "fp16" else plain
    groups = apply(typed, RULES, target.version)
    unknown = _unknown(plain)
    lowered = lowered_of(plain, groups, f"rules {target.runtime}", unknown)
    if len(kept) == len(network.nodes):
        return lowered
    origins = tuple(tuple(kept[i] for i in found) for found in lowered.origins)
    removed = {*range(len(network.nodes))}.difference(*origins)
    return replace(lowered, origins=origins, removed=tuple(sorted(removed)))


def _as_tensorrt(target: Target) -> Target:
    """The target with TensorRT itself as its runtime."""
    if target.engine != "paddle-tensorrt":
        return target
    version = TENSORRT_OF_PADDLE.get(target.version, target.version)
    return replace(target, runtime=f"tensorrt-{version}" if version else "tensorrt")


def _unknown(network: Network) -> tuple[str, ...]:
    """Warnings of operators that no rule names, one for all that TensorRT does not even read."""
    refused = [node.qualified_op for node in network.nodes if is_quantised(node.op)]
    warnings = unknown_operators(network, RULES)
    if not refused:
        return warnings
    others = [w for w in warnings if not any(f" {op} " in w for op in refused)]
    return (
        *others,
        f"TensorRT reads no {refused[0]}, one of {len(refused)} such operators of this file: write "
        "it with QuantizeLinear and DequantizeLinear (QDQ) instead; each is taken for a kernel",
    )


def identity(target: Target) -> str:
    """The rules and what they ask of a target."""
    target = _as_tensorrt(target)
    held = in_force(RULES, target.version)
    return f"rules-{_rules_hash()}/{target.engine}/{held}/{target.precision}"


@cache
def _rules_hash() -> str:
    """Of the rules' table and of the conditions' code: both decide."""
    modules = (fusion_rules, predicates, convolution_predicates, precision)
    files = [str(module.__file__) for module in modules]
    text = b"".join(Path(file).read_bytes() for file in files)
    return hashlib.sha256(text).hexdigest()[:16]
