"""Others' measurements of whole networks as records: each network lowered as its target does it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hybridlat.engines import device_sheets, registry
from hybridlat.errors import InputError
from hybridlat.measuring import trtexec
from hybridlat.measuring.network_files import NetworkFiles
from hybridlat.measuring.network_partitions import NetworkCells, RowPartitioner
from hybridlat.schema.measurement import Breakdown, Measurement, Visit
from hybridlat.schema.target import Target
from hybridlat.store import Store
from hybridlat.store.importers import TABLES, ImportedRecords, Watch, table, trtexec_log
from hybridlat.store.importers.columns import read_column_map
from hybridlat.store.importers.table import NetworkRow, Refusal, RowRejected, Rows

_AT_ONCE = 250  # rows of one batch


@dataclass
class RecordBatch:
    """Some of the records, ready for a store, and the rows that came to nothing."""

    imported: ImportedRecords = field(default_factory=ImportedRecords)
    refused: list[Refusal] = field(default_factory=list)


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
    times = {file.name: file for file in files if file not in logs}
    runs = {log.times: log for log in logs.values() if log.times in times}
    rows: list[NetworkRow] = []
    refused: list[Refusal] = []
    for file in files:
        try:
            if file not in logs:
                samples = _times(file)
                log = runs.get(file.name)
                rows.append(trtexec_log.row_of_times(file, samples, log, default))
            elif logs[file].times not in times:  # else the times tell more of its run
                rows.append(trtexec_log.row_of_log(file, logs[file], default))
        except RowRejected as rejected:
            refused.append(rejected.at(file.name))
    return Rows(tuple(rows), tuple(refused))


def _times(file: Path) -> tuple[float, ...]:
    try:
        return tuple(trtexec.read_times(file))
    except InputError as error:
        raise RowRejected(
            "the file holds no times of trtexec", error, "give what --exportTimes wrote"
        ) from None


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
    lowering = RowPartitioner(files, store)
    # Rows of one network stand together, so that it is read once and not held for long.
    ordered = sorted(rows, key=lambda r: (r.names, r.batch or 0, r.size or (), str(r.target)))
    for start in range(0, len(ordered), _AT_ONCE):
        done = RecordBatch()
        for done_before, row in enumerate(ordered[start : start + _AT_ONCE], start):
            if watch is not None:
                watch(done_before, len(ordered))
            try:
                name, partition, texts = lowering.partition(row)
            except RowRejected as rejected:
                done.refused.append(rejected.at(row.where))
            else:
                _keep(done.imported, row, name, partition, texts)
        yield done
        lowering.remember()


def _keep(
    imported: ImportedRecords,
    row: NetworkRow,
    name: str,
    partition: NetworkCells,
    texts: Mapping[str, str],
) -> None:
    all_labels = {
        "network": name,
        "batch": str(partition.batch),
        "size": partition.size,
        **row.labels,
    }
    if not row.labels.get("model") and row.names[0] != name:
        all_labels["model"] = row.names[0]
    imported.measurements.append(
        Measurement(
            row.target,
            partition.whole,
            "network",
            row.latency_us,
            spread_share=row.spread_share,
            visits=(Visit(row.samples_us),) if row.samples_us else (),
            protocol=row.protocol,
            labels={label: text for label, text in all_labels.items() if text},
        )
    )
    shape = {"batch": str(partition.batch), "size": partition.size}
    copied = {"copied_bytes": str(partition.copied_bytes)}
    labels = {"lowering": registry.lowering_identity(row.target), **shape, **copied}
    breakdown = Breakdown(
        row.target, name, partition.whole, partition.cells, partition.layers,
        labels={label: text for label, text in labels.items() if text},
    )  # fmt: skip
    imported.describe(breakdown, texts)


def notes(targets: Sequence[Target]) -> list[str]:
    """A sentence for each device of these targets that has no data sheet."""
    known = set(device_sheets.names())
    return [
        f"{device} has no data sheet: write {device_sheets.user_folder() / device}.toml, so that "
        "other devices teach it"
        for device in sorted({target.device for target in targets})
        if device not in known
    ]
