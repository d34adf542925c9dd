"""What TensorRT's engines fuse and copy, by version and precision, as listings show it."""

import gzip
import json

import pytest

from hybridlat.engines.fusion.groups import Groups, differing
from hybridlat.engines.fusion.rules import Eliminate, Fuse, Group, apply
from hybridlat.engines.tensorrt.lowering import identity, lower
from hybridlat.graph.cells import kernels
from hybridlat.graph.network import Network
from hybridlat.graph.signature import sign
from hybridlat.model.geometry import geometry
from hybridlat.onnx_io import read_network
from hybridlat.schema.target import Target
from tests.engines.texts import CONV, MAPS, POINT, network
from tests.networks import NETS, ROOT, Builder

IMAGE, LARGE = "float[1,3,64,64] x", "float[1,64,40,40] x"
SMALL, BATCH = "float[1,64,20,20] x", "float[10,64,20,20] x"
SILU = "{0}s = Sigmoid({0}) {0}m = Mul({0}, {0}s)"
POOL = "MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>"
VERSIONS = ("7.1", "8.6", "10.7")


def network_of(body: str, inputs: str = MAPS) -> Network:
    """The network of a text, which may give out a tensor ``k`` too."""
    return network(body, inputs, "y, float[] k" if " k = " in body or " k, " in body else "y")


def kernels_of(net: Network, target: str) -> list[str]:
    """The file's operators in each kernel; a copy of a further part of a Concat has none."""
    whole = target if target.count("/") > 1 else f"t4/tensorrt-{target}"
    return [kernel.ops[0] for kernel in kernels(lower(net, Target.parse(whole)), net)]


