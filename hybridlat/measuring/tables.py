"""Others' measurements of whole networks as records: each network lowered as its target does it.

A table states how long a network took; to learn from that, its ONNX file is read at the batch and
size of the row, lowered for the row's target and cut into cells: once for each set of rules that
targets have in common.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hybridlat.engines import device_sheets, registry
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
from hybridlat.measuring.network_files import NetworkFile, NetworkFiles, image_size, network_at
from hybridlat.measuring.plan_results import read_tolerant
from hybridlat.schema.measurement import Breakdown, Measurement, Visit
from hybridlat.schema.target import Target
from hybridlat.schema.wire import decode_or_none
from hybridlat.store import Store
from hybridlat.store.importers import TABLES, ImportedRecords, Watch, table, trtexec_log
from hybridlat.store.importers.columns import read_column_map
from hybridlat.store.importers.table import NetworkRow, Refusal, RowRejected, Rows

CELLS_FORMAT = 2
_AT_ONCE = 250  # rows of one batch
_Counts = tuple[tuple[str, int], ...]


@dataclass
class RecordBatch:
    """Some of the records, ready for a store, and the rows that came to nothing."""

    imported: ImportedRecords = field(default_factory=ImportedRecords)
    refused: list[Refusal] = field(default_factory=list)


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


def read_rows(
    form: str,
    paths: Sequence[Path],
    column_map: Path | None = None,
    default: Target | None = None,
) -> Rows:
    """What tables (``networks``) or trtexec's files (``trtexec``) at ``paths`` say.

    ``column_map`` is a TOML file that says what a table's columns are, ``default`` the target of
    what is not stated. Raises InputError (StoreError) for files that are something else.
    """
    if form == "networks":
        columns = None if column_map is None else read_column_map(column_map)
        return table.read_networks(paths, columns, default)
    if form != "trtexec":
        raise InputError(f"{form!r} is no form of a table: choose one of {', '.join(TABLES)}")
    if column_map is not None:
        raise InputError("--columns is for tables: --target gives what a log does not state")
    return _read_trtexec(paths, default)


def _read_trtexec(paths: Sequence[Path], default: Target | None) -> Rows:
    files = table.files_at(paths, trtexec_log.ENDINGS, "logs or times of trtexec")
    logs = {
        file: trtexec_log.read_log(file.read_text(encoding="utf-8", errors="replace"))
        for file in files
        if file.suffix.lower() != ".json"
    }
    times = {file.name for file in files if file not in logs}
    runs = {log.times: log for log in logs.values() if log.times in times}
    rows: list[NetworkRow] = []
    refused: list[Refusal] = []
    for file in files:
        try:
            if file not in logs:
                samples = tuple(read_times(file))
                rows.append(trtexec_log.row_of_times(file, samples, runs.get(file.name), default))
            elif logs[file].times not in times:  # else the times tell more of its run
                rows.append(trtexec_log.row_of_log(file, logs[file], default))
        except RowRejected as rejected:
            refused.append(rejected.at(file.name))
        except InputError as error:
            reason, fix = "the file holds no times of trtexec", "give what --exportTimes wrote"
            refused.append(Refusal(file.name, str(error), reason, fix))
    return Rows(tuple(rows), tuple(refused))


def read_times(path: Path, warm_up_ms: float = 0.0) -> list[float]:
    """GPU compute time of every inference in trtexec's ``--exportTimes``, microseconds.

    Inferences that began before ``warm_up_ms`` (the value of ``--warmUp``) are left out; some
    versions export them. Raises InputError for another file.
    """
    try:
        content = read_tolerant(path.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    entries = [entry for entry in content if isinstance(entry, Mapping)] if content else []
    times_us = [
        1e3 * float(entry.get("computeMs", entry.get("compute")))
        for entry in entries
        if ("computeMs" in entry or "compute" in entry)
        and float(entry.get("startComputeMs", warm_up_ms)) >= warm_up_ms
    ]
    if not times_us:
        raise InputError(f"{path} holds no times of trtexec (after {warm_up_ms:g} ms of warm-up)")
    return times_us


def take(
    rows: Sequence[NetworkRow],
    files: NetworkFiles | None,
    store: Store | None = None,
    watch: Watch | None = None,
) -> Iterator[RecordBatch]:
    """The rows as records, some at a time.

    ``files`` are the ONNX files; without them no row can be lowered. What was yielded is taken
    for stored when the next is taken: only then are partitions cached in ``store``, so that an
    import that is cut off leaves nothing behind that lacks its signatures.
    """
    partitioner = _Partitioner(files, store)
    # Rows of one network stand together, so that it is read once and not held for long.
    ordered = sorted(rows, key=lambda r: (r.names, r.batch or 0, r.size or (), str(r.target)))
    for start in range(0, len(ordered), _AT_ONCE):
        batch = RecordBatch()
        for done, row in enumerate(ordered[start : start + _AT_ONCE], start):
            if watch is not None:
                watch(done, len(ordered))
            try:
                partitioner.add(row, batch.imported)
            except RowRejected as rejected:
                batch.refused.append(rejected.at(row.where))
        yield batch
        partitioner.remember()


class _Partitioner:
    """Rows as records, with the partitions of files at sizes and targets, each made once."""

    def __init__(self, files: NetworkFiles | None, store: Store | None) -> None:
        self._files, self._store = files, store
        self._known: dict[str, NetworkCells | RowRejected] = {}
        self._fresh: dict[str, NetworkCells] = {}
        # Rows of one file and size stand together: the last of each is enough.
        self._file = functools.lru_cache(maxsize=1)(self._find)
        self._bound = functools.lru_cache(maxsize=1)(_network_and_layers)

    def add(self, row: NetworkRow, imported: ImportedRecords) -> None:
        """Add the records of a row; RowRejected where there are none."""
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
        shape = {"batch": str(cells.batch)} | ({"size": cells.size} if cells.size else {})
        labels = {"network": file.name, **shape, **row.labels}
        if row.names[0] != file.name and not row.labels.get("model"):
            labels["model"] = row.names[0]
        imported.measurements.append(Measurement(
            row.target, cells.whole, "network", row.latency_us, spread_share=row.spread_share,
            visits=(Visit(row.samples_us),) if row.samples_us else (), protocol=row.protocol,
            labels={label: text for label, text in labels.items() if text},
        ))  # fmt: skip
        about = {"lowering": identity, **shape, "copied_bytes": str(cells.copied_bytes)}
        breakdown = Breakdown(
            row.target, file.name, cells.whole, cells.cells, cells.layers, labels=about
        )
        imported.describe(breakdown, texts)

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
        found = next(filter(None, map(self._files.find, names)), None)
        if found is None:
            raise RowRejected(
                f"there is no ONNX file of the network in {self._files.where}", names[0],
                "put NAME.onnx there, or name the file in a column onnx",
            )  # fmt: skip
        return found

    def _lower(self, file: NetworkFile, row: NetworkRow) -> tuple[NetworkCells, dict[str, str]]:
        """The partition, and the texts of its signatures."""
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
            CELLS_FORMAT, sign(network).hash, first[0] if first else 1,
            "x".join(map(str, image_size(first) or ())), _counts(signatures), _counts(layers),
            sum(network.type_of(name).bytes for name in (*network.inputs, *network.outputs)),
        )  # fmt: skip
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


def notes(targets: Sequence[Target]) -> list[str]:
    """A sentence for each device of these targets that has no data sheet."""
    known = set(device_sheets.names())
    return [
        f"{device} has no data sheet: write {device_sheets.user_folder() / device}.toml, so that "
        "other devices teach it"
        for device in sorted({target.device for target in targets} - known)
    ]
