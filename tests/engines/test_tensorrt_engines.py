"""The rules against layers of engines that TensorRT 8.6.0 built on an H200, in FP16."""

import json
import re
from pathlib import Path

import pytest

from experiments import nasbench201
from experiments.tensorrt_engines import operators_of
from hybridlat.engines.tensorrt.lowering import lower
from hybridlat.graph.operators import VIEWS
from hybridlat.onnx_io import read_network
from hybridlat.schema.target import Target
from tests.engines.texts import CONV, W3, network

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
        f"{W3} a = {CONV}(x, w) r = Relu(a) m = MaxPool<kernel_shape=[1,1]>(r) b = {CONV}(m, w2) "
        "s = Add(b, m) y = Relu(s)"
    )
    layers = [
        "Reformatting CopyNode for Input Tensor 0 to Conv_0 + PWN(Relu_1)",
        "Conv_0",
        "MaxPool_2",
        "l1.weight + QuantizeLinear_9 + Conv_14 + Add_16 + PWN(Relu_17)",
    ]
    held = operators_of(layers, net)
    assert held == {1: [0, 1], 2: [2], 3: [3, 4, 5]}
