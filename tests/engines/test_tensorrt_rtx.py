"""The table of rules against TensorRT-RTX's compiler: asked where it is, else as recorded."""

import sys
from functools import cache
from statistics import fmean
from typing import Any

import pytest

from experiments import tensorrt_engines
from hybridlat.engines import registry, rtx_compiler
from hybridlat.engines.fusion.groups import Groups
from hybridlat.engines.rtx_compiler import EngineLayer, groups_of_layers, parse_layers
from hybridlat.errors import MissingExtra
from hybridlat.schema.target import Target
from tests.engines.tensorrt_patterns import CONV, PATTERNS, W3, Pattern, kernel_texts, network
from tests.experiments.scripts import load
from tests.networks import Builder, residual_block

NEEDS_COMPILER = pytest.mark.skipif(
    not rtx_compiler.installed(), reason="the extra rtx is not installed"
)


EXPERIMENT = load("tensorrt_fusion")


@cache
def verdicts(precision: str) -> list[Any]:
    names = sorted(p.name.split(".")[0] for p in EXPERIMENT.GOLDEN.glob(f"*.{precision}.json.gz"))
    return [EXPERIMENT.judge(n, precision, EXPERIMENT.recorded(n, precision)) for n in names]


@pytest.mark.parametrize(
    ("precision", "part", "goal"),
    [
        ("fp32", "half that shaped the rules", 0.99),
        ("fp16", "half that shaped the rules", 0.985),
        ("fp32", "the other half", 0.94),
        ("fp16", "the other half", 0.94),
    ],
)
def test_rules_agree_with_the_compiler(precision: str, part: str, goal: float) -> None:
    chosen = [v for v in verdicts(precision) if v.part == part]
    assert len(chosen) >= 25
    assert fmean(v.agreement for v in chosen) >= goal


@NEEDS_COMPILER
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", ["squeezenet", "mobilenetv3_small_100"])
def test_recordings_are_what_the_compiler_says(name: str, precision: str) -> None:
    network = EXPERIMENT.network_of(name, precision)
    groups, by = rtx_compiler.groups_of(network)
    if rtx_compiler.version() != "1.7.1.116":
        pytest.skip(f"recorded with another version than {by}")
    assert groups == EXPERIMENT.recorded(name, precision)


@NEEDS_COMPILER
def test_the_compiler_lowers_without_a_gpu() -> None:
    network = residual_block()
    lowered = registry.lower(network, Target.parse("rtx-4090/tensorrt-rtx/fp32"))
    assert lowered.by.startswith("tensorrt-rtx 1.")
    held = sorted(i for kernel in (*lowered.origins, lowered.removed) for i in kernel)
    assert held == list(range(len(network.nodes)))
    assert "Conv+Add+Relu" in {node.op for node in lowered.network.nodes}


def test_layers_of_a_published_engine_hold_the_operators_that_they_name() -> None:
    net = network(
        f"{W3} a = {CONV}(x, w) r = Relu(a) m = MaxPool<kernel_shape=[1,1]>(r) b = {CONV}(m, w2) "
        "s = Add(b, m) y = Relu(s)"
    )
    layers = [
        "Reformatting CopyNode for Input Tensor 0 to Conv_0 + PWN(Relu_1)",
        "Conv_0",
        "MaxPool_2",
        "l1.weight + QuantizeLinear_9 + Conv_14 + Add_16 + PWN(Relu_17)",
    ]
    held = tensorrt_engines.operators_of(layers, net)
    assert held == {1: [0, 1], 2: [2], 3: [3, 4, 5]}


@NEEDS_COMPILER
@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_small_networks_become_these_kernels(pattern: Pattern) -> None:
    net = pattern.network()
    groups, _ = rtx_compiler.groups_of(net)
    assert kernel_texts(net, groups.kernels) == pattern.expected()


def test_without_the_compiler_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("tensorrt_rtx_bindings", "tensorrt_rtx"):
        monkeypatch.setitem(sys.modules, module, None)
    assert not rtx_compiler.installed()
    with pytest.raises(MissingExtra, match=r"\.\[rtx\]"):
        registry.lower(residual_block(), Target.parse("rtx-4090/tensorrt-rtx/fp32"))


PADDED = """Layers:
Name: __myl_Conc_myl0_0, LayerType: kgen, Inputs: [], Metadata: [ONNX Layer: n0]
Name: __myl_CorrRelu_myl0_1, LayerType: runtime_fusion, Metadata: [ONNX Layer: n0][ONNX Layer: n1]
Name: __myl_Move_myl0_2, LayerType: kgen, Inputs: [], Metadata: [ONNX Layer: n3]
Name: __myl_ReluMean_myl0_3, LayerType: kgen, Metadata: [ONNX Layer: n2][ONNX Layer: n3]
"""


def test_a_layer_that_prepares_another_holds_none_of_its_operators() -> None:
    b = Builder("net")
    x = b.relu(b.conv(b.input((1, 3, 4, 4)), 8))
    network = b.network(b.op("GlobalAveragePool", [b.relu(x)], (1, 8, 1, 1)))
    assert groups_of_layers(network, parse_layers(PADDED)) == Groups(((0, 1), (2, 3)), ())


LOG = """Layers:
Name: __myl_Move_myl0_0, LayerType: kgen, Inputs: [ { Name: x }], Metadata: -
Name: n0_myl0_1, LayerType: correlation, Inputs: [], Metadata: [ONNX Layer: n0][ONNX Layer: n1]
Name: __myl_FcAddRelu_myl0_2, LayerType: runtime_fusion, Inputs: [], Metadata: [ONNX Layer: n2]
Name: __mye9_myl0_3, LayerType: gemm, Inputs: [], Metadata: [ONNX Layer: n4]
Name: __myl_AddRelu_myl0_4, LayerType: kgen, Inputs: [], Metadata: [ONNX Layer: n6]
"""


def test_the_log_names_layers_and_their_operators() -> None:
    layers = parse_layers(LOG)
    assert [layer.nodes for layer in layers] == [(), (0, 1), (2,), (4,), (6,)]
    assert layers[1] == EngineLayer("n0_myl0_1", "correlation", (0, 1))


def test_operators_that_the_log_leaves_out_are_put_where_they_must_be() -> None:
    b = Builder("net")
    x = b.input((1, 8, 4, 4))
    for _ in range(3):
        x = b.relu(b.conv(x, 8))
    network = b.network(b.pool(x))
    groups = groups_of_layers(network, parse_layers(LOG))
    # n3 is in the named epilogue of the product, n5 in the kernel behind the bare one.
    assert groups == Groups(((0, 1), (2, 3), (4,), (5, 6)), ())


def test_every_kind_of_disagreement_stands_in_the_page_with_what_it_costs() -> None:
    every = [v for p in EXPERIMENT.PRECISIONS for v in verdicts(p)]
    rows = EXPERIMENT.kinds_table(every, EXPERIMENT.HALVES)[2:]
    shown = {tuple(cell.strip("`") for cell in _cells(row)[1:3]) for row in rows}
    assert shown == {(k.rules, k.compiler) for v in every for k in v.kinds}
    published = EXPERIMENT.PAGE.read_text(encoding="utf-8")
    assert all(row in published for row in (*rows, *EXPERIMENT.figures(every)[2:]))


def _cells(row: str) -> list[str]:
    cells = row.replace("\\|", "\0").strip("|").split("|")
    return [cell.strip().replace("\0", "|") for cell in cells]
