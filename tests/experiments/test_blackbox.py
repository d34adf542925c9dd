"""The black-box fusion test on an engine that is computed, and the table that it gives."""

from collections.abc import Sequence

from experiments import blackbox
from experiments.blackbox import CHAINS, Case, FusionTest, find, framed, table, truth
from hybridlat.engines.fusion import rewriter
from hybridlat.onnx_io import read_network, to_onnx
from tests.fakes.fake_backend import FakeBackend, Machine

QUIET = Machine(noise_share=0.0)
MAPS = ((16, 28), (32, 14))


def fake(fuses: bool, noise: float = 0.0) -> FakeBackend:
    return FakeBackend(Machine(noise_share=noise), fuses=fuses)


def findings(
    backend: FakeBackend, chains: Sequence[tuple[str, ...]]
) -> dict[tuple[str, ...], FusionTest]:
    return {f.case.ops: f for f in find(backend, [Case(ops, MAPS) for ops in chains])}


def test_it_finds_what_a_fusing_engine_fuses() -> None:
    chains = (("Conv", "Relu"), ("Conv", "Add"), ("Conv", "Add", "Relu"), ("Conv", "Conv"),
              ("Conv", "MaxPool"), ("MaxPool", "Relu"))  # fmt: skip
    backend = fake(fuses=True)
    verdicts = findings(backend, chains)
    for ops, finding in verdicts.items():
        assert finding.fused == truth(backend.lower, finding.case), ops
    assert [ops for ops in chains if verdicts[ops].fused] == [
        ("Conv", "Relu"),
        ("Conv", "Add"),
        ("Conv", "Add", "Relu"),
    ]


def test_it_finds_nothing_on_an_engine_that_fuses_nothing() -> None:
    verdicts = findings(fake(fuses=False), CHAINS[:9])
    assert len(verdicts) == 9
    assert not any(f.fused for f in verdicts.values())
    assert all(abs(f.saved_share) < 0.05 for f in verdicts.values())


def test_it_stands_noise() -> None:
    verdicts = findings(fake(fuses=True, noise=0.02), (("Conv", "Relu"), ("Conv", "Conv")))
    assert [f.fused for f in verdicts.values()] == [True, False]


def test_the_saving_is_a_share_of_the_cheaper_one() -> None:
    finding = FusionTest(Case(("Conv", "Relu")), first_us=10.0, second_us=4.0, together_us=11.0)
    assert finding.saved_share == 0.75
    assert finding.fused
    assert not FusionTest(finding.case, 10.0, 4.0, 12.0).fused  # exactly alpha is not above it


def test_chains_that_the_engine_refuses_are_left_out() -> None:
    backend = FakeBackend(QUIET, refused_ops=("Clip",))
    cases = [Case(("Conv", "Clip"), MAPS), Case(("Conv", "Relu"), MAPS)]
    assert [f.case.ops for f in find(backend, cases)] == [("Conv", "Relu")]


def test_findings_are_a_table_of_rules() -> None:
    case = Case(("Conv", "BatchNormalization", "Relu"))
    fused = [FusionTest(Case(ops), 10.0, 4.0, 10.0) for ops in (case.ops, case.ops[:2])]
    apart = FusionTest(Case(("Conv", "Add")), 10.0, 4.0, 14.0)
    network = framed(case.ops, case, 16, 8)
    groups = rewriter.apply(network, table([*fused, apart]))
    assert groups.kernels == ((0,), (1,), (2, 3, 4), (5,))
    assert [rule.name for rule in table([apart])] == []


def test_the_frame_is_a_network_that_engines_accept() -> None:
    for ops in CHAINS:
        network = framed(ops, Case(ops), 16, 8)
        read = read_network(to_onnx(network, seed=1))
        assert [n.op for n in read.nodes] == [n.op for n in network.nodes]
        assert network.nodes[-1].op == "AveragePool"
        assert [n.op for n in network.nodes][-1 - len(ops) : -1] == list(ops)


def test_a_chain_that_is_not_one_kernel_has_no_answer() -> None:
    backend = fake(fuses=False)
    assert truth(backend.lower, Case(("Conv", "BatchNormalization", "Relu"))) is None
    assert truth(backend.lower, Case(("Conv", "Relu"))) is False
    assert blackbox.ALPHA == 0.5
