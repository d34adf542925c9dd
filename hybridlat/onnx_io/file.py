"""From a path, bytes or a model in memory to a file that can be read."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

from hybridlat.errors import NetworkError
from hybridlat.graph.network import Network, Shapes
from hybridlat.onnx_io.facts import MAX_INLINE_BYTES, FileFacts
from hybridlat.schema.files import read_bytes
from hybridlat.schema.plugins import shipped_files, shipped_table

if TYPE_CHECKING:
    import onnx

    from hybridlat.onnx_io.parse import Parsed

ModelSource: TypeAlias = "str | os.PathLike[str] | bytes | onnx.ModelProto | OnnxFile"
Recall: TypeAlias = "Callable[[str], FileFacts | None]"
"""What is known of the file whose bytes have this hash."""

UNNAMED = "network"
"""What a model without a name is called."""


@dataclass(frozen=True)
class OnnxFile:
    """A file that can be read, not yet bound to sizes, without weights; see ``load``."""

    name: str
    parse: Callable[[], Parsed]
    digest: str = ""
    known: FileFacts | None = None
    source: str = ""

    @cached_property
    def parsed(self) -> Parsed:
        return self.parse()

    @property
    def facts(self) -> FileFacts | Parsed:
        """What is worth remembering of the file."""
        return self.parsed if self.known is None else self.known

    @property
    def label(self) -> str:
        """The name without folder and ending: ``resnet18``."""
        return Path(self.name).stem or self.name

    @property
    def word(self) -> str:
        """What commands call it: its ``source``, as it was written; of none, a file to write."""
        return self.source or f"{self.name.removesuffix('.onnx')}.onnx"

    @property
    def path(self) -> str:
        """The same, or the file of the shipped network that it stands for."""
        file = shipped_networks().get(self.source) if self.digest else None
        return str(file) if file and not Path(self.source).is_file() else self.word

    def key(self, batch: int | None = None, shapes: Shapes | None = None) -> str:
        """Hash of the structure as written and of the sizes; blind to names and weights.

        Two files with one key have the same Network but for names, so work done once per
        structure is found again by it. A different node order gives a different key.
        """
        facts = self.facts
        inputs = {name: number for number, name in enumerate(facts.inputs)}
        sizes = sorted((shapes or {}).items())
        numbered = [(inputs.get(name, name), shape) for name, shape in sizes]
        digest = hashlib.sha256(facts.structure)
        digest.update(repr((batch, numbered)).encode())
        return digest.hexdigest()[:32]

    def network(self, batch: int | None = None, shapes: Shapes | None = None) -> Network:
        """The network with every size bound; NetworkError says what is wrong or missing."""
        from hybridlat.onnx_io import read

        parsed = self.parsed
        with read.naming(self.name):
            return read.network_of(parsed, self.name, batch, shapes or {})

    def inputs(self, batch: int | None = None, shapes: Shapes | None = None) -> Shapes:
        """The shapes of the network's inputs, every size bound; NetworkError as ``network``."""
        inputs = self.parsed.bound(batch, shapes or {}).inputs
        return {name: type_.shape for name, type_ in inputs.items()}

    def batch_inside(self, batch: int | None = None, shapes: Shapes | None = None) -> int | None:
        """The batch where it stands behind other sizes, as behind steps, or in a later input."""
        return self.parsed.bound(batch, shapes or {}).batch


def shipped_networks() -> Mapping[str, Path]:
    """The files of the networks that are shipped, by the names that stand for them."""
    return shipped_files("nets", ".onnx")


