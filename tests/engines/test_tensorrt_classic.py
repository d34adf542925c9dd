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
SIZES = "z = Constant<value = float[4] {1,1,2,2}>() n = Constant<value = float[0] {}>()"
AXIS = "i = Constant<value = int64[2] {32,32}>()"


def kernels_of(net: Network, target: str) -> list[str]:
    """The file's operators in each kernel; a copy of a further part of a Concat has none."""
    lowered = lower(net, Target.parse(f"t4/tensorrt-{target}"))
    return [kernel.ops[0] for kernel in kernels(lowered, net)]


RESIDUAL = f"a = {CONV}(x, w) {SILU.format('a')} y = Add(am, x)"
ALL, LAST, APART = "Conv+Sigmoid+Mul+Add", "Sigmoid+Mul+Add", "Conv"


@pytest.mark.parametrize(
    ("target", "inputs", "expected"),
    [
        ("8.6/fp16", LARGE, [ALL]),
        ("8.6/fp16", BATCH, [ALL]),
        ("10.7/fp16", LARGE, [ALL]),
        ("10.7/fp16", SMALL, [APART, LAST]),
        ("8.5/fp16", LARGE, [APART, LAST]),
        ("8.6/int8", LARGE, [APART, LAST]),
        ("8.2/fp32", LARGE, [APART, LAST]),
        ("10.7/fp32", LARGE, [APART, LAST]),
    ],
)
def test_a_silu_and_a_sum(target: str, inputs: str, expected: list[str]) -> None:
    """One convolution takes both in half precision from 8.6 on, where maps are large."""
    assert kernels_of(network(f"{W3} {RESIDUAL}", inputs), target) == expected


DEEP = "Conv<kernel_shape=[3,3], pads=[1,1,1,1], group=64>"


@pytest.mark.parametrize(
    ("target", "body", "inputs", "expected"),
    [
        ("8.6/int8", f"a = {CONV}(x, s)", IMAGE, ["Conv+Sigmoid+Mul"]),
        ("8.6/fp16", f"a = {CONV}(x, s)", IMAGE, ["Conv", "Sigmoid+Mul"]),
        ("8.6/fp16", f"a = {DEEP}(x, d)", LARGE, ["Conv+Sigmoid+Mul"]),
        ("10.3/fp16", f"a = {DEEP}(x, d)", LARGE, ["Conv+Sigmoid+Mul"]),
        ("10.7/fp16", f"a = {DEEP}(x, d)", LARGE, ["Conv", "Sigmoid+Mul"]),
    ],
)
def test_a_silu_of_an_image_or_of_single_channels(
    target: str, body: str, inputs: str, expected: list[str]
) -> None:
    made = weights(s=(64, 3, 3, 3), d=(64, 1, 3, 3))
    net = network(f"{made} {body} {SILU.format('a')}", inputs, outputs="am")
    assert kernels_of(net, target) == expected


@pytest.mark.parametrize(
    ("target", "activation", "channels", "expected"),
    [
        ("8.2/fp32", "Sigmoid", 64, ["Conv", "Sigmoid"]),
        ("8.4/fp16", "Sigmoid", 1, ["Conv+Sigmoid"]),
        ("8.5/int8", "Sigmoid", 255, ["Conv+Sigmoid"]),
        ("8.4/int8", "Sigmoid", 3, ["Conv", "Sigmoid"]),
        ("8.2/fp32", "Clip", 64, ["Conv+Clip"]),
        ("8.6/fp16", "PRelu", 64, ["Conv", "PRelu"]),
        ("8.6/fp16", "Mish", 64, ["Conv+Softplus+Tanh+Mul"]),
        ("8.6/fp32", "Mish", 64, ["Conv", "Softplus+Tanh+Mul"]),
    ],
)
def test_activations_beyond_relu(
    target: str, activation: str, channels: int, expected: list[str]
) -> None:
    last = {
        "PRelu": "y = PRelu(a, v)",
        "Mish": "s = Softplus(a) t = Tanh(s) y = Mul(a, t)",
    }.get(activation, f"y = {activation}(a)")
    net = network(f"{W3} {weights(q=(channels, 64, 1, 1))} a = {POINT}(x, q) {last}")
    assert kernels_of(net, target) == expected


def test_a_relu_before_a_sum_keeps_the_sum_apart() -> None:
    net = network(f"{W3} a = {CONV}(x, w) c = Relu(a) s = Add(c, x) y = Relu(s)")
    assert kernels_of(net, "8.6/fp16") == ["Conv+Relu", "Add+Relu"]


