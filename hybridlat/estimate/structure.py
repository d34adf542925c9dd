"""The kernels that cells are made of, from their signatures, for reports."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from hybridlat.estimate.partition import CellPlace, Partition
from hybridlat.graph import signature
from hybridlat.graph.network import Network
from hybridlat.graph.operators import KINDS, kind_of
from hybridlat.model.geometry import View, geometry
from hybridlat.onnx_io import OnnxFile
from hybridlat.schema.structure import CellPosition, CellStructure, Kernel, Roofs, Structure, Work
from hybridlat.schema.target import Device

_UNKNOWN_DEVICE = Device("unknown", "cpu", {"fp32": 1.0}, 1.0, 1, 0.0)
_PRECISION_OF_BYTES = {1.0: "int8", 2.0: "fp16"}
_TO_LAST, _TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
_TELLING = (KINDS["conv"], KINDS["pool"])


def network_structure(
    file: OnnxFile, partition: Partition, device: Device | None, precision: str
) -> Structure:
    """The structure of a network; without ``device`` it is an unknown one.

    ValueError for a text that is no signature.
    """
    constants = file.facts.constant_nodes

    def shown(place: CellPlace) -> tuple[tuple[int, ...], ...]:
        """The operators of each kernel, those of constants where it has no others."""
        return tuple(
            tuple(n for n in kernel if n not in constants) or kernel for kernel in place.kernels
        )

    cells = []
    for use in partition.uses:
        text = partition.texts[use.signature]
        ops = ["+".join(file.facts.op_types[n] for n in kernel) for kernel in shown(use.places[0])]
        each = zip(_kernels(text), ops, _works(text, device, precision), strict=True)
        kernels = [replace(kernel, op=op or kernel.op, work=work) for kernel, op, work in each]
        cells.append(CellStructure(tuple(kernels)))
    names, parts = file.facts.node_names, [path.split(".") for path in file.facts.module_paths]
    # Without the modules that every path begins with (``gpu_0``, ``model``).
    outer = len(_shared([path[:-1] for path in parts if path != [""]]))
    paths = [".".join(path[outer:]) for path in parts]

    uses = [(number, p) for number, use in enumerate(partition.uses) for p in use.places]
    places: list[CellPosition] = []
    for number, place in sorted(uses, key=lambda pair: pair[1].order):
        groups = shown(place)
        # A kernel is its first operator's: what is fused to it comes after.
        path = common_path([next((paths[n] for n in group if paths[n]), "") for group in groups])
        held = tuple(tuple(names[n] for n in group) for group in groups)
        places.append(CellPosition(number, place.reads, path, held))
    roofs = None
    if device is not None:
        title, memory = device.title or device.name, device.bandwidth_bytes_per_s
        roofs = Roofs(title, device.peak(precision), memory, device.launch_us, device.source)
    return Structure(tuple(cells), tuple(places), roofs)


def _shared(paths: Sequence[Sequence[str]]) -> list[str]:
    """The modules that all paths begin with, or the letters of all names."""
    columns = zip(*paths, strict=False)
    return [column[0] for column in itertools.takewhile(lambda c: len(set(c)) == 1, columns)]


def common_path(paths: Sequence[str]) -> str:
    """The outer modules that all known paths share (``layer3.0``).

    Else the begin of their names (``res4_1`` of ``res4_1_branch2a`` and ``res4_1_branch2c``), else
    the first and the last: ``conv1…maxpool``.
    """
    known = [path.split(".") for path in paths if path]
    if not known:
        return ""
    if shared := _shared(known):
        return ".".join(shared)
    begin = "".join(_shared([parts[0] for parts in known]))
    stem = begin[: max(begin.rfind("_"), begin.rfind("-"), 0)]
    if len(stem) > 1 and not all(parts[0][len(stem) + 1 :].isdecimal() for parts in known):
        return stem
    return f"{'.'.join(known[0])}…{'.'.join(known[-1])}"


@lru_cache(maxsize=4096)
def _kernels(text: str) -> tuple[Kernel, ...]:
    """The kernels of a signature, without labels and work."""
    network = signature.read(text)
    cells = geometry([text])
    kind, k_h, k_w = (cells.column(name).astype(int).tolist() for name in ("kind", "k_h", "k_w"))
    stride, groups = (cells.column(name).astype(int).tolist() for name in ("stride", "groups"))
    kernels = []
    has_both = '"channels_last":1' in text or "Nhwc" in text
    channels_last = _channels_last(network) if has_both else set()
    for i, node in enumerate(network.nodes):
        read = [name for name in node.inputs if name in network.types]
        taps = node.sizes("kernel_shape")
        window = (k_h[i], k_w[i]) if kind[i] in _TELLING else None
        if taps is not None and len(taps) == 2:
            window = (taps[0], taps[1])
        # A product is of the last size, whatever it stands for.
        turned = channels_last if kind[i] != KINDS["matmul"] else set()
        ends = read[0] if read else "", next(name for name in node.outputs if name)
        shapes = [network.types[name].shape if name else () for name in ends]
        source, result = (
            (shape[0], shape[-1], *shape[1:-1]) if name in turned and len(shape) == 4 else shape
            for name, shape in zip(ends, shapes, strict=True)
        )
        kernels.append(
            Kernel(
                op=node.op,
                reads=tuple(sorted({network.producers.get(name, -1) for name in read})),
                input_shape=source,
                output_shape=result,
                window=window,
                stride=stride[i],
                groups=groups[i],
                contracts=kind[i] <= KINDS["matmul"],
                work=Work(0.0, 0.0),
            )
        )
    return tuple(kernels)


def _channels_last(network: Network) -> set[str]:
    """Names of the images with the channels last, in an engine that has both layouts.

    Windows (``channels_last``, ``Nhwc…``) and transpositions tell; others keep what they read.
    """
    last: set[str] = set()
    for node in network.nodes:
        read = [name for name in node.inputs if name in network.types]
        made = [name for name in node.outputs if name]
        turn = node.attribute("perm") if node.op == "Transpose" else None
        if node.attribute("channels_last") or node.op.startswith("Nhwc"):
            # The other side of a reorder is blocked.
            last.update(() if node.op == "ReorderOutput" else read)
            last.update(() if node.op == "ReorderInput" else made)
        elif kind_of(node.op) in _TELLING or turn in (_TO_LAST, _TO_FIRST):
            last.difference_update(read)
            last.update(read if turn == _TO_FIRST else made if turn == _TO_LAST else ())
        elif node.op != "Transpose":
            images = [name for name in read if len(network.types[name].shape) == 4]
            last.update(made if images and images[0] in last else ())
    return last


def _works(text: str, device: Device | None, precision: str) -> list[Work]:
    view = View(geometry([text]).values, device or _UNKNOWN_DEVICE, precision)
    flop, moved_bytes = view.flop.tolist(), view.moved_bytes.tolist()
    if device is None:
        return [Work(*pair) for pair in zip(flop, moved_bytes, strict=True)]
    compute_us, memory_us = view.compute_us.copy(), view.memory_us.tolist()
    for width, name in _PRECISION_OF_BYTES.items():
        # A kernel on narrower numbers than the target's has another peak, if any is known.
        narrow = view.item_bytes == width
        peak = device.peak_flops.get(name, np.nan)
        compute_us[narrow] = np.where(flop, view.flop / peak * 1e6, 0.0)[narrow]
    return [
        Work(f, b, None if np.isnan(c) else c, m, device.launch_us)
        for f, b, c, m in zip(flop, moved_bytes, compute_us.tolist(), memory_us, strict=True)
    ]