RESIDUAL = f"a = {CONV}(x, w) {SILU.format('a')} y = Add(am, x)"
ALL, LAST = ["Conv+Sigmoid+Mul+Add"], ["Conv", "Sigmoid+Mul+Add"]
OF_IMAGE = f"a = {CONV}(x, stem) {SILU.format('a')} y = Identity(am)"
OF_CHANNEL = f"a = Conv<pads=[1,1,1,1], group=64>(x, deep) {SILU.format('a')} y = Identity(am)"
ONE, APART = ["Conv+Sigmoid+Mul"], ["Conv", "Sigmoid+Mul"]
MISH = f"a = {POINT}(x, point) s = Softplus(a) t = Tanh(s) y = Mul(a, t)"
CHAIN = "a = Neg(x) c = Abs(a) d = Add(c, x) e = Relu(c) y = Mul(d, e)"
NORM = f"a = {CONV}(x, w) c = BatchNormalization(a, v, v, v, v) s = Add(c, x) y = Relu(s)"
TURN = "t = Transpose<perm=[0,1,3,2]>(x)"
GATES = [
    ("a = ReduceMax(x, first) b = Neg(a) c = Sigmoid(b)", ["ReduceMax", "Neg+Sigmoid+Mul"]),
    (
        "a = ReduceMax(x, first) c = Sigmoid(a) k = Neg(c)",
        ["ReduceMax", "Sigmoid", "Mul", "Neg"],
    ),
]
SCALED = f"a = {CONV}(x, w) c = Mul(a, {{0}}) s = Add(c, x) y = Relu(s)"
POOLED = f"a = {CONV}(x, stem) c = Relu(a) y = {POOL}(c)"
HEAD = (
    f"a = {CONV}(x, w) b = Reshape(a, split) "
    "c = Transpose<perm=[0,1,3,4,2]>(b) s = Sigmoid(c) y = Exp(s)"
)
ATTENTION = (
    f"o = {CONV}(x, qkv) h = Reshape(o, heads) q, j, n = Split<axis=2, num_outputs=3>(h) "
    "s = Mul(q, scalar) t = Transpose<perm=[0,1,3,2]>(s) m = MatMul(t, j) a = Softmax<axis=-1>(m) "
    "b = Transpose<perm=[0,1,3,2]>(a) y = MatMul(n, b)"
)
SHUFFLE = (
    f"a = {CONV}(x, w) c = Reshape(a, split) d = Transpose<perm=[0,2,1,3,4]>(c) "
    f"e = Reshape(d, maps) y = {CONV}(e, w2)"
)
PADDED = (
    f"a = {CONV}(x, w) r = Relu(a) b = Pad(r, below) "
    "y = Conv<kernel_shape=[3,3], strides=[2,2]>(b, w2)"
)
HALF = ("8.6/fp16", "10.3/fp16", "10.3/int8", "unheard-of/tensorrt/fp16")
SINGLE = (
    *("10.3/fp32", "8.6/fp32", "11.4/fp32", "23.10/fp32", "v100/tensorrt-10.3/fp16"),
    *("jetson-nano/tensorrt-8.2/fp16", "t4/paddle-tensorrt-8.5/fp16"),
)
OF_ONE = f"a = {CONV}(x, w) {SILU.format('a')} y = {CONV}(am, w2)"
OF_SUM = (
    f"a = {POINT}(x, point) e = {CONV}(x, w) r = Add(a, e) {SILU.format('r')} y = {CONV}(rm, w2)"
)
PART, JOINED = f"a = {POINT}(x, point)", f"a = {CONV}(x, w) y = Concat<axis=1>(a, c)"
PAIR = f"{PART} c = {POINT}(x, few)"
HALVES = (
    f"a = {CONV}(x, w) k, c = Split<axis=1>(a, parts) d = {CONV}(c, half) {SILU.format('d')} "
    "y = Add(dm, c)"
)
FUSED = {
    "a SiLU and a sum, both in half precision from 8.6 on, where maps are large": [
        ("8.6/fp16", LARGE, RESIDUAL, ALL), ("8.6/fp16", BATCH, RESIDUAL, ALL),
        ("10.7/fp16", LARGE, RESIDUAL, ALL), ("10.7/fp16", SMALL, RESIDUAL, LAST),
        ("8.5/fp16", LARGE, RESIDUAL, LAST), ("8.6/int8", LARGE, RESIDUAL, LAST),
        ("8.2/fp32", LARGE, RESIDUAL, LAST), ("10.7/fp32", LARGE, RESIDUAL, LAST),
    ],
    "a SiLU of an image or of single channels": [
        ("8.6/int8", IMAGE, OF_IMAGE, ONE), ("8.6/fp16", IMAGE, OF_IMAGE, APART),
        ("8.6/fp16", LARGE, OF_CHANNEL, ONE), ("10.3/fp16", LARGE, OF_CHANNEL, ONE),
        ("10.7/fp16", LARGE, OF_CHANNEL, APART),
    ],
    "activations beyond ReLU": [
        ("8.2/fp32", SMALL, f"a = {POINT}(x, point) y = Sigmoid(a)", ["Conv", "Sigmoid"]),
        ("8.4/fp16", SMALL, f"a = {POINT}(x, single) y = Sigmoid(a)", ["Conv+Sigmoid"]),
        ("8.5/int8", SMALL, f"a = {POINT}(x, point) y = Sigmoid(a)", ["Conv+Sigmoid"]),
        ("8.4/int8", SMALL, f"a = {POINT}(x, single) y = Sigmoid(a)", ["Conv", "Sigmoid"]),
        ("8.2/fp32", SMALL, f"a = {POINT}(x, point) y = Clip(a)", ["Conv+Clip"]),
        ("8.6/fp16", SMALL, f"a = {POINT}(x, point) y = PRelu(a, gamma)", ["Conv", "PRelu"]),
        ("8.6/fp16", SMALL, MISH, ["Conv+Softplus+Tanh+Mul"]),
        ("8.6/fp32", SMALL, MISH, ["Conv", "Softplus+Tanh+Mul"]),
    ],
    "half precision alone has epilogues beyond ReLU, from Turing on": [
        *((target, MAPS, OF_ONE, ["Conv+Sigmoid+Mul", "Conv"]) for target in HALF),
        *((target, MAPS, OF_ONE, ["Conv", "Sigmoid+Mul", "Conv"]) for target in SINGLE),
        *((target, MAPS, OF_SUM, ["Conv", "Conv+Add+Sigmoid+Mul", "Conv"]) for target in HALF[1:]),
        *((target, MAPS, OF_SUM, ["Conv", "Conv+Add", "Sigmoid+Mul", "Conv"])
          for target in ("8.6/fp16", *SINGLE)),
    ],
    "a ReLU before a sum keeps the sum apart": [
        ("8.6/fp16", SMALL, f"a = {CONV}(x, w) c = Relu(a) s = Add(c, x) y = Relu(s)",
         ["Conv+Relu", "Add+Relu"]),
    ],
    "a chain of element-wise operators is one kernel": [
        *((f"{version}/fp32", SMALL, CHAIN, ["Neg+Abs", "Add+Relu+Mul"]) for version in VERSIONS),
        *((version, SMALL, "a = GlobalAveragePool(x) c = Sigmoid(a) y = Mul(x, c)",
           ["GlobalAveragePool", "Sigmoid", "Mul"]) for version in ("8.6/fp32", "10.7/fp16")),
        *(("8.6/fp32", SMALL, f"{body} y = Mul(x, c)", chain) for body, chain in GATES),
    ],
    "a normalisation behind a convolution costs nothing": [
        (f"{version}/fp32", SMALL, NORM, ["Conv+BatchNormalization+Add+Relu"])
        for version in VERSIONS
    ],
    "a scale of channels is in a convolution's weights": [
        ("8.6/fp16", SMALL, SCALED.format("gamma"), ["Conv+Mul+Add+Relu"]),
        ("8.4/fp32", SMALL, SCALED.format("gamma"), ["Conv+Mul+Add+Relu"]),
        ("8.6/fp16", SMALL, SCALED.format("plane"), ["Conv", "Mul+Add+Relu"]),
    ],
    "the pooling of an image is in its convolution in whole numbers": [
        ("8.5/int8", IMAGE, POOLED, ["Conv+Relu+MaxPool"]),
        ("8.5/fp16", IMAGE, POOLED, ["Conv+Relu", "MaxPool"]),
    ],
    "views cost nothing, but for a channel shuffle and a map that is flattened": [
        ("10.7/fp16", MAPS, SHUFFLE, ["Conv", "Reshape+Transpose", "Conv"]),
        ("8.6/fp16", MAPS, "a = GlobalAveragePool(x) c = Flatten(a) y = Gemm<transB=1>(c, row)",
         ["GlobalAveragePool", "Gemm"]),
        ("8.6/fp16", MAPS, f"a = {POOL}(x) c = Flatten(a) y = Neg(c)",
         ["MaxPool", "Reshape", "Neg"]),
    ],
    "what does nothing is no kernel": [
        ("8.6/fp16", MAPS, f"a = {POINT}(x, point) d = Dropout(a) y = Identity(d)", ["Conv"]),
        ("8.6/fp16", MAPS, PADDED, ["Conv+Relu", "Conv"]),
        ("8.6/fp16", MAPS, f"a = AveragePool<kernel_shape=[1,1]>(x) y = {CONV}(a, w)", ["Conv"]),
    ],
    "a product reads its operands with the last axes exchanged": [
        ("8.2/fp32", MAPS, ATTENTION, ["Conv", "Split", "Mul", "MatMul", "Softmax", "MatMul"]),
        ("8.6/fp16", MAPS, f"{TURN} y = MatMul(t, x)", ["MatMul"]),
        ("8.6/fp16", MAPS, f"{TURN} m = MatMul(t, x) y = Mul(m, t)",
         ["Transpose", "MatMul", "Mul"]),
        ("8.6/fp16", MAPS, f"{TURN} y = Softmax(t)", ["Transpose", "Softmax"]),
    ],
    "from 10 on Myelin compiles what computes on other than maps": [
        ("10.7/fp16", MAPS,
         f"a = {CONV}(x, w) b = Relu(a) c = Reshape(b, split) y = ReduceSum(c, first)",
         ["Conv", "Relu+Reshape+ReduceSum"]),
        ("10.7/fp16", MAPS, HEAD, ["Conv", "Reshape+Transpose+Sigmoid+Exp"]),
        ("8.6/fp16", MAPS, HEAD, ["Conv", "Reshape+Transpose", "Sigmoid+Exp"]),
        ("10.7/fp16", MAPS, ATTENTION,
         ["Conv", "Reshape+Split+Mul+Transpose", "MatMul", "Softmax+Transpose", "MatMul"]),
    ],
    "the second Concat that a tensor is part of copies it, as it does an input": [
        ("8.6/fp16", MAPS, f"{PART} c = {CONV}(x, w) f = Concat<axis=1>(a, c) "
         "k = Concat<axis=1>(c, x) y = Neg(f)", ["Conv", "Conv", "Neg", "Concat", "Concat"]),
    ],
    "a part in whole numbers begins at a vector": [
        ("8.4/int8", MAPS, f"c = {POINT}(x, three) {JOINED}", ["Conv", "Conv", "Concat"]),
        ("8.4/fp16", MAPS, f"c = {POINT}(x, three) {JOINED}", ["Conv", "Conv"]),
        ("8.4/int8", MAPS, f"c = {POINT}(x, point) {JOINED}", ["Conv", "Conv"]),
    ],
    "a Split is a kernel only for a sum that a convolution takes": [
        ("8.6/fp16", LARGE, HALVES, ["Conv", "Split", "Conv+Sigmoid+Mul+Add"]),
        ("8.6/fp32", LARGE, HALVES, ["Conv", "Conv", "Sigmoid+Mul+Add"]),
    ],
    "convolutions of one tensor with the same windows run as one": [
        ("8.6/fp32", MAPS, f"{PAIR} ar = Relu(a) k = Relu(c) d = {CONV}(ar, w) "
         "y = Concat<axis=1>(d, d)", ["Conv+Conv+Relu+Relu", "Conv", "Concat"]),
        # A SiLU follows the one that both run as; each in a kernel of its own.
        ("8.6/fp16", MAPS, f"{PAIR} {SILU.format('a')} {SILU.format('c')} "
         "y = Concat<axis=1>(am, cm)", ["Conv+Conv", "Sigmoid+Mul", "Sigmoid+Mul"]),
        # Both as one cannot write what is put together in place.
        ("8.6/fp32", MAPS, f"{PAIR} y = Concat<axis=1>(a, c)", ["Conv+Conv", "Concat", "Concat"]),
        ("8.6/fp32", MAPS, f"{PART} c = {CONV}(x, w) y = Add(a, c)", ["Conv", "Conv+Add"]),
        # Under 7.1 not those behind a ReLU, as in a cell of NAS-Bench-201.
        *((f"{version}/fp32", MAPS, f"r = Relu(x) y = {CONV}(r, w) k = {CONV}(r, w2)",
           ["Relu", *convs])
          for version, convs in (("7.1", ["Conv", "Conv"]), ("7.2", ["Conv+Conv"]))),
        ("7.1/fp32", MAPS, f"y = {CONV}(x, w) k = {CONV}(x, w2)", ["Conv+Conv"]),
    ],
}  # fmt: skip


