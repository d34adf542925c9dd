"""Networks lowered by rules: as the engine lowers them, or the engine is asked."""

import random
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from experiments import nasbench201
from experiments.block_spaces import NONE, SPACES, Architecture, BlockSpace
from experiments.random_graphs import random_graph
from hybridlat.engines.ort import lowering
from hybridlat.engines.ort.lowering import RuleLowering, agree, engine_block, is_checked, predict
from hybridlat.errors import NetworkError
from hybridlat.graph.network import Lowered, Network
from hybridlat.onnx_io import OnnxFile, load, to_onnx
from hybridlat.schema.target import Target
from tests.engines.texts import CONV, MAPS, network
from tests.networks import NETS, Builder
from tests.strategies import networks

if not is_checked(lowering.installed_version(), engine_block()):
    reason = "the rules were not held to this ONNX Runtime on such a CPU, which asks the engine"
    pytest.skip(reason, allow_module_level=True)

HERE = Target("here", "onnxruntime", "fp32", 1)
REAL = ("resnet18", "mobilenetv2_100", "mobilenetv3_small_100")
SUM = "|skip_connect~0|skip_connect~1|"
TWICE = f"|nor_conv_1x1~0|+{SUM}+{SUM}avg_pool_3x3~2|"


def ask(network: Network) -> Lowered:
    return lowering.lower(network, HERE)


def ask_another_version(network: Network) -> Lowered:
    """An engine that gives its first kernel another attribute."""
    answer = ask(network)
    first, *others = answer.network.nodes
    changed = replace(first, attributes=(*first.attributes, ("turned", 1)))
    return replace(answer, network=replace(answer.network, nodes=(changed, *others)))


def new() -> RuleLowering:
    return RuleLowering(ask, is_trusted=True)


def nas(count: int) -> list[OnnxFile]:
    drawn = [a for a in nasbench201.sample(2 * count, 3) if nasbench201.live_edges(a)]
    return [load(nasbench201.build(arch, cells_per_stage=1)) for arch in drawn[:count]]


def smallest(space: BlockSpace, architecture: Architecture) -> Architecture:
    """The same blocks on the smallest image, few and narrow: the engine reads weights."""
    return tuple(
        0 if choices[0] == NONE or "width" in place or place == "image" else number
        for number, choices, place in zip(architecture, space.choices, space.positions, strict=True)
    )


def assert_right(network: Network, *, may_be_uncovered: bool = False) -> None:
    """The rules say what the engine makes of the network."""
    predicted = predict(network)
    if predicted is None:
        assert may_be_uncovered
    else:
        assert agree(predicted, ask(network))


def test_networks_of_search_spaces_and_real_ones_are_lowered_as_the_engine_does() -> None:
    rng = random.Random(5)
    files = [load(NETS / f"{name}.onnx") for name in REAL] + nas(12)
    for space in SPACES.values():
        files += [load(space.build(smallest(space, space.sample(rng)))) for _ in range(3)]
    for file in files:
        assert_right(file.network())


@settings(max_examples=40, deadline=None)
@given(networks(widths=(3, 8, 12, 16, 18, 20, 32)))
def test_any_layout_of_branches_is_lowered_as_the_engine_does(made: Network) -> None:
    assert_right(load(to_onnx(made, seed=None)).network(), may_be_uncovered=True)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**9))
@example(2657)  # two equal Reshapes of a Reshape
@example(90876)  # a HardSwish behind a convolution without blocks, read twice
def test_any_operators_of_any_opset_are_lowered_as_the_engine_does(seed: int) -> None:
    with suppress(NetworkError):
        assert_right(load(random_graph(seed)).network(), may_be_uncovered=True)


