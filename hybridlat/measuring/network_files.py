"""ONNX files by the name of their network, in a folder or an archive, and their networks."""

from __future__ import annotations

import hashlib
import re
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path, PurePath

from hybridlat.errors import InputError, NetworkError
from hybridlat.graph.network import Network
from hybridlat.onnx_io import OnnxFile, load
from hybridlat.store.importers.table import RowRejected

MOST_UNPACKED_BYTES = 4_000_000_000
"""The ONNX files of an archive are held in memory: files without weights take a hundredth of it."""
_ENDING = ".onnx"
FileSource = Path | Callable[[], bytes]


@dataclass(frozen=True)
class NetworkFile:
    """A file by its name without the ending; ``source`` is its path, or gives its bytes."""

    name: str
    source: FileSource

    @cached_property
    def content(self) -> bytes:
        """The file's bytes. Raises InputError where they cannot be read."""
        try:
            return self.source.read_bytes() if isinstance(self.source, Path) else self.source()
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

    def __init__(self, files: Mapping[str, FileSource], where: str) -> None:
        self.where = where
        self._files = dict(files)
        self._alike: dict[str, list[str]] = {}
        for name in self._files:
            self._alike.setdefault(_plain(name), []).append(name)

    @classmethod
    def at(cls, path: Path) -> NetworkFiles:
        """The files at ``path``; InputError where there is none."""
        if path.is_dir():
            files: dict[str, FileSource] = {}
            for file in sorted(path.rglob(f"*{_ENDING}")):
                files.setdefault(file.stem, file)
        elif path.exists():
            files = _in_archive(path)
        else:
            raise InputError(f"{path} does not exist: --nets names the folder of the ONNX files")
        if not files:
            raise InputError(f"{path} holds no {_ENDING} file: --nets names the folder of them")
        return cls(files, str(path))

    def __len__(self) -> int:
        return len(self._files)

    def find(self, name: str) -> NetworkFile | None:
        """The file of that name; else the only one that differs in case, ``-`` and ``_`` alone."""
        if name not in self._files:
            alike = self._alike.get(_plain(name), [])
            if len(alike) != 1:
                return None
            name = alike[0]
        return NetworkFile(name, self._files[name])


def _plain(name: str) -> str:
    return re.sub(r"[-_\s]", "", name.casefold())


def _in_archive(path: Path) -> dict[str, FileSource]:
    # Read once from front to back: a compressed archive cannot be entered in the middle.
    files: dict[str, FileSource] = {}
    unpacked_bytes = 0

    def keep(name: str, size_bytes: int, read: Callable[[], bytes]) -> None:
        nonlocal unpacked_bytes
        unpacked_bytes += size_bytes
        if unpacked_bytes > MOST_UNPACKED_BYTES:
            raise InputError(
                f"{path} unpacks to more than {MOST_UNPACKED_BYTES / 1e9:.0f} GB of ONNX files: "
                "unpack it, and name the folder instead"
            )
        files.setdefault(PurePath(name).stem, _given(read()))

    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for info in sorted(archive.infolist(), key=lambda info: info.filename):
                    if info.filename.endswith(_ENDING):
                        keep(info.filename, info.file_size, partial(archive.read, info))
            return files
        with tarfile.open(path) as tar:
            for member in tar:
                inside = tar.extractfile(member) if member.isfile() else None
                if inside is not None and member.name.endswith(_ENDING):
                    keep(member.name, member.size, inside.read)
    except (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{path} cannot be read as a folder or an archive (.tar.gz, .zip) of ONNX files: "
            f"{error}"
        ) from None
    return files


def _given(content: bytes) -> Callable[[], bytes]:
    return lambda: content


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
    name: str,
    inputs: Mapping[str, tuple[int | None, ...]],
    batch: int | None,
    size: tuple[int, int],
) -> dict[str, tuple[int, ...]]:
    """The first image among the inputs with these sizes; nothing where it has them already."""
    for tensor, sizes in inputs.items():
        if len(sizes) == 4:
            if image_size(sizes) == size:
                return {}
            channels = sizes[3] if _is_channels_last(sizes) else sizes[1]
            if channels is None:
                break
            first = batch or sizes[0] or 1
            if _is_channels_last(sizes):
                return {tensor: (first, *size, channels)}
            return {tensor: (first, channels, *size)}
    raise RowRejected(
        "the ONNX file has no input of images to give a size to",
        f"{name}: {', '.join(f'{n} {list(s)}' for n, s in inputs.items())}",
        "leave the size out, or export the network with its channels",
    )


def image_size(sizes: Sequence[int | None]) -> tuple[int | None, ...] | None:
    """Height and width of an input of images; None for another input."""
    if len(sizes) != 4:
        return None
    return tuple(sizes[1:3] if _is_channels_last(sizes) else sizes[2:])


def _is_channels_last(sizes: Sequence[int | None]) -> bool:
    return sizes[3] in (1, 3, 4) and sizes[1] not in (1, 3, 4)
