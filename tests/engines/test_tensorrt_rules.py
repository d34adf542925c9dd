"""The rules of TensorRT on graphs written in ONNX's text format."""

import pytest

from hybridlat.engines.fusion.groups import Groups
from hybridlat.engines.fusion.rules import Eliminate, Fuse, Group, apply
from hybridlat.engines.tensorrt.fusion_rules import RTX
from hybridlat.engines.tensorrt.lowering import lower
from hybridlat.graph.cells import kernels
from hybridlat.graph.network import Network
from hybridlat.schema.target import Target
from tests.engines.tensorrt_patterns import (
    CONV,
    PATTERNS,
    POINT,
    W3,
    Pattern,
    by_rules,
    kernel_texts,
    network,
    weights,
)

SILU = "{0}s = Sigmoid({0}) {0}m = Mul({0}, {0}s)"
ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "HardSwish", "LeakyRelu")
SMALL_GRAPHS = {
    **{
        activation: (f"{W3} a = {CONV}(x, w, v) c = {activation}(a) y = {CONV}(c, w2)",
                     [f"Conv+{activation}", "Conv"], [])
        for activation in ACTIVATIONS
    },
    "a Concat of convolutions is written in place": (
        f"{W3} {weights(d=(64, 128, 1, 1))} a = {CONV}(x, w) c = {POINT}(x, p) "
        f"e = Concat<axis=1>(a, c) y = {POINT}(e, d)",
        ["Conv", "Conv", "Conv"], ["Concat"],
    ),
    "a channel shuffle is one copy": (
        f"{W3} a = {CONV}(x, w) i = Constant<value = int64[5] {{1,2,32,28,28}}>() "
        "o = Constant<value = int64[4] {1,64,28,28}>() c = Reshape(a, i) "
        f"d = Transpose<perm=[0,2,1,3,4]>(c) e = Reshape(d, o) y = {CONV}(e, w2)",
        ["Conv", "Reshape+Transpose", "Conv"], ["Reshape"],
    ),
    "nothing remains of Dropout, Identity and Flatten": (
        f"{weights(f=(10, 64))} a = GlobalAveragePool(x) c = Flatten(a) d = Dropout(c) "
        "e = Identity(d) y = Gemm<transB=1>(e, f)",
        ["GlobalAveragePool", "Gemm"], ["Reshape"],
    ),
    "what no rule names stays a kernel": ("a = LRN<size=5>(x) y = Relu(a)", ["LRN", "Relu"], []),
}  # fmt: skip
CLASSIC_SILU, ONE_SILU = ["Conv", "Sigmoid+Mul", "Conv"], ["Conv+Sigmoid+Mul", "Conv"]
APART = ["Conv", "Conv+Add", "Sigmoid+Mul", "Conv"]
JOINED = ["Conv", "Conv+Add+Sigmoid+Mul", "Conv"]


def kernels_of(
    net: Network, version: str = "", precision: str = "fp32"
) -> tuple[list[str], list[str], tuple[str, ...]]:
    lowered = by_rules(net, version, precision)
    names = [kernel.ops[0] for kernel in kernels(lowered, net)]
    return names, [net.nodes[i].op for i in lowered.removed], lowered.warnings


@pytest.mark.parametrize("what", SMALL_GRAPHS)
def test_small_graphs(what: str) -> None:
    body, expected, gone = SMALL_GRAPHS[what]
    names, removed, warnings = kernels_of(network(body))
    assert (names, removed) == (expected, gone)
    rule = "no fusion rule covers LRN (1 of 2 operators): taken for a kernel of its own"
    assert warnings == ((rule,) if "LRN" in names else ())


