"""Models whose weights lie in files of noise run as they are, in both precisions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from hybridlat import onnx_io
from hybridlat.board.plan import make_files
from hybridlat.graph.network import Network
from hybridlat.onnx_io import tensorrt
from tests.networks import branches, classifier, conv_relu, residual_block

MAKERS = (conv_relu, residual_block, branches, classifier)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("make", MAKERS)
def test_an_engine_reads_them(make: Callable[[], Network], half: bool, tmp_path: Path) -> None:
    network = make()
    content, sizes = tensorrt.prepare(onnx_io.to_onnx(network, None), half)
    assert len(content) < 20_000
    for name in sizes:
        (tmp_path / "blocks").mkdir(exist_ok=True)
        (tmp_path / "blocks" / name).write_bytes(tensorrt.block(name))
    make_files(str(tmp_path / "blocks"), str(tmp_path), sizes)
    (tmp_path / "model.onnx").write_bytes(content)
    session = ort.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    type_ = np.float16 if half else np.float32
    feeds = {
        i: np.random.default_rng(0).standard_normal(network.types[i].shape).astype(type_)
        for i in network.inputs
    }
    for result in session.run(None, feeds):
        assert result.dtype == type_
        assert np.isfinite(result).all()
        assert result.std() > 0


@pytest.mark.parametrize("make", MAKERS)
def test_no_two_weights_of_a_file_start_at_one_place(make: Callable[[], Network]) -> None:
    content, sizes = tensorrt.prepare(onnx_io.to_onnx(make(), None))
    model = onnx.load_model_from_string(content)
    starts = []
    for tensor in model.graph.initializer:
        entry = {e.key: e.value for e in tensor.external_data}
        if entry:
            starts.append((entry["location"], entry["offset"]))
            assert int(entry["offset"]) + int(entry["length"]) <= sizes[entry["location"]]
    assert starts
    assert len(set(starts)) == len(starts)


def test_several_models_share_the_largest_files() -> None:
    assert tensorrt.largest([{"a": 1, "b": 5}, {}, {"a": 3}]) == {"a": 3, "b": 5}
    assert tensorrt.block("f32_b.bin") == tensorrt.block("f32_b.bin")
    assert len(tensorrt.block("f16_w3.bin")) == 2 * tensorrt.BLOCK
