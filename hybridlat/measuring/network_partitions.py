"""The cells of networks that others measured, each network lowered for its row's target.

A table states how long a network took; to learn from that, its ONNX file is read at the batch and
size of the row, lowered for the row's target and cut into cells. A network is read once for each
batch and size, and lowered once for each set of rules that its targets have in common.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping

import msgspec

from hybridlat.engines import registry
from hybridlat.errors import MeasurementError, NetworkError, TargetError, UnavailableError
from hybridlat.graph.cells import cut, kernels
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.signature import Signature, sign
from hybridlat.measuring.network_files import NetworkFile, NetworkFiles, image_size, network_at
from hybridlat.schema.target import Target
from hybridlat.schema.wire import decode_or_none
from hybridlat.store import Store
from hybridlat.store.importers.table import NetworkRow, RowRejected

CELLS_FORMAT = 2
_Counts = tuple[tuple[str, int], ...]


class NetworkCells(msgspec.Struct, frozen=True, array_like=True):
    """A network as one target's rules cut it: its hash, size, and (signature hash, count) pairs.

    ``layers`` are the same of the file's own operators; ``copied_bytes`` is the size of the
    network's inputs and outputs. Cached as JSON, the format first.
    """

    format: int
    whole: str
    batch: int
    size: str
    cells: _Counts
    layers: _Counts
    copied_bytes: int


class RowPartitioner:
    """Partitions of files at sizes and targets, each worked out once."""

    def __init__(self, files: NetworkFiles | None, store: Store | None) -> None:
        self._files, self._store = files, store
        self._known: dict[str, NetworkCells | RowRejected] = {}
        self._fresh: dict[str, NetworkCells] = {}
        # Rows of one file and size stand together: the last of each is enough.
        self._file = functools.lru_cache(maxsize=1)(self._find)
        self._bound = functools.lru_cache(maxsize=1)(_network_and_layers)

    def partition(self, row: NetworkRow) -> tuple[str, NetworkCells, Mapping[str, str]]:
        """The file's name, the partition, and texts of cells where they were just made."""
        file = self._file(row.names)
        sizes = f"{row.batch or ''}/{'x'.join(map(str, row.size or ()))}"
        identity = _lowering_identity(row.target)
        key = f"network-cells/{CELLS_FORMAT}/{identity}/{file.digest}/{sizes}"
        texts: Mapping[str, str] = {}
        cells = self._known.get(key) or self._cached(key)
        if cells is None:
            try:
                cells, texts = self._lower(file, row)
                self._fresh[key] = cells
            except RowRejected as rejected:
                cells = rejected
        self._known[key] = cells
        if isinstance(cells, RowRejected):
            raise cells
        return file.name, cells, texts

    def remember(self) -> None:
        """Cache what was worked out since the last time."""
        for key, cells in self._fresh.items():
            if self._store is not None:
                self._store.cache_put(key, msgspec.json.encode(cells).decode())
        self._fresh.clear()

    def _cached(self, key: str) -> NetworkCells | None:
        text = None if self._store is None else self._store.cache_get(key)
        return decode_or_none(text, NetworkCells)

    def _find(self, names: tuple[str, ...]) -> NetworkFile:
        if self._files is None:
            raise RowRejected(
                "the network's ONNX file is needed", names[0],
                "give the folder of ONNX files with --nets",
            )  # fmt: skip
        for name in names:
            file = self._files.find(name)
            if file is not None:
                return file
        raise RowRejected(
            f"there is no ONNX file of the network in {self._files.where}", names[0],
            "put NAME.onnx there, or name the file in a column onnx",
        )  # fmt: skip

    def _lower(self, file: NetworkFile, row: NetworkRow) -> tuple[NetworkCells, dict[str, str]]:
        network, layers = self._bound(file, row.batch, row.size)
        try:
            lowered = registry.lower(network, row.target)
        except (MeasurementError, UnavailableError, NetworkError) as error:
            raise RowRejected(
                "the engine's lowering refuses the network",
                f"{file.name} on {row.target}: {error}",
                "export it with the operators that the engine knows",
            ) from None
        signatures = [sign(cell.network) for cell in cut(lowered, network)]
        first = network.types[network.inputs[0]].shape if network.inputs else ()
        cells = NetworkCells(
            CELLS_FORMAT,
            sign(network).hash,
            first[0] if first else 1,
            "x".join(map(str, image_size(first) or ())),
            _counts(signatures),
            _counts(layers),
            sum(network.type_of(name).bytes for name in (*network.inputs, *network.outputs)),
        )
        return cells, {s.hash: s.text for s in (*signatures, *layers)}


def _counts(signatures: list[Signature]) -> _Counts:
    return tuple(Counter(s.hash for s in signatures).items())


@functools.cache
def _lowering_identity(target: Target) -> str:
    """What a lowering depends on; RowRejected for an engine that cannot lower here."""
    try:
        return registry.lowering_identity(target)
    except TargetError:
        known = ", ".join(registry.lowerings())
        raise RowRejected(
            "it is not known how the engine fuses", target.runtime, f"known are {known}"
        ) from None
    except UnavailableError as error:
        raise RowRejected("the engine itself must lower", target.engine, str(error)) from None


def _network_and_layers(
    file: NetworkFile, batch: int | None, size: tuple[int, int] | None
) -> tuple[Network, list[Signature]]:
    """The network of a file at a batch and size, and its unfused operators."""
    network = network_at(file, batch, size)
    origins = tuple((i,) for i in range(len(network.nodes)))
    unfused = Lowered(network, origins, (), "unfused")
    return network, [sign(cell.network) for cell in kernels(unfused)]