@pytest.mark.parametrize(
    ("target", "of_one", "of_sum"),
    [
        ("t4/tensorrt-8.6/fp16", ONE_SILU, APART),
        ("t4/tensorrt-10.3/fp16", ONE_SILU, JOINED),
        ("t4/tensorrt-10.3/int8", ONE_SILU, JOINED),
        ("unheard-of/tensorrt/fp16", ONE_SILU, JOINED),
        ("t4/tensorrt-10.3/fp32", CLASSIC_SILU, APART),
        ("t4/tensorrt-8.6/fp32", CLASSIC_SILU, APART),
        ("v100/tensorrt-10.3/fp16", CLASSIC_SILU, APART),
        ("jetson-nano/tensorrt-8.2/fp16", CLASSIC_SILU, APART),
        ("t4/paddle-tensorrt-8.5/fp16", CLASSIC_SILU, APART),
        ("t4/tensorrt-11.4/fp32", CLASSIC_SILU, APART),
        ("t4/tensorrt-23.10/fp32", CLASSIC_SILU, APART),
        ("t4/tensorrt-rtx-1.2/fp32", ONE_SILU, JOINED),
        (f"t4/{RTX}/fp32", ONE_SILU, JOINED),
    ],
)
def test_half_precision_alone_has_epilogues_beyond_relu(
    target: str, of_one: list[str], of_sum: list[str]
) -> None:
    one = network(f"{W3} a = {CONV}(x, w) {SILU.format('a')} y = {CONV}(am, w2)")
    branches = f"{W3} a = {POINT}(x, p) e = {CONV}(x, w) r = Add(a, e) {SILU.format('r')}"
    both = network(f"{branches} y = {CONV}(rm, w2)")
    for net, expected in ((one, of_one), (both, of_sum)):
        lowered = lower(net, Target.parse(target))
        assert [node.op for node in lowered.network.nodes] == expected


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_small_networks_become_the_kernels_that_the_compiler_makes(pattern: Pattern) -> None:
    net = pattern.network()
    assert kernel_texts(net, by_rules(net).origins) == pattern.expected()


def test_the_first_branch_adds_when_scales_are_not_folded() -> None:
    net = network(
        f"{W3} a = {CONV}(x, w) an = BatchNormalization(a, v, v, v, v) c = {POINT}(x, p) "
        "cn = BatchNormalization(c, v, v, v, v) s = Add(an, cn) y = Relu(s)"
    )
    assert kernels_of(net)[0] == ["Conv+BatchNormalization", "Conv+BatchNormalization+Add+Relu"]
    lowered = by_rules(net)
    added = next(o for o in lowered.origins if len(o) == 4)
    assert net.nodes[added[0]].outputs == ("a",)


def test_versions_bound_rules() -> None:
    net = network(f"{W3} a = {CONV}(x, w) c = HardSigmoid(a) d = Mul(x, c) y = {CONV}(d, w2)")
    assert (
        "HardSigmoid+Mul" in kernels_of(net)[0] and "HardSigmoid+Mul" in kernels_of(net, "8.6")[0]
    )
    assert by_rules(net, "8.6").by == "rules tensorrt-8.6"
    since = Fuse("Relu", "Relu", "", since="8.2")
    assert [since.covers(v) for v in ("8.0", "8.2.1", "10.0", "")] == [False, True, True, True]
    before = Fuse("Relu", "Relu", "", before="8.2")
    assert [before.covers(v) for v in ("8.0", "8.2.1", "10.0", "")] == [True, False, False, False]


def test_convolutions_of_one_tensor_with_the_same_windows_run_as_one() -> None:
    body = f"{W3} {weights(q=(32, 64, 1, 1))} a = {POINT}(x, p) c = {POINT}(x, q)"
    relu = f"{body} ar = Relu(a) cr = Relu(c) d = {CONV}(ar, w) y = Concat<axis=1>(d, d)"
    relus = network(relu, outputs="y, float[] cr")
    names = kernels_of(relus, "8.6")[0]
    assert "Conv+Conv+Relu+Relu" in names
    # A SiLU follows the one that both run as; each in a kernel of its own.
    silus = network(f"{body} {SILU.format('a')} {SILU.format('c')} y = Concat<axis=1>(am, cm)")
    assert kernels_of(silus, "8.6", "fp16")[0] == ["Conv+Conv", "Sigmoid+Mul", "Sigmoid+Mul"]
    # Both as one cannot write what is put together in place.
    together = network(f"{body} y = Concat<axis=1>(a, c)")
    assert kernels_of(together, "8.6")[0] == ["Conv+Conv", "Concat", "Concat"]
    other = network(f"{W3} a = {POINT}(x, p) c = {CONV}(x, w) y = Add(a, c)")
    assert "Conv+Conv" not in kernels_of(other, "8.6")[0]


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
