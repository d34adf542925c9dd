"""ONNX files in and out: the only package that imports onnx.

A file becomes a :class:`~hybridlat.graph.network.Network` in four steps: parse without weights,
bind symbolic sizes, infer shapes, fold what only computes constants. A network or a cell becomes a
file again with seeded random weights, or with none.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from hybridlat.errors import NetworkError
from hybridlat.graph.network import Network, TensorType

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from hybridlat.onnx_io.facts import FileFacts, FilePrecision
    from hybridlat.onnx_io.nodes import FileNode
    from hybridlat.onnx_io.reading import Parsed
    from hybridlat.onnx_io.tensors import FileTensor

ModelSource: TypeAlias = "str | os.PathLike[str] | bytes | onnx.ModelProto"
Shapes = Mapping[str, tuple[int, ...]]
Recall: TypeAlias = "Callable[[str], FileFacts | None]"
"""What is known of the file whose bytes have this hash."""

UNNAMED = "network"
"""What a model without a name is called."""
MAX_INLINE_BYTES = 2_000_000_000  # a protobuf message cannot be larger


@dataclass(frozen=True)
class OnnxFile:
    """A file that can be read, not yet bound to sizes, without weights; see :func:`load`.

    ``head`` is the model without its operators, which are ``nodes``; ``model`` has both. A file
    that is ``known`` is parsed when more is asked than that tells. ``digest`` is the hash of its
    bytes, where it was needed to know it.
    """

    name: str
    parse: Callable[[], Parsed]
    digest: str = ""
    known: FileFacts | None = None

    @cached_property
    def _parsed(self) -> Parsed:
        return self.parse()

    @cached_property
    def head(self) -> onnx.ModelProto:
        """The model without weights and operators."""
        return self._parsed.head()

    @property
    def frame(self) -> bytes:
        """The model without constants and operators, as it is written."""
        return self._parsed.frame

    @property
    def tensors(self) -> tuple[FileTensor, ...]:
        """The constants, in file order."""
        return self._parsed.tensors

    @property
    def nodes(self) -> tuple[FileNode, ...]:
        """The operators, in file order."""
        return self._parsed.nodes

    @property
    def facts(self) -> FileFacts:
        """What is worth remembering of the file."""
        from hybridlat.onnx_io.facts import FileFacts

        with _text_of(self.name):
            return self.known or FileFacts(
                self._structure, self.written, self._inputs, self.node_names, self.op_types,
                self.module_paths, self.constant_nodes, self.precision,
            )  # fmt: skip

    @cached_property
    def model(self) -> onnx.ModelProto:
        """The file as one protobuf."""
        import onnx

        model = onnx.ModelProto()
        model.CopyFrom(self.head)
        model.graph.node.extend(node.proto() for node in self.nodes)
        return model

    @property
    def label(self) -> str:
        """The name without folder and ending: ``resnet18``."""
        return Path(self.name).stem or self.name

    @cached_property
    def node_names(self) -> tuple[str, ...]:
        """A unique name for every node of the file, in file order."""
        if self.known is not None:
            return self.known.node_names
        from hybridlat.onnx_io.reading import unique_names

        return unique_names(self.nodes)

    @cached_property
    def module_paths(self) -> tuple[str, ...]:
        """The module that every node of the file comes from (``layer3.0``), empty if unknown."""
        if self.known is not None:
            return self.known.module_paths
        from hybridlat.onnx_io.module_paths import module_paths

        return module_paths(self.model)

    @cached_property
    def op_types(self) -> tuple[str, ...]:
        """The operator of every node of the file, in file order."""
        return self.known.op_types if self.known else tuple([node.op for node in self.nodes])

    @cached_property
    def constant_nodes(self) -> frozenset[int]:
        """Positions of the nodes that compute the same for every input of bound sizes.

        Weights and what makes them (``ConstantOfShape``, ``DequantizeLinear`` of weights), and the
        arithmetic of shapes.
        """
        if self.known is not None:
            return self.known.constant_nodes
        fixed = {tensor.name for tensor in self.tensors}
        fixed.add("")
        positions = set()
        for position, node in enumerate(self.nodes):
            inputs = node.inputs
            if inputs and inputs[0] not in fixed and node.op not in ("Shape", "Size"):
                continue  # the usual operator, told at a glance
            # A subgraph may read what its node does not name.
            alone = not node.has_graph and fixed.issuperset(inputs)
            if alone or node.op in ("Shape", "Size"):
                positions.add(position)
                fixed.update(node.outputs)
        return frozenset(positions)

    @cached_property
    def precision(self) -> FilePrecision:
        """The precision that the file's convolutions and products compute in."""
        if self.known is not None:
            return self.known.precision
        from hybridlat.onnx_io.precision import precision_of

        with _text_of(self.name):
            return precision_of(self)

    @property
    def input_sizes(self) -> dict[str, tuple[int | None, ...]]:
        """Sizes of the graph's inputs as written; None for one that is symbolic or not stated."""
        weights = {tensor.name for tensor in self.tensors}
        return {
            info.name: tuple(
                size.dim_value if size.HasField("dim_value") else None
                for size in info.type.tensor_type.shape.dim
            )
            for info in self.head.graph.input
            if info.name not in weights
        }

    def key(self, batch: int | None = None, shapes: Shapes | None = None) -> str:
        """Hash of the structure as written and of the sizes asked for; blind to names and weights.

        Two files with one key have the same Network but for names, so work done once per
        structure is found again by it. A different node order gives a different key.
        """
        asked = sorted((shapes or {}).items())
        inputs = {name: n for n, name in enumerate(self._inputs)}
        numbered = [(inputs.get(name, name), shape) for name, shape in asked]
        digest = hashlib.sha256(self._structure)
        digest.update(repr((batch, numbered)).encode())
        return digest.hexdigest()[:32]

    @cached_property
    def _structure(self) -> bytes:
        if self.known is not None:
            return self.known.structure
        from hybridlat.onnx_io.reading import structure_digest

        with _text_of(self.name):
            return structure_digest(self.head, self.nodes)

    @property
    def _inputs(self) -> tuple[str, ...]:
        if self.known is not None:
            return self.known.inputs
        return tuple([info.name for info in self.head.graph.input])

    @cached_property
    def written(self) -> bytes:
        """Digest of the file as it is written, names and all: much quicker than ``key``."""
        if self.known is not None:
            return self.known.written
        digest = hashlib.blake2b(self.frame, digest_size=16)
        digest.update(len(self.tensors).to_bytes(4, "little"))
        digest.update(b"".join([tensor.data for tensor in self.tensors]))
        digest.update(b"".join([node.data for node in self.nodes]))
        return digest.digest()

    def network(self, batch: int | None = None, shapes: Shapes | None = None) -> Network:
        """The network with every size bound; NetworkError says what is wrong or missing."""
        from hybridlat.onnx_io.quick_reading import quick_network
        from hybridlat.onnx_io.reading import to_network

        with _text_of(self.name):
            quick = quick_network(self, batch, shapes or {})
            return quick if quick is not None else to_network(self, batch, shapes or {})


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
    from hybridlat.onnx_io.reading import parsed

    with _text_of(label):
        return parsed(model, label)