@pytest.mark.parametrize("what", FUSED)
def test_engines_fuse_by_version_precision_and_size(what: str) -> None:
    for target, inputs, body, expected in FUSED[what]:
        assert kernels_of(network_of(body, inputs), target) == expected, target


@pytest.mark.parametrize(
    ("target", "last", "main"),
    [
        *(("8.0/fp16", f"{CONV}(c, w2)", 0), ("8.2/fp16", f"{CONV}(c, w2)", 1)),
        *(("8.2/fp32", f"{CONV}(c, w2)", 1), ("8.2/fp32", f"{POINT}(c, point)", 0)),
        *(("8.4/fp32", f"{CONV}(c, w2)", 0), ("8.4/int8", f"{CONV}(c, w2)", 1)),
        *(("8.6/fp16", f"{CONV}(c, w2)", 1), ("10.3/fp16", f"{CONV}(c, w2)", 0)),
    ],
)
def test_the_branch_that_adds(target: str, last: str, main: bool) -> None:
    net = network(
        f"a = {CONV}(x, w) c = Relu(a) d = {last} e = {POINT}(x, point) s = Add(d, e) y = Relu(s)"
    )
    lowered = lower(net, Target.parse(f"t4/tensorrt-{target}"))
    added = next(held for held in lowered.origins if len(held) == 3)
    assert net.nodes[added[0]].outputs == (("d",) if main else ("e",))