SIX = "low = Constant<value = float {0.0}>() high = Constant<value = float {6.0}>()"
UNCOVERED = [
    "y = HardSwish(x)",
    f"{SIX} r = Relu(x) y = Clip(r, low, high)",
    "s = Sigmoid(x) y = Mul(s, x)",
    "s = HardSigmoid<alpha=0.1666667, beta=0.5>(x) y = Mul(x, s)",
    "y = Mul(x, factor)",
    "g = Gemm(x, head) y = Relu(g)",
    f"a = {CONV}(x, w) b = {CONV}(x, w2) s = Add(a, b) y = HardSigmoid(s)",
    f"a = {CONV}(x, w) b = {CONV}(x, w2) g = GlobalAveragePool(b) y = Add(a, g)",
]


@pytest.mark.parametrize("body", UNCOVERED)
def test_what_the_engine_fuses_as_no_rule_says_is_left_to_it(body: str) -> None:
    made = network(body, "float[28,64] x" if "Gemm" in body else MAPS)
    assert predict(made) is None


def test_a_sum_that_a_file_writes_twice_belongs_to_the_kernel_that_makes_it() -> None:
    """The engine takes it into the convolution; both of the file's additions are that one's."""
    network = load(nasbench201.build(TWICE, cells_per_stage=1)).network()
    made = [tuple(network.nodes[i].op for i in origin) for origin in ask(network).origins]
    assert ("Conv", "Add", "Add") in made
    assert_right(network)


ALIKE = [f"{CONV}(x, w, v)", "BatchNormalization(x, v, v, v, v)", "Mul(x, single)", "Mul(x, gamma)"]


@pytest.mark.parametrize("op", ALIKE)
def test_what_does_the_same_with_the_same_weights_is_one_kernel(op: str) -> None:
    made = network(f"a = {op} b = Sigmoid(a) c = {op} d = Tanh(c) y = Concat<axis=1>(b, d)")
    assert [k for k in ask(made).origins if 0 in k] == [k for k in ask(made).origins if 2 in k]
    assert_right(made, may_be_uncovered="Mul" in op)


def test_the_first_network_is_checked_and_then_fewer_and_fewer() -> None:
    network = nas(1)[0].network()
    checked_at: list[int] = []

    def counted(network: Network) -> Lowered:
        checked_at.append(lowered.covered)
        return ask(network)

    lowered = RuleLowering(counted, is_trusted=True)
    assert lowered.interval == 50
    lowered.interval = 2
    answers = [lowered.lower(network) for _ in range(16)]
    assert checked_at == [1, 3, 7, 15]
    assert all(agree(one, answers[0]) for one in answers)


def test_a_difference_turns_the_rules_off_with_a_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lowering, "_differing", set())
    network, lowered = nas(1)[0].network(), replace(new(), interval=2)
    lowered.lower(network)
    lowered.ask = ask_another_version
    lowered.lower(network)
    assert not caplog.text
    for _ in range(3):
        assert lowered.lower(network) == ask_another_version(network)
    assert "otherwise than the rules" in caplog.text
    assert not lowered.is_trusted and lowered.covered == 3


def test_versions_and_layouts_are_trusted_by_the_committed_list() -> None:
    assert is_checked("1.31.1", 16) and is_checked("1.32.0", 16)
    assert not is_checked("1.3", 16) and not is_checked("1.999.0", 16)
    assert not is_checked("1.32.0", 8) and not is_checked("1.32.0", 1)


def test_the_engine_says_how_many_channels_a_block_has() -> None:
    """As wide as it makes a convolution of one channel more than blocks of another width hold."""
    b = Builder("wide")
    lowered = ask(b.network(b.conv(b.input((1, 3, 8, 8)), 17)))
    widths = {t.shape[1] for t in lowered.network.types.values() if len(t.shape) == 4}
    assert max(widths) == {16: 32, 8: 24, 1: 17}[engine_block()]


def test_the_engine_lowers_what_no_rule_covers_and_under_a_version_that_was_not_checked() -> None:
    b = Builder("strange")
    erf = b.op("Erf", [b.conv(b.input((1, 16, 8, 8)), 16)], (1, 16, 8, 8), 13)
    cases = [(b.network(erf), new()), (nas(1)[0].network(), RuleLowering(ask, is_trusted=False))]
    for made, lowered in cases:
        assert lowered.lower(made) == ask(made) and not lowered.covered
