"""Networks in 8 bits for targets of such files: the cells that ONNX Runtime's own tool gives."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

from hybridlat import onnx_io
from hybridlat.engines import registry
from hybridlat.engines.base import Backend
from hybridlat.graph.cells import cut
from hybridlat.graph.network import Network
from hybridlat.graph.operators import QUANTISERS
from hybridlat.graph.signature import sign
from hybridlat.schema.target import Target
from hybridlat.training.kernel_sampler import sweep
from hybridlat.training.quantise import as_target_takes
from tests.networks import conv_relu

NETS = Path(__file__).parents[2] / "data" / "nets"


@pytest.fixture
def backend() -> Backend:
    made = registry.open_backend("onnxruntime", {"threads": 1})
    made.target = replace(made.target, precision="int8")
    return made


class _OneImage(CalibrationDataReader):  # type: ignore[misc]  # it has no types
    """Calibration on one random image."""

    def __init__(self, network: Network) -> None:
        random = np.random.default_rng(0)
        images = {n: random.random(network.types[n].shape, np.float32) for n in network.inputs}
        self._images: Iterator[dict[str, Any]] = iter([images])

    def get_next(self) -> dict[str, Any]:
        return next(self._images, {})


def _cells(backend: Backend, network: Network) -> Counter[str]:
    return Counter(sign(cell.network).hash for cell in cut(backend.lower(network)))


@pytest.mark.parametrize("name", ["mobilenetv4_conv_small", "resnet18", "squeezenet"])
def test_cells_are_those_of_the_engines_own_quantiser(
    backend: Backend, name: str, tmp_path: Path
) -> None:
    network = onnx_io.read_network(NETS / f"{name}.onnx", name=name)
    plain, folded, narrow = (tmp_path / f"{each}.onnx" for each in ("plain", "folded", "narrow"))
    plain.write_bytes(onnx_io.to_onnx(network, 0))
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folded)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    onnxruntime.InferenceSession(plain, options, providers=["CPUExecutionProvider"])
    types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    quantize_static(folded, narrow, _OneImage(network), **types)
    made = _cells(backend, as_target_takes(network, backend.target))
    assert made == _cells(backend, onnx_io.read_network(narrow))
    assert not made.keys() & _cells(backend, network).keys()


def test_random_kernels_of_such_a_target_are_in_8_bits(backend: Backend) -> None:
    texts = [sign(cell).text for _, cell in sweep(backend, 60)]
    assert sum("::QLinear" in text or "QLinearConv" in text for text in texts) > 30
    assert sum("int8:" in text.replace("uint8:", "") for text in texts) > 10


@pytest.mark.parametrize("target", ["l4/tensorrt/int8", "epyc-26-2/onnxruntime/fp32/1t"])
def test_other_targets_take_files_as_they_are(target: str) -> None:
    network = conv_relu()
    assert as_target_takes(network, Target.parse(target)) is network


def test_a_network_in_half_precision_is_left_as_it_is(backend: Backend) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float16[1,4,8,8] x, float16[4,4,3,3] w, float16[4] s, float16[4] b, float16[4] m,
       float16[4] v) => (float16[1,4,6,6] y)
    { c = Conv(x, w) n = BatchNormalization(c, s, b, m, v) y = Relu(n) }"""
    network = onnx_io.read_network(onnx.parser.parse_model(text))
    after = as_target_takes(network, backend.target)
    assert not {node.op for node in after.nodes} & QUANTISERS


def test_a_quantised_file_stays_as_it_is(backend: Backend) -> None:
    once = as_target_takes(conv_relu(), backend.target)
    assert as_target_takes(once, backend.target) is once


@pytest.mark.parametrize("name", ["squeezenet", "resnet18", "mobilenetv2_100"])
def test_made_up_values_fill_the_range_of_8_bits(backend: Backend, name: str) -> None:
    network = onnx_io.read_network(NETS / f"{name}.onnx", name=name)
    model = onnx.load_from_string(onnx_io.to_onnx(as_target_takes(network, backend.target), 0))
    stored = [node.output[0] for node in model.graph.node if node.op_type == "QuantizeLinear"]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in stored)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    images = _OneImage(network).get_next()
    values = [value for value in session.run(None, images) if value.size >= 1000]
    full = sum(len(np.unique(value)) > 50 and (value == 255).mean() < 0.6 for value in values)
    assert full >= 0.8 * len(values) > 3
