"""Operators, and forms of them, that no training of the shipped CPU model held.

The figures are what ONNX Runtime 1.32 took for the operator alone, over 1.65: by so much the CPU
that ran them is slower than the model's in operators with training.
"""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from hybridlat import Estimate, predict

TARGET = "epyc-26-2/onnxruntime-1.31/fp32/1t"
X, SMALL = (1, 64, 56, 56), (1, 64, 28, 28)
ROWS: list[tuple[str, list[tuple[int, ...]], dict[str, Any], tuple[int, ...], float]] = [
    # None of the first eleven is of the half that the widths were read off.
    ("Asinh", [X], {}, X, 2700.0),
    ("Atanh", [X], {}, X, 2740.0),
    ("Acosh", [X], {}, X, 500.0),
    ("Sinh", [X], {}, X, 1570.0),
    ("Cosh", [X], {}, X, 1390.0),
    ("Atan", [X], {}, X, 113.0),
    ("GlobalLpPool", [X], {}, (1, 64, 1, 1), 1340.0),
    ("Det", [(512, 32, 32)], {}, (512,), 1290.0),
    ("CumSum", [X, ()], {}, X, 134.0),
    ("Hardmax", [X], {"axis": 1}, X, 520.0),
    ("IsNaN", [X], {}, X, 20.0),
    ("Softplus", [X], {}, X, 1380.0),
    ("Tan", [X], {}, X, 1340.0),
    ("LpPool", [X], {"kernel_shape": [3, 3], "strides": [2, 2]}, (1, 64, 27, 27), 3500.0),
    ("MaxPool", [X], {"kernel_shape": [2, 2], "strides": [2, 2]}, SMALL, 610.0),
    ("Add", [X, (56,)], {}, X, 64.0),
]


def one(op: str, reads: list[tuple[int, ...]], attributes: dict[str, Any], made: Any) -> Estimate:
    number = TensorProto.INT64 if op == "CumSum" else TensorProto.FLOAT
    inputs = [
        helper.make_tensor_value_info(f"x{i}", number if i else TensorProto.FLOAT, shape)
        for i, shape in enumerate(reads)
    ]
    first = TensorProto.BOOL if op == "IsNaN" else TensorProto.FLOAT
    outputs = [helper.make_tensor_value_info("y", first, made)]
    if op == "MaxPool":
        outputs.append(helper.make_tensor_value_info("places", TensorProto.INT64, made))
    weights = []
    if op == "CumSum":
        weights = [helper.make_tensor("x1", number, (), [3])]
        inputs = inputs[:1]
    names = [f"x{i}" for i in range(len(reads))]
    node = helper.make_node(op, names, [each.name for each in outputs], **attributes)
    graph = helper.make_graph([node], "g", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return predict(model, TARGET, measure="never", store="sqlite://")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_intervals_are_as_wide_as_such_guesses_were_wrong(row: Any) -> None:
    *network, measured_us = row
    estimate = one(*network)
    assert estimate.low_us is not None and estimate.finite_high_us is not None
    assert estimate.low_us < measured_us < estimate.finite_high_us
    assert estimate.grade in ("rough", "order of magnitude")
    assert "data-sheet-only" in {w.code for w in estimate.warnings} or not all(
        cell.trusted for cell in estimate.cells
    )