@pytest.mark.parametrize(
    ("target", "main"),
    [("8.2/fp16", 0), ("8.4/fp32", 0), ("8.4/int8", 1), ("8.5/int8", 1), ("8.6/fp16", 1),
     ("10.3/fp16", 0)],
)  # fmt: skip
def test_the_branch_that_adds(target: str, main: bool) -> None:
    net = network(
        f"{W3} a = {CONV}(x, w) c = Relu(a) d = {CONV}(c, w2) e = {POINT}(x, p) s = Add(d, e) "
        "y = Relu(s)"
    )
    lowered = lower(net, Target.parse(f"t4/tensorrt-{target}"))
    added = next(held for held in lowered.origins if len(held) == 3)
    assert net.nodes[added[0]].outputs == (("d",) if main else ("e",))


def test_a_chain_of_element_wise_operators_is_one_kernel_in_every_version() -> None:
    net = network("a = Neg(x) c = Abs(a) d = Add(c, x) e = Relu(c) y = Mul(d, e)")
    for version in ("7.1", "8.6", "10.7"):
        assert kernels_of(net, f"{version}/fp32") == ["Neg+Abs", "Add+Relu+Mul"]
    gate = network("a = GlobalAveragePool(x) c = Sigmoid(a) y = Mul(x, c)")
    assert kernels_of(gate, "10.7/fp16") == ["GlobalAveragePool", "Sigmoid", "Mul"]


def test_a_normalisation_behind_a_convolution_costs_nothing_in_any_version() -> None:
    net = network(
        f"{W3} a = {CONV}(x, w) c = BatchNormalization(a, v, v, v, v) s = Add(c, x) y = Relu(s)"
    )
    for version in ("7.1", "8.6", "10.7"):
        assert kernels_of(net, f"{version}/fp32") == ["Conv+BatchNormalization+Add+Relu"]


@pytest.mark.parametrize("target", ["8.5/int8", "8.5/fp16"])
def test_the_pooling_of_an_image_is_in_its_convolution_in_whole_numbers(target: str) -> None:
    net = network(f"{weights(s=(64, 3, 3, 3))} a = {CONV}(x, s) c = Relu(a) y = {POOL}(c)", IMAGE)
    whole = ["Conv+Relu+MaxPool"]
    assert kernels_of(net, target) == (whole if "int8" in target else ["Conv+Relu", "MaxPool"])


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
    ids=["convolution", "pool", "element-wise", "sum", "resize", "pooled too", "split", "of input",
         "twins", "input"],
)  # fmt: skip
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
        f"{SILU.format('d')} y = Add(dm, c)", LARGE, outputs="y, float[] b",
    )  # fmt: skip
    assert "Split" in kernels_of(net, "8.6/fp16")
    assert "Split" not in kernels_of(net, "8.6/fp32")
    alone = network(
        f"{W3} {half} {AXIS} a = {CONV}(x, w) b, c = Split<axis=1>(a, i) d = Neg(b) "
        f"y = {CONV}(c, h)", outputs="y, float[] d",
    )  # fmt: skip
    lowered = lower(alone, Target.parse("t4/tensorrt-8.6/fp16"))
    reads = [geometry([sign(k.network).text]) for k in kernels(lowered) if k.origins == (3,)]
    whole, half_bytes = 64 * 28 * 28 * 4, 32 * 28 * 28 * 4
    assert "Split" not in [node.op for node in lowered.network.nodes]
    assert [(row.column("in_bytes")[0], row.column("c_in")[0]) for row in reads] == [
        (half_bytes, 32)
    ]
    assert whole == 2 * half_bytes


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("10.7", ["Conv", "Reshape+Transpose+Sigmoid+Exp"]),
        ("8.6", ["Conv", "Reshape+Transpose", "Sigmoid+Exp"]),
    ],
)
def test_from_10_on_myelin_compiles_what_computes_on_other_than_maps(
    version: str, expected: list[str]
) -> None:
    shape = "r = Constant<value = int64[5] {1,2,32,28,28}>()"
    head = "b = Reshape(a, r) c = Transpose<perm=[0,1,3,4,2]>(b) s = Sigmoid(c) y = Exp(s)"
    net = network(f"{W3} {shape} a = {CONV}(x, w) {head}")
    assert kernels_of(net, f"{version}/fp16") == expected


def test_what_is_told_apart_has_an_identity_of_its_own() -> None:
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
