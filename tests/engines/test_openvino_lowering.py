"""What OpenVINO's execution graph says, traced to the operators of the file."""

import importlib.util
import sys

import pytest

from hybridlat.engines import openvino_cpu, registry
from hybridlat.engines.fusion.groups import Groups
from hybridlat.errors import MissingExtra
from hybridlat.graph.network import Lowered, Network
from hybridlat.schema.target import Target
from tests.networks import Builder, classifier, residual_block

HERE = Target("here", "openvino", "fp32", 1)


def lower(network: Network) -> Lowered:
    return registry.lower(network, HERE)


NEEDS_ENGINE = pytest.mark.skipif(
    importlib.util.find_spec("openvino") is None, reason="the extra openvino is not installed"
)


@NEEDS_ENGINE
def test_the_engine_says_what_it_fuses() -> None:
    network = residual_block(channels=16)
    lowered = lower(network)
    assert lowered.by.startswith("openvino 20")
    assert lowered.origins == ((0, 1), (2, 3, 4))
    assert [node.op for node in lowered.network.nodes] == ["Conv+Relu", "Conv+Add+Relu"]
    network = classifier()  # views are removed
    lowered = lower(network)
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


def test_without_the_engine_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    openvino_cpu.core.cache_clear()
    with pytest.raises(MissingExtra, match=r"\.\[openvino\]"):
        lower(residual_block())
    with pytest.raises(MissingExtra, match=r"\.\[openvino\]"):
        registry.open_backend("openvino")
    openvino_cpu.core.cache_clear()


@NEEDS_ENGINE
def test_a_layer_that_goes_by_the_tensor_it_gives_out_is_traced() -> None:
    b = Builder("net")
    first = b.relu(b.conv(b.input((1, 4, 8, 8)), 4))
    second = b.pool(first)
    network = b.network(first, second)
    assert lower(network).origins == ((0, 1), (2,))


@NEEDS_ENGINE
def test_tensors_may_be_called_like_the_names_that_layers_are_traced_by() -> None:
    network = residual_block(channels=16)
    swapped = {"n0": "n4", "n4": "n0"}
    every = {n for node in network.nodes for n in (*node.inputs, *node.outputs) if n}
    names = {name: f"n{place}" for place, name in enumerate(sorted(every))} | swapped
    odd = network.renamed(names)
    assert lower(odd).origins == lower(network).origins
