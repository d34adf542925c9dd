"""What TensorRT-RTX's compiler says it fuses: asked where it is, else as its log reads."""

import sys

import pytest

from hybridlat.engines import registry, rtx_compiler
from hybridlat.engines.fusion.groups import Groups
from hybridlat.engines.rtx_compiler import EngineLayer, groups_of_layers, parse_layers
from hybridlat.errors import MissingExtra
from hybridlat.schema.target import Target
from tests.networks import Builder, residual_block

NEEDS_COMPILER = pytest.mark.skipif(
    not rtx_compiler.installed(), reason="the extra rtx is not installed"
)


@NEEDS_COMPILER
def test_the_compiler_lowers_without_a_gpu() -> None:
    network = residual_block()
    lowered = registry.lower(network, Target.parse("rtx-4090/tensorrt-rtx/fp32"))
    assert lowered.by.startswith("tensorrt-rtx 1.")
    held = sorted(i for kernel in (*lowered.origins, lowered.removed) for i in kernel)
    assert held == list(range(len(network.nodes)))
    assert "Conv+Add+Relu" in {node.op for node in lowered.network.nodes}


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