def load(source: ModelSource, name: str | None = None, recall: Recall | None = None) -> OnnxFile:
    """Parse what is not parsed yet; weights are left behind, external ones never opened."""
    if isinstance(source, OnnxFile):
        return source
    digest = path = ""
    model: bytes | onnx.ModelProto
    if isinstance(source, str | os.PathLike):
        path = os.fspath(source)
        label, model = name or path, _read_bytes(Path(source))
        if recall is not None and model:
            digest = hashlib.sha256(model).hexdigest()
            known = recall(digest)
            if known is not None:
                return OnnxFile(label, lambda: _parsed(model, label), digest, known, path)
    elif isinstance(source, bytes | bytearray | memoryview):
        label, model = name or UNNAMED, bytes(source)
    elif is_model(source):
        label, model = name or source.graph.name or UNNAMED, source
    else:
        fix = "give a path, the bytes of an ONNX file, an onnx.ModelProto or a torch.nn.Module"
        raise NetworkError(f"an object of type {type(source).__name__} is no network: {fix}")
    parsed = _parsed(model, label)
    return OnnxFile(label, lambda: parsed, digest, source=path)


def as_bytes(source: object) -> tuple[str, bytes] | None:
    """The name of a ModelProto, and its bytes; None for anything else, and for an empty one."""
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


def read_network(
    source: ModelSource,
    batch: int | None = None,
    shapes: Shapes | None = None,
    name: str | None = None,
) -> Network:
    """The network of a file, bytes or ModelProto with static shapes, in topological order."""
    return load(source, name).network(batch, shapes)


def _parsed(model: bytes | onnx.ModelProto, label: str) -> Parsed:
    from hybridlat.onnx_io.parse import NotOnnx, parse
    from hybridlat.onnx_io.read import naming

    with naming(label):
        try:
            return parse(model)
        except (NotOnnx, UnicodeDecodeError) as error:
            kind = other_format(label, model) if isinstance(model, bytes) and model else ""
            if not kind:
                raise
            raise NetworkError(f"this is not an ONNX model but {kind}") from error


def _missing(path: Path) -> str:
    """What is wrong with the path of no file: names of shipped networks that are near."""
    known = shipped_networks()
    if path.name != str(path) or path.suffix:
        name = f": the shipped network is called {path.stem}" if path.stem in known else ""
        return f"{path} does not exist{name}"
    near = difflib.get_close_matches(path.name.lower(), known, n=3)
    hint = f": did you mean {' or '.join(near)}?" if near else ""
    return (
        f"{path} is no file, and no network that is shipped{hint} "
        "(`hybridlat examples` lists those)"
    )


def _read_bytes(path: Path) -> bytes:
    if not path.is_file() and path.name == str(path) and path.name in (known := shipped_networks()):
        path = known[path.name]
    try:
        is_large = path.stat().st_size > MAX_INLINE_BYTES
        if kind := other_format(path.name, b"") if is_large or path.is_dir() else "":
            raise NetworkError(f"{path}: this is not an ONNX model but {kind}")
        if path.is_dir():
            files = sorted(path.glob("*.onnx"))
            example = f", as in {files[0]}" if files else ""
            raise NetworkError(f"{path} is a directory: name the .onnx file in it{example}")
        if is_large:
            fix = "save it with external data (onnx.save_model(..., save_as_external_data=True))"
            raise NetworkError(f"{path} is larger than 2 GB, which no ONNX parser can read: {fix}")
        return read_bytes(path, MAX_INLINE_BYTES)
    except FileNotFoundError:
        raise NetworkError(_missing(path)) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise NetworkError(f"{str(path)!r} cannot be read: {why}") from error


def other_format(name: str, data: bytes) -> str:
    """``a PyTorch file: export it …`` by its ending, then by its bytes; empty: neither tells."""
    ending, begin = Path(name).suffix.lower(), data[:512].decode("latin-1")
    kinds = shipped_table("formats").values()
    of_ending = [kind for kind in kinds if ending in kind.get("endings", ())]
    of_bytes = [k for k in kinds if any(re.match(m, begin, re.DOTALL) for m in k.get("marks", ()))]
    return next((f"{kind['name']}: {kind['fix']}" for kind in of_ending or of_bytes), "")