@contextlib.contextmanager
def _text_of(label: str) -> Iterator[None]:
    """Names in a damaged file need not be text, and are found out only when they are read."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise NetworkError(
            f"{label} is damaged: a name in it is no text ({error.reason})"
        ) from error


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


def to_onnx(network: Network, seed: int | None, ir_version: int = 8) -> bytes:
    """The network, cell or kernel as a model file.

    ``seed`` None leaves weights out (ConstantOfShape nodes make them); a number fills them with
    random values of a scale that keeps activations finite and clear of denormals. Raises
    NetworkError when the weights do not fit into one file.
    """
    from hybridlat.onnx_io.writing import build

    if seed is not None and network.weight_bytes > MAX_INLINE_BYTES:
        raise NetworkError(
            f"{network.name} has {network.weight_bytes / 1e9:.1f} GB of weights, more than the "
            "2 GB of one ONNX file"
        )
    data: bytes = build(network, seed, ir_version).SerializeToString()
    return data


def assemble(model: onnx.ModelProto, name: str, types: Mapping[str, TensorType]) -> Network:
    """The network of an engine's own graph, whose tensor types the engine has told."""
    from hybridlat.onnx_io.reading import assemble as assemble_

    return assemble_(model, name, (), dict(types))


def with_outputs(path: Path, names: Sequence[str]) -> Path:
    """A copy of the model beside ``path`` that gives out the tensors ``names`` too."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    copy = path.with_name("exposed.onnx")
    copy.write_bytes(model.SerializeToString())
    return copy


def random_array(type_: TensorType, seed: int) -> NDArray[Any]:
    """Seeded random values for an input, of a scale that keeps activations ordinary."""
    from hybridlat.onnx_io.writing import random_input

    return random_input(type_, seed)


def zeros(type_: TensorType) -> NDArray[Any]:
    """A buffer for a result of this type."""
    import numpy
    import onnx

    from hybridlat.onnx_io.values import data_type

    dtype = onnx.helper.tensor_dtype_to_np_dtype(data_type(type_.dtype))
    return numpy.zeros(type_.shape, dtype)
