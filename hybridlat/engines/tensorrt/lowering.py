"""TensorRT's kernels by its table of fusion rules, for a target's version and precision."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from hybridlat.engines.fusion.groups import lowered_of
from hybridlat.engines.fusion.precision import in_half_precision
from hybridlat.engines.fusion.rewriter import apply, in_force, unknown_operators
from hybridlat.engines.tensorrt.fusion_rules import RULES
from hybridlat.graph.network import Lowered, Network
from hybridlat.schema.target import Target


def lower(network: Network, target: Target) -> Lowered:
    """The kernels TensorRT makes of ``network`` at the target's version and precision.

    The kernels keep the file's types, so that a cell is the same cell at every precision.
    Operators that no rule names stay kernels of their own, and the warnings name them.
    """
    typed = in_half_precision(network) if target.precision == "fp16" else network
    groups = apply(typed, RULES, target.version)
    return lowered_of(network, groups, f"rules {target.runtime}", unknown_operators(network, RULES))


def identity(target: Target) -> str:
    """The rules and what they ask of a target."""
    held = in_force(RULES, target.version)
    return f"rules-{_rules_hash()}/{target.engine}/{held}/{target.precision}"


@cache
def _rules_hash() -> str:
    """Of the rules' table and of the conditions' code: both decide."""
    from hybridlat.engines.tensorrt import convolution_predicates, fusion_rules, predicates

    files = (fusion_rules.__file__, predicates.__file__, convolution_predicates.__file__)
    text = b"".join(Path(file).read_bytes() for file in files)
    return hashlib.sha256(text).hexdigest()[:16]
