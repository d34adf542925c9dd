"""A file that was loaded: what it holds and what can be told of it, up to its network."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from hybridlat.errors import NetworkError
from hybridlat.graph.network import Network

if TYPE_CHECKING:
    import onnx

    from hybridlat.onnx_io.facts import FileFacts, FilePrecision
    from hybridlat.onnx_io.nodes import FileNode
    from hybridlat.onnx_io.parsing import Parsed
    from hybridlat.onnx_io.tensors import FileTensor

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class OnnxFile:
    """A file that can be read, not yet bound to sizes, without weights; see ``onnx_io.load``.

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

        with text_of(self.name):
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
        from hybridlat.onnx_io.nodes import unique_names

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

        with text_of(self.name):
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
        from hybridlat.onnx_io.structure import structure_digest

        with text_of(self.name):
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

        with text_of(self.name):
            quick = quick_network(self, batch, shapes or {})
            return quick if quick is not None else to_network(self, batch, shapes or {})


@contextlib.contextmanager
def text_of(label: str) -> Iterator[None]:
    """Names in a damaged file need not be text, and are found out only when they are read."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise NetworkError(
            f"{label} is damaged: a name in it is no text ({error.reason})"
        ) from error
