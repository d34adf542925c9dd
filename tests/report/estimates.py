"""Hand-made estimates: what reports are held against."""

from __future__ import annotations

from hybridlat.schema.estimate import CellEstimate, Estimate, LatencySource

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
    return Estimate(
        network="resnet.onnx", target=TARGET, batch=1, latency_us=8123.4,
        interval_us=(7990.0, 8260.0), confidence=0.9, within_tolerance=True,
        sum_of_cells_us=8002.5, measured_share=0.725, measured_now=2, elapsed_s=0.41, cells=cells,
        warnings=("Dropout_7 was removed by the engine",),
    )  # fmt: skip


def untrusted() -> Estimate:
    """A cell that nobody can say anything of, and an interval that is too wide."""
    cells = (
        cell(1, ("Conv+Relu",), 61.0, share=1.0, source="predicted"),
        cell(7, ("Einsum",), None, source="unsupported", reason="no model has seen an Einsum"),
    )
    return Estimate(
        network="odd <b>&.onnx", target=TARGET, batch=8, latency_us=61.0,
        interval_us=(50.0, 72.0), confidence=0.9, within_tolerance=False, sum_of_cells_us=61.0,
        measured_share=0.0, measured_now=0, elapsed_s=0.0123, cells=cells,
        to_measure=(cells[0].signature, cells[1].signature),
    )  # fmt: skip


def long_tail(cells: int) -> Estimate:
    """As many cells as asked for, the first ones slower."""
    total = sum(1000.0 / (i + 1) for i in range(cells))
    rows = tuple(
        cell(i + 1, ("Conv",) * (i % 3 + 1), 1000.0 / (i + 1), share=1000.0 / (i + 1) / total)
        for i in range(cells)
    )
    return Estimate("tail.onnx", TARGET, 1, total, (0.99 * total, 1.01 * total), 0.9, True, total,
                    1.0, 0, 0.01, rows)  # fmt: skip
