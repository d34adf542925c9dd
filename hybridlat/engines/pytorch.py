"""PyTorch: what a module runs eagerly (engine ``torch``) and under ``torch.compile``.

Eagerly each ATen call is a kernel: activations, batch normalisations and residual additions too,
and cuDNN's convolutions have their bias added by another. Compiled, convolutions and products are
calls to a library; everything else is code that inductor writes (:mod:`.pytorch_rules`). Views cost
nothing there, and nothing is folded into weights.

An exported file is not the module: the exporter folds a batch normalisation into the convolution
in front of it, which neither does. :func:`as_module` puts it back.

Under automatic mixed precision (:func:`with_autocast`) weights stay FP32 and are cast for every
inference: left FP32 here, they say that their FP32 bytes are read. Activations are cast where an
operator asks for another type, in a kernel of its own (eager) or on the way (compiled). The lists
of operators are those of PyTorch's page on mixed precision.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hybridlat.engines import pytorch_rules as rules
from hybridlat.engines.fusion.composites import COMPILED, NUMBERS
from hybridlat.engines.fusion.forms import CONTRACTING, FORMS, normed_biases
from hybridlat.engines.fusion.groups import Groups, lowered_of, traced
from hybridlat.engines.fusion.patterns import Match, Rewritten, each
from hybridlat.engines.fusion.precision import in_floats
from hybridlat.engines.fusion.rules import Eliminate, apply, in_force, unknown_operators
from hybridlat.graph.network import Constant, Lowered, Network, Node, TensorType
from hybridlat.graph.operators import named
from hybridlat.onnx_io.facts import bias_origin, simplified
from hybridlat.schema.target import Target

_CPU = re.compile(r"(xeon|epyc|ryzen|core|i[3579]|cascade-lake)\b")
_CONVOLUTIONS = named(CONTRACTING)
HALF, FULL = "float16", "float32"
_HALF_OPS = named("Conv ConvTranspose Gemm MatMul PRelu Attention Einsum LSTM GRU RNN")
_FULL_OPS = named(
    "LayerNormalization InstanceNormalization GroupNormalization Softmax LogSoftmax Pow Exp Log "
    "ReduceSum ReduceL2 Softplus Resize"
)
_OTHER_NORMS = ("LayerNormalization", "InstanceNormalization", "GroupNormalization")
_OWN_PARAMETERS = _HALF_OPS | {"BatchNormalization"}


def lower(network: Network, target: Target, *, channels_last: bool = False) -> Lowered:
    """The kernels of the module that ``network`` was exported from, at the target's precision.

    Only ``amp`` (autocast) mixes types; at any other precision the file's are left, so that a cell
    is the same cell. ``channels_last`` is the layout of inputs, as some sources of timings have it.
    """
    compiled = target.engine == "torch-compile"
    passes = (each(CONTRACTING, _zeros), rules.FED, *rules.INDEXED, each("Gemm", _scales), *FORMS)
    passes = (*passes, *rules.CALLS, each(CONTRACTING, _scales), each(CONTRACTING, normed_biases))
    passes = (*passes, *((rules.UNSCALED,) if rules.ATTENTION.covers(target.version) else ()))
    generated = COMPILED if compiled or _is_cpu(target) else ()
    generated = (*(() if compiled else (rules.RMS_NORMS,)), *generated)
    whole = network if compiled else _idle_as_outputs(network)
    plain = in_floats(whole).then((*passes, *generated))
    widened = _widened(plain.network)
    written = as_module(plain.then((NUMBERS,)), bias_apart=not _is_cpu(target))
    module = rules.ordered(written, channels_last)
    copying, in_channels_last = rules.follow(module.network, channels_last)
    free = Eliminate(rules.VIEW, "the same bytes", lambda _, view: view.positions[0] not in copying)
    table = (free, *rules.COMPOSITES, *(rules.INDUCTOR if compiled else ()))
    unknown = unknown_operators(module.network, table, rules.LIBRARY) if compiled else ()
    if not compiled:
        nodes = list(module.network.nodes)
        for i in in_channels_last:
            nodes[i] = nodes[i].with_attributes(memory_format="channels_last")
        spare = {*whole.outputs}.difference(network.outputs)
        outputs = tuple([name for name in module.network.outputs if name not in spare])
        net = replace(module.network, nodes=tuple(nodes), outputs=outputs)
        module = module._replace(network=net)
    groups = apply(module.network, table, target.version)
    if target.precision == "amp":
        module, groups = with_autocast(module, groups, widened, casts_apart=not compiled)
    lowered = lowered_of(module.network, groups, f"rules {target.runtime}", unknown)
    return traced(lowered, module.network, module.origins, network)


def _idle_as_outputs(network: Network) -> Network:
    """The network with results that no output needs as outputs: eagerly a module runs all of it."""
    needed = {*network.order_before(network.ends)}
    idle = [node for i, node in enumerate(network.nodes) if i not in needed]
    spare = tuple([out for node in idle for out in node.outputs if out])
    return replace(network, outputs=(*network.outputs, *spare)) if spare else network


def identity(target: Target) -> str:
    """The rules and what they ask of a target."""
    held = in_force(rules.COMPOSITES, target.version)
    return f"rules/{target.engine}/{held}/{target.precision}/{_is_cpu(target)}"


def _is_cpu(target: Target) -> bool:
    return target.threads is not None or _CPU.match(target.device) is not None


def as_module(plain: Rewritten, bias_apart: bool = True) -> Rewritten:
    """Put back what the exporter folded into convolutions, and the norms that it did into products.

    A ``BatchNormalization`` goes behind those whose bias was folded, and a bias becomes an ``Add``
    (``bias_apart``). With cuDNN, PyTorch adds it in a call of its own (ATen's ``Convolution.cpp``),
    and so does inductor on a GPU. On a CPU the convolution adds it.
    """

    def find(net: Network, nodes: Sequence[Node]) -> Iterator[Match]:
        normed = folded_norms(net)
        for position in _biased(net):
            match = Match(net, node := net.nodes[position])
            if position in normed or bias_apart:
                _take_apart(net, node, match, position in normed)
            elif len(node.inputs) < 3:
                match.put(node, _by_channel(net, node, 1))
            if match.nodes:
                yield match

    return plain.then(((_CONVOLUTIONS | {"Gemm"}, find),))


def _biased(network: Network) -> list[int]:
    """Positions of the convolutions that have a bias, or had: zeros of an untrained module.

    PyTorch's exporter tells which. Else names tell which were folded; then convolutions of a single
    pixel (squeeze-and-excite) lack theirs too.
    """
    nodes, zeros = network.nodes, network.zero_biases
    convs = [i for i, n in enumerate(nodes) if n.op in _CONVOLUTIONS and not n.domain]
    convs += [i for i, n in enumerate(nodes) if n.op == "Gemm" and _origin(n) == "folded"]
    bare = [i for i in convs if len(nodes[i].inputs) < 3]
    lacking = {i for i in bare if _origin(nodes[i]) or nodes[i].name in (zeros or ())}
    if lacking and zeros is None:
        lacking.update(i for i in bare if _pixels(network, nodes[i]) == 1)
    return [i for i in convs if i in lacking or network.constant(nodes[i], 2) is not None]


def folded_norms(network: Network) -> frozenset[int]:
    """Positions of the convolutions into which a batch normalisation was folded.

    The folded bias's name says so. Where no name does, a network that adds residuals or holds
    depthwise convolutions is taken for a normalised one, unless it normalises otherwise.
    """
    origins = {i: _origin(network.nodes[i]) for i in _biased(network)}
    if any(origins.values()) or network.zero_biases is not None:
        return frozenset(i for i, origin in origins.items() if origin == "folded")
    normalises_otherwise = any(node.op in _OTHER_NORMS for node in network.nodes)
    adds = [n for n in network.nodes if n.op == "Add" and network.types.keys() >= {*n.inputs}]
    deep = [n for n in network.nodes if n.op == "Conv" and n.attribute("group", 1) not in (1, 2)]
    if normalises_otherwise or not (adds or deep):
        return frozenset()
    left = {i for i in origins if not network.reader(network.nodes[i], "BatchNormalization")}
    return frozenset(i for i in left if _pixels(network, network.nodes[i]) > 1)


def _scales(net: Network, node: Node, match: Match) -> None:
    """A layer's scale that a simplifier folded into a convolution or product is one behind it.

    The operator's name is that of the result in between, which tells of a norm there. Where the
    exporter has folded the norms, a simplifier has none left to fold. A scale of what a product
    reads, through views, is attention's: one number. One that left a convolution's bias alone is a
    number in front of it.
    """
    how = simplified(node.inputs, node.outputs)
    if how == "without bias" and node.op in _CONVOLUTIONS:
        type_ = net.type_of(node.inputs[0])
        fed = match.add("Mul", node.inputs[:1], type_.shape, Constant(type_._replace(shape=())))
        match.put(replace(node, inputs=(fed, *node.inputs[1:])))
        return
    is_changed = how == "changed" and node.inputs[2:] and _is_left(net, node)
    if how not in ("scaled", "multiplied") and not is_changed:
        return
    end = node
    while (below := net.reader(end, "MatMul", "Reshape", "Transpose")) and below.op != "MatMul":
        end = below
    raw, type_ = f"{match.made}__conv", net.types[match.made]
    if _origin(node) == "folded" and node.name not in net.types:
        raw = node.name
    match.types[raw] = type_
    match.put(replace(node, outputs=(raw,)))
    scale = Constant(type_._replace(shape=() if below or how == "multiplied" else type_.shape[-1:]))
    scale = _by_channel(net, node) if node.op in _CONVOLUTIONS and scale.type.shape else scale
    match.put(Node(f"{node.name}__scale", "Mul", (raw,), node.outputs, version=14), scale)


def _is_left(net: Network, node: Node) -> bool:
    """Whether norms are folded already, or sums alone read the convolutions that are changed."""
    convs = [n for n in net.nodes if n.op == "Conv"]
    changed = [n for n in convs if simplified(n.inputs, n.outputs) == "changed"]
    is_summed = node in changed and all(net.reader(n, "Add") for n in changed)
    return is_summed or any(_origin(n) == "folded" for n in convs)


def _zeros(net: Network, node: Node, match: Match) -> None:
    """A bias that a converter made up is none, however many convolutions read it."""
    bias = net.constant(node, 2)
    if bias and bias_origin("", ("", "", bias.copy_of or node.inputs[2]), ()) == "zeros":
        match.put(replace(node, inputs=node.inputs[:2]))


def _origin(node: Node) -> str:
    return bias_origin(node.name, node.inputs, node.outputs)


def _by_channel(net: Network, node: Node, axes: int | None = None) -> Constant:
    """A number for each channel of a result, with all axes behind the batch or the first few."""
    type_ = net.types[node.outputs[0]]
    shape = (type_.shape[1], *[1] * (len(type_.shape) - 2))
    return Constant(type_._replace(shape=shape[:axes]))


def _take_apart(net: Network, node: Node, match: Match, is_normed: bool) -> None:
    """A convolution without its bias, and behind it a normalisation, or the bias alone."""
    raw = f"{match.made}__conv"
    match.types[raw] = net.types[match.made]
    match.put(replace(node, inputs=node.inputs[:2], outputs=(raw,)))
    if is_normed:
        norm = Node(f"{node.name}__norm", "BatchNormalization", (raw,), node.outputs, version=15)
        match.put(norm, *[_by_channel(net, node, 1)] * 4)
    else:
        added = Node(f"{node.name}__bias", "Add", (raw,), node.outputs, version=14)
        match.put(added, _by_channel(net, node))


def _pixels(network: Network, node: Node) -> int:
    shape = network.types[node.outputs[0]].shape
    return shape[-1] * (shape[-2] if len(shape) > 3 else 1)


def with_autocast(
    module: Rewritten, groups: Groups, widened: frozenset[str], casts_apart: bool
) -> tuple[Rewritten, Groups]:
    """The module in the types that autocast computes in, with the same kernels.

    ``widened`` are results that a parameter makes wide. With ``casts_apart`` a cast of an
    activation is a kernel.
    """
    network = module.network
    types = dict(network.types)
    demanded: dict[int, str] = {}  # of each operator, by what its kernel stands for
    for kernel in groups.kernels:
        ops = {network.nodes[i].qualified_op for i in kernel}
        if ops & _HALF_OPS:
            demanded.update(dict.fromkeys(kernel, HALF))
        elif ops & _FULL_OPS or ops == {"Sqrt", "Div"}:
            demanded.update(dict.fromkeys(kernel, FULL))
    for position, node in enumerate(network.nodes):
        for out in node.outputs:
            if out and types[out].dtype == FULL:
                element_type = demanded.get(position) or _widest(node, types, widened)
                types[out] = types[out]._replace(dtype=element_type)
    if casts_apart:
        return _with_casts(module, groups, demanded, types)
    _narrow(network, groups, demanded, types)
    return module._replace(network=replace(network, types=types)), groups


def _widened(network: Network) -> frozenset[str]:
    """Results of what reads a parameter of the module, which has axes; a number has none."""
    wide, known = set[str](), network.constants
    for node in [node for node in network.nodes if node.op not in _OWN_PARAMETERS]:
        types = [known[name].type for name in node.inputs if name in known]
        wide.update(node.outputs[:1] if any(t.shape and t.dtype == FULL for t in types) else ())
    return frozenset(wide)


def _widest(node: Node, types: dict[str, TensorType], widened: frozenset[str]) -> str:
    """The type that PyTorch promotes to."""
    read = [types[name].dtype for name in node.inputs if name in types]
    return FULL if FULL in read or HALF not in read or node.outputs[0] in widened else HALF


def _narrow(
    network: Network, groups: Groups, demanded: dict[int, str], types: dict[str, TensorType]
) -> None:
    """A tensor that only FP16 operators read is stored so: the cast is done on the way out."""
    removed, readers = set(groups.removed), network.consumers
    half: dict[int, bool] = {}
    for position in range(len(network.nodes) - 1, -1, -1):
        node = network.nodes[position]
        half[position] = demanded.get(position) == HALF
        for out in node.outputs:
            consumers = readers.get(out, []) if out not in network.outputs else []
            narrow = bool(consumers) and all(half[r] for r in consumers)
            if narrow and types[out].dtype == FULL:
                types[out] = types[out]._replace(dtype=HALF)
            if position in removed:
                half[position] = narrow


def _with_casts(
    module: Rewritten, groups: Groups, demanded: dict[int, str], types: dict[str, TensorType]
) -> tuple[Rewritten, Groups]:
    """Put a kernel where an activation is cast for an operator; autocast keeps none for later."""
    network = module.network
    nodes, position_of = list[Node](), list[int]()
    origins, casts = list[tuple[int, ...]](), list[tuple[int, ...]]()
    for position, node in enumerate(network.nodes):
        inputs = list(node.inputs)
        dtype = demanded.get(position)
        for k, name in enumerate(node.inputs if dtype else ()):
            if name not in types or types[name].dtype not in {HALF, FULL} - {dtype}:
                continue  # what its own kernel makes is of that type
            inputs[k] = f"{name}__{position}_{dtype}"
            types[inputs[k]] = types[name]._replace(dtype=dtype or FULL)
            casts.append((len(nodes),))
            to, label = (("to", 10 if dtype == HALF else 1),), f"{node.name}__cast{k}"
            nodes.append(Node(label, "Cast", (name,), (inputs[k],), to, version=13))
            origins.append(())
        position_of.append(len(nodes))
        nodes.append(replace(node, inputs=tuple(inputs)))
        origins.append(module.origins[position])
    kernels = [tuple(position_of[i] for i in kernel) for kernel in groups.kernels]
    removed = tuple(position_of[i] for i in groups.removed)
    made = replace(network, nodes=tuple(nodes), types=types)
    return Rewritten(made, tuple(origins)), Groups((*kernels, *casts), removed)
