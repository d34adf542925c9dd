"""From a path, bytes or a model in memory to a file that can be read."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

from hybridlat.errors import NetworkError
from hybridlat.graph.network import Network
from hybridlat.onnx_io.file import OnnxFile, Shapes, text_of

if TYPE_CHECKING:
    import onnx

    from hybridlat.onnx_io.facts import FileFacts
    from hybridlat.onnx_io.parsing import Parsed

ModelSource: TypeAlias = "str | os.PathLike[str] | bytes | onnx.ModelProto"
Recall: TypeAlias = "Callable[[str], FileFacts | None]"
"""What is known of the file whose bytes have this hash."""

UNNAMED = "network"
"""What a model without a name is called."""
MAX_INLINE_BYTES = 2_000_000_000  # a protobuf message cannot be larger


def load(source: ModelSource, name: str | None = None, recall: Recall | None = None) -> OnnxFile:
    """Parse a path, bytes or a ModelProto; weights are left behind, external ones never opened.

    A ModelProto that is passed in is not changed. A path is not parsed yet where ``recall`` knows
    its bytes. Raises NetworkError for anything that is not a whole ONNX model.
    """
    digest = ""
    if isinstance(source, str | os.PathLike):
        label, data = name or str(source), _read_bytes(Path(source))
        if recall is not None and data:
            digest = hashlib.sha256(data).hexdigest()
            known = recall(digest)
            if known is not None:
                return OnnxFile(label, partial(_parse, data, label), digest, known)
        parsed = _parse(data, label)
    elif isinstance(source, bytes | bytearray | memoryview):
        label = name or UNNAMED
        parsed = _parse(bytes(source), label)
    else:
        import onnx

        if not isinstance(source, onnx.ModelProto):
            raise NetworkError(
                f"an object of type {type(source).__name__} is no network: give a path, the "
                "bytes of an ONNX file, an onnx.ModelProto or a torch.nn.Module"
            )
        label = name or source.graph.name or UNNAMED
        parsed = _without_weights(source, label)
    return OnnxFile(label, lambda: parsed, digest)


def as_bytes(source: object) -> tuple[str, bytes] | None:
    """What a ModelProto is called, and its bytes; None for anything else, and for an empty one.

    Also for one of more than 2 GB: protobuf does not write it.
    """
    if not is_model(source):
        return None
    from google.protobuf.message import EncodeError  # type: ignore[import-untyped]

    try:
        data = source.SerializeToString()
    except (EncodeError, ValueError):  # which one, depends on protobuf's version
        return None
    return (source.graph.name or UNNAMED, data) if data else None


def is_model(source: object) -> TypeGuard[onnx.ModelProto]:
    """Whether it is a network in memory."""
    if isinstance(source, str | os.PathLike | bytes):
        return False
    import onnx

    return isinstance(source, onnx.ModelProto)


def _parse(data: bytes, label: str) -> Parsed:
    import onnx
    from google.protobuf.message import DecodeError

    if not data:
        raise NetworkError(f"{label} is empty: give a file with an ONNX model")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        hint = "it is cut off, damaged or of another format"
        if data[:2] == b"PK":
            hint = "it is a zip archive (a PyTorch file?): export it with torch.onnx.export"
        raise NetworkError(f"{label} is not an ONNX model: {hint}") from error
    return _without_weights(model, label)


def _without_weights(model: onnx.ModelProto, label: str) -> Parsed:
    from hybridlat.onnx_io.parsing import parsed

    with text_of(label):
        return parsed(model, label)


def _read_bytes(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise NetworkError(f"{path} is a directory: name the .onnx file in it")
        if path.stat().st_size > MAX_INLINE_BYTES:
            raise NetworkError(
                f"{path} is larger than 2 GB, which no ONNX parser can read: save it with "
                "external data (onnx.save_model(..., save_as_external_data=True))"
            )
        return path.read_bytes()
    except FileNotFoundError:
        raise NetworkError(f"{path} does not exist") from None
    except PermissionError:
        raise NetworkError(f"{path} may not be read: no permission") from None
    except (OSError, ValueError) as error:
        raise NetworkError(f"{str(path)!r} cannot be read: {error}") from error


def read_network(
    source: ModelSource,
    batch: int | None = None,
    shapes: Shapes | None = None,
    name: str | None = None,
) -> Network:
    """The network of a file, bytes or ModelProto with static shapes, in topological order.

    ``batch`` replaces the first size of every input; ``shapes`` maps input names to whole shapes.
    A symbolic first size that nobody binds is 1. Raises NetworkError.
    """
    return load(source, name).network(batch, shapes)
