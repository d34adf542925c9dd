"""What engines of classic TensorRT fuse and copy, by version and precision, as listings show it."""

import pytest

from hybridlat.engines.tensorrt.lowering import identity, lower
from hybridlat.graph.cells import kernels
from hybridlat.graph.network import Network
from hybridlat.graph.signature import sign
from hybridlat.model.geometry import geometry
from hybridlat.schema.target import Target
from tests.engines.tensorrt_patterns import CONV, POINT, W3, network, weights

IMAGE, LARGE = "float[1,3,64,64] x", "float[1,64,40,40] x"
SMALL, BATCH = "float[1,64,20,20] x", "float[10,64,20,20] x"
SILU = "{0}s = Sigmoid({0}) {0}m = Mul({0}, {0}s)"
POOL = "MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>"
VERSIONS = ("7.1", "8.6", "10.7")
AXIS = "i = Constant<value = int64[2] {32,32}>()"


def kernels_of(net: Network, target: str) -> list[str]:
    """The file's operators in each kernel; a copy of a further part of a Concat has none."""
    lowered = lower(net, Target.parse(f"t4/tensorrt-{target}"))
    return [kernel.ops[0] for kernel in kernels(lowered, net)]


RESIDUAL = f"a = {CONV}(x, w) {SILU.format('a')} y = Add(am, x)"
ALL, LAST = ["Conv+Sigmoid+Mul+Add"], ["Conv", "Sigmoid+Mul+Add"]
OF_IMAGE = f"a = {CONV}(x, stem) {SILU.format('a')} y = Identity(am)"
OF_CHANNEL = f"a = Conv<pads=[1,1,1,1], group=64>(x, deep) {SILU.format('a')} y = Identity(am)"
ONE, APART = ["Conv+Sigmoid+Mul"], ["Conv", "Sigmoid+Mul"]
MISH = f"a = {POINT}(x, p) s = Softplus(a) t = Tanh(s) y = Mul(a, t)"
CHAIN = "a = Neg(x) c = Abs(a) d = Add(c, x) e = Relu(c) y = Mul(d, e)"
NORM = f"a = {CONV}(x, w) c = BatchNormalization(a, v, v, v, v) s = Add(c, x) y = Relu(s)"
POOLED = f"a = {CONV}(x, stem) c = Relu(a) y = {POOL}(c)"
HEAD = (
    f"r = Constant<value = int64[5] {{1,2,32,28,28}}>() a = {CONV}(x, w) b = Reshape(a, r) "
    "c = Transpose<perm=[0,1,3,4,2]>(b) s = Sigmoid(c) y = Exp(s)"
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
        ("8.2/fp32", SMALL, f"a = {POINT}(x, p) y = Sigmoid(a)", ["Conv", "Sigmoid"]),
        ("8.4/fp16", SMALL, f"a = {POINT}(x, single) y = Sigmoid(a)", ["Conv+Sigmoid"]),
        ("8.5/int8", SMALL, f"a = {POINT}(x, p) y = Sigmoid(a)", ["Conv+Sigmoid"]),
        ("8.4/int8", SMALL, f"a = {POINT}(x, single) y = Sigmoid(a)", ["Conv", "Sigmoid"]),
        ("8.2/fp32", SMALL, f"a = {POINT}(x, p) y = Clip(a)", ["Conv+Clip"]),
        ("8.6/fp16", SMALL, f"a = {POINT}(x, p) y = PRelu(a, slope)", ["Conv", "PRelu"]),
        ("8.6/fp16", SMALL, MISH, ["Conv+Softplus+Tanh+Mul"]),
        ("8.6/fp32", SMALL, MISH, ["Conv", "Softplus+Tanh+Mul"]),
    ],
    "a ReLU before a sum keeps the sum apart": [
        ("8.6/fp16", SMALL, f"a = {CONV}(x, w) c = Relu(a) s = Add(c, x) y = Relu(s)",
         ["Conv+Relu", "Add+Relu"]),
    ],
    "a chain of element-wise operators is one kernel": [
        *((f"{version}/fp32", SMALL, CHAIN, ["Neg+Abs", "Add+Relu+Mul"]) for version in VERSIONS),
        ("10.7/fp16", SMALL, "a = GlobalAveragePool(x) c = Sigmoid(a) y = Mul(x, c)",
         ["GlobalAveragePool", "Sigmoid", "Mul"]),
    ],
    "a normalisation behind a convolution costs nothing": [
        (f"{version}/fp32", SMALL, NORM, ["Conv+BatchNormalization+Add+Relu"])
        for version in VERSIONS
    ],
    "the pooling of an image is in its convolution in whole numbers": [
        ("8.5/int8", IMAGE, POOLED, ["Conv+Relu+MaxPool"]),
        ("8.5/fp16", IMAGE, POOLED, ["Conv+Relu", "MaxPool"]),
    ],
    "from 10 on Myelin compiles what computes on other than maps": [
        ("10.7/fp16", "float[1,64,28,28] x", HEAD, ["Conv", "Reshape+Transpose+Sigmoid+Exp"]),
        ("8.6/fp16", "float[1,64,28,28] x", HEAD, ["Conv", "Reshape+Transpose", "Sigmoid+Exp"]),
    ],
}  # fmt: skip
OWN = weights(stem=(64, 3, 3, 3), deep=(64, 1, 3, 3), single=(1, 64, 1, 1), slope=(64, 1, 1))