@pytest.mark.parametrize(
    ("body", "copies"),
    [
        (f"c = {CONV}(x, w)", 0),
        (f"c = {POOL}(x)", 0),
        (f"b = {CONV}(x, w) d = Relu(b) c = Exp(d)", 0),
        (f"b = {CONV}(x, w) c = Add(b, x)", 1),
        (f"b = {CONV}(x, w) h = {POOL}(b) c = Resize(h, , ones)", 1),
        (f"c = {CONV}(x, w) m = {POOL}(c) k = {CONV}(m, w2)", 1),
        (f"c = {CONV}(x, w) n = {CONV}(c, w2) {SILU.format('n')} k = Add(nm, c)", 1),
        ("b, c = Split<axis=1>(x, parts)", 1),
        ("c = Neg(x)", 0),
        (f"c = {POINT}(x, point)", 2),  # both convolutions run as one
        ("c = Identity(x)", 1),
    ],
)
@pytest.mark.parametrize("target", ["7.1/fp16", "8.2/fp32", "8.6/int8", "10.7/fp16"])
def test_parts_of_a_concat_are_copied_one_by_one(target: str, body: str, copies: int) -> None:
    net = network_of(f"{PART} {body} f = Concat<axis=1>(a, c) y = Neg(f)")
    lowered = lower(net, Target.parse(f"t4/tensorrt-{target}"))
    made = [node for node in lowered.network.nodes if node.op == "Concat"]
    assert len(made) == copies
    concat = next(i for i, node in enumerate(net.nodes) if node.op == "Concat")
    assert (concat in lowered.removed) == (copies == 0)
    # A copy reads its part and writes it.
    for row in map(
        geometry, [[sign(k.network).text] for k in kernels(lowered) if k.ops == ("Concat",)]
    ):
        assert row.column("in_bytes")[0] == row.column("out_bytes")[0] > 0


