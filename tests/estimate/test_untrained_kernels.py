"""Operators, and forms of them, that no training of the shipped CPU model held.

The figures are what ONNX Runtime 1.32 took for the operator alone, over 1.65: by so much the CPU
that ran them is slower than the model's in operators with training.
"""

import pytest

from hybridlat import predict
from tests.onnx_io.test_reading_shapes import model

TARGET = "epyc-26-2/onnxruntime-1.31/fp32/1t"
X, SMALL = "float[1,64,56,56]", "1,64,28,28"
# The type that is read, the results, the operator, and what it took in µs.
ROWS = (
    # None of the first eleven is of the half that the widths were read off.
    (X, f"{X} y", "y = Asinh(x)", 2700.0),
    (X, f"{X} y", "y = Atanh(x)", 2740.0),
    (X, f"{X} y", "y = Acosh(x)", 500.0),
    (X, f"{X} y", "y = Sinh(x)", 1570.0),
    (X, f"{X} y", "y = Cosh(x)", 1390.0),
    (X, f"{X} y", "y = Atan(x)", 113.0),
    (X, "float[1,64,1,1] y", "y = GlobalLpPool(x)", 1340.0),
    ("float[512,32,32]", "float[512] y", "y = Det(x)", 1290.0),
    (X, f"{X} y", "y = CumSum(x, three)", 134.0),
    (X, f"{X} y", "y = Hardmax<axis = 1>(x)", 520.0),
    (X, "bool[1,64,56,56] y", "y = IsNaN(x)", 20.0),
    (X, f"{X} y", "y = Softplus(x)", 1380.0),
    (X, f"{X} y", "y = Tan(x)", 1340.0),
    (X, "float[1,64,27,27] y", "y = LpPool<kernel_shape=[3,3], strides=[2,2]>(x)", 3500.0),
    (X, f"float[{SMALL}] y, int64[{SMALL}] at",
     "y, at = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x)", 610.0),
    (f"float[56] w, {X}", f"{X} y", "y = Add(x, w)", 64.0),
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2])
def test_intervals_are_as_wide_as_such_guesses_were_wrong(
    row: tuple[str, str, str, float],
) -> None:
    reads, makes, operator, measured_us = row
    made = model(f"g ({reads} x) => ({makes}) <int64 three = {{3}}> {{ {operator} }}")
    estimate = predict(made, TARGET, measure="never", store="sqlite://")
    assert estimate.low_us is not None and estimate.finite_high_us is not None
    assert estimate.low_us < measured_us < estimate.finite_high_us
    assert estimate.grade in ("rough", "order of magnitude")
    assert "data-sheet-only" in {w.code for w in estimate.warnings} or not all(
        cell.trusted for cell in estimate.cells
    )
