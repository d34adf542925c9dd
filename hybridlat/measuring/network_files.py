"""ONNX files by the name of their network, in a folder or an archive, and their networks."""

from __future__ import annotations

import hashlib
import re
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath

from hybridlat.errors import InputError, NetworkError
from hybridlat.graph.network import Network
from hybridlat.onnx_io import OnnxFile, load
from hybridlat.store.importers.table import RowRejected

MOST_UNPACKED_BYTES = 4_000_000_000
"""The ONNX files of an archive are held in memory: files without weights take a hundredth of it."""
_ENDING = ".onnx"


@dataclass(frozen=True)
class NetworkFile:
    """A file by its name without the ending; ``source`` is its path or its bytes."""

    name: str
    source: Path | bytes

    @cached_property
    def content(self) -> bytes:
        """The file's bytes. Raises InputError where they cannot be read."""
        try:
            return self.source if isinstance(self.source, bytes) else self.source.read_bytes()
        except OSError as error:
            raise InputError(f"{self.name}{_ENDING} cannot be read: {error.strerror}") from None

    @cached_property
    def parsed(self) -> OnnxFile:
        """The file, not yet bound to sizes. Raises NetworkError for what is no ONNX model."""
        return load(self.content, self.name)

    @cached_property
    def digest(self) -> str:
        """Names exactly this content."""
        return hashlib.sha256(self.content).hexdigest()[:32]


class NetworkFiles:
    """All ONNX files of a folder (searched below too), or of a .tar, .tar.gz or .zip archive."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise InputError(f"{path} does not exist: --nets names the folder of the ONNX files")
        self.where = path
        self._files: dict[str, Path | bytes] = {}
        for name, source in _in_folder(path) if path.is_dir() else _in_archive(path):
            self._files.setdefault(PurePath(name).stem, source)
        if not self._files:
            raise InputError(f"{path} holds no {_ENDING} file: --nets names the folder of them")
        self._alike: dict[str, list[str]] = {}
        for name in self._files:
            self._alike.setdefault(_plain(name), []).append(name)

    def __len__(self) -> int:
        return len(self._files)

    def find(self, name: str) -> NetworkFile | None:
        """The file of that name; else the only one that differs in case, ``-`` and ``_`` alone."""
        names = [name] if name in self._files else self._alike.get(_plain(name), [])
        return NetworkFile(names[0], self._files[names[0]]) if len(names) == 1 else None


def _plain(name: str) -> str:
    return re.sub(r"[-_\s]", "", name.casefold())


def _in_folder(path: Path) -> Iterator[tuple[str, Path]]:
    return ((file.name, file) for file in sorted(path.rglob(f"*{_ENDING}")))


def _in_archive(path: Path) -> Iterator[tuple[str, bytes]]:
    """Read once from front to back: a compressed archive cannot be entered in the middle."""
    unpacked_bytes = 0

    def is_wanted(name: str, size_bytes: int) -> bool:
        nonlocal unpacked_bytes
        unpacked_bytes += size_bytes if name.endswith(_ENDING) else 0
        if unpacked_bytes > MOST_UNPACKED_BYTES:
            raise InputError(
                f"{path} unpacks to more than {MOST_UNPACKED_BYTES / 1e9:.0f} GB of ONNX files: "
                "unpack it, and name the folder instead"
            )
        return name.endswith(_ENDING)

    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for info in sorted(archive.infolist(), key=lambda info: info.filename):
                    if is_wanted(info.filename, info.file_size):
                        yield info.filename, archive.read(info)
            return
        with tarfile.open(path) as tar:
            for member in tar:
                inside = tar.extractfile(member) if member.isfile() else None
                if inside is not None and is_wanted(member.name, member.size):
                    yield member.name, inside.read()
    except (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{path} cannot be read as a folder or an archive (.tar.gz, .zip) of ONNX files: "
            f"{error}"
        ) from None


def network_at(file: NetworkFile, batch: int | None, size: tuple[int, int] | None) -> Network:
    """The network of a file bound to a batch, and its first image to height and width.

    None leaves what the file has. Raises RowRejected where the file does not take them.
    """
    try:
        read = file.parsed
    except InputError as error:
        raise RowRejected("the ONNX file cannot be read", error, "export it again") from None
    shapes = _bound(file.name, read.input_sizes, batch, size) if size is not None else {}
    try:
        return read.network(batch, shapes)
    except NetworkError as error:
        raise RowRejected(
            "the ONNX file does not take the batch or the size", f"{error} (batch {batch})",
            "export it with dynamic sizes, or for these sizes",
        ) from None  # fmt: skip


def _bound(
    name: str, inputs: Mapping[str, tuple[int | None, ...]], batch: int | None,
    size: tuple[int, int],
) -> dict[str, tuple[int, ...]]:  # fmt: skip
    """The first image among the inputs with these sizes; nothing where it has them already."""
    none: tuple[str, tuple[int | None, ...]] = ("", (None,) * 4)
    tensor, sizes = next(((t, s) for t, s in inputs.items() if len(s) == 4), none)
    if image_size(sizes) == size:
        return {}
    last = _is_channels_last(sizes)
    channels = sizes[3] if last else sizes[1]
    if channels is None:
        raise RowRejected(
            "the ONNX file has no input of images to give a size to",
            f"{name}: {', '.join(f'{n} {list(s)}' for n, s in inputs.items())}",
            "leave the size out, or export the network with its channels",
        )
    first = batch or sizes[0] or 1
    return {tensor: (first, *size, channels) if last else (first, channels, *size)}


def image_size(sizes: Sequence[int | None]) -> tuple[int | None, ...] | None:
    """Height and width of an input of images; None for another input."""
    if len(sizes) != 4:
        return None
    return tuple(sizes[1:3] if _is_channels_last(sizes) else sizes[2:])


def _is_channels_last(sizes: Sequence[int | None]) -> bool:
    return sizes[3] in (1, 3, 4) and sizes[1] not in (1, 3, 4)