@pytest.mark.parametrize("what", FUSED)
def test_engines_fuse_by_version_precision_and_size(what: str) -> None:
    for target, inputs, body, expected in FUSED[what]:
        assert kernels_of(network(f"{W3} {OWN} {body}", inputs), target) == expected, target


@pytest.mark.parametrize(
    ("target", "main"),
    [("8.2/fp16", 0), ("8.4/fp32", 0), ("8.4/int8", 1), ("8.6/fp16", 1), ("10.3/fp16", 0)],
)
def test_the_branch_that_adds(target: str, main: bool) -> None:
    net = network(
        f"{W3} a = {CONV}(x, w) c = Relu(a) d = {CONV}(c, w2) e = {POINT}(x, p) s = Add(d, e) "
        "y = Relu(s)"
    )
    lowered = lower(net, Target.parse(f"t4/tensorrt-{target}"))
    added = next(held for held in lowered.origins if len(held) == 3)
    assert net.nodes[added[0]].outputs == (("d",) if main else ("e",))


PARTS = f"{W3} {AXIS} a = {POINT}(x, p)"


@pytest.mark.parametrize(
    ("body", "copies"),
    [
        (f"c = {CONV}(x, w)", 0),
        (f"c = {POOL}(x)", 0),
        (f"b = {CONV}(x, w) d = Relu(b) c = Exp(d)", 0),
        (f"b = {CONV}(x, w) c = Add(b, x)", 1),
        (f"b = {CONV}(x, w) h = {POOL}(b) c = Resize(h, , z)", 1),
        (f"c = {CONV}(x, w) m = {POOL}(c) k = {CONV}(m, w2)", 1),
        ("b, c = Split<axis=1>(x, i)", 1),
        ("c = Neg(x)", 0),
        (f"c = {POINT}(x, p)", 2),  # both convolutions run as one
        ("c = Identity(x)", 1),
    ],
)
@pytest.mark.parametrize("target", ["7.1/fp16", "8.2/fp32", "8.6/int8", "10.7/fp16"])
def test_parts_of_a_concat_are_copied_one_by_one(target: str, body: str, copies: int) -> None:
    outputs = "y, float[] k" if " k = " in body else "y"
    resize = "z = Constant<value = float[4] {1.0, 1.0, 1.0, 1.0}>()"
    net = network(f"{PARTS} {resize} {body} f = Concat<axis=1>(a, c) y = Neg(f)", outputs=outputs)
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


def test_each_part_has_one_place() -> None:
    """The second Concat that a tensor is part of copies it, as it does an input."""
    net = network(
        f"{PARTS} c = {CONV}(x, w) f = Concat<axis=1>(a, c) g = Concat<axis=1>(c, x) y = Neg(f)",
        outputs="y, float[] g",
    )
    assert kernels_of(net, "8.6/fp16").count("Concat") == 2


@pytest.mark.parametrize(("channels", "copies"), [(64, 0), (3, 1)])
def test_a_part_in_whole_numbers_begins_at_a_vector(channels: int, copies: int) -> None:
    net = network(
        f"{W3} {weights(q=(channels, 64, 1, 1))} a = {CONV}(x, w) c = {POINT}(x, q) "
        "y = Concat<axis=1>(a, c)"
    )
    assert kernels_of(net, "8.4/int8").count("Concat") == copies
    assert "Concat" not in kernels_of(net, "8.4/fp16")


def test_a_split_is_a_kernel_only_for_a_sum_that_a_convolution_takes() -> None:
    half = weights(h=(32, 32, 3, 3))
    net = network(
        f"{W3} {half} {AXIS} a = {CONV}(x, w) b, c = Split<axis=1>(a, i) d = {CONV}(c, h) "
        f"{SILU.format('d')} y = Add(dm, c)",
        LARGE,
        outputs="y, float[] b",
    )
    assert "Split" in kernels_of(net, "8.6/fp16")
    assert "Split" not in kernels_of(net, "8.6/fp32")
    alone = network(
        f"{W3} {half} {AXIS} a = {CONV}(x, w) b, c = Split<axis=1>(a, i) d = Neg(b) "
        f"y = {CONV}(c, h)",
        outputs="y, float[] d",
    )
    lowered = lower(alone, Target.parse("t4/tensorrt-8.6/fp16"))
    reads = [geometry([sign(k.network).text]) for k in kernels(lowered) if k.origins == (3,)]
    whole, half_bytes = 64 * 28 * 28 * 4, 32 * 28 * 28 * 4
    assert "Split" not in [node.op for node in lowered.network.nodes]
    assert [(row.column("in_bytes")[0], row.column("c_in")[0]) for row in reads] == [
        (half_bytes, 32)
    ]
    assert whole == 2 * half_bytes


def test_what_differs_has_an_identity_of_its_own() -> None:
    """Lowerings of one version are kept by precision: half, single, and whole numbers."""
    targets = [
        Target.parse(f"t4/tensorrt-8.6/{precision}") for precision in ("fp16", "fp32", "int8")
    ]
    assert len({identity(target) for target in targets}) == 3
    # A table's name says no version: the newest is meant.
    named = identity(Target.parse("t4/tensorrt-ultralytics/fp16"))
    assert named == identity(Target.parse("t4/tensorrt/fp16"))


def test_a_transformer_is_announced_as_a_foreign_node() -> None:
    net = network(f"{weights(b=(64,))} y = LayerNormalization(x, b)", "float[1,197,64] x")
    (warning,) = lower(net, Target.parse("t4/tensorrt-10.3/fp16")).warnings
    assert "ForeignNode" in warning
    assert not lower(net, Target.parse("t4/tensorrt-8.2/fp16")).warnings
