"""The cells of networks that others measured, each network lowered for its row's target.

A table says how long a network took; to learn from that, its ONNX file is read at the batch and
size of the row, lowered for the row's target and cut into cells. A network is read once for each
batch and size, and lowered once for each set of rules that its targets have in common.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from hybridlat.engines import registry
from hybridlat.errors import (
    InputError,
    MeasurementError,
    NetworkError,
    TargetError,
    UnavailableError,
)
from hybridlat.graph.cells import cut, kernels
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.signature import Signature, sign
from hybridlat.measuring.network_files import NetworkFile, NetworkFiles
from hybridlat.schema.target import Target
from hybridlat.store.importers.network_rows import Misfit, NetworkRow

_FORMAT = 2


class Cache(Protocol):
    """Where partitions are kept for a later import; a ``Store`` is one."""

    def cache_get(self, key: str) -> str | None: ...

    def cache_put(self, key: str, text: str) -> None: ...


@dataclass(frozen=True)
class NetworkCells:
    """A network as one target's rules cut it: its hash, size, and (signature hash, count) pairs.

    ``layers`` are the same of the file's own operators; ``copied_bytes`` is what the network reads
    and gives out.
    """

    whole: str
    batch: int
    size: str
    cells: tuple[tuple[str, int], ...]
    layers: tuple[tuple[str, int], ...]
    copied_bytes: int

    def to_text(self) -> str:
        """JSON for a cache."""
        body = (self.whole, self.batch, self.size, self.cells, self.layers, self.copied_bytes)
        return json.dumps([_FORMAT, *body])

    @classmethod
    def from_text(cls, text: str) -> NetworkCells | None:
        """Read ``to_text``; None for another format."""
        body = json.loads(text)
        if not isinstance(body, list) or body[:1] != [_FORMAT]:
            return None
        _, whole, batch, size, cells, layers, copied_bytes = body
        cell_counts = tuple((h, n) for h, n in cells)
        layer_counts = tuple((h, n) for h, n in layers)
        return cls(whole, batch, size, cell_counts, layer_counts, copied_bytes)


class RowPartitioner:
    """Partitions of files at sizes and targets, each worked out once."""

    def __init__(self, files: NetworkFiles | None, cache: Cache | None) -> None:
        self._files, self._cache = files, cache
        self._identities: dict[Target, str | Misfit] = {}
        self._last: NetworkFile | None = None  # rows of one file stand together
        self._read: tuple[object, Network | Misfit] = (None, Misfit("", "", ""))
        self._unfused: tuple[Network | None, list[Signature]] = (None, [])
        self._known: dict[str, NetworkCells | Misfit] = {}
        self._fresh: dict[str, NetworkCells] = {}

    def partition(self, row: NetworkRow) -> tuple[str, NetworkCells, Mapping[str, str]]:
        """The file's name, the partition, and texts of cells where they were just made."""
        file = self._file(row)
        identity = self._identity(row.target)
        sizes = f"{row.batch or ''}/{'x'.join(map(str, row.size or ()))}"
        key = f"network-cells/{_FORMAT}/{identity}/{file.digest}/{sizes}"
        texts: Mapping[str, str] = {}
        cells = self._known.get(key)
        if cells is None:
            cells = self._recalled(key)
        if cells is None:
            try:
                cells, texts = self._lower(file, row)
                self._fresh[key] = cells
            except Misfit as misfit:
                cells = misfit
        self._known[key] = cells
        if isinstance(cells, Misfit):
            raise cells
        return file.name, cells, texts

    def remember(self) -> None:
        """Tell the cache what was worked out since the last time."""
        for key, partition in self._fresh.items():
            if self._cache is not None:
                self._cache.cache_put(key, partition.to_text())
        self._fresh.clear()

    def _recalled(self, key: str) -> NetworkCells | None:
        text = self._cache.cache_get(key) if self._cache is not None else None
        return NetworkCells.from_text(text) if text is not None else None

    def _file(self, row: NetworkRow) -> NetworkFile:
        if self._files is None:
            raise Misfit(
                "the network's ONNX file is needed", row.names[0],
                "give the folder of ONNX files with --nets",
            )  # fmt: skip
        for name in row.names:
            network_file = self._files.find(name)
            if network_file is not None:
                if self._last is None or self._last.name != network_file.name:
                    self._last = network_file
                return self._last
        raise Misfit(
            f"there is no ONNX file of the network in {self._files.where}", row.names[0],
            "put NAME.onnx there, or name the file in a column onnx",
        )  # fmt: skip

    def _identity(self, target: Target) -> str:
        identity = self._identities.get(target)
        if identity is None:
            try:
                identity = registry.lowering_identity(target)
            except TargetError:
                known = ", ".join(registry.lowerings())
                identity = Misfit(
                    "it is not known how the engine fuses", target.runtime, f"known are {known}"
                )
            except UnavailableError as error:
                identity = Misfit("the engine has to be asked", target.engine, str(error))
            self._identities[target] = identity
        if isinstance(identity, Misfit):
            raise identity
        return identity

    def _lower(self, file: NetworkFile, row: NetworkRow) -> tuple[NetworkCells, dict[str, str]]:
        network = self._network(file, row)
        try:
            lowered = registry.lower(network, row.target)
        except (MeasurementError, UnavailableError, NetworkError) as error:
            raise Misfit(
                "the engine's lowering refuses the network",
                f"{file.name} on {row.target}: {error}",
                "export it with the operators that the engine knows",
            ) from None  # fmt: skip
        signatures = [sign(cell.network) for cell in cut(lowered, network)]
        counts = Counter(s.hash for s in signatures)
        first = network.types[network.inputs[0]].shape if network.inputs else ()
        size = "x".join(map(str, _image(first) or ()))
        layers = self._layers(network)
        partition = NetworkCells(
            sign(network).hash,
            first[0] if first else 1,
            size,
            tuple(counts.items()),
            tuple(Counter(s.hash for s in layers).items()),
            sum(network.type_of(name).bytes for name in (*network.inputs, *network.outputs)),
        )
        return partition, {s.hash: s.text for s in (*signatures, *layers)}

    def _layers(self, network: Network) -> list[Signature]:
        """The file's operators; the targets of one network stand together and share them."""
        if self._unfused[0] is not network:
            origins = tuple((i,) for i in range(len(network.nodes)))
            unfused = Lowered(network, origins, (), "unfused")
            self._unfused = network, [sign(cell.network) for cell in kernels(unfused)]
        return self._unfused[1]

    def _network(self, file: NetworkFile, row: NetworkRow) -> Network:
        key = (file.name, row.batch, row.size)
        if self._read[0] != key:
            try:
                self._read = key, network_at(file, row.batch, row.size)
            except Misfit as misfit:
                self._read = key, misfit
        network = self._read[1]
        if isinstance(network, Misfit):
            raise network
        return network


