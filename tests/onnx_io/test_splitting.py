"""Graphs taken apart as bytes: what protobuf would give, or nothing."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from hypothesis import given, settings
from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from experiments import nasbench201
from hybridlat.onnx_io import load, to_onnx
from hybridlat.onnx_io.splitting import graph_field, split_graph
from tests.strategies import networks

NETS = Path(__file__).resolve().parents[2] / "data" / "nets"


@settings(max_examples=40, deadline=None)
@given(networks())
def test_the_parts_are_those_that_protobuf_gives(network: object) -> None:
    graph = onnx.load_from_string(to_onnx(network, seed=1)).graph  # type: ignore[arg-type]
    parts = split_graph(graph.SerializeToString())
    assert parts is not None
    assert [NodeProto.FromString(data) for data in parts.nodes] == list(graph.node)
    assert [TensorProto.FromString(data) for data in parts.tensors] == list(graph.initializer)
    rest = GraphProto.FromString(parts.rest)
    assert (rest.name, list(rest.input), list(rest.output)) == (
        graph.name, list(graph.input), list(graph.output),
    )  # fmt: skip
    assert ModelProto.FromString(graph_field(parts.rest)).graph == rest


def test_what_only_describes_is_left_out_and_what_is_unusual_is_not_split() -> None:
    graph = GraphProto(name="g", doc_string="d" * 300)
    graph.value_info.add(name="v")
    parts = split_graph(graph.SerializeToString())
    assert parts is not None and GraphProto.FromString(parts.rest) == GraphProto(name="g")
    graph.sparse_initializer.add().values.name = "s"
    assert split_graph(graph.SerializeToString()) is None


@pytest.mark.parametrize("kind", ["model", "bytes"])
def test_a_candidate_reads_the_same_whichever_way_it_is_taken_apart(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nasbench201.build(next(iter(nasbench201.sample(1, 3))), cells_per_stage=1)
    source = model if kind == "model" else model.SerializeToString()
    quick = load(source)
    monkeypatch.setattr("hybridlat.onnx_io.parse.split_graph", lambda _: None)
    careful = load(source)
    assert quick.parsed == careful.parsed and quick.key() == careful.key()
    assert quick.network() == careful.network()
