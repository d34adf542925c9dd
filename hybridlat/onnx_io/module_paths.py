"""Where in the program an operator comes from: the module path that exporters leave behind.

PyTorch's newer exporter writes scopes beside each node, its older one and TensorFlow's converters
make them part of the node's name (``/layer3/layer3.0/conv1/Conv``), and what is left tells it by
the names of its weights (``layer3.0.conv1.weight``, ``fire3/squeeze1x1_w_0``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

SCOPES = "pkg.torch.onnx.name_scopes"
_NAME = re.compile(r"'([^'\\]*)'")
_LIST = re.compile(r"\[(?:'[^'\\]*'(?:, (?=')|(?=\])))*\]")
_PARAMETER = re.compile(
    r"[._/](?:weight|bias|kernel|gamma|beta|scale|running_mean|running_var|mean|var|w|b"
    r"|moving_mean|moving_variance|riv|rm)(?:_\d+|_(?:bias|scale|zero_point|quantized))*$"
)
_NUMBERED = re.compile(r"^(?:onnx::.*|[A-Za-z]{0,2}_?\d*)$")


def module_paths(model: ModelProto) -> tuple[str, ...]:
    """The dotted path of every node's module, in file order; empty where nothing tells it."""
    graph = model.graph
    weights = {tensor.name: tensor.name for tensor in graph.initializer}
    paths = []
    for node in graph.node:
        path = _from_scopes(node) or _from_name(node.name)
        named = [weights[name] for name in node.input if name in weights]
        if not path:
            path = next((module for module in map(_from_weight, named) if module), "")
        if node.op_type in ("ConstantOfShape", "Constant"):
            weights.update((out, out) for out in node.output)
        elif named and len(named) == sum(bool(name) for name in node.input):
            weights.update((out, named[0]) for out in node.output)  # cast, dequantised, transposed
        paths.append(path)
    return tuple(paths)


def _from_scopes(node: NodeProto) -> str:
    for entry in node.metadata_props:
        if entry.key == SCOPES:
            scopes = scopes_of(entry.value)
            return scopes[-2] if len(scopes) > 1 else ""  # the last is the operation itself
    return ""


def scopes_of(text: str) -> list[str]:
    """The modules around an operator and the operator, as PyTorch writes them: ``['', 'fc']``.

    Empty for what is written otherwise. The text comes from a file, so nothing evaluates it.
    """
    return _NAME.findall(text) if isinstance(text, str) and _LIST.fullmatch(text) else []


def _from_name(name: str) -> str:
    """``stages.0.blocks.1`` of ``/stages/stages.0/blocks/blocks.1/Add``."""
    modules: list[str] = []
    for part in name.strip("/").split("/")[:-1]:
        if modules and part.startswith(f"{modules[-1]}."):
            modules[-1] = part
        elif part:
            modules.append(part)
    return ".".join(modules)


def _from_weight(name: str) -> str:
    """``layer1.0.conv1`` of ``layer1.0.conv1.weight``; nothing of ``onnx::Conv_205``."""
    path, replaced = _PARAMETER.subn("", name)
    if not replaced or _NUMBERED.match(path):
        return ""
    return path.strip("/.").replace("/", ".")
