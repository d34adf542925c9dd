"""What a model computes, as a digest: blind to names and to the values of weights."""

from __future__ import annotations

import hashlib
import itertools
from array import array
from collections.abc import Sequence

from onnx import ModelProto

from hybridlat.onnx_io.nodes import FileNode, FileTensor
from hybridlat.onnx_io.values import dtype_name, keeps_float_values

_FLOATS = ("float", "bfloat", "double")


def structure_digest(
    frame: ModelProto, tensors: Sequence[FileTensor], nodes: Sequence[FileNode]
) -> bytes:
    """Digest of everything but names: operators, links, attributes, types, structural values."""
    number: dict[str, int] = {"": -1}
    parts: list[object] = [(o.domain, o.version) for o in frame.opset_import]
    blobs: list[bytes] = []
    for info in frame.graph.input:
        number.setdefault(info.name, len(number))
        blobs.append(info.type.SerializeToString(deterministic=True))
    floats = {t.name for t in tensors if dtype_name(t.data_type).startswith(_FLOATS)}
    float_users = {
        name: node for node in nodes for name in node.inputs
        if name in floats and node.op != "Identity"
    } if floats else {}  # fmt: skip
    for tensor in tensors:
        number.setdefault(tensor.name, len(number))
        parts.append((number[tensor.name], tensor.data_type, tensor.dims))
        user = float_users.get(tensor.name)
        if user is None or keeps_float_values(user.op, tensor.dims):
            blobs.append(tensor.nameless)
    listed = list(itertools.chain.from_iterable([node.links for node in nodes]))
    different = dict.fromkeys(listed)  # names, and how many follow
    for item in different:
        if isinstance(item, str):
            number.setdefault(item, len(number))
    places = {item: item for item in different if isinstance(item, int)} | number
    links = array("q", map(places.__getitem__, listed))
    links.extend([number.get(info.name, -2) for info in frame.graph.output])
    digest = hashlib.sha256(repr(parts).encode())
    digest.update(links.tobytes())
    for blob in blobs:
        digest.update(len(blob).to_bytes(4, "little"))
        digest.update(blob)
    digest.update(b"".join([node.structure for node in nodes]))
    return digest.digest()
