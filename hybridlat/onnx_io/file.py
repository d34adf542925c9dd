"""From a path, bytes or a model in memory to a file that can be read."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

import msgspec

from hybridlat.errors import NetworkError
from hybridlat.graph.network import Network, Shapes
from hybridlat.schema import wire
from hybridlat.schema.files import read_bytes
from hybridlat.schema.plugins import shipped, shipped_table
from hybridlat.schema.target import PRECISIONS

if TYPE_CHECKING:
    import onnx

    from hybridlat.onnx_io.parse import Parsed

ModelSource: TypeAlias = "str | os.PathLike[str] | bytes | onnx.ModelProto"
Recall: TypeAlias = "Callable[[str], FileFacts | None]"
"""What is known of the file whose bytes have this hash."""

UNNAMED = "network"
"""What a model without a name is called."""
FACTS_FORMAT = 4
"""Goes up with every change of how a fact is written: caches of another format are not read."""
MAX_INLINE_BYTES = 2_000_000_000  # a protobuf message cannot be larger
# Exporters name what they fold: onnx::Conv_123 (TorchScript), conv1.weight_bias (dynamo).
_FOLDED_BIAS = re.compile(r"onnx::Conv(Transpose)?_\d+$|.*\bweight_bias$")
_OWN_BIAS = re.compile(r"(.*[./])?bias$")
# Dynamo's result of a call with several, such as a norm: no convolution has one of its own.
_NORM_RESULT = re.compile(r"getitem(_\d+)?$")


def bias_origin(inputs: Sequence[str], outputs: Sequence[str]) -> str:
    """``folded`` (from a norm) or ``own``, as names tell of a convolution's bias; else empty."""
    bias, result = "".join(inputs[2:3]), "".join(outputs[:1])
    if _NORM_RESULT.match(result) or _FOLDED_BIAS.match(bias):
        return "folded"
    return "own" if _OWN_BIAS.match(bias) else ""


@dataclass(frozen=True)
class FilePrecision:
    """How many convolutions and products of a file compute in each precision.

    ``name`` is that precision of targets which most of them have; ``fp32`` where there is none, as
    for ``fp8`` and ``fp4``.
    """

    counts: Mapping[str, int]

    @property
    def name(self) -> str:
        most = max(self.counts, key=lambda p: (self.counts[p], p), default="")
        return most if most in PRECISIONS else "fp32"

    def __str__(self) -> str:
        """``int8``, or ``mixed: 20 of 21 convolutions and products in int8, 1 in fp32``."""
        if len(self.counts) < 2:
            return next(iter(self.counts), self.name)
        first, *others = sorted(self.counts, key=lambda n: (n != self.name, -self.counts[n], n))
        of_all = f" of {sum(self.counts.values())} convolutions and products"
        shares = [f"{self.counts[first]}{of_all} in {first}"]
        shares += [f"{self.counts[name]} in {name}" for name in others]
        return f"mixed: {', '.join(shares)}"


class FileFacts(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a file says of itself; nodes are told of in file order.

    ``structure`` is the digest that ``OnnxFile.key`` starts from, ``inputs`` are the names of the
    graph's inputs, weights that stand among them too. ``node_names`` are unique; ``module_paths``
    say what module a node comes from (``layer3.0``), empty if unknown; ``constant_nodes`` compute
    the same for every input of bound sizes; ``precision`` is that of convolutions and products.
    """

    structure: bytes
    inputs: tuple[str, ...]
    node_names: tuple[str, ...]
    op_types: tuple[str, ...]
    module_paths: tuple[str, ...]
    constant_nodes: frozenset[int]
    precision: FilePrecision

    @classmethod
    def of(cls, source: object) -> FileFacts:
        """The facts of a parsed file, which has them under the same names."""
        return cls(*[getattr(source, name) for name in cls.__struct_fields__])

    def to_text(self) -> str:
        """JSON for a cache."""
        return msgspec.json.encode((FACTS_FORMAT, self), order="sorted").decode()

    @classmethod
    def from_text(cls, text: str) -> FileFacts | None:
        """Read ``to_text``; None for another format, and for what is damaged."""
        read = wire.decode_or_none(text, tuple[int, FileFacts])
        return read[1] if read is not None and read[0] == FACTS_FORMAT else None


@dataclass(frozen=True)
class OnnxFile:
    """A file that can be read, not yet bound to sizes, without weights; see ``load``."""

    name: str
    parse: Callable[[], Parsed]
    digest: str = ""
    known: FileFacts | None = None

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


def shipped_networks() -> dict[str, Path]:
    """The files of the networks that are shipped, by the names that stand for them."""
    return {path.stem: path for path in sorted(shipped("data", "nets").glob("*.onnx"))}


def load(source: ModelSource, name: str | None = None, recall: Recall | None = None) -> OnnxFile:
    """Parse a path, bytes or a ModelProto; weights are left behind, external ones never opened."""
    digest = ""
    model: bytes | onnx.ModelProto
    if isinstance(source, str | os.PathLike):
        label, model = name or str(source), _read_bytes(Path(source))
        if recall is not None and model:
            digest = hashlib.sha256(model).hexdigest()
            known = recall(digest)
            if known is not None:
                return OnnxFile(label, lambda: _parsed(model, label), digest, known)
    elif isinstance(source, bytes | bytearray | memoryview):
        label, model = name or UNNAMED, bytes(source)
    elif is_model(source):
        label, model = name or source.graph.name or UNNAMED, source
    else:
        raise NetworkError(
            f"an object of type {type(source).__name__} is no network: give a path, the "
            "bytes of an ONNX file, an onnx.ModelProto or a torch.nn.Module"
        )
    parsed = _parsed(model, label)
    return OnnxFile(label, lambda: parsed, digest)


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
            raise NetworkError(
                f"{path} is larger than 2 GB, which no ONNX parser can read: save it with "
                "external data (onnx.save_model(..., save_as_external_data=True))"
            )
        return read_bytes(path, MAX_INLINE_BYTES)
    except FileNotFoundError:
        raise NetworkError(_missing(path)) from None
    except PermissionError:
        raise NetworkError(f"{path} may not be read: no permission") from None
    except (OSError, ValueError) as error:
        raise NetworkError(f"{str(path)!r} cannot be read: {error}") from error


def other_format(name: str, data: bytes) -> str:
    """``a PyTorch file: export it …`` by its ending, then by its bytes; empty: neither tells."""
    ending, begin = Path(name).suffix.lower(), data[:512].decode("latin-1")
    kinds = shipped_table("formats").values()
    of_ending = [kind for kind in kinds if ending in kind.get("endings", ())]
    of_bytes = [k for k in kinds if any(re.match(m, begin, re.DOTALL) for m in k.get("marks", ()))]
    return next((f"{kind['name']}: {kind['fix']}" for kind in of_ending or of_bytes), "")
