"""Classes of kernels, and what each takes by a data sheet: the base b of equation (1).

The base is compute, memory and launch time, before anything was measured; the model learns how far
kernels are from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hybridlat.graph.operators import KINDS
from hybridlat.model import geometry
from hybridlat.model.features import winograd
from hybridlat.model.geometry import COLUMN, COLUMNS, Array, Geometry, Positions, View, cache_bytes
from hybridlat.schema.target import STRICT

CLASSES: tuple[str, ...] = (
    "conv 1x1", "conv kxk", "conv grouped", "conv depthwise", "conv transposed", "matmul",
    "max pool", "average pool", "global reduction", "pointwise", "softmax", "normalisation",
    "concat", "slice", "transpose", "pad", "resize", "other", "batch normalisation",
    "host", "copy",
)  # fmt: skip
"""Kinds of kernel that share nothing but what all kernels share.

``host`` is what a run costs beside its kernels, ``copy`` moving inputs and outputs between host and
device: every network has one of each.
"""
_SCALED = [COLUMN[name] for name in ("batch", "m", "flop", "in_bytes", "out_bytes")]
HOST, COPY = CLASSES.index("host"), CLASSES.index("copy")
_OPERATORS = {
    "max pool": "MaxPool NhwcMaxPool", "average pool": "AveragePool LpPool Window",
    "softmax": "Softmax LogSoftmax", "normalisation": "LRN LpNormalization", "concat": "Concat",
    "slice": "Split Slice Gather", "transpose": "Transpose DepthToSpace SpaceToDepth",
    "pad": "Pad Expand Tile", "resize": "Resize Upsample", "global reduction": "Reduction",
}  # fmt: skip
_BY_OPERATOR = {op: name for name, ops in _OPERATORS.items() for op in ops.split()}


@dataclass(frozen=True)
class KernelTable:
    """The distinct kernels of one network.

    ``values`` are rows of ``geometry.COLUMNS`` (``op`` is 0: its number lives as long as a
    process), ``classes`` index ``CLASSES``, ``counts`` say how often each stands in the network,
    ``copied_bytes`` is the size of its inputs and outputs.
    """

    values: Array
    classes: Positions
    counts: Array
    copied_bytes: float


def every_kernel(
    texts: Sequence[str], counts: Sequence[float], copied_bytes: float = 0.0
) -> tuple[KernelTable, Positions]:
    """(a row for each kernel of cells, that cell's position), each cell ``counts`` times."""
    cells = geometry.geometry(texts)
    values = cells.values.copy()
    values[:, COLUMN["op"]] = 0.0
    each = np.asarray(counts, np.float64)[cells.cell]
    return KernelTable(values, class_of(cells), each, copied_bytes), cells.cell


def table_of_texts(
    texts: Sequence[str], counts: Sequence[float], copied_bytes: float = 0.0
) -> KernelTable:
    """The kernels of cells given by their signature texts, each ``counts`` times."""
    every, _ = every_kernel(texts, counts, copied_bytes)
    rows = np.column_stack([every.values, every.classes])
    distinct, inverse = np.unique(rows, axis=0, return_inverse=True)
    summed = np.bincount(inverse.reshape(-1), every.counts, len(distinct)).astype(np.float64)
    values, classes = distinct[:, : len(COLUMNS)], distinct[:, -1].astype(np.intp)
    return KernelTable(values, classes, summed, copied_bytes)


def at_batch(table: KernelTable, factor: float) -> KernelTable:
    """The kernels of the same network on ``factor`` times as many inputs.

    Sizes that hold the batch grow with it. A network's first axis is its batch in all of them. Of
    recurrent layers steps come first, and the batch stands where maps have their height.
    """
    values = table.values.copy()
    made = values[:, COLUMN["out_bytes"]] / np.maximum(values[:, COLUMN["item_bytes"]], 1e-9)
    pointwise = values[:, COLUMN["kind"]] == KINDS["pointwise"]
    whole = pointwise & (values[:, COLUMN["run"]] >= made) & (made > 1)
    values[:, _SCALED] *= factor
    values[whole, COLUMN["run"]] *= factor
    values[values[:, COLUMN["reread_bytes"]] > 0, COLUMN["h_out"]] *= factor  # of a recurrent layer
    return KernelTable(values, table.classes, table.counts, table.copied_bytes * factor)


def class_of(kernels: Geometry) -> Positions:
    """Index into ``CLASSES`` of every kernel."""
    names = [kernels.ops[int(number)] for number in kernels.column("op")]
    kinds, groups, c_in, k_h, k_w = kernels.columns(("kind", "groups", "c_in", "k_h", "k_w")).T
    rows = zip(names, kinds, groups, c_in, k_h * k_w, strict=True)
    return np.array([CLASSES.index(_class(*row)) for row in rows], np.intp)


def _class(name: str, kind: float, groups: float, c_in: float, taps: float) -> str:
    operators = name.rpartition("::")[2].split("+")
    if "ConvTranspose" in operators:
        return "conv transposed"
    if kind == KINDS["conv"]:
        if groups > 1:
            return "conv depthwise" if groups == c_in else "conv grouped"
        return "conv 1x1" if taps == 1 else "conv kxk"
    if kind == KINDS["matmul"]:
        return "matmul"
    if operators[0] == "BatchNormalization":
        return "batch normalisation"
    for operator in operators:
        if operator in _BY_OPERATOR:
            return _BY_OPERATOR[operator]
        if operator.startswith(("Global", "Reduce")):
            return "global reduction"
        if "Normalization" in operator:
            return "normalisation"
    return "pointwise" if kind == KINDS["pointwise"] else "other"


PARTS: tuple[str, ...] = ("compute", "memory", "launch")
"""The columns of ``parts_us``."""
_MOST_OF_PEAK = 0.9
_WINOGRAD = 2.25
"""Multiplications of a 3x3 kernel over those of Winograd's way, two by two outputs at a time.
Tensor cores do not take it; in FP32 a V100 runs VGG at 1.4 of its peak."""
_LAUNCH_US = 4.0
_LAUNCH_OF_SHEET = 2.8  # a launch into a busy stream, beside the enqueued ones of a data sheet
_DEPTHWISE_SLOWDOWN = 4.0
"""A depthwise convolution has no matrix product for tensor cores; ready-made kernels reach about a
quarter of what the plain FP32 units can do."""
_TILES = (((32, 32), 0.7), ((64, 64), 0.9), ((128, 128), 1.0))
"""Output tiles that kernels are made for, and how near to the peak each comes: a small tile reads
more for what it computes, a large one leaves more units idle."""
_IDLE_SHARE = 0.8
"""How much of what the best of these tiles takes beyond the peak is believed: 0 knows no idle
units, 1 has no way round them (split sums)."""
_KEPT_WEIGHTS = 0.8
"""How much of the weights the last cache keeps for the next run where the whole network fits. At
batch 1 caches of 48 to 128 MB hold an INT8 ResNet-50."""
_STEP, _STEP_CYCLES = 32, 150
"""Of a tile's inner sizes that are read and multiplied at a time, and what that takes at least: a
tile waits for its reads, however quick tensor cores are."""
_TOGETHER = 3.0
"""Power of the norm that joins computing and memory of a kernel, which overlap: 1 would add them,
infinity take the longer."""
_MEMORY_POWER = 0.5
"""What reading and writing at full bandwidth draws, of the power limit."""


def parts_us(table: KernelTable, view: View) -> Array:
    """Compute, memory and launch time of every kernel (kernels x ``PARTS``); their sum is its base.

    Kernels with few output tiles leave units idle, depthwise convolutions compute outside the
    tensor cores, and what the last cache keeps need not come from memory. Computing and memory
    overlap, and share what they take together.
    """
    device, precision = view.device, view.precision
    deep = table.classes == CLASSES.index("conv depthwise")
    tiled = (table.classes <= CLASSES.index("matmul")) & ~deep
    best_us = np.min([view.wave_us(tile) / near for tile, near in _TILES], axis=0)
    best_us = np.maximum(best_us, 1e6 * _STEP_CYCLES * view.k / _STEP / device.clock_hz)
    # In a transposed convolution few of the taps meet an input.
    best_us *= view.flop / np.maximum(2 * view.m * view.n * view.k * view.groups, 1)
    idle_us = np.where(tiled, _IDLE_SHARE * np.maximum(best_us - view.compute_us, 0.0), 0.0)
    slower = _DEPTHWISE_SLOWDOWN * device.peak(precision) / device.peak(STRICT)
    weights, last_bytes = view.moved_weight_bytes, cache_bytes(device, -1)
    kept_bytes = device.kept_share * np.minimum(view.moved_activation_bytes, last_bytes)
    all_bytes = max(table.counts @ weights + view.moved_activation_bytes.max(initial=0.0), 1.0)
    kept_bytes += _KEPT_WEIGHTS * min(1.0, last_bytes / all_bytes) ** 2 * weights
    memory_us = view.memory_us - 1e6 * kept_bytes / device.bandwidth_bytes_per_s
    launch_us = _LAUNCH_OF_SHEET * device.launch_us if device.launch_us else _LAUNCH_US
    at_peak_us = np.where(deep, 0.0, view.compute_us)
    beside_us = np.where(deep, slower * view.compute_us, idle_us)
    slowdown = power_slowdown(
        float(table.counts @ at_peak_us),
        float(table.counts @ memory_us),
        float(table.counts @ (beside_us + launch_us)),
        device.sustained_share(precision),
    )
    compute_us = slowdown * at_peak_us + beside_us
    longer_us = (compute_us**_TOGETHER + memory_us**_TOGETHER) ** (1 / _TOGETHER)
    overlap = longer_us / np.maximum(compute_us + memory_us, 1e-9)
    launches_us = np.full(len(table.values), launch_us) + view.steps_us
    return np.column_stack([overlap * compute_us, overlap * memory_us, launches_us])


def power_slowdown(
    compute_us: float, memory_us: float, other_us: float, sustained_share: float
) -> float:
    """How much longer a network's computing takes because power is limited (1 or more).

    The limit holds for the mean over milliseconds: over all kernels of a network, not over each.
    Computing takes energy by its operations, ``compute_us / sustained_share`` of time at the limit,
    and memory its own; other kernels (``other_us``) let the device recover.
    """
    if compute_us <= 0 or sustained_share >= 1:
        return 1.0
    energy_us = compute_us / sustained_share + _MEMORY_POWER * memory_us
    return max(1.0, (energy_us - memory_us - other_us) / compute_us)


def least_us(v: View) -> Array:
    """What no kernel is quicker than, in us: of 5,959 published latencies one is below their sum.

    Computing reaches 0.9 of the peak at most (PyTorch convolves in TF32 where a device can), and
    what the last cache cannot hold comes from memory. The FP32 peak of a CPU, all that is
    probed, sets narrower numbers no limit.
    """
    device, precision = v.device, v.precision
    peak = np.maximum(v.peak_flops, device.peak("tf32") if precision == "fp32" else 0.0)
    if device.kind == "cpu" and len(device.peak_flops) == 1:
        peak = np.where(v.item_bytes < 4.0, np.inf, peak)
    shorter = np.maximum(peak, _WINOGRAD * device.peak(STRICT))
    compute_us = 1e6 / _MOST_OF_PEAK * v.flop / np.where(winograd(v) > 0, shorter, peak)
    all_bytes = v.moved_bytes / 2 if precision == "amp" else v.moved_bytes
    beyond_bytes = all_bytes - cache_bytes(device, -1) + v.uncached_bytes
    memory_us = 1e6 * beyond_bytes / device.bandwidth_bytes_per_s
    return np.asarray(np.maximum(compute_us, memory_us))


def within_reach(each_us: Array, counts: Array, least_us: Array) -> Array:
    """Kernels' latencies with none below its least.

    A law knows sums better than their parts: the other kernels give what is added, up to half of
    what they take above their own least.
    """
    over_us = np.maximum(each_us - least_us, 0.0)
    left = float(counts @ (each_us - least_us)) / max(float(counts @ over_us), 1e-9)
    return np.asarray(least_us + max(left, 0.5) * over_us)
