"""The normal form of a network: one spelling for what exporters and operator sets write otherwise.

Operators are in the words of operator set 17 (``operators``), axes count from the front, sizes that
follow from shapes are written out, and what does nothing at inference is gone (``forms``). Every
engine runs a network and its normal form alike; what only some engines do alike is theirs to say.
Each constant has one reader, since sharing is an exporter's choice.
"""

from __future__ import annotations

from dataclasses import replace

from hybridlat.graph.forms import FORMS
from hybridlat.graph.network import AttributeValue, Network, Node
from hybridlat.graph.operators import plain_version
from hybridlat.graph.writing import Writing

_USUAL = {"output_padding": 0, "dilations": 1, "strides": 1, "pads": 0}
"""Sizes of windows that say nothing where all of them are this."""
_WINDOWS = {
    "auto_pad": "NOTSET", "group": 1, "ceil_mode": 0, "storage_order": 0, "count_include_pad": 0,
}  # fmt: skip
_OF_WINDOWS = frozenset({"Conv", "FusedConv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool"})
"""Operators with these defaults, outside ONNX's own domain too, where no schema states them."""
_DROPPED = {
    "Conv": ("kernel_shape",), "ConvTranspose": ("kernel_shape",), "FusedConv": ("kernel_shape",),
    "BatchNormalization": ("epsilon", "momentum", "spatial"), "Dropout": ("seed",),
    "Cast": ("saturate", "round_mode"),
}  # fmt: skip
"""What shapes say as well, and what no engine's time hangs on."""


def local_form(node: Node) -> Node:
    """An operator's own part of the normal form: its version, and attributes that say something.

    Those at the defaults that its operator set states are left out already.
    """
    dropped = _DROPPED.get(node.op, ())
    kept = [(name, value) for name, value in node.attributes if name not in dropped]
    attributes = tuple([pair for pair in kept if not _says_nothing(node.op, *pair)])
    version = node.version
    if not node.domain:
        version = plain_version(node.op, version, dict(attributes))
    inputs = node.inputs
    while inputs and not inputs[-1]:
        inputs = inputs[:-1]
    if (attributes, version, inputs) == (node.attributes, node.version, node.inputs):
        return node
    return replace(node, attributes=attributes, version=version, inputs=inputs)


def _says_nothing(op: str, name: str, value: AttributeValue) -> bool:
    if isinstance(value, tuple):
        return name in _USUAL and set(value) <= {_USUAL[name]}
    return op in _OF_WINDOWS and _WINDOWS.get(name) == value


def written(network: Network) -> Network:
    """The normal form of a network whose operators have theirs (``local_form``) already."""
    w = Writing(network)
    for node in network.nodes:
        if w.stands_for and not w.stands_for.keys().isdisjoint(node.inputs):
            node = replace(node, inputs=tuple([w.stands_for.get(i, i) for i in node.inputs]))
        form = None if node.domain else FORMS.get(node.op)
        (form or Writing.keep)(w, node)
    if len(w.views) > 1:
        w.join_views()
    for name in w.stands_for:
        del w.types[name]
    return replace(network, nodes=tuple(w.nodes), types=w.types, constants=w.constants)


def with_onnx_names(network: Network) -> Network:
    """A graph of ONNX Runtime with ONNX's name for a GELU of its own: one kernel runs both."""
    nodes = [
        replace(node, domain="", version=20)
        if (node.domain, node.op) == ("com.microsoft", "Gelu")
        else node
        for node in network.nodes
    ]
    return replace(network, nodes=tuple(nodes))
