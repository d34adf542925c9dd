from __future__ import annotations

import numpy as np
import pytest

from experiments.public_data.kernel_tables import at_batch, kernel_table
from hybridlat.engines import registry
from hybridlat.model.family.kernels import CLASSES, KernelTable
from hybridlat.model.geometry import COLUMN
from hybridlat.onnx_io import read_network
from hybridlat.schema.plugins import shipped
from hybridlat.schema.target import Target
from tests.networks import Builder

NETS = shipped("data", "nets")
TENSORRT = Target.parse("v100/tensorrt-8.6/fp32")


def _rows(table: KernelTable) -> set[tuple[float, ...]]:
    rows = np.column_stack([table.values, table.classes, table.counts])
    return {tuple(np.round(row, 6)) for row in rows}


@pytest.mark.parametrize("name", ["resnet18", "squeezenet", "mobilenetv3_small_100"])
def test_a_larger_batch_is_the_same_as_lowering_at_it(name: str) -> None:
    file = NETS / f"{name}.onnx"
    once = kernel_table(registry.lower(read_network(file), TENSORRT))
    at_four = kernel_table(registry.lower(read_network(file, batch=4), TENSORRT))
    assert _rows(at_batch(once, 4)) == _rows(at_four)
    assert at_batch(once, 4).copied_bytes == at_four.copied_bytes


def test_counts_add_up_to_the_kernels() -> None:
    lowered = registry.lower(read_network(NETS / "resnet18.onnx"), TENSORRT)
    table = kernel_table(lowered)
    assert table.counts.sum() == len(lowered.network.nodes)
    assert len(table.values) < len(lowered.network.nodes)


def test_a_product_behind_a_view_is_as_deep_as_its_weight() -> None:
    net = Builder()
    x = net.input((1, 512, 7, 7))
    flat = net.flatten(x)
    made = net.op("Gemm", [flat, net.weight((4096, 25088))], (1, 4096), 13, {"transB": 1})
    lowered = registry.lower(net.network(made), TENSORRT)
    table = kernel_table(lowered)
    (row,) = table.values[table.classes == CLASSES.index("matmul")]
    assert row[COLUMN["k"]] == 25088
    assert row[COLUMN["flop"]] == 2 * 4096 * 25088
