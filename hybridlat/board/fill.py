"""Weights that no file carries: every initializer points into a few shared files of noise.

An architecture-only model says its weights as ``ConstantOfShape``. Engines fold those to constants,
and constant data runs faster on a GPU than real data does. ``prepare`` turns each into an
initializer with ONNX external data whose bytes lie in a noise file. A noise file is one block of
seeded numbers repeated until it is large enough for the largest weight, so the plan carries the
block (256 KB) and the board makes the file, with ``cat`` if it has nothing else. The block's
length is a prime, so that rows of a weight do not line up. The engine copies what it reads, so
weights that overlap in a file are apart on the device.

Classes of noise: ``w3`` uniform with standard deviation 2**-3 (weights, by He's rule from the
fan-in), ``p`` in 0.5..1.5 (scales, variances), ``b`` small (biases, means).
"""

import math
import os
import random
import struct
from typing import Dict, List, Tuple

from . import onnx_graph as og
from . import opset

BLOCK = 65521
# TensorRT tells weights apart by where they start: no two of one model may start at one place.
_APART = 256
SUFFIX = {"float32": "f32", "float16": "f16"}
_ITEM = {"f32": ("f", 4), "f16": ("e", 2)}
_POSITIVE_INPUTS = {"BatchNormalization": (1, 4), "InstanceNormalization": (1,),
                    "LayerNormalization": (1,), "GroupNormalization": (1,)}  # fmt: skip
_MATRIX_OPS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def noise_class(model: "og.Model", name: str, shape: Tuple[int, ...]) -> str:
    """Which noise suits the weight ``name``, by the operator that reads it."""
    for node in model.nodes:
        for place, source in enumerate(node.inputs):
            if source != name:
                continue
            if node.op in _MATRIX_OPS and place < 2 and len(shape) > 1:
                spread = math.sqrt(2.0 / max(1, _fan_in(node, shape)))
                return "w%d" % min(9, max(0, round(-math.log(spread, 2))))
            if node.op in _POSITIVE_INPUTS:
                return "p" if place in _POSITIVE_INPUTS[node.op] else "b"
            if node.op in ("Mul", "Div", "Sqrt", "Pow", "Log"):
                return "p"
            return "b"
    return "b"


def _fan_in(node: "og.Node", shape: Tuple[int, ...]) -> int:
    if node.op == "Gemm":
        return shape[1] if node.integer("transB") else shape[0]
    if node.op == "MatMul":
        return shape[-2]
    size = 1
    for dim in shape[1:]:
        size *= dim
    return size


def block(name: str, seed: int = 0) -> bytes:
    """The numbers that the noise file ``<type>_<class>.bin`` repeats."""
    kind, _, noise = name[: -len(".bin")].partition("_")
    # A string seeds Python's generator alike in every version; one stream for all scales.
    source = random.Random("hybridlat %d %s" % (seed, noise[0]))
    values = [source.random() for _ in range(BLOCK)]
    if noise == "p":
        values = [0.5 + v for v in values]
    else:
        width = 2.0 ** -int(noise[1:]) * math.sqrt(3.0) if noise[0] == "w" else 0.02
        values = [(2.0 * v - 1.0) * width for v in values]
    code, _ = _ITEM[kind]
    return struct.pack("<%d%s" % (BLOCK, code), *values)


def prepare(data: bytes, typed: str = "") -> Tuple[bytes, Dict[str, int]]:
    """A model whose weights lie in noise files, and the bytes each file must have.

    ``typed`` float16 makes every float of the model half precision, which is how TensorRT 11 is
    told the precision. ValueError for bytes that are not a model.
    """
    model = og.Model(data)
    opset.lower(model)
    if typed:
        model.retype(typed)
    sizes: Dict[str, int] = {}
    uses: Dict[str, int] = {}
    for weight in model.blank_weights():
        if weight.dtype not in SUFFIX:
            continue
        kind = SUFFIX[weight.dtype]
        name = "%s_%s.bin" % (kind, noise_class(model, weight.name, weight.shape))
        size = _ITEM[kind][1]
        for dim in weight.shape:
            size *= dim
        offset = uses.get(name, 0) * _APART
        uses[name] = uses.get(name, 0) + 1
        model.set_external(weight, name, offset, size)
        sizes[name] = max(sizes.get(name, 0), offset + size)
    return model.to_bytes(), sizes


def make_files(blocks: str, folder: str, sizes: Dict[str, int]) -> None:
    """Write the noise files that ``folder`` still lacks, from the blocks in ``blocks``."""
    for name, size in sorted(sizes.items()):
        path = os.path.join(folder, name)
        if os.path.exists(path) and os.path.getsize(path) >= size:
            continue
        with open(os.path.join(blocks, name), "rb") as source:
            content = source.read()
        with open(path + ".part", "wb") as sink:
            written = 0
            while written < size:
                sink.write(content)
                written += len(content)
        os.replace(path + ".part", path)


def names(sizes: List[Dict[str, int]]) -> Dict[str, int]:
    """The noise files that several models need together: each as large as the largest use."""
    total: Dict[str, int] = {}
    for one in sizes:
        for name, size in one.items():
            total[name] = max(total.get(name, 0), size)
    return total