def test_a_split_that_is_no_kernel_is_read_in_part() -> None:
    net = network(
        f"a = {CONV}(x, w) b, c = Split<axis=1>(a, parts) d = Neg(b) y = {CONV}(c, half)",
        outputs="y, float[] d",
    )
    lowered = lower(net, Target.parse("t4/tensorrt-8.6/fp16"))
    (row,) = (geometry([sign(k.network).text]) for k in kernels(lowered) if k.origins == (3,))
    assert "Split" not in [node.op for node in lowered.network.nodes]
    assert (row.column("in_bytes")[0], row.column("c_in")[0]) == (32 * 28 * 28 * 4, 32)


def test_what_differs_has_an_identity_of_its_own() -> None:
    """Lowerings of one version are kept by precision: half, single, and whole numbers."""
    targets = [Target.parse(f"t4/tensorrt-8.6/{p}") for p in ("fp16", "fp32", "int8")]
    assert len({identity(target) for target in targets}) == 3
    # A table's name says no version: the newest is meant.
    named = identity(Target.parse("t4/tensorrt-ultralytics/fp16"))
    assert named == identity(Target.parse("t4/tensorrt/fp16"))
    # Where that does not run, the last that does.
    for name in ["xavier-nx/8.5", "tx2/8.2", "p100/8.6", "k80/8.5", "gtx-980/8.5", "v100/10"]:
        device, last = name.split("/")
        known = identity(Target.parse(f"{device}/tensorrt-{last}/fp16"))
        assert identity(Target.parse(f"{device}/tensorrt/fp16")) == known


