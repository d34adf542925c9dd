"""Hand-made estimates: what reports are held against."""

import dataclasses
import math
from typing import Any

from hybridlat.schema.estimate import Estimate
from hybridlat.schema.structure import (
    CellEstimate,
    CellPosition,
    CellStructure,
    EstimateWarning,
    Kernel,
    LatencySource,
    Roofs,
    Structure,
    Work,
)

TARGET = "xeon-8481c/onnxruntime-1.31/fp32/1t"


def cell(
    number: int,
    ops: tuple[str, ...],
    latency_us: float | None,
    count: int = 1,
    share: float = 0.0,
    source: LatencySource = "measured",
    reason: str = "",
) -> CellEstimate:
    interval = None if latency_us is None else (0.97 * latency_us, 1.04 * latency_us)
    nodes = tuple(f"/layer{number}/{op}_{i}" for i, op in enumerate(ops))
    return CellEstimate(
        f"{number:032x}", ops, nodes, count, latency_us, interval, share, source, reason
    )


def of(cells: tuple[CellEstimate, ...], **more: Any) -> Estimate:
    """An estimate of a ResNet of these cells, but for what is given."""
    usual: dict[str, Any] = {"network": "resnet.onnx", "target": TARGET, "batch": 1}
    usual |= {"latency_us": 8123.4, "interval_us": (7990.0, 8260.0), "confidence": 0.9}
    usual |= {"within_tolerance": True, "sum_of_cells_us": 8002.5, "elapsed_s": 0.41}
    return Estimate(**usual | {"measured_share": 0.725, "measured_now": 2, "cells": cells} | more)


def residual() -> Estimate:
    """Six different cells, one of them predicted, one used three times."""
    block = ("Conv+Relu", "Conv+Relu", "Conv+Add+Relu")
    cells = (
        cell(1, ("Conv+Relu",), 900.0, share=0.1125),
        cell(2, ("MaxPool",), 150.0, share=0.01875),
        cell(3, block, 1500.0, count=3, share=0.5625),
        cell(4, ("Conv", *block), 2200.0, share=0.275, source="predicted"),
        cell(5, ("GlobalAveragePool", "Flatten", "Gemm+Softmax"), 240.0, share=0.03),
        cell(6, ("BatchNormalization+Relu", "Conv", "Concat") * 12, 12.5, share=0.0015625),
    )
    return of(cells, warnings=(EstimateWarning("file", "Dropout_7 was removed by the engine."),))


def untrusted() -> Estimate:
    """A cell that nobody can say anything of, and an interval that is too wide."""
    cells = (
        cell(1, ("Conv+Relu",), 61.0, share=1.0, source="predicted"),
        cell(7, ("Einsum",), None, source="unsupported", reason="no model has seen an Einsum"),
    )
    command = "hybridlat predict 'odd <b>&.onnx'"
    warnings = (
        EstimateWarning("missing-cells", "1 cell has no latency (an Einsum)."),
        EstimateWarning("to-measure", "Measuring 2 cells would narrow this.", command),
    )
    answer: dict[str, Any] = {"network": "odd <b>&.onnx", "batch": 8, "latency_us": 61.0}
    answer |= {"interval_us": (50.0, math.inf), "sum_of_cells_us": 61.0, "within_tolerance": False}
    answer |= {"measured_share": 0.0, "measured_now": 0, "elapsed_s": 0.0123}
    return of(cells, to_measure=tuple(c.signature for c in cells), warnings=warnings, **answer)


def long_tail(cells: int) -> Estimate:
    """As many cells as asked for, the first ones slower."""
    total = sum(1000.0 / (i + 1) for i in range(cells))
    rows = tuple(
        cell(i + 1, ("Conv",) * (i % 3 + 1), 1000.0 / (i + 1), share=1000.0 / (i + 1) / total)
        for i in range(cells)
    )
    answer: dict[str, Any] = {"network": "tail.onnx", "latency_us": total, "elapsed_s": 0.01}
    answer |= {"interval_us": (0.99 * total, 1.01 * total), "sum_of_cells_us": total}
    return of(rows, measured_share=1.0, measured_now=0, **answer)


def kernel(op: str, reads: tuple[int, ...], shapes: str, **more: Any) -> Kernel:
    """A kernel from ``64x56x56 128x28x28``: the first input and the output, batch 1."""
    read, made = (tuple(int(n) for n in shape.split("x")) for shape in shapes.split())
    work = more.pop("work", Work(1e8, 1.5e6, 500.0, 60.0))
    found = Kernel(op, reads, (1, *read), (1, *made), None, 1, 1, op.startswith("Conv"), work)
    return dataclasses.replace(found, **more)


def described() -> Estimate:
    """``residual`` with a structure: a stem, a pool, three equal blocks, a wider one, a head."""
    three = {"window": (3, 3)}
    block = (
        kernel("Conv+Relu", (-1,), "64x56x56 64x56x56", **three),
        kernel("Conv+Relu", (0,), "64x56x56 64x56x56", **three),
        kernel("Conv+Add+Relu", (-1, 1), "64x56x56 64x56x56", **three),
    )
    small = Work(1e5, 3e6, 2.0, 120.0)
    cells = (
        CellStructure((kernel("Conv+Relu", (-1,), "3x224x224 64x112x112",
                              window=(7, 7), stride=2),)),
        CellStructure((kernel("MaxPool", (-1,), "64x112x112 64x56x56", work=small,
                              window=(3, 3), stride=2, contracts=False),)),
        CellStructure(block),
        CellStructure((
            kernel("Conv", (-1,), "64x56x56 128x28x28", window=(1, 1), stride=2),
            kernel("Conv+Relu", (-1,), "64x56x56 128x28x28", window=(3, 3), stride=2),
            kernel("Conv+Add+Relu", (0, 1), "128x28x28 128x28x28", **three),
        )),
        CellStructure((
            kernel("GlobalAveragePool", (-1,), "128x28x28 128x1x1", work=small,
                   window=(28, 28), contracts=False),
            kernel("Gemm+Softmax", (0,), "128x1x1 1000", work=small, contracts=True),
        )),
        CellStructure((kernel("Flatten", (-1,), "1000 1000", work=Work(0.0, 8e3, 0.0, 0.3)),)),
    )  # fmt: skip
    paths = ["conv1", "maxpool", "layer1.0", "layer1.1", "layer1.2", "layer2.0", "fc", "flatten"]
    places = []
    for i, (number, path) in enumerate(zip((0, 1, 2, 2, 2, 3, 4, 5), paths, strict=True)):
        kernels = enumerate(cells[number].kernels)
        names = tuple((f"/{path}/{k.op}_{n} <&>",) for n, k in kernels)
        places.append(CellPosition(number, (i - 1,), path, names))
    roofs = Roofs("a device", 2e11, 2.5e10, None, "its data sheet")
    rows = list(residual().cells)
    rows[4] = cell(5, ("GlobalAveragePool", "Gemm+Softmax"), 240.0, share=0.03)
    rows[5] = cell(6, ("Flatten",), 0.2, share=0.000025)
    removed = ("Dropout_7", *(f"Constant_{i}" for i in range(40)))
    structure = Structure(cells, tuple(places), roofs)
    return of(tuple(rows), structure=structure, removed=removed, constants=40)
