"""Where in the program an operator comes from: the module path that exporters leave behind.

PyTorch's newer exporter writes scopes beside each node, its older one and TensorFlow's converters
make them part of the node's name (``/layer3/layer3.0/conv1/Conv``), and what is left tells it by
the names of its weights (``layer3.0.conv1.weight``, ``fire3/squeeze1x1_w_0``).
"""

from __future__ import annotations

import ast
import re

from onnx import ModelProto, NodeProto

_SCOPES = "pkg.torch.onnx.name_scopes"
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
        if entry.key == _SCOPES:
            try:
                scopes = ast.literal_eval(entry.value)
            except (ValueError, SyntaxError):
                return ""
            # The last one is the operation itself.
            return str(scopes[-2]) if isinstance(scopes, list) and len(scopes) > 1 else ""
    return ""


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
