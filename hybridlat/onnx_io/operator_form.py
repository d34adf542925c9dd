"""The part of a network's normal form that lies with one operator; see ``graph.forms``."""

import functools
import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import numpy as np
import onnx

from hybridlat.graph.network import AttributeValue, Node
from hybridlat.graph.operators import SET, named
from hybridlat.onnx_io.values import schema_of

_USUAL = {"output_padding": 0, "dilations": 1, "strides": 1, "pads": 0}
"""Sizes of windows that say nothing where all of them are this."""
_WINDOWS = {"auto_pad": "NOTSET", "group": 1} | dict.fromkeys(
    ("ceil_mode", "storage_order", "count_include_pad"), 0
)
_OF_WINDOWS = named("Conv FusedConv ConvTranspose MaxPool AveragePool LpPool")
"""Operators with these defaults, outside ONNX's own domain too, where no schema states them."""
_DROPPED = dict.fromkeys(("Conv", "ConvTranspose", "FusedConv"), named("kernel_shape"))
_DROPPED |= {"Dropout": named("seed"), "Cast": named("saturate round_mode")}
_DROPPED["BatchNormalization"] = named("epsilon momentum spatial")
"""What shapes say as well, and what no engine's time hangs on."""
_SMALL, _CUT_OFF = 64, 1e-5  # a denominator; the share of a number behind its fifth digit


def local_form(node: Node) -> Node:
    """The operator with its plain version, and attributes that decide something.

    Those at the defaults that its operator set states are left out already.
    """
    dropped, inputs = _DROPPED.get(node.op, ()), node.inputs
    kept = [(name, value) for name, value in node.attributes if name not in dropped]
    telling = [pair for pair in kept if not _says_nothing(node.op, *pair)]
    attributes = tuple([(n, _rounded(v) if isinstance(v, float) else v) for n, v in telling])
    while inputs and not inputs[-1]:
        inputs = inputs[:-1]
    is_own = not node.domain
    version = plain_version(node.op, node.version, dict(attributes)) if is_own else node.version
    return replace(node, attributes=attributes, version=version, inputs=inputs)


def _says_nothing(op: str, name: str, value: AttributeValue) -> bool:
    if isinstance(value, tuple):
        return name in _USUAL and set(value) <= {_USUAL[name]}
    return op in _OF_WINDOWS and _WINDOWS.get(name) == value


@functools.cache
def _rounded(value: float) -> float:
    """A number that is a ratio of small ones but for what an exporter cut off: 0.1666667 is 1/6."""
    if not abs(value) < _SMALL:  # infinite, or no number at all
        return value
    ratio = float(np.float32(Fraction(value).limit_denominator(_SMALL)))
    return ratio if math.isclose(value, ratio, rel_tol=_CUT_OFF) else value


_MEANINGS = dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), (1, 13))
_MEANINGS |= {"GroupNormalization": (18, 21), "Upsample": (7, 9), "Resize": (10, 13)}
_MEANINGS |= {"RoiAlign": (10, 16), "DFT": (17, 20), "OptionalGetElement": (15, 18)}
"""The sets in which each meaning of an operator with several began."""
_ADDED = {
    "AveragePool": ("dilations",), "LpPool": ("dilations", "ceil_mode"),
    "Cast": ("round_mode", "saturate"), "CastLike": ("round_mode", "saturate"),
    "QuantizeLinear": ("block_size", "output_dtype", "precision", "saturate"),
    "DequantizeLinear": ("block_size", "output_dtype"), "Range": ("stash_type",),
    "Resize": ("antialias", "axes", "keep_aspect_ratio_policy"), "SpaceToDepth": ("mode",),
}  # fmt: skip
"""Attributes that came after set 17; what they say by default is what set 17 does."""
_ADDED_VALUES = {"Pad": {"wrap"}, "Resize": {"half_pixel_symmetric"}}
_ADDED_VALUES |= {op: {"max", "min"} for op in ("ScatterElements", "ScatterND")}


def plain_version(op: str, version: int, attributes: Mapping[str, object]) -> int:
    """The version by which networks name an operator of ONNX's own: equal for equal meanings.

    It is that of set 17, or the first after it. Later sets changed few meanings, and what they
    added is kept where a file uses it. ``version`` is the set in which the file's form began,
    ``attributes`` are those not at their defaults. What set 17 cannot say keeps its version.
    """
    if version > SET:
        values = {value for value in attributes.values() if isinstance(value, str)}
        is_new = not set(_ADDED.get(op, ())).isdisjoint(attributes)
        if is_new or not values.isdisjoint(_ADDED_VALUES.get(op, ())):
            return version
    if op in _MEANINGS:
        first, second = _MEANINGS[op]
        return second if version >= (11 if op == "Resize" else second) else first
    sets = range(SET, onnx.defs.onnx_opset_version() + 1)
    known = filter(None, (schema_of(op, "", later) for later in sets))
    return next((schema.since_version for schema in known), 13)
