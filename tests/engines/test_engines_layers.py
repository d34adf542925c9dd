"""What engines say of their own layers: OpenVINO, TensorRT-RTX, and listings of TensorRT."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

from experiments import nasbench201
from experiments.tensorrt_engines import operators_of
from hybridlat.engines import openvino_cpu, registry, rtx_compiler
from hybridlat.engines.fusion.groups import Groups
from hybridlat.engines.rtx_compiler import groups_of_layers, parse_layers
from hybridlat.engines.tensorrt.lowering import lower
from hybridlat.errors import MissingExtra
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.operators import VIEWS
from hybridlat.onnx_io import read_network
from hybridlat.schema.target import Target
from tests.engines.texts import CONV, network
from tests.networks import Builder, classifier, residual_block

ROOT = Path(__file__).resolve().parents[2]
LAYERS = json.loads((ROOT / "tests/golden/tensorrt_8.6_layers.json").read_text())


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_every_kernel_holds_the_operators_of_one_layer(name: str) -> None:
    nas = nasbench201.build(nasbench201.arch_from_index(int(name[3:]))) if "nas" in name else None
    net = read_network(nas or ROOT / "data/nets" / f"{name}.onnx")
    place = {node.name: i for i, node in enumerate(net.nodes) if node.op not in VIEWS}
    layers = {
        frozenset(place[part] for part in re.split(r" \+ |PWN\(|\)", layer) if part in place)
        for layer in LAYERS[name]
    }
    lowered = lower(net, Target.parse("h200/tensorrt-8.6/fp16"))
    computing = set(place.values())
    assert {frozenset(computing.intersection(kernel)) for kernel in lowered.origins} == layers


def test_layers_of_a_published_engine_hold_the_operators_that_they_name() -> None:
    net = network(
        f"a = {CONV}(x, w) r = Relu(a) m = MaxPool<kernel_shape=[1,1]>(r) b = {CONV}(m, w2) "
        "s = Add(b, m) y = Relu(s)"
    )
    layers = [
        "Reformatting CopyNode for Input Tensor 0 to Conv_0 + PWN(Relu_1)",
        "Conv_0",
        "MaxPool_2",
        "l1.weight + QuantizeLinear_9 + Conv_14 + Add_16 + PWN(Relu_17)",
    ]
    assert operators_of(layers, net) == {1: [0, 1], 2: [2], 3: [3, 4, 5]}


def test_without_the_compiler_a_sentence_says_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_operators_that_the_log_leaves_out_are_put_where_they_must_be() -> None:
    b = Builder("net")
    x = b.input((1, 8, 4, 4))
    for _ in range(3):
        x = b.relu(b.conv(x, 8))
    network = b.network(b.pool(x))
    groups = groups_of_layers(network, parse_layers(LOG))
    # n3 is in the named epilogue of the product, n5 in the kernel behind the bare one.
    assert groups == Groups(((0, 1), (2, 3), (4,), (5, 6)), ())


def by_openvino(network: Network) -> Lowered:
    return registry.lower(network, Target("here", "openvino", "fp32", 1))


NEEDS_ENGINE = pytest.mark.skipif(
    importlib.util.find_spec("openvino") is None, reason="the extra openvino is not installed"
)


@NEEDS_ENGINE
def test_the_engine_says_what_it_fuses() -> None:
    network = residual_block(channels=16)
    lowered = by_openvino(network)
    assert lowered.by.startswith("openvino 20")
    assert lowered.origins == ((0, 1), (2, 3, 4))
    assert [node.op for node in lowered.network.nodes] == ["Conv+Relu", "Conv+Add+Relu"]
    network = classifier()  # views are removed
    lowered = by_openvino(network)
    assert {network.nodes[i].op for i in lowered.removed} <= {"Flatten"}
    assert "Gemm" in lowered.network.nodes[-1].op


def test_an_operator_without_a_layer_goes_with_its_reader_or_its_maker() -> None:
    b = Builder("net")
    x = b.relu(b.conv(b.input((1, 4, 8, 8)), 4))
    x = b.flatten(b.global_pool(b.conv(x, 4)))
    network = b.network(x)  # Conv Relu Conv GlobalAveragePool Flatten
    groups = openvino_cpu.groups_of(network, [(1,), (3,)])
    assert groups == Groups(((0, 1), (2, 3)), (4,))
    assert openvino_cpu.groups_of(network, [(0,), (2,), (3,)]) == Groups(((0,), (1, 2), (3,)), (4,))
    in_two_layers = openvino_cpu.groups_of(network, [(0,), (0, 1), (2,), (3,)])  # the first counts
    assert in_two_layers == Groups(((0,), (1,), (2,), (3,)), (4,))


def test_without_openvino_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    openvino_cpu.core.cache_clear()
    with pytest.raises(MissingExtra, match=r"\.\[openvino\]"):
        by_openvino(residual_block())
    with pytest.raises(MissingExtra, match=r"\.\[openvino\]"):
        registry.open_backend("openvino")
    openvino_cpu.core.cache_clear()


@NEEDS_ENGINE
def test_a_layer_that_goes_by_the_tensor_it_gives_out_is_traced() -> None:
    b = Builder("net")
    first = b.relu(b.conv(b.input((1, 4, 8, 8)), 4))
    second = b.pool(first)
    network = b.network(first, second)
    assert by_openvino(network).origins == ((0, 1), (2,))


@NEEDS_ENGINE
def test_tensors_may_be_called_like_the_names_that_layers_are_traced_by() -> None:
    network = residual_block(channels=16)
    swapped = {"n0": "n4", "n4": "n0"}
    every = {n for node in network.nodes for n in (*node.inputs, *node.outputs) if n}
    names = {name: f"n{place}" for place, name in enumerate(sorted(every))} | swapped
    odd = network.renamed(names)
    assert by_openvino(odd).origins == by_openvino(network).origins