def test_a_transformer_is_announced_as_a_foreign_node() -> None:
    net = network("y = LayerNormalization(x, v)", "float[1,197,64] x")
    (warning,) = lower(net, Target.parse("t4/tensorrt-10.3/fp16")).warnings
    assert "ForeignNode" in warning
    assert not lower(net, Target.parse("t4/tensorrt-8.2/fp16")).warnings


def test_versions_bound_rules() -> None:
    since = Fuse("Relu", "Relu", "", since="8.2")
    assert [since.covers(v) for v in ("8.0", "8.2.1", "10.0", "")] == [False, True, True, True]
    before = Fuse("Relu", "Relu", "", before="8.2")
    assert [before.covers(v) for v in ("8.0", "8.2.1", "10.0", "")] == [True, False, False, False]


def test_what_no_rule_names_stays_a_kernel() -> None:
    lowered = lower(network("a = LRN<size=5>(x) y = Relu(a)"), Target.parse("t4/tensorrt/fp32"))
    assert [node.op for node in lowered.network.nodes] == ["LRN", "Relu"]
    (warning,) = lowered.warnings
    assert warning.startswith("no fusion rule covers LRN (1 of 2 operators): taken for a kernel")
    chain = network("a = Selu(x) b = Softsign(a) y = GlobalMaxPool(b)")
    known = lower(chain, Target.parse("t4/tensorrt/fp32"))
    assert [node.op for node in known.network.nodes] == ["Selu+Softsign", "GlobalMaxPool"]
    assert not known.warnings
    b = Builder()
    net = b.network(
        b.op("SparseAttention", [b.input((1, 8, 64))], (1, 8, 64), 1, {}, "some.domain")
    )
    (foreign,) = lower(net, Target.parse("t4/tensorrt/fp32")).warnings
    assert foreign.endswith("taken for a kernel of its own, if a plug-in runs it")


@pytest.mark.parametrize(
    ("name", "precision", "least"),
    [("convnext_tiny", "fp32", 1.0), ("convnext_tiny", "fp16", 1.0),
     ("convnext_atto", "fp32", 0.72), ("convnext_atto", "fp16", 0.94)],
)  # fmt: skip
def test_a_transformer_has_the_kernels_that_tensorrt_rtx_makes(
    name: str, precision: str, least: float
) -> None:
    """``least`` is the share of operators that stand in a kernel with the same others."""
    recording = ROOT / f"tests/golden/rtx_layers/{name}.{precision}.json.gz"
    body = json.loads(gzip.decompress(recording.read_bytes()))
    truth = Groups(tuple(map(tuple, body["kernels"])), tuple(body["removed"]))
    net = read_network(NETS / f"{name}.onnx")
    lowered = lower(net, Target.parse(f"h100/tensorrt-10.7/{precision}"))
    others = differing(Groups(lowered.origins, lowered.removed), truth)
    assert 1 - len(others) / len(net.nodes) >= least


def test_a_table_is_read_from_top_to_bottom() -> None:
    net = network("a = Relu(x) c = Neg(a) y = Abs(c)")
    first = (Fuse("Relu", "Neg", "", makes="R"), Fuse("R", "Abs", ""))
    assert apply(net, first).kernels == ((0, 1, 2),)
    assert apply(net, first[::-1]).kernels == ((0, 1), (2,))
    assert apply(net, (Eliminate("Neg", ""),)) == Groups(((0,), (2,)), (1,))


def test_joining_never_closes_a_loop() -> None:
    net = network("a = Relu(x) c = Neg(a) d = Abs(c) y = Add(a, d)")
    kernels = apply(net, (Fuse("Relu", "Add", ""),)).kernels
    assert kernels == ((0,), (1,), (2,), (3,))


def test_a_fan_of_what_is_unlike_itself_is_not_compared_in_pairs() -> None:
    net = network(" ".join(f"a{i} = Relu(x)" for i in range(20)) + " y = Concat<axis=1>(a0, a1)")
    pairs = []

    def unlike(producer: Group, consumer: Group) -> bool:
        pairs.append((producer.key, consumer.key))
        return False

    apply(net, (Fuse("Relu", "Relu", "", unlike, match_policy="beside"),))
    assert pairs == [(i, i) for i in range(20)]
