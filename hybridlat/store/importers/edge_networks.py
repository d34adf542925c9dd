"""Whole Keras networks on Jetson boards, FP32, batch 1 (Bouzidi et al., MIT).

``networks.parquet`` has the latencies, ``layers.parquet`` each network's layers without the links
between them: the network is known as a bag of kernels, and that is what its hash is made of.
Networks without a layer list are counted and left out.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from hybridlat.errors import StoreError
from hybridlat.graph.signature import Signature, hash_of
from hybridlat.schema.device_names import device_name
from hybridlat.schema.target import Target
from hybridlat.store.importers import base
from hybridlat.store.importers._networks import Drawing


class _Layer(NamedTuple):
    """A row of the list of layers."""

    op: str
    in_h: int
    in_w: int
    in_c: int
    out_h: int
    out_w: int
    out_c: int
    k_h: int
    k_w: int
    activation: str


_FREE = frozenset({"InputLayer", "Dropout", "FixedDropout", "Flatten", "Reshape"})
_ACTIVATIONS = {
    "relu": "Relu", "_relu6": "Clip", "sigmoid": "Sigmoid", "hard_sigmoid": "HardSigmoid",
    "swish": "Swish", "_hard_swish": "HardSwish", "softmax": "Softmax", "linear": "", "": "",
}  # fmt: skip
_PLAIN = {
    "BatchNormalization": "BatchNormalization", "ReLU": "Relu", "ZeroPadding2D": "Pad",
    "Cropping2D": "Slice", "Lambda": "Slice", "Concatenate": "Concat",
    "GlobalAveragePooling2D": "GlobalAveragePool", "GlobalMaxPooling2D": "GlobalMaxPool",
}  # fmt: skip
_PAIRS = {"Add": "Add", "Multiply": "Mul"}
_WINDOWS = {"MaxPooling2D": "MaxPool", "AveragePooling2D": "AveragePool"}
_Drawn = tuple[str, list[tuple[Signature, int]]]


def read(path: Path, watch: base.Watch | None = None) -> base.ImportedRecords:
    """Records of ``<board>/tensorflow-1/fp32``."""
    result = base.ImportedRecords()
    path = Path(path)
    layers: dict[tuple[str, int], list[_Layer]] = defaultdict(list)
    for file, frame in base.tables(path, "layers.parquet"):
        base.need_columns(file, frame, "model", "input_width", "layer_idx", *_Layer._fields)
        for model, width, *layer in base.rows(
            frame.sort_values("layer_idx", kind="stable"), "model", "input_width", *_Layer._fields
        ):
            layers[model, int(width)].append(_Layer(*layer))
    if not layers:
        raise StoreError(f"{path} has an empty list of layers")
    drawn: dict[tuple[str, int], _Drawn | None] = {}
    for file, frame in base.tables(path, "networks.parquet"):
        base.need_columns(file, frame, "model", "input_width", "device", "latency_us")
        for model, width, device, latency in base.rows(
            frame, "model", "input_width", "device", "latency_us", watch=watch
        ):
            key = (model, int(width))
            if key not in layers:
                result.skipped["network without a list of layers"] += 1
                continue
            if key not in drawn:
                drawn[key] = _draw(layers[key])
            network = drawn[key]
            if network is None:
                result.skipped["a layer makes no sense"] += 1
                continue
            target = Target(device_name(device), "tensorflow-1", "fp32")
            name = f"{model}@{width}"
            result.add_network(target, *network, name, latency, protocol="nvprof kernel time")
    return result


def _draw(layers: list[_Layer]) -> _Drawn | None:
    net = Drawing()
    try:
        for layer in layers:
            _layer(net, layer)
    except (KeyError, ValueError):
        return None
    kernels = net.kernels()
    bag = "\n".join(sorted(f"{signature.hash} {count}" for signature, count in kernels))
    return (hash_of(f"bag of kernels\n{bag}"), kernels) if kernels else None


def _layer(net: Drawing, layer: _Layer) -> None:
    op, in_h, in_w, in_c, out_h, out_w, out_c, k_h, k_w, activation = layer
    if op in _FREE:
        return
    if min(in_h, in_w, in_c, out_h, out_w, out_c) < 1:
        raise ValueError(op)
    weights: tuple[tuple[int, ...], ...]
    tail = _ACTIVATIONS[activation] if activation is not None else ""
    source, result = (1, in_c, in_h, in_w), (1, out_c, out_h, out_w)
    stride = max(round(in_h / out_h), 1)
    window = (("kernel_shape", (k_h, k_w)), ("strides", (stride, stride)))
    if op in ("Conv2D", "DepthwiseConv2D"):
        groups = in_c if op == "DepthwiseConv2D" else 1
        name = f"Conv+{tail}" if tail else "Conv"
        weights = ((out_c, in_c // groups, k_h, k_w), (out_c,))
        net.add(name, [net.input(source)], result, weights, (("group", groups), *window))
    elif op == "SeparableConv2D":
        middle = (1, in_c, out_h, out_w)
        weights = ((in_c, 1, k_h, k_w),)
        net.add("Conv", [net.input(source)], middle, weights, (("group", in_c), *window))
        weights = ((out_c, in_c, 1, 1), (out_c,))
        net.add("Conv", [net.input(middle)], result, weights, (("kernel_shape", (1, 1)),))
    elif op == "Dense":
        name = f"Gemm+{tail}" if tail else "Gemm"
        net.add(name, [net.input((1, in_c))], (1, out_c), ((in_c, out_c), (out_c,)))
    elif op == "Activation":
        net.add(tail or "Identity", [net.input(source)], result)
    elif op in _PAIRS:
        net.add(_PAIRS[op], [net.input(source), net.input(source)], result)
    elif op in _WINDOWS:
        net.add(_WINDOWS[op], [net.input(source)], result, (), window if k_h else ())
    elif op in _PLAIN:
        weights = ((in_c,),) * 4 if op == "BatchNormalization" else ()
        net.add(_PLAIN[op], [net.input(source)], result, weights)
    else:
        raise KeyError(op)
