"""Hypothesis strategies: random small CNNs with right shapes, and random records."""

from dataclasses import replace

from hypothesis import strategies as st

from hybridlat.graph.network import Network
from hybridlat.schema.measurement import KINDS, Breakdown, Measurement, Visit
from hybridlat.schema.target import Target
from tests.networks import Builder, in_order

OPS = ("conv", "conv", "depthwise", "relu", "add", "concat", "pool")


@st.composite
def networks(
    draw: st.DrawFn,
    max_nodes: int = 12,
    ends: int = 2,
    widths: tuple[int, ...] = (1, 2, 3, 4, 5, 6),
    ops: tuple[str, ...] = OPS,
) -> Network:
    """A random DAG of Conv, Relu, Add, Concat and MaxPool with right shapes.

    ``widths`` are the numbers of channels that inputs and convolutions have. Of ``ops`` those with
    a capital are element-wise operators of ONNX.

    Every tensor that nothing reads is an output, so that all nodes count; of these at most
    ``ends`` are left, the others are joined where their shapes allow.
    """
    b = Builder("random")
    size = draw(st.sampled_from((4, 8, 12)))
    width = st.sampled_from(widths)
    tensors = [b.input((1, draw(width), size, size))]
    if draw(st.booleans()) and draw(st.booleans()):
        tensors.append(b.input((1, draw(width), size, size)))
    for _ in range(draw(st.integers(1, max_nodes))):
        source = draw(st.sampled_from(tensors[-4:]))
        op = draw(st.sampled_from(ops))
        shape = b.shape(source)
        if op == "conv":
            kernel, stride = draw(st.sampled_from((1, 3))), draw(st.sampled_from((1, 1, 2)))
            made = b.conv(source, draw(width), kernel, stride)
        elif op == "depthwise":
            made = b.conv(source, shape[1], 3, group=shape[1])
        elif op in ("add", "Mul"):
            same = [t for t in tensors if b.shape(t) == shape]
            other = draw(st.sampled_from(same))
            made = b.op(op.capitalize(), [source, other], shape, 14)
        elif op == "split" and shape[1] % 2 == 0:
            half = (shape[0], shape[1] // 2, *shape[2:])
            made = b.concat(b.op_of_many("Split", [source], [half] * 2, 2, {"axis": 1})[::-1])
        elif op == "concat":
            fitting = [t for t in tensors if b.shape(t)[2:] == shape[2:]]
            made = b.concat([source, draw(st.sampled_from(fitting))])
        elif op == "pool" and shape[2] >= 2:
            made = b.pool(source)
        else:
            made = b.op(op if op[0].isupper() else "Relu", [source], shape, 14)
        tensors.append(made)
    # Add what has the same shape until few ends are left, then pool everything to one size.
    while len(unread := b.network().outputs) > ends:
        first = unread[0]
        alike = [t for t in unread[1:] if b.shape(t) == b.shape(first)]
        if alike:
            b.add(first, alike[0])
        else:
            b.concat([b.global_pool(t) for t in unread])
    return b.network()


@st.composite
def orders(draw: st.DrawFn, network: Network) -> list[int]:
    """A random topological order of the nodes of a network."""
    keys = draw(st.permutations(range(len(network.nodes))))
    return network.order_by(keys.__getitem__)


@st.composite
def reordered(draw: st.DrawFn, network: Network) -> Network:
    """The same network, its nodes and its inputs listed in another order."""
    inputs, outputs = (draw(st.permutations(n)) for n in (network.inputs, network.outputs))
    moved = in_order(network, draw(orders(network)))
    return replace(moved, inputs=tuple(inputs), outputs=tuple(outputs))


hashes = st.binary(min_size=16, max_size=16).map(bytes.hex)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
latencies = st.floats(1e-3, 1e8)
targets = st.sampled_from(
    ("h100/tensorrt-8.6/fp16", "fake/fake-1.0/fp32/1t", "fake/fake-1.0/fp32/2t", "v100/x/int8")
).map(Target.parse)
visits = st.builds(
    Visit,
    samples_us=st.lists(latencies, max_size=5).map(tuple),
    drift=st.floats(0.5, 2.0),
    process=st.integers(0, 5),
)


@st.composite
def measurements(draw: st.DrawFn) -> Measurement:
    """A sound record, a failure in about one of four."""
    failed = draw(st.integers(0, 3)) == 0
    return Measurement(
        target=draw(targets),
        signature=draw(hashes),
        kind=draw(st.sampled_from(KINDS)),
        latency_us=None if failed else draw(latencies),
        spread_share=draw(st.floats(0, 2)),
        visits=draw(st.lists(visits, max_size=3).map(tuple)),
        overhead_us=draw(st.floats(-5, 50)),
        protocol=draw(words),
        environment=draw(st.dictionaries(words, words, max_size=3)),
        measured_at=draw(st.sampled_from(("", "2026-01-01T00:00:00Z", "2026-03-04T05:06:07Z"))),
        failure=draw(words) if failed else None,
        labels=draw(st.dictionaries(words, words, max_size=2)),
    )


_counted = st.lists(st.tuples(hashes, st.integers(1, 9)), max_size=4).map(tuple)
breakdowns = st.builds(
    Breakdown,
    target=targets,
    network=words,
    signature=hashes,
    cells=_counted,
    layers=_counted,
    labels=st.dictionaries(words, words, max_size=2),
)
