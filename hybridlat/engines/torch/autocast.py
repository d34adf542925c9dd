"""Types under PyTorch's automatic mixed precision: which kernel computes in FP16, which in FP32.

The model's weights stay FP32 and are cast for every inference: a kernel's weights are left FP32
here, which says that their FP32 bytes are read. Activations are cast where an operator asks for
another type, in a kernel of its own (eager) or on the way (compiled). The lists of operators are
those of PyTorch's page on automatic mixed precision.
"""

from __future__ import annotations

from dataclasses import replace

from hybridlat.engines.fusion.groups import Groups
from hybridlat.engines.torch.module import Module
from hybridlat.graph.network import Network, Node, TensorType

HALF, FULL = "float16", "float32"
_HALF_OPS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "PRelu"})
_FULL_OPS = frozenset({
    "LayerNormalization", "InstanceNormalization", "GroupNormalization", "Softmax", "LogSoftmax",
    "Pow", "Exp", "Log", "ReduceSum", "ReduceL2", "Softplus", "Resize",
})  # fmt: skip
_OWN_PARAMETERS = frozenset({"BatchNormalization", "PRelu"})


def with_autocast(module: Module, groups: Groups, casts_apart: bool) -> tuple[Module, Groups]:
    """The module with the types that it computes in under autocast, and the same kernels.

    With ``casts_apart`` a cast of an activation is a kernel.
    """
    types = _types(module.network, groups)
    if casts_apart:
        return _with_casts(module, groups, types)
    _narrow(module.network, groups, types)
    return replace(module, network=replace(module.network, types=types)), groups


def _types(network: Network, groups: Groups) -> dict[str, TensorType]:
    """What each tensor is stored as under autocast."""
    wanted = _wanted(network, groups)
    types = dict(network.types)
    for position, node in enumerate(network.nodes):
        for out in node.outputs:
            if out and types[out].dtype == FULL:
                element_type = wanted.get(position) or _widest(network, node, types)
                types[out] = types[out]._replace(dtype=element_type)
    return types


def _wanted(network: Network, groups: Groups) -> dict[int, str]:
    """The type that autocast demands of an operator, by what its kernel stands for."""
    wanted: dict[int, str] = {}
    for kernel in groups.kernels:
        ops = {network.nodes[i].op for i in kernel}
        if ops & _HALF_OPS:
            wanted.update(dict.fromkeys(kernel, HALF))
        elif ops & _FULL_OPS or ops == {"Sqrt", "Div"}:
            wanted.update(dict.fromkeys(kernel, FULL))
    return wanted


def _widest(network: Network, node: Node, types: dict[str, TensorType]) -> str:
    """The type that PyTorch promotes to: a parameter of the module counts, a number does not."""
    read = [types[name].dtype for name in node.inputs if name in types]
    if node.op not in _OWN_PARAMETERS and not node.name.endswith("__bias"):
        constants = [network.constants[n].type for n in node.inputs if n in network.constants]
        read += [c.dtype for c in constants if c.elements > 1]
    return FULL if FULL in read or HALF not in read else HALF


def _narrow(network: Network, groups: Groups, types: dict[str, TensorType]) -> None:
    """A tensor that only FP16 operators read is stored so: the cast is done on the way out."""
    wanted = _wanted(network, groups)
    removed, readers = set(groups.removed), network.consumers()
    half: dict[int, bool] = {}
    for position in range(len(network.nodes) - 1, -1, -1):
        node = network.nodes[position]
        half[position] = wanted.get(position) == HALF
        for out in node.outputs:
            consumers = readers.get(out, []) if out not in network.outputs else []
            narrow = bool(consumers) and all(half[r] for r in consumers)
            if narrow and types[out].dtype == FULL:
                types[out] = types[out]._replace(dtype=HALF)
            if position in removed:
                half[position] = narrow


def _with_casts(
    module: Module, groups: Groups, types: dict[str, TensorType]
) -> tuple[Module, Groups]:
    """Put a kernel where an activation is cast for an operator; autocast keeps none for later."""
    network, producers = module.network, module.network.producers()
    wanted = _wanted(network, groups)
    kernel_of = {i: k for k, kernel in enumerate(groups.kernels) for i in kernel}
    nodes: list[Node] = []
    origins: list[int | None] = []
    position_of: list[int] = []
    casts: list[tuple[int, ...]] = []
    for position, node in enumerate(network.nodes):
        inputs = list(node.inputs)
        dtype = wanted.get(position)
        for k, name in enumerate(inputs):
            if dtype is None or name not in types or types[name].dtype not in (HALF, FULL):
                continue
            made_by = kernel_of.get(producers.get(name, -1))
            is_own = name in producers and made_by == kernel_of.get(position)
            if is_own or types[name].dtype == dtype:
                continue
            inputs[k] = f"{name}__{position}_{dtype}"
            types[inputs[k]] = types[name]._replace(dtype=dtype)
            casts.append((len(nodes),))
            to = (("to", 10 if dtype == HALF else 1),)
            nodes.append(
                Node(f"{node.name}__cast{k}", "Cast", (name,), (inputs[k],), to, version=13)
            )
            origins.append(None)
        position_of.append(len(nodes))
        nodes.append(replace(node, inputs=tuple(inputs)))
        origins.append(module.origins[position])
    kernels = [tuple(position_of[i] for i in kernel) for kernel in groups.kernels]
    removed = tuple(position_of[i] for i in groups.removed)
    made = replace(network, nodes=tuple(nodes), types=types)
    return Module(made, tuple(origins)), Groups((*kernels, *casts), removed)