def network_at(file: NetworkFile, batch: int | None, size: tuple[int, int] | None) -> Network:
    """The network of a file bound to a batch, and its first image to height and width.

    None leaves what the file has. Raises Misfit where the file does not take them.
    """
    try:
        read = file.parsed
    except InputError as error:
        raise Misfit("the ONNX file cannot be read", error, "export it again") from None
    shapes = _bound(file.name, read.input_sizes, batch, size) if size is not None else {}
    try:
        return read.network(batch, shapes)
    except NetworkError as error:
        raise Misfit(
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
            if _image(sizes) == size:
                return {}
            channels = sizes[3] if _is_channels_last(sizes) else sizes[1]
            if channels is None:
                break
            first = batch or sizes[0] or 1
            if _is_channels_last(sizes):
                return {tensor: (first, *size, channels)}
            return {tensor: (first, channels, *size)}
    raise Misfit(
        "the ONNX file has no input of images to give a size to",
        f"{name}: {', '.join(f'{n} {list(s)}' for n, s in inputs.items())}",
        "leave the size out, or export the network with its channels",
    )


def _image(sizes: Sequence[int | None]) -> tuple[int | None, ...] | None:
    """Height and width of an input of images; None for another input."""
    if len(sizes) != 4:
        return None
    return tuple(sizes[1:3] if _is_channels_last(sizes) else sizes[2:])


def _is_channels_last(sizes: Sequence[int | None]) -> bool:
    return sizes[3] in (1, 3, 4) and sizes[1] not in (1, 3, 4)
